package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// TestSizeIsBounded: outputs beyond the bound take the place of the oldest, whose records stay, as does the audit log.
func TestSizeIsBounded(t *testing.T) {
	const bound, size, total = 6 << 20, 500 << 10, 40
	path := filepath.Join(t.TempDir(), "cove.db")
	s, err := OpenBounded(t.Context(), path, Bounds{Size: bound}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	add := func() cove.ExecutionID {
		t.Helper()
		e := store.Execution{ID: cove.NewExecutionID()}
		if err := s.Begin(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		end := time.Unix(9, 0)
		e.Status, e.FinishedAt, e.Output = cove.StatusCompleted, &end, strings.Repeat("o", size)
		if err := s.Finish(t.Context(), e, store.Record{Action: "execute", Object: string(e.ID)}); err != nil {
			t.Fatal(err)
		}
		return e.ID
	}
	kept := func(id cove.ExecutionID) bool {
		t.Helper()
		e, err := s.Get(t.Context(), id)
		if err != nil || e.Status != cove.StatusCompleted || (e.Output == "") != (e.OutputGone == store.GoneHistorySize) {
			t.Fatalf("%s, %d bytes, %q, %v", e.Status, len(e.Output), e.OutputGone, err)
		}
		return e.Output != ""
	}
	var all []cove.ExecutionID
	for range total {
		all = append(all, add())
	}
	if kept(all[0]) || !kept(all[total-1]) {
		t.Error("the oldest has its output, or the newest none")
	}
	var used int64
	if used, err = usedBy(t.Context(), s.read); err != nil || used > bound {
		t.Errorf("%d bytes are in use, %v", used, err)
	}
	if v, err := s.Verify(t.Context()); err != nil || v.Records != total || v.Broken != 0 {
		t.Errorf("%+v, %v", v, err)
	}
	// On a disk with too little free space the database does not grow by outputs.
	s.bounds = Bounds{Free: math.MaxInt64}
	newest := add()
	if after, err := usedBy(t.Context(), s.read); err != nil || after > used+64<<10 || !kept(newest) {
		t.Errorf("%d bytes were in use, and %d are, %v", used, after, err)
	}
	// A bound that is lowered is met by Prune, which gives the space back.
	s.bounds = Bounds{Size: 2 << 20}
	if n, err := s.Prune(t.Context(), time.Time{}); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	s.Close()
	if info, err := os.Stat(path); err != nil || info.Size() > 2<<20 {
		t.Errorf("the file has %v, %v", info, err)
	}
}

// TestRemovalIsBounded: one end removes few of many small outputs, Prune the rest, and the log says so once.
func TestRemovalIsBounded(t *testing.T) {
	var log bytes.Buffer
	path := filepath.Join(t.TempDir(), "cove.db")
	s, err := OpenBounded(t.Context(), path, Bounds{}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const many = 200
	_, err = s.write.Exec(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO executions (id, instance, client, code_hash, language, engine, status, exit_code, duration, limit_hit,
		cpu_time_ms, memory_peak_mb, pids_used, bytes_written, disk_used, truncated, events, error, created_at)
		SELECT 'ex_' || i, '', '', '', '', '', 'completed', 0, 0, '', 0, 0, 0, 0, 0, 0, '[]', '', i FROM n`, many)
	if err == nil {
		_, err = s.write.Exec(`INSERT INTO outputs (seq, stdout, stderr) SELECT seq, 'small', '' FROM executions`)
	}
	if err != nil {
		t.Fatal(err)
	}
	outputs := func() (n int) {
		t.Helper()
		if err := s.read.QueryRow(`SELECT count(*) FROM outputs`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	e := store.Execution{ID: cove.NewExecutionID()}
	if err := s.Begin(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	s.bounds = Bounds{Size: 1}
	e.Status, e.Output = cove.StatusCompleted, "o"
	if err := s.Finish(t.Context(), e, store.Record{Action: "execute"}); err != nil {
		t.Fatal(err)
	}
	if left := outputs(); left <= many-2*largestBatch || left == many+1 {
		t.Errorf("%d of %d outputs are left", left, many)
	}
	if _, err := s.Prune(t.Context(), time.Time{}); err != nil || outputs() != 0 {
		t.Errorf("%d outputs are left by Prune, %v", outputs(), err)
	}
	if n := strings.Count(log.String(), "removed the output"); n != 1 {
		t.Errorf("the log says so %d times: %s", n, log.String())
	}
}

// TestOutdated: records of a wrong clock neither keep the others nor let them go.
func TestOutdated(t *testing.T) {
	for times, want := range map[string]int{
		"":           0,
		"oooo":       4,
		"nnnn":       0,
		"oonn":       2,
		"nooo":       4,
		"nnooooo":    7,
		"nnnnnnnnoo": 0, // the clock was behind for a moment
		"oooonnnnoo": 4,
		"no":         0,
	} {
		var records []dated
		for _, r := range times {
			records = append(records, dated{time: map[rune]int64{'o': 1, 'n': 3}[r]})
		}
		if got := outdated(records, 2); got != want {
			t.Errorf("%s: %d may go, want %d", fmt.Sprintf("%q", times), got, want)
		}
	}
}

// TestFlooderGivesWay: records count towards the bound. A client with many, which have no output, loses its own oldest;
// the database stays within its bound, and what another client had and has is kept.
func TestFlooderGivesWay(t *testing.T) {
	const bound = 4 << 20
	s, err := OpenBounded(t.Context(), filepath.Join(t.TempDir(), "cove.db"), Bounds{Size: bound},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	end := time.Unix(9, 0)
	owners := func() store.Execution {
		t.Helper()
		e := store.Execution{ID: cove.NewExecutionID(), Owner: cove.MachineOwner()}
		err := s.Begin(t.Context(), e)
		e.Status, e.FinishedAt, e.Output = cove.StatusCompleted, &end, strings.Repeat("o", 50<<10)
		if err := errors.Join(err, s.Finish(t.Context(), e, store.Record{Action: "execute"})); err != nil {
			t.Fatal(err)
		}
		return e
	}
	kept := []store.Execution{owners(), owners()}
	labels := map[string]string{}
	for i := range 64 {
		labels[fmt.Sprint("label", i)] = strings.Repeat("x", 1000)
	}
	var first cove.ExecutionID
	for i := range 300 {
		e := store.Execution{ID: cove.NewExecutionID(), Owner: cove.KeyHolder("flooder"), Spec: cove.Spec{Labels: labels},
			Status: cove.StatusRefused, FinishedAt: &end}
		if i == 0 {
			first = e.ID
		}
		if err := s.Begin(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	kept = append(kept, owners())
	for i, e := range kept {
		if got, err := s.Get(t.Context(), e.ID); err != nil || got.Output != e.Output {
			t.Errorf("execution %d of the owner: %d bytes, %q, %v", i, len(got.Output), got.OutputGone, err)
		}
	}
	if _, err := s.Get(t.Context(), first); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("the oldest of the flood: %v", err)
	}
	if used, err := usedBy(t.Context(), s.read); err != nil || used > bound {
		t.Errorf("%d bytes are in use, %v", used, err)
	}
}

// TestRecordsStayOnAFullDisk: below the floor of free space new executions and their outputs take the place of old
// outputs, and of no record: what was acknowledged stays in the history, and what finds no room is refused.
func TestRecordsStayOnAFullDisk(t *testing.T) {
	s, err := OpenBounded(t.Context(), filepath.Join(t.TempDir(), "cove.db"), Bounds{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	end := time.Unix(9, 0)
	var kept []cove.ExecutionID
	run := func(output int) (store.Execution, error) {
		t.Helper()
		e := store.Execution{ID: cove.NewExecutionID(), Owner: cove.MachineOwner()}
		if err := s.Begin(t.Context(), e); err != nil {
			return e, err
		}
		e.Status, e.FinishedAt, e.Output = cove.StatusCompleted, &end, strings.Repeat("o", output)
		if err := s.Finish(t.Context(), e, store.Record{Action: "execute"}); err != nil {
			t.Fatal(err)
		}
		kept = append(kept, e.ID)
		return s.Get(t.Context(), e.ID)
	}
	for range 200 {
		if _, err := run(0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := run(200 << 10); err != nil {
		t.Fatal(err)
	}
	s.bounds = Bounds{Free: math.MaxInt64}
	if e, err := run(100 << 10); err != nil || e.OutputGone != "" {
		t.Errorf("in the place of an old output: %q, %v", e.OutputGone, err)
	}
	if e, err := run(10 << 20); err != nil || e.OutputGone != store.GoneStorageFull {
		t.Errorf("an output that is too large: %q, %v", e.OutputGone, err)
	}
	refused := 0
	for range 1000 {
		if _, err := run(0); cove.ErrorCode(err) == cove.StorageFull {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused == 0 {
		t.Error("all executions have found room")
	}
	for i, id := range kept {
		if _, err := s.Get(t.Context(), id); err != nil {
			t.Fatalf("execution %d of %d: %v", i, len(kept), err)
		}
	}
}
