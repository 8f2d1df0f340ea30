package sqlite

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/detect"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/store/storetest"
	"github.com/cove-sandbox/cove/message"
)

// Variables that make the test binary a child, which writes to the database in a directory until it is killed.
const (
	childDir    = "COVE_TEST_SQLITE_CHILD" // of TestKill
	childBound  = "COVE_TEST_SQLITE_BOUND" // of TestKillWhilePruning
	childMoment = "COVE_TEST_SQLITE_MOMENT"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		writeForever(dir)
	}
	if dir := os.Getenv(childBound); dir != "" {
		fillForever(dir)
	}
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, dir string) store.Store { return openAt(t, filepath.Join(dir, "cove.db")) }

func openAt(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestStore(t *testing.T) { storetest.Run(t, open) }

func TestOddPaths(t *testing.T) {
	for _, name := range []string{"a b", "q?x=1", "h#frag", "p%41", "ü", "semi;colon", "&_pragma=x"} {
		path := filepath.Join(t.TempDir(), name, name+".db")
		openAt(t, path)
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "home", "cove.db")
	s := openAt(t, path)
	if err := s.Append(t.Context(), store.Record{Action: "start"}); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]os.FileMode{filepath.Dir(path): 0o700, path: 0o600, path + "-wal": 0o600,
		path + "-shm": 0o600} {
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", filepath.Base(p), got, want)
		}
	}
}

func TestMigrationSetsSchema(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "cove.db"))
	files, err := migrations.ReadDir("migrations")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != schema {
		t.Errorf("%d migrations, schema is %d", len(files), schema)
	}
	var version int
	var mode, vacuum string
	for pragma, to := range map[string]any{"user_version": &version, "journal_mode": &mode, "auto_vacuum": &vacuum} {
		if err := s.read.QueryRow("PRAGMA " + pragma).Scan(to); err != nil {
			t.Fatal(err)
		}
	}
	if version != schema || mode != "wal" || vacuum != "2" {
		t.Errorf("user_version %d, journal_mode %s, auto_vacuum %s", version, mode, vacuum)
	}
}

func TestManyOpenANewOneAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cove.db")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s, err := Open(t.Context(), path)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if err := s.Append(t.Context(), store.Record{Action: "start"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s := openAt(t, path)
	if p, err := s.Audit(t.Context(), store.AuditQuery{Limit: 100}); err != nil || len(p.Records) != 8 {
		t.Errorf("%d records, %v", len(p.Records), err)
	}
}

func TestRefusals(t *testing.T) {
	fill := func(t *testing.T, path string) {
		s := openAt(t, path)
		for range 200 {
			if err := s.Append(t.Context(), store.Record{Action: "execute", Detail: strings.Repeat("x", 1000)}); err != nil {
				t.Fatal(err)
			}
		}
		s.Close()
	}
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, path string)
		use    func(ctx context.Context, s *Store) error // nil: Open itself fails
		code   cove.Code
		says   []string
	}{
		{"not a database", func(t *testing.T, path string) {
			writeFile(t, path, bytes.Repeat([]byte("garbage "), 1024))
		}, nil, cove.Corrupt, []string{"PATH", "nothing was deleted", "mkdir PATH.damaged; mv PATH PATH-* PATH.damaged/"}},
		{"a damaged page", func(t *testing.T, path string) {
			fill(t, path)
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			info, _ := f.Stat()
			f.WriteAt(bytes.Repeat([]byte{0xa5}, int(info.Size())-4096), 4096)
		}, func(ctx context.Context, s *Store) error {
			_, err := s.Verify(ctx)
			return err
		}, cove.Corrupt, []string{"PATH", "nothing was deleted"}},
		{"a newer schema", func(t *testing.T, path string) {
			s := openAt(t, path)
			if _, err := s.write.Exec("PRAGMA user_version = 99"); err != nil {
				t.Fatal(err)
			}
			s.Close()
		}, nil, cove.Unsupported, []string{"PATH", "newer Cove", "upgrade"}},
		{"a directory in its place", func(t *testing.T, path string) {
			os.Mkdir(path, 0o700)
		}, nil, cove.StorageFull, []string{"PATH"}},
		{"a file where its directory should be", func(t *testing.T, path string) {
			os.Remove(filepath.Dir(path))
			writeFile(t, filepath.Dir(path), nil)
		}, nil, cove.StorageFull, []string{"PATH", "COVE_HOME"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "home", "cove.db")
			os.Mkdir(filepath.Dir(path), 0o700)
			c.damage(t, path)
			before, _ := os.ReadFile(path)
			s, err := Open(t.Context(), path)
			if err == nil {
				defer s.Close()
				if c.use == nil {
					t.Fatal("Open succeeded")
				}
				err = c.use(t.Context(), s)
			}
			if got := cove.ErrorCode(err); got != c.code {
				t.Fatalf("error is %q (%v), want %q", got, err, c.code)
			}
			for _, want := range c.says {
				if want = strings.ReplaceAll(want, "PATH", path); !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
		})
	}
}

func TestReadOnlyAndFullFileSystems(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts a small file system, which needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount a tmpfs here: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	path := filepath.Join(dir, "cove.db")
	s := openAt(t, path)

	var full error
	kept := 0
	for ; full == nil && kept < 1000; kept++ {
		full = s.Append(t.Context(), store.Record{Action: "execute", Detail: strings.Repeat("x", 4000)})
	}
	if cove.ErrorCode(full) != cove.StorageFull {
		t.Fatalf("a full file system gives %v", full)
	}
	p, err := s.Audit(t.Context(), store.AuditQuery{Limit: 500})
	if err != nil || len(p.Records) != kept-1 {
		t.Errorf("%d of %d acknowledged records are there (%v)", len(p.Records), kept-1, err)
	}
	// It recovers when space returns.
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=16m"); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(t.Context(), store.Record{Action: "execute"}); err != nil {
		t.Errorf("with space again: %v", err)
	}
	s.Close()

	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), path); cove.ErrorCode(err) != cove.StorageFull || !strings.Contains(err.Error(), path) {
		t.Errorf("a read-only file system gives %v", err)
	}
}

// TestFullAtTheFirstStart: a disk without room for the first tables is named as such, whichever write meets its end.
func TestFullAtTheFirstStart(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts a small file system, which needs root")
	}
	for name, c := range map[string]struct {
		options string
		filler  int // pages
	}{
		"no page is free":           {"size=256k", 64},
		"none for the shared index": {"size=256k", 60},
		"none for the version":      {"size=256k", 54},
		"none for the tables":       {"size=256k", 46},
		"no file is free":           {"nr_inodes=1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, c.options); err != nil {
				t.Skipf("cannot mount a tmpfs here: %v", err)
			}
			t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
			if c.filler > 0 {
				writeFile(t, filepath.Join(dir, "filler"), make([]byte, c.filler<<12))
			}
			path := filepath.Join(dir, "cove.db")
			s, err := Open(t.Context(), path)
			if err == nil {
				s.Close()
				t.Fatal("there was room")
			}
			if text := "cannot write the database " + path + ": the disk is full"; cove.ErrorMessage(err) != text ||
				cove.ErrorCode(err) != cove.StorageFull || !strings.Contains(cove.ErrorHint(err), "df -h "+dir) {
				t.Errorf("%v", err)
			}
		})
	}
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAuditIsAppendOnly(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "cove.db"))
	for range 3 {
		if err := s.Append(t.Context(), store.Record{Action: "execute"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, statement := range []string{
		`UPDATE audit SET detail = 'forged' WHERE seq = 2`,
		`UPDATE audit SET seq = 9 WHERE seq = 3`,
		`DELETE FROM audit`,
		`DELETE FROM audit WHERE seq = 3`,
		`INSERT OR REPLACE INTO audit SELECT seq, time, 'forged', action, object, verdict, detail, hash FROM audit WHERE seq = 2`,
		`INSERT INTO audit VALUES (1, 0, '', '', '', '', '', '')`,
		`UPDATE audit_owners SET removed = 9`,
		`UPDATE audit_owners SET removed = -1`,
		`DELETE FROM audit_owners`,
		`INSERT INTO audit_links VALUES (3, 'forged')`,
	} {
		if _, err := s.write.Exec(statement); err == nil || !strings.Contains(err.Error(), "audit log is") {
			t.Errorf("%s: %v", statement, err)
		}
	}
	if v, err := s.Verify(t.Context()); v.Broken != 0 || err != nil {
		t.Errorf("the chain breaks at %d (%v)", v.Broken, err)
	}
}

// TestVerifyFindsTampering removes the triggers first, as somebody with the file in an editor would.
func TestVerifyFindsTampering(t *testing.T) {
	for _, c := range []struct {
		statement string
		broken    int64
	}{
		{`UPDATE audit SET detail = 'forged' WHERE seq = 4`, 4},
		{`UPDATE audit SET time = time + 1 WHERE seq = 4`, 4},
		{`UPDATE audit SET who = who || action, action = '' WHERE seq = 4`, 4},
		{`UPDATE audit SET hash = (SELECT hash FROM audit WHERE seq = 3) WHERE seq = 4`, 4},
		{`DELETE FROM audit WHERE seq = 1`, 1},
		{`DELETE FROM audit WHERE seq = 5`, 5},
		{`DELETE FROM audit WHERE seq > 8`, 9},
		{`DELETE FROM audit`, 1},
		{`DELETE FROM audit WHERE seq < 3`, 1},
		{`INSERT INTO audit_links VALUES (2, 'forged'); DELETE FROM audit WHERE seq < 3`, 1},
		{`INSERT INTO audit_links SELECT seq, hash FROM audit WHERE seq = 4; DELETE FROM audit WHERE seq = 4`, 4},
	} {
		s := openAt(t, filepath.Join(t.TempDir(), "cove.db"))
		for range 10 {
			if err := s.Append(t.Context(), store.Record{Time: time.Unix(9, 0), Who: "a", Action: "b"}); err != nil {
				t.Fatal(err)
			}
		}
		for _, drop := range []string{"audit_no_update", "audit_no_delete", "audit_append_only", "audit_links_fit"} {
			if _, err := s.write.Exec("DROP TRIGGER " + drop); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.write.Exec(c.statement); err != nil {
			t.Fatal(err)
		}
		if v, err := s.Verify(t.Context()); v.Broken != c.broken || err != nil {
			t.Errorf("%s: found at %d (%v), want %d", c.statement, v.Broken, err, c.broken)
		}
		s.Close()
	}
}

func TestPruneReturnsSpace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cove.db")
	s := openAt(t, path)
	end := time.Unix(1000, 0)
	for range 20 {
		e := store.Execution{ID: cove.NewExecutionID(), Status: cove.StatusCompleted,
			FinishedAt: &end, Output: strings.Repeat("x", 100<<10)}
		if err := s.Begin(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.Prune(t.Context(), end.Add(time.Second)); n != 20 || err != nil {
		t.Fatalf("removed %d (%v)", n, err)
	}
	var left int
	if err := s.read.QueryRow(`SELECT count(*) FROM outputs`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d outputs left (%v)", left, err)
	}
	s.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 512<<10 {
		t.Errorf("the file still has %d bytes", info.Size())
	}
}

// TestFormOfExecutions: records that earlier versions of Cove have written stay readable.
func TestFormOfExecutions(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "cove.db"))
	const row = `{"id":"ex_old","duration":1.5,"limit_hit":"oom","cpu":12.5,"memory":7.25,
		"events":[{"rule":"r","severity":"high","line":2,"detail":"d"}],
		"models":[{"provider":"p","requests":2,"input_tokens":3,"output_tokens":4,"cache_read_tokens":5,"cache_write_tokens":6,"cost":0.5,"estimated":1}]}`
	if _, err := s.write.Exec(
		`INSERT INTO executions (id, instance, client, code_hash, language, spec, created_at, engine, status, exit_code,
		duration, limit_hit, cpu_time_ms, memory_peak_mb, pids_used, bytes_written, disk_used, truncated, events, models, error)
		SELECT value->>'id', 'in_1', 'owner', 'h', 'python', '{}', 1, 'native', 'limited', 137, value->>'duration', value->>'limit_hit',
		value->>'cpu', value->>'memory', 3, 4, 5, 1, value->'events', value->'models', '' FROM json_each(?)`, "["+row+"]"); err != nil {
		t.Fatal(err)
	}
	got, err := s.Get(t.Context(), "ex_old")
	want := store.Execution{
		ID: "ex_old", Instance: "in_1", Owner: got.Owner, CodeHash: "h", Language: "python", Engine: "native",
		Status:   cove.StatusLimited,
		ExitCode: 137, Limit: cove.LimitOOM, Duration: 1500 * time.Millisecond,
		Usage: cove.Usage{CPUTime: 12500 * time.Microsecond, MemoryPeak: 7<<20 + 1<<18, PIDsPeak: 3,
			BytesWritten: 4, DiskUsed: 5},
		Models: []model.ProviderUsage{{Provider: "p", Usage: model.Usage{Requests: 2, Input: 3, Output: 4, CacheRead: 5,
			CacheWrite: 6, Cost: 0.5, Estimated: 1}}},
		Events: []detect.Event{{Rule: "r", Severity: detect.High, Line: 2, Detail: "d"}}, Truncated: true,
		CreatedAt: time.UnixMicro(1).UTC(),
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v (%v)", got, want, err)
	}
	got.ID, got.Status = "ex_new", cove.StatusRunning
	if err := errors.Join(s.Begin(t.Context(), got), s.Finish(t.Context(), got, store.Record{})); err != nil {
		t.Fatal(err)
	}
	var same int
	if err := s.read.QueryRow(
		`SELECT count(*) FROM executions a, executions b WHERE a.id = 'ex_old' AND b.id = 'ex_new' AND a.duration = b.duration
		AND a.cpu_time_ms = b.cpu_time_ms AND a.memory_peak_mb = b.memory_peak_mb AND json(a.events) = json(b.events) AND json(a.models) = json(b.models)`).Scan(&same); err != nil || same != 1 {
		t.Errorf("a record is not written as it was read (%d, %v)", same, err)
	}
}

// TestFormOfRuns: as with executions.
func TestFormOfRuns(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "cove.db"))
	const old = `{"id":"ru_old","agent":"claude","version":"1.2.3","prompt":"p","status":"limit","error":{"error":"e","code":"c","hint":"h","request_id":""},` +
		`"exit_code":1,"limit_hit":"turns","session_id":"s","usage":{"input_tokens":1,"output_tokens":2},"sandbox":"sb_1","changes":[{"path":"a",` +
		`"change":"renamed","old_path":"b","added":1,"removed":0}],"created_by":"key:ci","started_at":"2026-01-02T03:04:05Z","Spec":{"Own":true,"Dir":"/tmp/x"}}`
	if _, err := s.write.Exec(`INSERT INTO runs (id, agent, status, sandbox, client, started_at, record) VALUES ('ru_old', 'claude', 'limit', 'sb_1', 'key:ci', 1, ?)`, old); err != nil {
		t.Fatal(err)
	}
	got, err := s.Run(t.Context(), "ru_old")
	want := store.Run{
		ID: "ru_old", Agent: "claude", Version: "1.2.3", Prompt: "p", Status: store.RunLimit, Error: &store.Failure{Error: "e", Code: "c", Hint: "h"},
		ExitCode: new(1), Limit: "turns", Session: "s", Usage: message.AgentUsage{InputTokens: 1, OutputTokens: 2}, Sandbox: "sb_1",
		Changes:   []store.FileChange{{Path: "a", Change: "renamed", OldPath: "b", Added: 1}},
		CreatedBy: "key:ci", StartedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Spec: store.RunSpec{Own: true, Dir: "/tmp/x"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v (%v)", got, want, err)
	}
}

// writeForever appends and acknowledges on stdout each write that the store has acknowledged.
func writeForever(dir string) {
	ctx := context.Background()
	s, err := Open(ctx, filepath.Join(dir, "cove.db"))
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	for {
		e := store.Execution{ID: cove.NewExecutionID(), Language: "python", Instance: "in_child"}
		err := s.Begin(ctx, e)
		if err == nil {
			e.Status, e.Output = cove.StatusCompleted, "done"
			err = s.Finish(ctx, e, store.Record{Action: "execute", Object: string(e.ID)})
		}
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println("ok", e.ID)
	}
}

// TestKill kills a writing process at random moments. Whatever it had acknowledged is there, and the chain holds.
func TestKill(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	dir := t.TempDir()
	acknowledged := map[string]bool{}
	for range rounds {
		for _, id := range runAndKill(t, childDir, dir, time.Duration(5+rand.IntN(120))*time.Millisecond) {
			acknowledged[id] = true
		}
		s := openAt(t, filepath.Join(dir, "cove.db"))
		if v, err := s.Verify(t.Context()); v.Broken != 0 || err != nil {
			t.Fatalf("the chain breaks at %d (%v)", v.Broken, err)
		}
		for id := range acknowledged {
			e, err := s.Get(t.Context(), cove.ExecutionID(id))
			if err != nil || e.Status != cove.StatusCompleted || e.Output != "done" {
				t.Fatalf("acknowledged %s is %q (%v)", id, e.Status, err)
			}
			if p, err := s.Audit(t.Context(), store.AuditQuery{Object: id, Limit: 2}); err != nil || len(p.Records) != 1 {
				t.Fatalf("acknowledged %s has %d audit records (%v)", id, len(p.Records), err)
			}
		}
		if n, err := s.Abandon(t.Context(), store.Record{}, func(cove.InstanceID) bool { return true }); err != nil || n > 1 {
			t.Fatalf("%d executions were running (%v)", n, err)
		}
		var check string
		if err := s.read.QueryRow("PRAGMA integrity_check").Scan(&check); err != nil || check != "ok" {
			t.Fatalf("integrity: %s (%v)", check, err)
		}
		s.Close()
	}
	if len(acknowledged) == 0 {
		t.Error("no write was acknowledged before a kill; the test has shown nothing")
	}
	t.Logf("%d acknowledged writes over %d kills", len(acknowledged), rounds)
}

// runAndKill runs a child until some time after its first write, and returns what it has acknowledged.
func runAndKill(t *testing.T, child, dir string, after time.Duration) []string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	var ids []string
	kill := func() { cmd.Process.Kill() }
	var timer *time.Timer
	for {
		line, err := r.ReadString('\n')
		if timer == nil { // counted from the first write, not from the start of the process
			timer = time.AfterFunc(after, kill)
		}
		if err == io.EOF {
			break // a line without its end was not acknowledged
		}
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word != "ok" {
			t.Fatalf("the child says %q", line)
		}
		ids = append(ids, rest)
	}
	timer.Stop()
	cmd.Wait()
	return ids
}

// BenchmarkOpen is what every cove run pays for its history.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "cove.db")
	for range b.N {
		s, err := Open(b.Context(), path)
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

// BenchmarkExecution is one execution's writes.
func BenchmarkExecution(b *testing.B) {
	s, err := Open(b.Context(), filepath.Join(b.TempDir(), "cove.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for b.Loop() {
		e := store.Execution{ID: cove.NewExecutionID(), Language: "python"}
		if err := s.Begin(b.Context(), e); err != nil {
			b.Fatal(err)
		}
		e.Status = cove.StatusCompleted
		if err := s.Finish(b.Context(), e, store.Record{Action: "execute"}); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzCursor(f *testing.F) {
	f.Add(encodeCursor(ofExecutions, place{1, 2}))
	f.Add(encodeCursor(ofAudit|byTime, place{1, 2}))
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		read := 0
		for _, of := range []list{ofExecutions, ofAudit} {
			seq, err := decodeCursor(of, s)
			if err != nil {
				continue
			}
			if read++; encodeCursor(of, seq) != s {
				t.Errorf("%q and %q are the same cursor", s, encodeCursor(of, seq))
			}
		}
		if read > 1 {
			t.Errorf("%q is a cursor of both lists", s)
		}
	})
}

// TestRemovedIsGone: what was removed is not left in the file, in whatever pages it was.
func TestRemovedIsGone(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), filepath.Join(dir, "cove.db"))
	if err != nil {
		t.Fatal(err)
	}
	secret := "a secret of a sandbox that is gone"
	for _, do := range []string{`CREATE TABLE variables (v TEXT)`,
		`INSERT INTO variables VALUES ('` + secret + `'), ('` + strings.Repeat(secret, 1000) + `'), ('stays')`,
		`DELETE FROM variables WHERE v != 'stays'`} {
		if _, err := s.write.ExecContext(t.Context(), do); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if all, err := os.ReadFile(filepath.Join(dir, f.Name())); err != nil || bytes.Contains(all, []byte(secret)) {
			t.Errorf("%s has it still, %v", f.Name(), err)
		}
	}
}
