package sqlite

import (
	"context"
	"errors"
	"strconv"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/cove-sandbox/cove"
)

// fault turns what SQLite says into what a user can act on.
func (s *Store) fault(doing string, err error) error {
	var known *cove.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return cove.Errorf(cove.Canceled, "%s the database: %w", doing, err)
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return cove.Errorf(cove.Internal, "%s the database %s: %w", doing, s.path, err)
	}
	switch e.Code() & 0xff { // the primary code; the rest says where
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return cove.Errorf(cove.Corrupt, "the database %s is damaged: %w", s.path, err).
			WithHint("nothing was deleted; move it away together with its log (mkdir %[1]s.damaged; mv %[1]s %[1]s-* "+
				"%[1]s.damaged/) and Cove starts a new one", s.path)
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_IOERR:
		return unwritable(s.path, err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return cove.Errorf(cove.Unavailable, "another process has held the database %s for over %s: %w", s.path,
			lockWait, err).
			WithHint("find it with: fuser -v %s", s.path)
	case sqlite3.SQLITE_INTERRUPT:
		return cove.Errorf(cove.Canceled, "%s the database: %w", doing, err)
	}
	return cove.Errorf(cove.Internal, "%s the database %s: %w", doing, s.path, err)
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// isUnique reports whether err is a violated UNIQUE constraint.
func isUnique(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE
}
