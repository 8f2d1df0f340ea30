package sqlite

import (
	"context"
	"strings"
	"time"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/share"
	"github.com/cove-sandbox/cove/internal/store"
)

const decisionColumns = `time, execution, sandbox, client, entry, protocol, host, port, method, path, verdict, stage, rule, reason, remedy, status, sent, received, duration, count`

var insertDecision = `INSERT INTO decisions (` + decisionColumns + `) VALUES (?` + strings.Repeat(",?", strings.Count(decisionColumns, ",")) + `)`

// AppendDecisions implements store.Store.
func (s *Store) AppendDecisions(ctx context.Context, keep int, all ...decision.Decision) error {
	if len(all) == 0 {
		return nil
	}
	s.decisions.mu.Lock()
	defer s.decisions.mu.Unlock()
	if s.decisions.keep != keep {
		s.decisions.room = 0
	}
	room := 0
	err := s.change(ctx, func(tx *tx) error {
		insert, err := tx.PrepareContext(ctx, insertDecision)
		if err != nil {
			return err
		}
		defer insert.Close()
		for _, d := range all {
			d = store.NormalDecision(d)
			_, err := insert.ExecContext(ctx, d.Time.UnixMicro(), d.Execution, d.Sandbox, d.Client, string(d.Entry), string(d.Protocol), d.Host, int64(d.Port), d.Method, d.Path,
				string(d.Verdict), string(d.Stage), d.Rule, d.Reason, d.Remedy, d.Status, d.Sent, d.Received, d.Duration, d.Count)
			if err != nil {
				return err
			}
		}
		if room = s.decisions.room - len(all); room < 0 {
			room, err = forgetDecisions(ctx, tx, keep)
		}
		return err
	})
	if err != nil {
		room = 0
	}
	s.decisions.keep, s.decisions.room = keep, room
	return err
}

// forgetDecisions leaves at most keep decisions, and returns how many more there may be. The client that has the most
// loses its oldest, so that one that floods does not cost others theirs.
func forgetDecisions(ctx context.Context, tx *tx, keep int) (room int, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT client, count(*) FROM decisions GROUP BY client`)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	each, all := map[string]int{}, 0
	for rows.Next() {
		var client string
		var n int
		if err := rows.Scan(&client, &n); err != nil {
			return 0, err
		}
		each[client], all = n, all+n
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	if all <= keep {
		return keep - all, nil
	}
	room = keep / 100 // so that they are not counted again for each decision
	for client, n := range share.Level(each, all-keep+room) {
		_, err := tx.ExecContext(ctx, `DELETE FROM decisions WHERE seq IN
			(SELECT seq FROM decisions WHERE client = ? ORDER BY seq LIMIT ?)`, client, n)
		if err != nil {
			return 0, err
		}
	}
	return room, nil
}

// ListDecisions implements store.Store.
func (s *Store) ListDecisions(ctx context.Context, q store.DecisionQuery) (page store.DecisionPage, err error) {
	var c clause
	c.addText("execution = ?", q.Execution)
	c.addText("sandbox = ?", q.Sandbox)
	c.addText("client = ?", q.Client)
	c.addText("host = ?", q.Host)
	c.addText("verdict = ?", string(q.Verdict))
	c.between("time", q.Since, q.Until)
	page.Decisions, page.Next, err = readPage(ctx, s, ofDecisions, q.Limit, q.Cursor, c,
		func(r row, at *place) (decision.Decision, error) {
			d, err := scanDecision(r)
			*at = place{d.Seq, d.Time.UnixMicro()}
			return d, err
		}, selectDecisions)
	return page, err
}

// DecisionsAfter implements store.Store: writers take turns, so what has a higher number is committed later.
func (s *Store) DecisionsAfter(ctx context.Context, client string, seq int64, limit int) ([]decision.Decision, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	var c clause
	c.add("seq > ?", seq)
	c.addText("client = ?", client)
	return readAll(ctx, s, scanDecision, selectDecisions+" "+c.where()+` ORDER BY seq LIMIT ?`, append(c.args, limit)...)
}

const selectDecisions = `SELECT seq, ` + decisionColumns + ` FROM decisions`

func scanDecision(r row) (d decision.Decision, err error) {
	var at int64
	err = r.Scan(&d.Seq, &at, &d.Execution, &d.Sandbox, &d.Client, &d.Entry, &d.Protocol, &d.Host, &d.Port, &d.Method,
		&d.Path, &d.Verdict, &d.Stage, &d.Rule, &d.Reason, &d.Remedy, &d.Status, &d.Sent, &d.Received, &d.Duration,
		&d.Count)
	d.Time = time.UnixMicro(at).UTC()
	return d, err
}
