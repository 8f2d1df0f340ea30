package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

const (
	// largestBatch bounds the outputs that the end of an execution removes, which its caller waits for, to less than
	// twice as many. Large ones make room for a new one soon; of small ones it takes many.
	largestBatch = 32
	// tellInterval is how often the log tells of removed outputs.
	tellInterval = time.Hour
)

// makeRoom removes outputs and executions, as giveWay does, until need more bytes are within the bounds. Where they
// cannot be, it returns the reason. With more to remove than may be at once, they are beyond the bounds until Prune.
func (s *Store) makeRoom(ctx context.Context, tx *tx, need int64) (removed int, why store.OutputGone, err error) {
	most, used, err := s.room(ctx, tx)
	for batch := 1; err == nil && used+need > most && batch <= largestBatch; batch *= 2 {
		records := s.bounds.Size > 0 && used+need > s.bounds.Size // they make no room on a full disk that is worth them
		n, err := giveWay(ctx, tx, batch, records)
		if err != nil {
			return removed, "", err
		}
		if n == 0 && s.low() {
			return removed, store.GoneStorageFull, nil
		}
		if n == 0 {
			return removed, store.GoneHistorySize, nil
		}
		removed += n
		if _, used, err = s.room(ctx, tx); err != nil {
			return removed, "", err
		}
	}
	return removed, "", err
}

// tellRemoved logs that outputs gave way to the bounds, at the first time and then once in tellInterval.
func (s *Store) tellRemoved(n int) {
	s.removed.mu.Lock()
	defer s.removed.mu.Unlock()
	s.removed.n += n
	if s.removed.n == 0 || time.Since(s.removed.told) < tellInterval {
		return
	}
	s.log.Warn("removed the output of the oldest executions, or their records, to keep the history within its bounds",
		"executions", s.removed.n)
	s.removed.told, s.removed.n = time.Now(), 0
}

// room returns the bytes that the database may take and those that it takes, without those of the audit log, which has
// a bound of its own.
func (s *Store) room(ctx context.Context, from querier) (most, used int64, err error) {
	low := s.low()
	if s.bounds.Size == 0 && !low {
		return math.MaxInt64, 0, nil
	}
	if most = s.bounds.Size; most == 0 {
		most = math.MaxInt64
	}
	if used, err = usedBy(ctx, from); err != nil {
		return 0, 0, err
	}
	log, err := auditBytes(ctx, from)
	if low && err == nil {
		var file int64 // what is free in it takes nothing of the disk
		err = from.QueryRowContext(ctx, `SELECT page_count * page_size FROM pragma_page_count, pragma_page_size`).Scan(&file)
		most = min(most, file-log)
	}
	return most, used - log, err
}

// low reports whether the file system has less free space than the bounds leave.
func (s *Store) low() bool {
	var of unix.Statfs_t
	return s.bounds.Free > 0 && unix.Statfs(filepath.Dir(s.path), &of) == nil &&
		int64(of.Bavail)*of.Bsize < s.bounds.Free
}

// usedBy returns how many bytes of the database are in use.
func usedBy(ctx context.Context, from querier) (bytes int64, err error) {
	err = from.QueryRowContext(ctx, `SELECT (page_count - freelist_count) * page_size
		FROM pragma_page_count, pragma_freelist_count, pragma_page_size`).Scan(&bytes)
	return bytes, err
}

const (
	// recent is how many of the newest executions tell which client fills the history.
	recent = 500
	// looked is how many of a client's oldest executions are looked through for outputs.
	looked = 1000
)

// giveWay makes room at the cost of the client that fills the history: the output of its oldest executions goes, at most
// so many, or with records these executions where they have none. If nothing of it can go, the output of the oldest
// executions of all does. It returns how many have gone.
func giveWay(ctx context.Context, tx *tx, most int, records bool) (int, error) {
	var client string
	err := tx.QueryRowContext(ctx, `SELECT client FROM (SELECT e.client AS client, 500 + octet_length(e.spec) +
			octet_length(e.events) + coalesce(octet_length(o.stdout) + octet_length(o.stderr), 0) AS bytes
			FROM executions e LEFT JOIN outputs o ON o.seq = e.seq ORDER BY e.seq DESC LIMIT ?)
		GROUP BY client ORDER BY sum(bytes) DESC LIMIT 1`, recent).Scan(&client)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := removeOutputs(ctx, tx, `SELECT seq FROM (SELECT seq FROM executions WHERE client = ?1 ORDER BY seq LIMIT ?3)
		WHERE seq IN (SELECT seq FROM outputs) ORDER BY seq LIMIT ?2`, client, most, looked)
	if n > 0 || err != nil {
		return n, err
	}
	if records {
		r, err := tx.ExecContext(ctx, `DELETE FROM executions WHERE seq IN (SELECT seq FROM executions
			WHERE client = ? AND status <> ? ORDER BY seq LIMIT ?)`, client, string(cove.StatusRunning), most)
		if err != nil {
			return 0, err
		}
		if gone, err := r.RowsAffected(); gone > 0 || err != nil {
			return int(gone), err
		}
	}
	return removeOldest(ctx, tx, most)
}

// removeOldest removes the output of the oldest executions that have any, at most so many, and returns how many.
func removeOldest(ctx context.Context, tx *tx, most int) (int, error) {
	return removeOutputs(ctx, tx, `SELECT seq FROM outputs ORDER BY seq LIMIT ?`, most)
}

// removeOutputs removes the outputs of the executions that a query selects, and returns how many.
func removeOutputs(ctx context.Context, tx *tx, which string, args ...any) (int, error) {
	_, err := tx.ExecContext(ctx, fmt.Sprintf(`UPDATE executions SET output_gone = '%s' WHERE seq IN (%s)`,
		store.GoneHistorySize, which), args...)
	if err != nil {
		return 0, err
	}
	r, err := tx.ExecContext(ctx, `DELETE FROM outputs WHERE seq IN (`+which+`)`, args...)
	if err != nil {
		return 0, err
	}
	n, err := r.RowsAffected()
	return int(n), err
}
