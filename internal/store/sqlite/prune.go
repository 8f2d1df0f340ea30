package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/cove-sandbox/cove"
)

// pruneBatch bounds a pruning transaction, so that others get their turn.
const pruneBatch = 500

// Prune implements store.Store.
func (s *Store) Prune(ctx context.Context, before time.Time) (int, error) {
	// Every process asks for this, and there is seldom anything to do: it is found out without the write lock.
	if due, err := s.due(ctx, before); err != nil || !due {
		return 0, s.fault("read", err)
	}
	total := 0
	for {
		n, err := s.pruneExecutions(ctx, before)
		total += n
		if err != nil {
			return total, err
		}
		if n < pruneBatch {
			break
		}
	}
	if err := s.pruneAudit(ctx, before); err != nil {
		return total, err
	}
	if err := s.pruneRows(ctx, "decisions", "time", before); err != nil {
		return total, err
	}
	if err := s.pruneRows(ctx, "runs", "ended_at", before); err != nil {
		return total, err
	}
	// Gives free pages back to the file system.
	_, err := s.write.ExecContext(ctx, `PRAGMA incremental_vacuum(10000)`)
	return total, s.fault("write", err)
}

// due reports whether Prune would remove anything.
func (s *Store) due(ctx context.Context, before time.Time) (due bool, err error) {
	err = s.read.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM executions WHERE finished_at < ?)
		OR EXISTS (SELECT 1 FROM executions WHERE created_at < ? AND finished_at IS NULL AND status <> ?)
		OR coalesce((SELECT time FROM audit ORDER BY seq LIMIT 1), ?) < ?
		OR EXISTS (SELECT 1 FROM decisions WHERE time < ?)
		OR EXISTS (SELECT 1 FROM runs WHERE ended_at < ?)`,
		before.UnixMicro(), before.UnixMicro(), string(cove.StatusRunning), before.UnixMicro(), before.UnixMicro(),
		before.UnixMicro(), before.UnixMicro()).Scan(&due)
	return due, err
}

func (s *Store) pruneExecutions(ctx context.Context, before time.Time) (int, error) {
	var n int64
	err := s.change(ctx, "write", func(tx *sql.Tx) error {
		// An abandoned execution has no end; its beginning stands for it.
		r, err := tx.ExecContext(ctx, `DELETE FROM executions WHERE seq IN (SELECT seq FROM executions
			WHERE status <> ? AND (finished_at < ? OR finished_at IS NULL AND created_at < ?) LIMIT ?)`,
			string(cove.StatusRunning), before.UnixMicro(), before.UnixMicro(), pruneBatch)
		if err == nil {
			n, err = r.RowsAffected()
		}
		return err
	})
	return int(n), err
}

// pruneAudit moves the anchor to the last record to go, which permits the deletion of all up to it.
func (s *Store) pruneAudit(ctx context.Context, before time.Time) error {
	return s.change(ctx, "write", func(tx *sql.Tx) error {
		var l link
		err := tx.QueryRowContext(ctx, `SELECT seq, hash FROM audit WHERE seq <
			coalesce((SELECT min(seq) FROM audit WHERE time >= ?), (SELECT max(seq) + 1 FROM audit))
			ORDER BY seq DESC LIMIT 1`, before.UnixMicro()).Scan(&l.seq, &l.hash)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE audit_anchor SET seq = ?, hash = ?`, l.seq, l.hash); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM audit WHERE seq <= ?`, l.seq)
		return err
	})
}

// pruneRows removes the rows of a table whose time lies before another, in batches, as pruneExecutions does.
func (s *Store) pruneRows(ctx context.Context, table, column string, before time.Time) error {
	statement := fmt.Sprintf(`DELETE FROM %[1]s WHERE seq IN (SELECT seq FROM %[1]s WHERE %[2]s < ? LIMIT ?)`, table,
		column)
	for n := int64(pruneBatch); n == pruneBatch; {
		err := s.change(ctx, "write", func(tx *sql.Tx) error {
			r, err := tx.ExecContext(ctx, statement, before.UnixMicro(), pruneBatch)
			if err == nil {
				n, err = r.RowsAffected()
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
