package sqlite

import (
	"context"
	"time"
)

// CPU time that was used is kept apart from the history, of which a caller may remove its own, and whose length must
// not matter to it.

// cpuKept is how long it is kept: the longest time that it is asked for, and a bit.
const cpuKept = 25 * time.Hour

// minuteOf is the minute of a time, as cpu_used counts them.
func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// addCPU adds CPU time to what a client has used, and forgets what it used long before.
func addCPU(ctx context.Context, tx *tx, client string, at time.Time, used time.Duration) error {
	if used <= 0 {
		return nil
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO cpu_used (client, minute, ns) VALUES (?,?,?)
		ON CONFLICT (client, minute) DO UPDATE SET ns = ns + excluded.ns`, client, minuteOf(at), int64(used))
	if err == nil {
		_, err = tx.ExecContext(ctx, `DELETE FROM cpu_used WHERE client = ? AND minute < ?`, client,
			minuteOf(at.Add(-cpuKept)))
	}
	return err
}

// AddCPU implements store.Store.
func (s *Store) AddCPU(ctx context.Context, client string, at time.Time, used time.Duration) error {
	return s.change(ctx, func(tx *tx) error { return addCPU(ctx, tx, client, at, used) })
}

// CPUTime implements store.Store.
func (s *Store) CPUTime(ctx context.Context, client string, since time.Time) (used time.Duration, err error) {
	err = s.read.QueryRowContext(ctx, `SELECT coalesce(sum(ns), 0) FROM cpu_used WHERE client = ? AND minute >= ?`,
		client, minuteOf(since)).Scan(&used)
	return used, s.fault("read", err)
}
