package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// TestDatabaseOfEarlierVersion opens a database that was written before records held
// a cove.Spec: nothing in it is lost, and what was not recorded then is as it was.
func TestDatabaseOfEarlierVersion(t *testing.T) {
	s := openAt(t, earlierDatabase(t, ""))
	shape := cove.Shape{Isolation: cove.IsolationContainer, User: cove.AgentUser, Lifetime: cove.LifetimeDetached}
	plain := store.SandboxSpec{Spec: cove.Spec{Engine: "docker", Network: &cove.Network{}, Shape: shape}}
	shape.Limits = cove.Limits{Memory: 1, CPUs: 0.5, PIDs: 3, Disk: 4, Inodes: 5, OpenFiles: 6, Stdout: 7,
		Stderr: 8, Timeout: 9}
	whole := store.SandboxSpec{
		Spec: cove.Spec{
			Engine: "native", Image: "debian:stable", Profile: "p", Agent: "a", Path: "/opt/a/bin",
			Screen: []string{"a", "--screen"}, Shape: shape,
			Network: &cove.Network{
				Enabled: true, Credentials: []string{"github"}, Mode: cove.NetworkLimited, Allow: []string{"a.test"},
				Deny: []string{"b.test"}, AllowPR: true,
				Policies: []cove.PolicyText{{Source: "p.yaml", Text: "rules: []"}}, Providers: []string{"anthropic"},
				Budget: cove.Budget{Requests: 3, Cost: 0.5},
			},
			WorkDir: "/workspace/sub", Env: map[string]string{"A": "b"},
			Mounts:  []cove.Mount{{Source: "/a", Target: "/b", ReadOnly: true}},
			AllowPR: true, SSHAgent: "/s", Git: &cove.GitIdentity{Name: "Ada", Email: "ada@example.com"},
			Labels: map[string]string{"k": "v"},
		},
		Digest: "sha256:1", ImageEnv: []string{"LANG=C"}, Mode: cove.NetworkLimited,
		Changes: []store.NetworkChange{{Allow: []string{"c.test"}}},
		Repository: &store.SandboxRepository{
			Source: "o/r", Remote: "https://git.example/o/r", Branch: "cove/whole", From: "main", Base: "1234",
			Shared: []string{"main"},
		},
		Directory: "/d",
	}
	all, err := s.Sandboxes(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	for i, want := range []store.SandboxSpec{plain, whole} {
		if got := all[i].Spec; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%+v %+v\nwant\n%+v %+v", all[i].Name, got, got.Network, want, want.Network)
		}
	}
	// What is written back is read again as it was.
	if err := s.ChangeSandbox(t.Context(), all[1].ID, func(*store.Sandbox) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if again, err := s.Sandbox(t.Context(), all[1].ID); err != nil || !reflect.DeepEqual(again.Spec, whole) {
		t.Errorf("%+v, %v", again, err)
	}
	e, err := s.Get(t.Context(), "ex_0123456789abcdefghjkmnpqrs")
	if err != nil || e.Output != "42\n" || !reflect.DeepEqual(e.Spec, cove.Spec{}) {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestCheckoutsOfEarlierVersion opens a database in which checkouts in a shared sandbox were sandboxes of their own:
// they are data of that sandbox now. A checkout of a sandbox that is gone goes, and leaves its workspace as an orphan.
func TestCheckoutsOfEarlierVersion(t *testing.T) {
	const at = 1795377600000007
	row := func(id, name, state, spec string) string {
		return `INSERT INTO sandboxes (id, name, client, state, reason, spec, created_at, last_used_at) VALUES ('sb_` +
			id + `','` + name +
			`','key:ci','` + state + `','why','` + spec + `',1795377600000007,1795377600000007);`
	}
	s := openAt(t, earlierDatabase(t,
		row("host000000000000000000000a", "host", "running", `{"Engine":"native","Shared":"key","Within":"","Place":""}`)+
			row("checkout00000000000000000a", "first", "running",
				`{"Engine":"native","Repository":{"source":"o/r","branch":"cove/first","from":"main","base":"12","Shared":["main"]},"Directory":"","WorkDir":"/home/cove/work-a/sub","Labels":{"k":"v"},"Shared":"","Within":"sb_host000000000000000000000a","Place":"/home/cove/work-a"}`)+
			row("checkout00000000000000000b", "second", "destroying",
				`{"Repository":null,"Labels":null,"Within":"sb_host000000000000000000000a"}`)+
			row("checkout00000000000000000c", "lost", "running", `{"Within":"sb_gone000000000000000000000a"}`)))
	all, err := s.Sandboxes(t.Context())
	if err != nil || len(all) != 3 || all[0].Name != "host" {
		t.Fatalf("%+v, %v", all, err)
	}
	when := time.UnixMicro(at).UTC()
	want := []store.Checkout{{
		ID: "sb_checkout00000000000000000a", Name: "first", State: cove.StateRunning, Reason: "why",
		Repository: &store.SandboxRepository{Source: "o/r", Branch: "cove/first", From: "main", Base: "12",
			Shared: []string{"main"}},
		Place: "/home/cove/work-a", WorkDir: "/home/cove/work-a/sub", Labels: map[string]string{"k": "v"}, CreatedAt: when,
		LastUsedAt: when,
	}, {
		ID: "sb_checkout00000000000000000b", Name: "second", State: cove.StateDestroying, Reason: "why", CreatedAt: when,
		LastUsedAt: when,
	}}
	if got := all[0].Spec.Checkouts; !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if all[1].Spec.Checkouts != nil || all[2].Spec.Checkouts != nil {
		t.Errorf("others have checkouts: %+v", all[1:])
	}
}

// TestAuditOfEarlierVersion opens a database whose audit log had been pruned before its owners were counted: it is
// intact, and is bounded from then on.
func TestAuditOfEarlierVersion(t *testing.T) {
	more, hash := "", ""
	for seq := range int64(30) {
		r := store.Record{Seq: seq + 1, Time: time.UnixMicro(seq), Action: "execute"}
		r.Who = []string{"local", "key:ci"}[seq%2]
		hash = store.Chain(hash, r)
		more += fmt.Sprintf("INSERT INTO audit VALUES (%d, %d, '%s', 'execute', '', '', '', '%s');", r.Seq, seq, r.Who,
			hash)
		if r.Seq == 10 {
			more += fmt.Sprintf("UPDATE audit_anchor SET seq = 10, hash = '%s'; DELETE FROM audit;", hash)
		}
	}
	s := openAt(t, earlierDatabase(t, "DELETE FROM audit; DELETE FROM sqlite_sequence WHERE name = 'audit';"+more))
	if v, err := s.Verify(t.Context()); err != nil || v.Broken != 0 || v.Records != 20 || v.Head != hash {
		t.Errorf("%+v, %v", v, err)
	}
	bytes, err := auditBytes(t.Context(), s.read)
	if err != nil || bytes < 20*150 {
		t.Errorf("the log is said to take %d bytes, %v", bytes, err)
	}
	s.bounds.Audit = bytes + 20<<10
	note(t, s, "key:ci", 100)
	if gone := accounted(t, s, 10); gone < 20 || len(records(t, s, "local")) != 10 {
		t.Errorf("%d records have gone, %d of another are left", gone, len(records(t, s, "local")))
	}
}

// TestLateIndexes: a start does not wait for the indexes of a long history, which Prune makes; a new one has them.
func TestLateIndexes(t *testing.T) {
	indexes := func(s *Store) (n int) {
		t.Helper()
		if err := s.read.QueryRow(`SELECT count(*) FROM sqlite_master WHERE type = 'index'
			AND name IN ('executions_client_created', 'audit_who_time')`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := indexes(openAt(t, filepath.Join(t.TempDir(), "cove.db"))); n != 2 {
		t.Errorf("a new history has %d", n)
	}
	s := openAt(t, earlierDatabase(t, ""))
	if n := indexes(s); n != 0 {
		t.Errorf("the start made %d", n)
	}
	if _, err := s.Prune(t.Context(), time.Time{}); err != nil || indexes(s) != 2 {
		t.Errorf("Prune made %d, %v", indexes(s), err)
	}
}

// TestMigrationWaitsForItsTurn: while another process brings the history up to date, an opening waits until ctx ends.
func TestMigrationWaitsForItsTurn(t *testing.T) {
	path := earlierDatabase(t, "")
	other := &Store{path: path}
	unlock, err := other.lockMigration(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, path); cove.ErrorCode(err) != cove.Canceled {
		t.Errorf("while another migrates: %v", err)
	}
	unlock()
	openAt(t, path)
}

// earlierDatabase returns the path of a database of schema 7, after more statements.
func earlierDatabase(t *testing.T, more string) string {
	t.Helper()
	dump, err := os.ReadFile("testdata/schema7.sql")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cove.db")
	db, err := sql.Open("sqlite", path)
	if err == nil {
		_, err = db.Exec(string(dump) + more)
	}
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}
