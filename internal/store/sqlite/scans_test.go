package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/store/storetest"
)

// recorder is SQLite's driver, and keeps the statements that it is given.
type recorder struct {
	driver.Driver

	mu   sync.Mutex
	said map[string]bool
}

func (r *recorder) Open(name string) (driver.Conn, error) {
	c, err := r.Driver.Open(name)
	if err != nil {
		return nil, err
	}
	return &recorded{c, r}, nil
}

type recorded struct {
	driver.Conn
	r *recorder
}

func (c *recorded) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.r.mu.Lock()
	c.r.said[query] = true
	c.r.mu.Unlock()
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (c *recorded) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
}

// histories are the tables that grow with the history.
var histories = []string{"executions", "e", "outputs", "audit", "decisions", "runs", "cpu_used"}

// scans returns the tables of histories that a statement reads from one end on, as its plan says. It is pure.
func scans(plan []string) (all []string) {
	for _, line := range plan {
		if rest, found := strings.CutPrefix(line, "SCAN "); found {
			if table, _, _ := strings.Cut(rest, " "); slices.Contains(histories, table) {
				all = append(all, line)
			}
		}
	}
	return all
}

// bounded are the scans of statements that read few rows all the same, by a part of the statement and the line of the
// plan.
var bounded = []struct{ part, line, reason string }{
	{"FROM decisions WHERE", "SCAN decisions", "their number has a bound"},
	{"FROM decisions GROUP BY client", "SCAN decisions USING COVERING INDEX", "once for each hundredth of that bound"},
	{"(SELECT time FROM audit ORDER BY seq LIMIT ?3)", "SCAN audit", "the oldest ones, of which a number is read"},
	{"FROM audit ORDER BY seq", "SCAN audit", "a verification reads the whole log"},
	{labeled, "SCAN e USING INDEX executions_labeled", "those with labels"},
}

// excused reports whether a scan reads few rows: from one end of a table on, up to a number; or as bounded says. It is
// pure.
func excused(query, line string) bool {
	if !strings.Contains(query, "WHERE") && strings.Contains(query, "LIMIT") {
		return true
	}
	return slices.ContainsFunc(bounded, func(b struct{ part, line, reason string }) bool {
		return strings.Contains(query, b.part) && strings.HasPrefix(line, b.line)
	})
}

func TestScans(t *testing.T) {
	found := scans([]string{"SCAN runs", "SEARCH audit USING INDEX x (time<?)", "SCAN e USING INDEX y",
		"SCAN CONSTANT ROW"})
	if !slices.Equal(found, []string{"SCAN runs", "SCAN e USING INDEX y"}) {
		t.Errorf("%q", found)
	}
	for query, want := range map[string]bool{"SELECT 1 FROM runs LIMIT ?": true, "SELECT 1 FROM runs": false,
		"SELECT 1 FROM runs WHERE agent = ? LIMIT ?": false} {
		if excused(query, "SCAN runs") != want {
			t.Errorf("%s: %v", query, !want)
		}
	}
}

// TestNothingScans: no statement of the store, whatever a caller asks for, reads all of a history. Statements are those
// of the whole suite of stores.
func TestNothingScans(t *testing.T) {
	r := &recorder{Driver: &sqlite.Driver{}, said: map[string]bool{}}
	sql.Register("recorded", r)
	storetest.Run(t, func(t *testing.T, dir string) store.Store {
		s := openAt(t, filepath.Join(dir, "cove.db"))
		for _, db := range []**sql.DB{&s.read, &s.write} {
			options := "_pragma=query_only(1)"
			if db == &s.write {
				options = "_txlock=immediate"
			}
			again, err := sql.Open("recorded", dsn(s.path, options))
			if err != nil {
				t.Fatal(err)
			}
			(*db).Close()
			if *db = again; db == &s.write {
				again.SetMaxOpenConns(1)
			}
		}
		return s
	})
	s := openAt(t, filepath.Join(t.TempDir(), "cove.db"))
	if len(r.said) < 50 {
		t.Fatalf("%d statements are known", len(r.said))
	}
	for query := range r.said {
		if word, _, _ := strings.Cut(strings.TrimSpace(query), " "); word == "PRAGMA" {
			continue
		}
		plan, err := planOf(t.Context(), s, query)
		if err != nil {
			t.Errorf("%s: %v", query, err)
		}
		for _, line := range scans(plan) {
			if !excused(query, line) {
				t.Errorf("%s\n\t%s", query, strings.Join(plan, "\n\t"))
			}
		}
	}
}

// planOf returns the plan of a statement.
func planOf(ctx context.Context, s *Store, query string, args ...any) ([]string, error) {
	if n := strings.Count(query, "?"); len(args) == 0 {
		for i := 1; strings.Contains(query, fmt.Sprint("?", i)); i++ {
			n = i // numbered ones
		}
		args = make([]any, n)
	}
	rows, err := s.write.QueryContext(ctx, "EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			return nil, err
		}
		plan = append(plan, detail)
	}
	return plan, rows.Err()
}

// TestLongHistory: lists, filters, the start and pruning are quick in a long history. With COVE_TEST_LONG it has a
// million rows of each kind, and each of these takes less than two seconds; otherwise 20,000, and no time is measured.
func TestLongHistory(t *testing.T) {
	rows, most := 20_000, time.Duration(0)
	if os.Getenv("COVE_TEST_LONG") != "" {
		rows, most = 1_000_000, 2*time.Second
	}
	path := filepath.Join(t.TempDir(), "cove.db")
	s := openAt(t, path)
	const numbers = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) `
	for _, statement := range []string{
		`INSERT INTO executions (id, instance, client, code_hash, language, engine, status, exit_code, duration,
			limit_hit, cpu_time_ms, memory_peak_mb, pids_used, bytes_written, disk_used, truncated, events, error, spec,
			created_at, finished_at)
		SELECT 'ex_' || i, 'in_1', 'key:' || (i % 3), '', iif(i = 7, 'ruby', 'python'), '',
			iif(i = 9, 'running', 'completed'), 0, 0, '', 0, 0, 0, 0, 0, 0, '[]', '',
			iif(i = 5, '{"Labels":{"a":"b"}}', '{}'), i, iif(i = 9, NULL, i) FROM n`,
		`INSERT INTO audit (time, who, action, object, verdict, detail, hash)
		SELECT i, 'key:' || (i % 3), 'execute', 'ex_' || i, iif(i = 7, 'deny', 'ok'), '', '' FROM n`,
		`INSERT INTO runs (id, agent, status, sandbox, client, started_at, ended_at, record)
		SELECT 'ru_' || printf('%07d', i), iif(i = 7, 'rare', 'worker'), iif(i = 9, 'running', 'succeeded'), 'sb_' || i,
			'key:' || (i % 3), i, i, json_object('id', 'ru_' || i, 'prompt', hex(zeroblob(200))) FROM n`,
	} {
		if _, err := s.write.Exec(numbers+statement, rows); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	step := func(name string, want int, f func() (int, error)) {
		t.Helper()
		begun := time.Now()
		n, err := f()
		took := time.Since(begun)
		if err != nil || n != want {
			t.Errorf("%s: %d, want %d, %v", name, n, want, err)
		}
		if t.Logf("%s: %v", name, took.Round(time.Microsecond)); most > 0 && took > most {
			t.Errorf("%s takes %v", name, took)
		}
	}
	step("start", 1, func() (int, error) {
		s = openAt(t, path)
		_, err := s.Abandon(t.Context(), store.Record{}, func(cove.InstanceID) bool { return false })
		return 1, err
	})
	late := time.UnixMicro(int64(rows))
	for name, c := range map[string]struct {
		q    store.Query
		want int
	}{
		"the newest":           {store.Query{}, 50},
		"until":                {store.Query{Until: time.UnixMicro(int64(rows) / 2)}, 50},
		"a caller's until":     {store.Query{Client: "key:1", Until: late}, 50},
		"what runs":            {store.Query{Status: cove.StatusRunning}, 1},
		"what runs of a key":   {store.Query{Status: cove.StatusRunning, Client: "key:0"}, 1},
		"what runs until":      {store.Query{Status: cove.StatusRunning, Until: late}, 1},
		"a rare language":      {store.Query{Language: "ruby"}, 1},
		"a label":              {store.Query{Labels: map[string]string{"a": "b"}}, 1},
		"a label that is none": {store.Query{Labels: map[string]string{"a": "c"}}, 0},
	} {
		c.q.Limit = 50
		step("executions, "+name, c.want, func() (int, error) {
			page, err := s.List(t.Context(), c.q)
			return len(page.Executions), err
		})
	}
	for name, c := range map[string]struct {
		q    store.AuditQuery
		want int
	}{
		"until":        {store.AuditQuery{Until: time.UnixMicro(int64(rows) / 2)}, 50},
		"what failed":  {store.AuditQuery{Verdict: "deny"}, 1},
		"of an object": {store.AuditQuery{Object: "ex_77"}, 1},
	} {
		c.q.Limit = 50
		step("records, "+name, c.want, func() (int, error) {
			page, err := s.Audit(t.Context(), c.q)
			return len(page.Records), err
		})
	}
	for name, c := range map[string]struct {
		q    store.RunQuery
		want int
	}{
		"what runs":          {store.RunQuery{Status: store.RunRunning}, 1},
		"what runs of a key": {store.RunQuery{Status: store.RunRunning, Client: "key:0"}, 1},
		"an agent's":         {store.RunQuery{Agent: "rare"}, 1},
		"an id":              {store.RunQuery{ID: "ru_0000077"}, 1},
		"the beginning":      {store.RunQuery{ID: "ru_000007"}, 10},
		"a sandbox's":        {store.RunQuery{Sandbox: "sb_7", Client: "key:1"}, 1},
	} {
		c.q.Limit = 50
		step("runs, "+name, c.want, func() (int, error) {
			page, err := s.Runs(t.Context(), c.q)
			return len(page.Runs), err
		})
	}
	step("pruning without anything to do", 0, func() (int, error) { return s.Prune(t.Context(), time.UnixMicro(1)) })
	step("pruning", 99, func() (int, error) { return s.Prune(t.Context(), time.UnixMicro(101)) })
}
