package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// AddRun implements store.Store.
func (s *Store) AddRun(ctx context.Context, r store.Run) error {
	r = normalRun(r)
	record, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := s.reserve.keep(); err != nil {
		return unwritable(s.path, err)
	}
	return s.change(ctx, func(tx *tx) error {
		_, err := tx.ExecContext(ctx,
			`INSERT INTO runs (id, agent, status, sandbox, client, started_at, ended_at, record) VALUES (?,?,?,?,?,?,?,?)`,
			r.ID, r.Agent, r.Status, r.Sandbox, r.CreatedBy, r.StartedAt.UnixMicro(), endOf(r), string(record))
		if isUnique(err) {
			return cove.Errorf(cove.Conflict, "the run %s is known already", r.ID)
		}
		return err
	})
}

// normalRun is r with times as they are kept.
func normalRun(r store.Run) store.Run {
	r.StartedAt = r.StartedAt.UTC().Truncate(time.Microsecond)
	if r.EndedAt != nil {
		r.EndedAt = new(r.EndedAt.UTC().Truncate(time.Microsecond))
	}
	return r
}

func endOf(r store.Run) sql.NullInt64 {
	if r.EndedAt == nil {
		return sql.NullInt64{}
	}
	return sql.NullInt64{Int64: r.EndedAt.UnixMicro(), Valid: true}
}

// Run implements store.Store.
func (s *Store) Run(ctx context.Context, id cove.RunID) (store.Run, error) {
	r, err := scanRun(s.path, s.read.QueryRowContext(ctx, `SELECT record FROM runs WHERE id = ?`, string(id)), id)
	return r, s.fault("read", err)
}

func scanRun(path string, row row, id cove.RunID, more ...any) (r store.Run, err error) {
	var record string
	err = row.Scan(append([]any{&record}, more...)...)
	if errors.Is(err, sql.ErrNoRows) {
		return r, store.NoRun(id)
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal([]byte(record), &r); err != nil {
		return r, cove.Errorf(cove.Corrupt, "a run cannot be read from %s: %w", path, err)
	}
	return r, nil
}

// ChangeRun implements store.Store. On a full disk what is long is given up first, and then the reserve.
func (s *Store) ChangeRun(ctx context.Context, id cove.RunID, change func(*store.Run) error) error {
	err := s.change(ctx, func(tx *tx) error { return changeRun(ctx, tx, s.path, id, change) })
	if !errors.Is(err, errFull) {
		return err
	}
	return s.settle(ctx, func(tx *tx) error {
		return changeRun(ctx, tx, s.path, id, func(r *store.Run) error {
			err := change(r)
			*r = r.Shortened()
			return err
		})
	})
}

func changeRun(ctx context.Context, tx *tx, path string, id cove.RunID, change func(*store.Run) error) error {
	was, err := scanRun(path, tx.QueryRowContext(ctx, `SELECT record FROM runs WHERE id = ?`, string(id)), id)
	if err != nil {
		return err
	}
	r := was
	if err := change(&r); err != nil {
		return err
	}
	r.ID, r.Agent, r.CreatedBy, r.StartedAt = was.ID, was.Agent, was.CreatedBy, was.StartedAt
	r = normalRun(r)
	record, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `UPDATE runs SET status = ?, sandbox = ?, ended_at = ?, record = ? WHERE id = ?`,
		r.Status, r.Sandbox, endOf(r), string(record), r.ID)
	return err
}

// Runs implements store.Store.
func (s *Store) Runs(ctx context.Context, q store.RunQuery) (page store.RunPage, err error) {
	var c clause
	c.addText("client = ?", q.Client)
	c.addText("agent = ?", q.Agent)
	if q.Status == store.RunRunning {
		c.few("status = ?", string(q.Status))
	} else {
		c.addText("status = ?", string(q.Status))
	}
	if q.Sandbox != "" {
		c.few("sandbox = ?", q.Sandbox)
	}
	if q.ID != "" {
		c.few("id >= ? AND id < ?", q.ID, q.ID+"\xff") // no text has this byte
	}
	page.Runs, page.Next, err = readPage(ctx, s, ofRuns, q.Limit, q.Cursor, c,
		func(r row, at *place) (store.Run, error) { return scanRun(s.path, r, "", &at.seq) }, `SELECT record, seq FROM runs`)
	return page, err
}

// RemoveRun implements store.Store.
func (s *Store) RemoveRun(ctx context.Context, id cove.RunID) error {
	return s.settle(ctx, func(tx *tx) error {
		r, err := scanRun(s.path, tx.QueryRowContext(ctx, `SELECT record FROM runs WHERE id = ?`, string(id)), id)
		if err != nil {
			return err
		}
		if r.Status == store.RunRunning {
			return cove.Errorf(cove.Conflict, "the run %s has not ended", id).
				WithHint("end it first: cove runs interrupt %s", id)
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM runs WHERE id = ?`, string(id))
		return err
	})
}
