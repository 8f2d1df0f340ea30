package sqlite

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

func versionOf(t *testing.T, path string) (v int) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), "PRAGMA user_version").Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestWayBack: before a migration a copy of the database is kept, one at a time. One that is killed half way keeps that
// of its beginning, and a program that is too old for the database is led to it.
func TestWayBack(t *testing.T) {
	path := earlierDatabase(t, "")
	from := versionOf(t, path)
	if err := os.WriteFile(path+before+"3", []byte("of an earlier migration"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Killed before it is done.
	s := &Store{path: path, write: connect(path, "")}
	if err := keepBefore(t.Context(), s, from); err != nil {
		t.Fatal(err)
	}
	if err := keepBefore(t.Context(), s, from+1); err != nil {
		t.Fatal(err)
	}
	s.write.Close()
	openAt(t, path)
	kept := path + before + strconv.Itoa(from)
	all, err := filepath.Glob(path + before + "*")
	if err != nil || !slices.Equal(all, []string{kept}) {
		t.Fatalf("%v, %v", all, err)
	}
	if v := versionOf(t, kept); v != from {
		t.Errorf("the copy has schema %d, want %d", v, from)
	}
	if info, err := os.Stat(kept); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	db := connect(path, "")
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), path); cove.ErrorCode(err) != cove.Unsupported ||
		!strings.Contains(cove.ErrorHint(err), kept) {
		t.Errorf("%v (%s)", err, cove.ErrorHint(err))
	}
}

// TestCopy: a copy is a database as Open makes it, with what was committed before, and with the sandboxes that were
// copied alone.
func TestCopy(t *testing.T) {
	s := openAt(t, earlierDatabase(t, ""))
	all, err := s.Sandboxes(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	path := filepath.Join(t.TempDir(), "copy.db")
	if err := Copy(t.Context(), s, path); err != nil {
		t.Fatal(err)
	}
	if err := Part(t.Context(), path, []cove.SandboxID{all[1].ID}); err != nil {
		t.Fatal(err)
	}
	copied := openAt(t, path)
	for _, pragma := range []string{"auto_vacuum", "user_version"} {
		if was, is := pragmaOf(t, s, pragma), pragmaOf(t, copied, pragma); was != is {
			t.Errorf("%s is %s, and was %s", pragma, is, was)
		}
	}
	if mode := pragmaOf(t, copied, "journal_mode"); mode != "wal" {
		t.Errorf("its journal is %s", mode)
	}
	got, err := copied.Sandboxes(context.Background())
	if err != nil || len(got) != 1 || got[0].ID != all[1].ID || got[0].State != cove.StateStopped {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := copied.Get(t.Context(), "ex_0123456789abcdefghjkmnpqrs"); err != nil {
		t.Error(err)
	}
}

func pragmaOf(t *testing.T, s *Store, name string) (value string) {
	t.Helper()
	if err := s.read.QueryRowContext(t.Context(), "PRAGMA "+name).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}
