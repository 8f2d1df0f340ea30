package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

const (
	checkInterval = 5 * time.Second
	// leastFree is the free space, in bytes, below which a disk counts as full: the beginning of an execution may need as
	// much.
	leastFree = 256 << 10
)

// Check implements store.Store. It writes, at most once in checkInterval.
func (s *Store) Check(ctx context.Context) error {
	if err := s.present(); err != nil {
		return err
	}
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	if time.Since(s.health.tried) > checkInterval {
		s.health.tried, s.health.trouble = time.Now(), s.try(ctx)
	}
	return s.health.trouble
}

// try writes to the database what is there already.
func (s *Store) try(ctx context.Context) error {
	if err := s.reserve.keep(); err != nil {
		return unwritable(s.path, err)
	}
	var of unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(s.path), &of); err == nil && int64(of.Bavail)*of.Bsize < leastFree {
		return unwritable(s.path, unix.ENOSPC)
	}
	tx, err := s.write.BeginTx(ctx, &sql.TxOptions{})
	if err != nil {
		return s.fault("write", err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(`PRAGMA user_version = %d`, schema)); err != nil {
		return s.fault("write", err)
	}
	return s.fault("write", tx.Commit())
}

// note remembers the damage that a write has met, until a write succeeds.
func (s *Store) note(err error) {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	if err == nil {
		s.health.trouble = nil
	} else if cove.ErrorCode(err) == cove.Corrupt {
		s.health.trouble = err
	}
}

// present returns an error if the file at the path of the database is not the one that is open: what is written would
// be lost.
func (s *Store) present() error {
	if there, err := os.Stat(s.path); err != nil || !os.SameFile(there, s.opened) {
		return cove.Errorf(cove.Unavailable, "the database %s was removed or replaced while Cove has it open", s.path).
			WithHint("put the file back, or restart the server: cove server stop, and the next command starts it")
	}
	return nil
}
