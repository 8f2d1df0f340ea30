// Package sqlite owns the database file: a store.Store in one SQLite file with a write-ahead log, shared by every Cove
// process of a user.
//
// Each process has one writing connection and a few reading ones. Writers of several processes take turns: a
// transaction takes the write lock when it begins, waiting up to lockWait. A commit survives the death of the process
// at any moment; a power failure may lose the last commits, never the file.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pressly/goose/v3"
	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	_ "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/store"
)

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

//go:embed migrations/*.sql
var migrations embed.FS

// schema is the version that the last migration leaves in PRAGMA user_version.
const schema = 15

// lockWait is how long a writer waits for another process's transaction, which
// takes a millisecond unless that process is stopped.
const lockWait = 10 * time.Second

// Store implements store.Store.
type Store struct {
	path  string
	write *sql.DB // one connection
	kept  *statements
	read  *sql.DB

	reserve reserve
	bounds  Bounds
	log     *slog.Logger
	opened  map[string]os.FileInfo // of the files that are open
	holder  *sql.Conn              // idle: while it is open, no process removes the log
	health  health
	removed removed

	decisions kept
}

// Bounds bound the space that the database takes.
type Bounds struct {
	Size  int64 // of the database without the audit log, in bytes; 0 is no bound
	Audit int64 // of the audit log, in bytes; 0 is no bound
	Free  int64 // bytes of its file system that are left for others: below that executions do not make it grow
}

// health holds what is known about the database.
type health struct {
	mu     sync.Mutex
	tried  time.Time // when Check wrote last
	trying bool
	found  error // by Check
	damage error // that the last write has met
}

// kept counts decisions, as far as this process adds them.
type kept struct {
	mu   sync.Mutex
	keep int // of the last call
	room int // for so many more they need not be counted
}

// removed counts the outputs that gave way to the bounds.
type removed struct {
	mu   sync.Mutex
	told time.Time // when the log said so last
	n    int       // since then
}

var _ store.Store = (*Store)(nil)

// Open opens the database at path, making it and its directory when there is none, and brings an older one up to date.
// Errors: Corrupt, StorageFull, Unsupported (made by a newer Cove), Unavailable (locked for too long).
func Open(ctx context.Context, path string) (*Store, error) {
	return OpenBounded(ctx, path, Bounds{}, slog.New(slog.DiscardHandler))
}

// OpenBounded is Open with bounds of the space that is taken. The log tells of long work, and of removed outputs.
func OpenBounded(ctx context.Context, path string, bounds Bounds, log *slog.Logger) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "database path %q: %w", path, err)
	}
	if err := ensureFile(path); err != nil {
		return nil, err
	}
	s := &Store{path: path, kept: newStatements(), reserve: reserve(path + "-reserve"), bounds: bounds, log: log,
		write: connect(path, "_txlock=immediate"), read: connect(path, "_pragma=query_only(1)")}
	s.write.SetMaxOpenConns(1)
	s.read.SetMaxOpenConns(5) // one is the holder
	if err := s.prepare(ctx); err != nil {
		s.Close()
		return nil, err
	}
	if err := s.hold(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// hold opens the database, its log and its index for as long as the store is open, and notes which files they are.
func (s *Store) hold(ctx context.Context) (err error) {
	if s.holder, err = s.read.Conn(ctx); err != nil {
		return s.fault("open", err)
	}
	var version int
	if err := s.holder.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return s.fault("open", err)
	}
	s.opened = map[string]os.FileInfo{}
	for _, path := range []string{s.path, s.path + "-wal", s.path + "-shm"} {
		info, err := os.Stat(path)
		switch {
		case err == nil:
			s.opened[path] = info
		case path == s.path || !errors.Is(err, fs.ErrNotExist): // a database without a log has none
			return unwritable(s.path, err)
		}
	}
	return nil
}

// connect opens nothing yet: connections are made when first used.
func connect(path, options string) *sql.DB {
	db, err := sql.Open("sqlite", dsn(path, options))
	if err != nil {
		panic("sqlite: " + err.Error()) // the driver is linked in, and Open does not look at the name
	}
	db.SetConnMaxIdleTime(0)
	return db
}

// dsn returns the name of a database for its driver.
func dsn(path, options string) string {
	// synchronous NORMAL with a write-ahead log: see the package comment. secure_delete: what is removed, as the variables
	// of a sandbox, may be secret.
	return (&url.URL{Scheme: "file", Path: path}).String() +
		"?_pragma=busy_timeout(" + milliseconds(lockWait) + ")&_pragma=synchronous(NORMAL)&_pragma=foreign_keys(1)" +
		"&_pragma=secure_delete(1)&" + options
}

// ensureFile makes the file, readable by its owner only (SQLite gives its log the same mode), and finds out whether it
// can be written at all, because SQLite would silently open it for reading.
func ensureFile(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return unwritable(path, err)
	}
	// An existing file is not opened here: closing it again would drop the
	// POSIX locks that SQLite holds in this process.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		return f.Close()
	}
	if !errors.Is(err, fs.ErrExist) {
		return unwritable(path, err)
	}
	for _, p := range []string{path, dir} {
		if err := unix.Access(p, unix.W_OK); err != nil {
			return unwritable(path, err)
		}
	}
	return nil
}

// errFull is the cause of the StorageFull errors that space would mend: outputs and the reserve are given up for these.
var errFull = errors.New("the disk is full")

func unwritable(path string, err error) error {
	if known := cove.OutOfFiles(err); known != err {
		return known
	}
	if dir := filepath.Dir(path); full(dir, err) {
		return cove.Errorf(cove.StorageFull, "cannot write the database %s: %w", path, errFull).
			WithHint("free space there (df -h %[1]s shows it, and df -i %[1]s how many files there may be), or set COVE_HOME "+
				"to a directory of another disk", dir)
	}
	if failing(err) {
		return cove.Errorf(cove.Unavailable, "the disk with the database %s fails: %w", path, err).
			WithHint("the kernel's log says more (dmesg); once the disk is mended, start Cove again, which keeps what was " +
				"recorded, or set COVE_HOME to a directory of another disk")
	}
	return cove.Errorf(cove.StorageFull, "cannot write the database %s: %w", path, err).
		WithHint("free space or make the directory writable, or set COVE_HOME to a directory that is")
}

// full reports whether a write failed because the file system of dir is full, or the user's share of it. SQLite drops
// the errno of some of its writes: that of its shared index (SQLITE_IOERR_SHMSIZE), and a used up share of the user's
// (SQLITE_IOERR_WRITE). There a write of Cove's own tells.
func full(dir string, err error) bool {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return true
	}
	switch primary(err) {
	case sqlite3.SQLITE_FULL:
		return true
	case sqlite3.SQLITE_IOERR:
		var of unix.Statfs_t
		if unix.Statfs(dir, &of) == nil && of.Bavail*uint64(of.Bsize) < index {
			return true
		}
		err := tryWrite(dir)
		return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
	}
	return false
}

const index = 32 << 10 // bytes by which SQLite's shared index grows

// tryWrite writes to a file without a name in dir.
func tryWrite(dir string) error {
	f, err := os.OpenFile(dir, os.O_WRONLY|unix.O_TMPFILE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, index))
	return errors.Join(err, f.Close())
}

// failing reports whether a file system failed to read or write what it has, or has room for.
func failing(err error) bool {
	return errors.Is(err, unix.EIO) || primary(err) == sqlite3.SQLITE_IOERR
}

// primary returns the primary code of an error of SQLite's, 0 if it is none. The rest of the code says where it was.
func primary(err error) int {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return sqlite3.SQLITE_OK
	}
	return e.Code() & 0xff
}

// prepare brings the schema up to date. An up-to-date one costs one read.
func (s *Store) prepare(ctx context.Context) error {
	version, err := s.version(ctx)
	if err != nil || version == schema {
		return err
	}
	if version > 0 {
		s.log.Info("bringing the history up to date", "from", version, "to", schema)
	}
	unlock, err := s.lockMigration(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	// Another process may have done it while this one waited.
	if version, err = s.version(ctx); err != nil || version == schema {
		return err
	}
	if err = keepBefore(ctx, s, version); err == nil {
		err = s.migrate(ctx, version)
	}
	if err != nil {
		return err
	}
	return keptBefore(s)
}

func (s *Store) version(ctx context.Context) (int, error) {
	var v int
	if err := s.write.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v); err != nil {
		return 0, s.fault("open", err)
	}
	if v > schema {
		return 0, newer(s.path, v)
	}
	return v, nil
}

// lockMigration makes processes migrate one after the other. The lock is on
// the directory, so it leaves no file and does not touch SQLite's own.
func (s *Store) lockMigration(ctx context.Context) (unlock func(), err error) {
	d, err := os.Open(filepath.Dir(s.path))
	if err != nil {
		return nil, unwritable(s.path, err)
	}
	if err = filelock.Wait(ctx, d, filelock.Exclusive); err == nil {
		return func() { d.Close() }, nil
	}
	d.Close()
	if ctx.Err() != nil {
		return nil, s.fault("open", ctx.Err())
	}
	return nil, unwritable(s.path, err)
}

func (s *Store) migrate(ctx context.Context, from int) error {
	if from == 0 {
		// Both must come before the first table; both are kept in the file.
		for _, pragma := range []string{"PRAGMA auto_vacuum = INCREMENTAL", "PRAGMA journal_mode = WAL"} {
			if _, err := s.write.ExecContext(ctx, pragma); err != nil {
				return s.fault("open", err)
			}
		}
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, s.write, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return s.fault("migrate", err)
	}
	if _, err := p.Up(ctx); err != nil {
		return s.fault("migrate", err)
	}
	if from == 0 {
		for name, of := range lateIndexes { // of an empty history
			if err := makeIndex(ctx, s.write, name, of); err != nil {
				return s.fault("migrate", err)
			}
		}
	}
	return nil
}

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
	if err := f.Sync(); err != nil {
		return unwritable(to, err)
	}
	return nil
}

// A copy of the database as it was before the last migration stays beside it, as the way back to the program of then.
// It is pending until the migration is done: one that was killed half way, and goes on, makes no other.
const (
	before  = "-schema-"
	pending = ".pending"
)

// keepBefore copies the database before a migration.
func keepBefore(ctx context.Context, s *Store, from int) error {
	left, err := filepath.Glob(s.path + before + "*" + pending)
	if from == 0 || err != nil || len(left) > 0 {
		return err
	}
	to, part := s.path+before+strconv.Itoa(from)+pending, s.path+before+"part"
	os.Remove(part)
	if err := Copy(ctx, s, part); err != nil {
		os.Remove(part)
		return err
	}
	if err := errors.Join(os.Rename(part, to), atomicfile.SyncDir(filepath.Dir(to))); err != nil {
		return unwritable(to, err)
	}
	return nil
}

// keptBefore gives the copy of a migration that is done its name, and removes that of an earlier one.
func keptBefore(s *Store) error {
	all, err := filepath.Glob(s.path + before + "*")
	for _, path := range all {
		if name, is := strings.CutSuffix(path, pending); is {
			err = errors.Join(err, os.Rename(path, name))
		} else {
			err = errors.Join(err, os.Remove(path))
		}
	}
	if err != nil {
		return unwritable(s.path, err)
	}
	return nil
}

// newer is the error of a database that a newer Cove has brought up to date.
func newer(path string, version int) error {
	err := cove.Errorf(cove.Unsupported, "the database %s was made by a newer Cove (schema %d, this one knows %d)", path,
		version, schema)
	for v := schema; v > 0; v-- {
		if old := path + before + strconv.Itoa(v); unix.Access(old, unix.R_OK) == nil {
			return err.WithHint("upgrade this cove; or go back to the history as it was before the upgrade, without what "+
				"came after: mkdir %[1]s.newer; mv %[1]s %[1]s-wal %[1]s-shm %[1]s.newer/; cp %[2]s %[1]s", path, old)
		}
	}
	return err.WithHint("upgrade this cove, or set COVE_HOME to another directory")
}

// lateIndexes find each caller's own within bounds of the time, and what is rare among much else. Lists are right
// without them, and slower. To make them takes a while in a long history, for which the start of a server must not
// wait: Prune makes them there.
var lateIndexes = map[string]string{
	"executions_client_created": "executions (client, created_at)",
	"executions_labeled":        "executions (seq) WHERE " + labeled,
	"audit_who_time":            "audit (who, time)",
	"audit_verdict":             "audit (verdict, seq)",
	"runs_by_status":            "runs (status, seq)",
	"runs_by_agent":             "runs (agent, seq)",
}

// labeled holds for executions with labels, which are few.
const labeled = `json_extract(spec, '$.Labels') IS NOT NULL`

// index makes the late indexes that are not there.
func (s *Store) index(ctx context.Context) error {
	for name, of := range lateIndexes {
		var there bool
		err := s.read.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = ?)`,
			name).Scan(&there)
		if err != nil {
			return s.fault("read", err)
		}
		if there {
			continue
		}
		s.log.Info("making an index of the history", "index", name)
		if err := makeIndex(ctx, s.write, name, of); err != nil {
			return s.fault("write", err)
		}
	}
	return nil
}

func makeIndex(ctx context.Context, db *sql.DB, name, of string) error {
	_, err := db.ExecContext(ctx, fmt.Sprintf(`CREATE INDEX IF NOT EXISTS %s ON %s`, name, of))
	return err
}

// Close closes the connections; the last process to do so folds the log back into the file.
func (s *Store) Close() error {
	var held error
	if s.holder != nil {
		held = s.holder.Close()
	}
	return errors.Join(held, s.read.Close(), s.write.Close())
}

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
	switch primary(e) {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		// SQLite takes a read that fails with EIO for damage, too (SQLITE_IOERR_CORRUPTFS).
		if err := tryWrite(filepath.Dir(s.path)); errors.Is(err, unix.EIO) {
			return unwritable(s.path, err)
		}
		return cove.Errorf(cove.Corrupt, "the database %s is damaged: %w", s.path, err).
			WithHint("nothing was deleted; move it away together with its log (mkdir %[1]s.damaged; mv %[1]s %[1]s-* "+
				"%[1]s.damaged/) and Cove starts a new one", s.path)
	case sqlite3.SQLITE_CANTOPEN:
		// SQLite drops the errno. That of this file tells whether there are too many open ones.
		null, failed := os.Open(os.DevNull)
		if failed != nil {
			return unwritable(s.path, failed)
		}
		null.Close()
		return unwritable(s.path, e)
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_IOERR:
		return unwritable(s.path, e)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return cove.Errorf(cove.Unavailable, "another process has held the database %s for over %s: %w", s.path,
			lockWait, err).
			WithHint("find it with: fuser -v %s", s.path)
	case sqlite3.SQLITE_INTERRUPT:
		return cove.Errorf(cove.Canceled, "%s the database: %w", doing, err)
	}
	return cove.Errorf(cove.Internal, "%s the database %s: %w", doing, s.path, err)
}

// isUnique reports whether err is a violated UNIQUE constraint.
func isUnique(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE
}
