package sqlite

import (
	"cmp"
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
	checkInterval   = 30 * time.Second
	recheckInterval = 5 * time.Second // in trouble, which may have been mended
	checkTimeout    = 2 * time.Second
	// leastFree is the free space, in bytes, below which a disk counts as full: the beginning of an execution may need as
	// much.
	leastFree = 256 << 10
)

// Check implements store.Store. It writes, at most once in checkInterval; meanwhile the last finding counts.
func (s *Store) Check(ctx context.Context) error {
	if err := s.present(); err != nil {
		return err
	}
	if s.health.begin() {
		// The finding is shared, and the request of this caller may end before the write.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
		defer cancel()
		err := s.try(ctx)
		s.health.end(err)
		if cove.ErrorCode(err) == cove.Canceled {
			return cove.Errorf(cove.Unavailable, "the database %s takes no write within %v", s.path, checkTimeout)
		}
	}
	return s.health.known()
}

// begin reports whether the caller is to try now, and to call end.
func (h *health) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	interval := checkInterval
	if h.found != nil {
		interval = recheckInterval
	}
	if h.trying || time.Since(h.tried) <= interval {
		return false
	}
	h.trying = true
	return true
}

// end keeps the finding of a trial. One that waited too long for its turn to write has found nothing.
func (h *health) end(found error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trying = false
	if cove.ErrorCode(found) != cove.Canceled {
		h.tried, h.found = time.Now(), found
	}
}

func (h *health) known() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return cmp.Or(h.damage, h.found)
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
		s.health.damage = nil
	} else if cove.ErrorCode(err) == cove.Corrupt {
		s.health.damage = err
	}
}

// present returns an error if a file at the path of the database, its log or its index is not the one that is open:
// what is written would be lost.
func (s *Store) present() error {
	for path, opened := range s.opened {
		if there, err := os.Stat(path); err != nil || !os.SameFile(there, opened) {
			return cove.Errorf(cove.Unavailable, "%s was removed or replaced while Cove has the database open", path).
				WithHint("put the file back, or restart the server: cove server stop, and the next command starts it")
		}
	}
	return nil
}
