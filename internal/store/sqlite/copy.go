package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
)

// Schema is the version of the databases that this Cove knows.
const Schema = schema

// Copy writes the database as it is now into a new file. Others read and write it meanwhile.
func Copy(ctx context.Context, s *Store, to string) error {
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return unwritable(to, err)
	}
	defer f.Close()
	db := connect(s.path, "")
	defer db.Close()
	if _, err := db.ExecContext(ctx, `VACUUM INTO ?`, to); err != nil {
		return s.fault("copy", err)
	}
	return unwritableIf(to, f.Sync())
}

// Part makes a copy that of the sandboxes which were copied beside it, which are stopped there.
func Part(ctx context.Context, path string, with []cove.SandboxID) error {
	ids, err := json.Marshal(append([]cove.SandboxID{}, with...))
	if err != nil {
		return err
	}
	db := connect(path, "")
	defer db.Close()
	_, err = db.ExecContext(ctx, `DELETE FROM sandboxes WHERE id NOT IN (SELECT value FROM json_each(?))`, string(ids))
	if err == nil {
		_, err = db.ExecContext(ctx, `UPDATE sandboxes SET state = ?, reason = ? WHERE state <> ?`,
			string(cove.StateStopped), "it ran when the backup was made", string(cove.StateStopped))
	}
	if err == nil {
		_, err = db.ExecContext(ctx, `PRAGMA journal_mode = WAL`) // which a copy does not keep
	}
	return errors.Join(err, db.Close())
}

// A copy of the database as it was before the last migration stays beside it, as the way back to the program of then.
// It is pending until the migration is done: one that was killed half way, and goes on, makes no other.
const (
	before  = "-schema-"
	pending = ".pending"
)

// keepBefore copies the database before a migration.
func keepBefore(ctx context.Context, s *Store, from int) error {
	if left, err := filepath.Glob(s.path + before + "*" + pending); err != nil || len(left) > 0 {
		return err
	}
	to := s.path + before + strconv.Itoa(from) + pending
	part := s.path + before + "part"
	if err := os.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) {
		return unwritable(part, err)
	}
	if err := Copy(ctx, s, part); err != nil {
		os.Remove(part)
		return err
	}
	err := os.Rename(part, to)
	return unwritableIf(to, errors.Join(err, atomicfile.SyncDir(filepath.Dir(to))))
}

// keptBefore gives the copy of a migration that is done its name, and removes that of an earlier one.
func keptBefore(s *Store) error {
	all, err := filepath.Glob(s.path + before + "*")
	var errs []error
	for _, path := range all {
		if name, is := strings.CutSuffix(path, pending); is {
			errs = append(errs, os.Rename(path, name))
		} else {
			errs = append(errs, os.Remove(path))
		}
	}
	return unwritableIf(s.path, errors.Join(append(errs, err)...))
}

// newer is the error of a database that a newer Cove has brought up to date.
func newer(path string, version int) error {
	err := cove.Errorf(cove.Unsupported, "the database %s was made by a newer Cove (schema %d, this one knows %d)", path,
		version, schema)
	for v := schema; v > 0; v-- {
		old := path + before + strconv.Itoa(v)
		if _, e := os.Stat(old); e == nil {
			return err.WithHint("upgrade this cove; or go back to the history as it was before the upgrade, without what "+
				"came after: mkdir %[1]s.newer; mv %[1]s %[1]s-wal %[1]s-shm %[1]s.newer/; cp %[2]s %[1]s", path, old)
		}
	}
	return err.WithHint("upgrade this cove, or set COVE_HOME to another directory")
}

func unwritableIf(path string, err error) error {
	if err != nil {
		return unwritable(path, err)
	}
	return nil
}
