package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

func openBounded(t *testing.T, path string, bounds Bounds) *Store {
	t.Helper()
	s, err := OpenBounded(t.Context(), path, bounds, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// note appends records of an owner.
func note(t *testing.T, s *Store, who string, n int) {
	t.Helper()
	for i := range n {
		err := s.Append(t.Context(), store.Record{Time: time.Now(), Who: who, Action: "execute", Object: fmt.Sprint("ex_", i),
			Verdict: "ok", Detail: "status completed, exit code 0"})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// records returns the records of an owner, of all owners if who is empty, the oldest first.
func records(t *testing.T, s *Store, who string) (all []store.Record) {
	t.Helper()
	for q := (store.AuditQuery{Who: who, Limit: store.MaxPage}); ; {
		page, err := s.Audit(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Records {
			all = append([]store.Record{r}, all...)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return all
		}
	}
}

var said = regexp.MustCompile(`^removed (\d+) of the oldest records, from (\S+) to (\S+), for audit\.`)

// accounted checks that the chain of the log is intact, and that the prune records in it name as many records as are
// missing. An earlier version has pruned the first ones without a record. It returns the number that is missing.
func accounted(t *testing.T, s *Store, earlier int64) (gone int64) {
	t.Helper()
	v, err := s.Verify(t.Context())
	if err != nil || v.Broken != 0 {
		t.Fatalf("the chain breaks at %d, %v", v.Broken, err)
	}
	var last int64
	for _, r := range records(t, s, "") {
		if last = r.Seq; r.Action != actionPrune {
			continue
		}
		m := said.FindStringSubmatch(r.Detail)
		if m == nil || r.Who != pruner || m[2] > m[3] {
			t.Fatalf("%+v", r)
		}
		n, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		gone += n
	}
	if last-v.Records != gone+earlier {
		t.Fatalf("%d records are missing, and the log tells of %d", last-v.Records-earlier, gone)
	}
	return gone
}

// TestAuditFlooderGivesWay: the audit log stays within its bound at the cost of the owner that fills it. What others
// did before, meanwhile and afterwards stays, and so does the history.
func TestAuditFlooderGivesWay(t *testing.T) {
	const bound = 500 << 10
	s := openBounded(t, filepath.Join(t.TempDir(), "cove.db"), Bounds{Size: 1 << 20, Audit: bound})
	e := store.Execution{ID: cove.NewExecutionID(), Owner: cove.MachineOwner()}
	if err := s.Begin(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	end := time.Unix(9, 0)
	e.Status, e.FinishedAt, e.Output = cove.StatusCompleted, &end, strings.Repeat("o", 500<<10)
	if err := s.Finish(t.Context(), e, store.Record{Time: end, Who: "local", Action: "execute"}); err != nil {
		t.Fatal(err)
	}
	note(t, s, "key:ci", 100)
	for range 40 {
		note(t, s, "key:flooder", 100)
		note(t, s, "local", 1)
	}
	note(t, s, "key:ci", 100)
	for who, want := range map[string]int{"key:ci": 200, "local": 41} {
		if got := len(records(t, s, who)); got != want {
			t.Errorf("%d records of %s are left, of %d", got, who, want)
		}
	}
	if gone := accounted(t, s, 0); gone < 2000 {
		t.Errorf("%d records have gone", gone)
	}
	flood := records(t, s, "key:flooder")
	if len(flood) == 0 || flood[len(flood)-1].Object != "ex_99" {
		t.Error("the newest of the flood has gone")
	}
	if bytes, err := auditBytes(t.Context(), s.read); err != nil || bytes > bound+1000 {
		t.Errorf("the log takes %d bytes, %v", bytes, err)
	}
	if used, err := usedBy(t.Context(), s.read); err != nil || used > 2<<20 {
		t.Errorf("%d bytes are in use, %v", used, err)
	}
	if got, err := s.Get(t.Context(), e.ID); err != nil || got.Output != e.Output {
		t.Errorf("the output of the history: %d bytes, %q, %v", len(got.Output), got.OutputGone, err)
	}
}

// TestAuditTakesNothingOfTheHistory: a large audit log leaves the history all of its own bound.
func TestAuditTakesNothingOfTheHistory(t *testing.T) {
	const bound = 1 << 20
	s := openBounded(t, filepath.Join(t.TempDir(), "cove.db"), Bounds{Size: bound})
	note(t, s, "local", 5000)
	if bytes, err := auditBytes(t.Context(), s.read); err != nil || bytes < bound {
		t.Fatalf("the log takes %d bytes, %v", bytes, err)
	}
	var all []cove.ExecutionID
	end := time.Unix(9, 0)
	for range 10 {
		e := store.Execution{ID: cove.NewExecutionID(), Status: cove.StatusCompleted, FinishedAt: &end,
			Output: strings.Repeat("o", 50<<10)}
		if err := s.Begin(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e.ID)
	}
	if _, err := s.Prune(t.Context(), time.Time{}); err != nil {
		t.Fatal(err)
	}
	for _, id := range all {
		if e, err := s.Get(t.Context(), id); err != nil || e.Output == "" {
			t.Errorf("the output of %s: %q, %v", id, e.OutputGone, err)
		}
	}
}

// TestAuditBoundIsLowered: Prune brings a log within a bound that is lower than before, and gives the space back.
func TestAuditBoundIsLowered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cove.db")
	s := openBounded(t, path, Bounds{})
	note(t, s, "key:ci", 100)
	note(t, s, "local", 4000)
	s.bounds.Audit = 500 << 10
	if _, err := s.Prune(t.Context(), time.Time{}); err != nil {
		t.Fatal(err)
	}
	accounted(t, s, 0)
	if n := len(records(t, s, "key:ci")); n != 100 {
		t.Errorf("%d records of another are left", n)
	}
	bytes, err := auditBytes(t.Context(), s.read)
	if err != nil || bytes > 500<<10 || bytes < 300<<10 {
		t.Errorf("the log takes %d bytes, %v", bytes, err)
	}
	s.Close()
	if info, err := os.Stat(path); err != nil || info.Size() > 1<<20 {
		t.Errorf("the file has %v, %v", info, err)
	}
}

// TestAuditBytes: what the log is said to take is what it takes, to a third.
func TestAuditBytes(t *testing.T) {
	for name, r := range map[string]store.Record{
		"small": {Who: "local", Action: "kill", Verdict: "ok"},
		"usual": {Who: "key:continuous-integration", Action: "execute", Verdict: "ok",
			Detail: "python, engine native, status completed, exit code 0, 12 ms"},
		"large": {Who: "uid:1000", Action: "sandbox-exec", Verdict: "error", Detail: strings.Repeat("x", store.MaxDetail)},
	} {
		s := openAt(t, filepath.Join(t.TempDir(), "cove.db"))
		before, err := usedBy(t.Context(), s.read)
		if err != nil {
			t.Fatal(err)
		}
		err = s.change(t.Context(), func(tx *tx) error {
			for i := range 2000 {
				r.Time, r.Object = time.UnixMicro(int64(i)), string(cove.NewExecutionID())
				if err := appendRecord(t.Context(), tx, 0, r); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		used, err := usedBy(t.Context(), s.read)
		if err != nil {
			t.Fatal(err)
		}
		said, err := auditBytes(t.Context(), s.read)
		is := used - before
		if t.Logf("%s: %d bytes a record, counted as %d", name, is/2000, said/2000); err != nil ||
			said < is*2/3 || said > is*4/3 {
			t.Errorf("%s: it takes %d, and is said to take %d, %v", name, is, said, err)
		}
	}
}

// TestPruningKeepsTheChain: however records of several owners are added, and pruned by size and by age, the log stays
// intact, and is again once it has been opened anew.
func TestPruningKeepsTheChain(t *testing.T) {
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 1))
		path := filepath.Join(t.TempDir(), "cove.db")
		s := openBounded(t, path, Bounds{Audit: 30 << 10})
		at, pruned := time.Unix(1000, 0), 0
		for step := range 400 {
			at = at.Add(time.Duration(random.IntN(20)-2) * time.Second)
			who := fmt.Sprint("key:", random.IntN(1+int(seed%5)))
			err := s.Append(t.Context(), store.Record{Time: at, Who: who, Action: "execute",
				Detail: strings.Repeat("x", random.IntN(500))})
			if err != nil {
				t.Fatal(err)
			}
			if random.IntN(40) == 0 {
				age := at.Add(-time.Duration(random.IntN(1000)) * time.Second)
				if _, err := s.Prune(t.Context(), age); err != nil {
					t.Fatal(err)
				}
				pruned++
			}
			if v, err := s.Verify(t.Context()); err != nil || v.Broken != 0 {
				t.Fatalf("seed %d, step %d: the chain breaks at %d, %v", seed, step, v.Broken, err)
			}
		}
		s.Close()
		s = openBounded(t, path, Bounds{})
		if v, err := s.Verify(t.Context()); err != nil || v.Broken != 0 || v.Records > 200 || pruned == 0 {
			t.Errorf("seed %d: %+v, %v, pruned %d times", seed, v, err, pruned)
		}
	}
}

// TestVerifyFindsTamperingAfterPruning: in a log with gaps that pruning has made, one that is made by hand is found,
// also where its link is made with it.
func TestVerifyFindsTamperingAfterPruning(t *testing.T) {
	const cut = `INSERT INTO audit_links SELECT seq, hash FROM audit WHERE seq = %[1]d;
		DELETE FROM audit WHERE seq = %[1]d;`
	const insert = `INSERT INTO audit (seq, time, who, action, object, verdict, detail, hash) VALUES (?,?,?,?,?,?,?,?)`
	path := filepath.Join(t.TempDir(), "cove.db")
	s := openBounded(t, path, Bounds{Audit: 100 << 10})
	note(t, s, "local", 5)
	note(t, s, "key:flooder", 1)
	var row []any // of the flood, before it is pruned
	oldest := records(t, s, "key:flooder")[0]
	for _, v := range []any{oldest.Seq, oldest.Time.UnixMicro(), oldest.Who, oldest.Action, oldest.Object, oldest.Verdict,
		oldest.Detail, oldest.Hash} {
		row = append(row, v)
	}
	note(t, s, "local", 5)
	note(t, s, "key:flooder", 600)
	note(t, s, "local", 1)
	accounted(t, s, 0)
	newest := records(t, s, "")
	last, prunings := newest[len(newest)-1].Seq, records(t, s, pruner)
	left := records(t, s, "key:flooder")[0].Seq
	s.Close()
	database, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pruning := prunings[len(prunings)-1].Seq
	for name, c := range map[string]struct {
		statement string
		args      []any
		instead   int64
		broken    bool
	}{
		"as it is":                  {statement: `SELECT 1`},
		"another's record":          {statement: fmt.Sprintf(cut, 8), broken: true},
		"another's, without a link": {statement: `DELETE FROM audit WHERE seq = 8`, broken: true},
		"the record of the pruning": {statement: fmt.Sprintf(cut, pruning), broken: true},
		"one after it":              {statement: fmt.Sprintf(cut, last-1), broken: true},
		"the last":                  {statement: fmt.Sprintf(cut, last), broken: true},
		"more of the flood":         {statement: fmt.Sprintf(cut, left), broken: true},
		"more of the flood, as counted": {statement: fmt.Sprintf(cut+`UPDATE audit_owners SET removed = %[1]d
			WHERE who = 'key:flooder'`, left), broken: true},
		"a link": {statement: `UPDATE audit_links SET hash = 'forged'`, broken: true},
		"what was removed is back in the place of another's": {statement: insert, args: row, instead: 8, broken: true},
		"what was removed is back in the place of another":   {statement: insert, args: row, instead: left, broken: true},
	} {
		path := filepath.Join(t.TempDir(), "cove.db")
		writeFile(t, path, database)
		s := openAt(t, path)
		if c.broken {
			for _, drop := range []string{"audit_no_update", "audit_no_delete", "audit_append_only", "audit_owners_forward",
				"audit_owners_stay", "audit_links_fit", "audit_links_no_update", "audit_links_stay"} {
				if _, err := s.write.Exec("DROP TRIGGER " + drop); err != nil {
					t.Fatal(err)
				}
			}
		}
		if c.instead > 0 {
			if _, err := s.write.Exec(fmt.Sprintf(cut, c.instead)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.write.Exec(c.statement, c.args...); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if v, err := s.Verify(t.Context()); err != nil || (v.Broken != 0) != c.broken {
			t.Errorf("%s: found at %d, %v", name, v.Broken, err)
		}
	}
}

// TestKillWhilePruning kills a process that fills a bounded log, while it prunes: after it has removed records and
// before it has recorded that, or before both are committed. The log is intact, has what was acknowledged last, and
// tells of all that is missing.
func TestKillWhilePruning(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, filepath.Join(dir, "cove.db"))
	note(t, s, "local", 20)
	s.Close()
	var gone int64
	for _, moment := range []string{"BEFORE", "AFTER", "BEFORE", "AFTER"} {
		t.Setenv(childMoment, moment)
		told := runAndKill(t, childBound, dir, time.Minute)
		s := openAt(t, filepath.Join(dir, "cove.db"))
		gone = accounted(t, s, 0)
		if n := len(records(t, s, "local")); n != 20 {
			t.Fatalf("%d records of another are left", n)
		}
		for i, id := range told {
			p, err := s.Audit(t.Context(), store.AuditQuery{Object: id, Limit: 2})
			if err != nil || i == len(told)-1 && len(p.Records) != 1 {
				t.Fatalf("%s: what was acknowledged last has %d records, %v", moment, len(p.Records), err)
			}
		}
		if len(told) == 0 {
			t.Errorf("%s: nothing was acknowledged; the test has shown nothing", moment)
		}
		s.Close()
	}
	if gone == 0 {
		t.Error("nothing was pruned; the test has shown nothing")
	}
	t.Logf("%d records have gone over four kills", gone)
}

// fillForever appends to the log of the database in a directory, whose bound is low. The third time that it has removed
// records, it kills itself before or after it records that, as childMoment says.
func fillForever(dir string) {
	prunings := 0
	sqlite.MustRegisterScalarFunction("die", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		if prunings++; prunings == 3 {
			unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
		return nil, nil
	})
	s, err := OpenBounded(context.Background(), filepath.Join(dir, "cove.db"), Bounds{Audit: 100 << 10},
		slog.New(slog.DiscardHandler))
	if err == nil {
		_, err = s.write.Exec(`CREATE TEMP TRIGGER dies ` + os.Getenv(childMoment) + ` INSERT ON main.audit
			WHEN NEW.action = 'prune' BEGIN SELECT die(); END`)
	}
	for err == nil {
		id := string(cove.NewExecutionID())
		err = s.Append(context.Background(), store.Record{Time: time.Now(), Who: "key:flooder", Action: "execute",
			Object: id})
		if err == nil {
			fmt.Println("ok", id)
		}
	}
	fmt.Println("error", err)
	os.Exit(1)
}
