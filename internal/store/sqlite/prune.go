package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/cove-sandbox/cove"
)

const (
	// pruneBatch bounds the rows of a pruning transaction, so that others get their turn, and outputBatch the outputs.
	pruneBatch  = 50
	outputBatch = 8
	// pruneRest is how many times as long as a transaction pruning rests after it.
	pruneRest = 3
	// auditWindow is how many of the oldest records tell together whether they are outdated: a clock that was wrong for
	// a few of them neither keeps the others nor lets them go.
	auditWindow = 1000
)

// Prune implements store.Store. It also makes the late indexes, last, because they take space.
func (s *Store) Prune(ctx context.Context, before time.Time) (total int, err error) {
	if total, err = s.prune(ctx, before); err != nil {
		return total, err
	}
	return total, s.index(ctx)
}

func (s *Store) prune(ctx context.Context, before time.Time) (total int, err error) {
	// Every process asks for this, and there is seldom anything to do: it is found out without the write lock.
	most, used, err := s.room(ctx, s.read)
	if err != nil {
		return 0, s.fault("read", err)
	}
	due, err := s.due(ctx, before)
	if err != nil {
		return 0, s.fault("read", err)
	}
	over, err := auditOver(ctx, s.read, s.bounds.Audit)
	if err != nil {
		return 0, s.fault("read", err)
	}
	if used > most {
		err = s.inBatches(ctx, func() (bool, error) { return s.pruneOutputs(ctx) })
	}
	if err == nil && due {
		total, err = s.pruneOutdated(ctx, before)
	}
	if err == nil && over {
		err = s.inBatches(ctx, func() (more bool, err error) {
			err = s.settle(ctx, func(tx *tx) (err error) {
				more, err = boundAudit(ctx, tx, s.bounds.Audit, auditBatch)
				return err
			})
			return more, err
		})
	}
	if err != nil || !due && !over && used <= most {
		return total, err
	}
	return total, s.vacuum(ctx)
}

// pruneOutputs removes a batch of outputs, if the database takes more space than it may, and reports whether there may
// be more to remove.
func (s *Store) pruneOutputs(ctx context.Context) (more bool, err error) {
	n := 0
	err = s.settle(ctx, func(tx *tx) error {
		n = 0
		most, used, err := s.room(ctx, tx)
		if err != nil || used <= most {
			return err
		}
		n, err = removeOldest(ctx, tx, outputBatch)
		return err
	})
	if err != nil {
		return false, err
	}
	s.tellRemoved(n)
	return n == outputBatch, nil
}

// pruneOutdated removes what lies before a time.
func (s *Store) pruneOutdated(ctx context.Context, before time.Time) (total int, err error) {
	at := before.UnixMicro()
	for _, statement := range []string{
		// An abandoned execution has no end; its beginning stands for it.
		`DELETE FROM executions WHERE seq IN (SELECT seq FROM executions WHERE finished_at < ?1 LIMIT ?2)`,
		fmt.Sprintf(`DELETE FROM executions WHERE seq IN (SELECT seq FROM executions
			WHERE created_at < ?1 AND finished_at IS NULL AND status <> '%s' LIMIT ?2)`, cove.StatusRunning),
	} {
		n, err := s.pruneRows(ctx, statement, at)
		if total += n; err != nil {
			return total, err
		}
	}
	if err := s.inBatches(ctx, func() (bool, error) { return s.pruneAudit(ctx, at) }); err != nil {
		return total, err
	}
	for _, statement := range []string{
		`DELETE FROM decisions WHERE seq IN (SELECT seq FROM decisions WHERE time < ?1 LIMIT ?2)`,
		`DELETE FROM runs WHERE seq IN (SELECT seq FROM runs WHERE ended_at < ?1 LIMIT ?2)`,
	} {
		if _, err := s.pruneRows(ctx, statement, at); err != nil {
			return total, err
		}
	}
	return total, nil
}

// inBatches calls step until there is no more to do, and rests in between.
func (s *Store) inBatches(ctx context.Context, step func() (more bool, err error)) error {
	for {
		begun := time.Now()
		more, err := step()
		if err != nil || !more {
			return err
		}
		select {
		case <-time.After(pruneRest * time.Since(begun)):
		case <-ctx.Done():
			return s.fault("write", ctx.Err())
		}
	}
}

// due reports whether anything lies before a time.
func (s *Store) due(ctx context.Context, before time.Time) (due bool, err error) {
	if before.IsZero() {
		return false, nil
	}
	err = s.read.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM executions WHERE finished_at < ?1)
		OR EXISTS (SELECT 1 FROM executions WHERE created_at < ?1 AND finished_at IS NULL AND status <> ?2)
		OR EXISTS (SELECT 1 FROM (SELECT time FROM audit ORDER BY seq LIMIT ?3) WHERE time < ?1)
		OR EXISTS (SELECT 1 FROM decisions WHERE time < ?1)
		OR EXISTS (SELECT 1 FROM runs WHERE ended_at < ?1)`,
		before.UnixMicro(), string(cove.StatusRunning), auditWindow).Scan(&due)
	return due, err
}

// pruneRows removes the rows that a statement with a time and a number of rows removes.
func (s *Store) pruneRows(ctx context.Context, statement string, before int64) (total int, err error) {
	err = s.inBatches(ctx, func() (bool, error) {
		var n int64
		err := s.settle(ctx, func(tx *tx) error {
			r, err := tx.ExecContext(ctx, statement, before, pruneBatch)
			if err == nil {
				n, err = r.RowsAffected()
			}
			return err
		})
		total += int(n)
		return n == pruneBatch, err
	})
	return total, err
}

// pruneAudit removes a batch of records that lie before a time, and reports whether there may be more. A log that has
// gaps gets a record of it; otherwise it begins later, and needs none.
func (s *Store) pruneAudit(ctx context.Context, before int64) (more bool, err error) {
	err = s.settle(ctx, func(tx *tx) error {
		more = false
		oldest, err := readDated(ctx, tx, `SELECT seq, hash, time FROM audit ORDER BY seq LIMIT ?`, auditWindow)
		if err != nil {
			return err
		}
		n := outdated(oldest, before)
		if n == 0 {
			return nil
		}
		more = n > auditBatch || n == auditWindow
		going := oldest[:min(n, auditBatch)]
		if err := removeRecords(ctx, tx, going); err != nil {
			return err
		}
		if len(going) == len(oldest) {
			return nil // nothing is left
		}
		var gaps bool
		err = tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM audit_links WHERE seq > ?)`, oldest[len(going)].seq).
			Scan(&gaps)
		if err != nil || !gaps {
			return err
		}
		return recordPruning(ctx, tx, "", "audit.retention", going)
	})
	return more, err
}

// outdated returns how many of the oldest records may go: those that lie before a time, and those between them that do
// not, while these are fewer than half.
func outdated(oldest []dated, before int64) (n int) {
	old := 0 // of those after the first n
	for i, r := range oldest {
		if r.time < before {
			if old++; 2*old > i+1-n {
				n, old = i+1, 0
			}
		}
	}
	return n
}

// vacuumStep is how many free pages go back to the file system at once.
const vacuumStep = 200

// vacuum gives free pages back to the file system.
func (s *Store) vacuum(ctx context.Context) error {
	return s.inBatches(ctx, func() (bool, error) {
		var free int
		if err := s.read.QueryRowContext(ctx, `PRAGMA freelist_count`).Scan(&free); err != nil || free == 0 {
			return false, s.fault("read", err)
		}
		_, err := s.write.ExecContext(ctx, fmt.Sprintf(`PRAGMA incremental_vacuum(%d)`, vacuumStep))
		return free > vacuumStep, s.fault("write", err)
	})
}
