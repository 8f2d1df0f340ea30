package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/cove-sandbox/cove/internal/store"
)

// Verify implements store.Store. Besides changed records it finds missing ones, those cut off the end included.
func (s *Store) Verify(ctx context.Context) (store.Verification, error) {
	begun, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // one snapshot
	if err != nil {
		return store.Verification{}, s.fault("read", err)
	}
	defer begun.Rollback()
	v, err := verify(ctx, &tx{begun, newStatements()})
	return v, s.fault("read", err)
}

func verify(ctx context.Context, tx *tx) (v store.Verification, err error) {
	w, err := newWalk(ctx, tx)
	if err != nil {
		return v, err
	}
	rows, err := tx.QueryContext(ctx, `SELECT `+auditColumns+`, coalesce((SELECT l.hash FROM audit_links l
		WHERE l.seq = audit.seq - 1), '') FROM audit ORDER BY seq`)
	if err != nil {
		return v, err
	}
	defer rows.Close()
	for rows.Next() {
		var before string
		r, err := scanRecord(rows, &before)
		if err != nil {
			return v, err
		}
		if v.Broken = w.next(r, before); v.Broken != 0 {
			v.Head = w.at.hash
			return v, nil
		}
		v.Records++
	}
	if err := rows.Err(); err != nil {
		return v, err
	}
	if v.Records == 0 {
		if w.at, err = head(ctx, tx); err != nil { // pruning has left the hash of the last
			return v, err
		}
	}
	v.Head = w.at.hash
	var given int64 // the highest number ever given
	err = tx.QueryRowContext(ctx, `SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'audit'`).Scan(&given)
	if err == nil {
		v.Broken = w.end(given)
	}
	return v, err
}

// walk follows the chain from the oldest record on.
type walk struct {
	at      link             // the last record that fits
	gap     int64            // the number of the first record that is missing between others; 0 if none is
	left    map[string]int64 // records of each owner so far
	removed map[string]int64 // the last record of each owner that was pruned
	pruning int64            // the number of the newest record of a pruning; 0 if there is none
}

func newWalk(ctx context.Context, tx *tx) (*walk, error) {
	w := &walk{left: map[string]int64{}, removed: map[string]int64{}}
	owners, err := readOwners(ctx, tx)
	if err != nil {
		return nil, err
	}
	for _, o := range owners {
		w.removed[o.who] = o.removed
	}
	err = tx.QueryRowContext(ctx, `SELECT seq FROM audit WHERE action = ? AND who = ? ORDER BY seq DESC LIMIT 1`,
		actionPrune, pruner).Scan(&w.pruning)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return w, err
}

// next takes the record that follows, and the hash of the one before it if that was pruned. It returns the number of
// the first record that does not fit, or 0.
func (w *walk) next(r store.Record, before string) (broken int64) {
	previous := w.at.hash
	if r.Seq != w.at.seq+1 {
		if previous = before; previous == "" {
			return w.at.seq + 1
		}
		if w.at.seq > 0 && w.gap == 0 {
			w.gap = w.at.seq + 1
		}
	}
	switch {
	case r.Hash != store.Chain(previous, r):
		return w.at.seq + 1
	case r.Seq <= w.removed[r.Who]: // it was pruned, and has come back
		return r.Seq
	case w.gap > 0 && r.Seq == w.pruning && !strings.HasSuffix(r.Detail, leftMark+digest(w.owners())):
		return w.gap
	case w.gap > 0 && r.Seq == w.pruning:
		w.gap = 0
	}
	w.left[r.Who]++
	w.at = link{r.Seq, r.Hash}
	return 0
}

// owners returns what the log has of each owner so far.
func (w *walk) owners() (all []owner) {
	for who, n := range w.left {
		all = append(all, owner{who, n, w.removed[who]})
	}
	return all
}

// end returns the number of the first record that is missing, or 0: in a gap that no pruning tells of, or after the
// last record. given is the highest number that a record ever had.
func (w *walk) end(given int64) (broken int64) {
	if w.gap > 0 {
		return w.gap
	}
	if given > w.at.seq {
		return w.at.seq + 1
	}
	return 0
}
