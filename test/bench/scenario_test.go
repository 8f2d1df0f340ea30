//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/test/bench/result"
)

var errMade = errors.New("made up")

// TestArrivals: those at once wait for each other, as do those that are begun one after the other.
func TestArrivals(t *testing.T) {
	for name, l := range map[string]load{"at once": arrivals(5, 0), "staggered": arrivals(5, time.Microsecond)} {
		var begun atomic.Int64
		all := make(chan struct{})
		o := l(t.Context(), func(context.Context) error {
			n := begun.Add(1)
			if n == 5 {
				close(all)
			}
			<-all // no run ends before each has begun
			if n == 2 {
				return errMade
			}
			return nil
		})
		if len(o.samples) != 4 || o.tried != 5 || o.failed != 1 || !errors.Is(o.failure, errMade) {
			t.Errorf("%s: %+v", name, o)
		}
		if bursts := map[string]int{"at once": 1, "staggered": 0}[name]; len(o.last) != bursts {
			t.Errorf("%s: the last was done at %v", name, o.last)
		}
		if name == "at once" && (o.last[0] < slices.Max(o.samples) || slices.Min(o.samples) <= 0) {
			t.Errorf("%v, the last of them at %v", o.samples, o.last)
		}
	}
}

// TestSustained: as many run at the same time as there are clients, and failures do not count as done.
func TestSustained(t *testing.T) {
	const clients = 4
	var at, most, runs atomic.Int64
	var together sync.Once
	all := make(chan struct{})
	o := sustained(clients, time.Millisecond)(t.Context(), func(context.Context) error {
		if n := at.Add(1); n > most.Load() {
			most.Store(n)
			if n == clients {
				together.Do(func() { close(all) })
			}
		}
		<-all
		at.Add(-1)
		if runs.Add(1)%2 == 0 {
			return errMade
		}
		return nil
	})
	if most.Load() != clients {
		t.Errorf("%d ran at the same time", most.Load())
	}
	if int64(o.tried) != runs.Load() || int64(o.failed) != runs.Load()/2 || len(o.samples) != 1 || o.samples[0] <= 0 {
		t.Errorf("%+v of %d runs", o, runs.Load())
	}
}

// TestPlay: contenders take turns after a run that does not count, the slow one stops, and what fails is counted.
func TestPlay(t *testing.T) {
	var order []string
	doing := func(name string, err error) contender {
		return contender{name: name, run: func(context.Context) error {
			order = append(order, name)
			return err
		}}
	}
	unprepared := doing("unprepared", nil)
	unprepared.prepare = func(context.Context) error { return errMade }
	unsettled := doing("cove, unsettled", nil)
	unsettled.settle = func() error { return errMade }
	calm := 0
	s := scenario{name: "s", load: one, rounds: 2, contenders: []contender{doing(result.Plain, nil), doing("bad", errMade),
		unprepared, unsettled, {name: "absent", why: "not installed"}, doing("other", nil)},
		calm: func(context.Context) { calm++ }}
	results, err := s.play(t.Context(), "bad")
	if err != nil {
		t.Fatal(err)
	}
	round := result.Plain + " bad cove, unsettled "
	if got := strings.Join(order, " ") + " "; got != strings.Repeat(round, 3) {
		t.Errorf("the order is %q", got)
	}
	if calm != 9 {
		t.Errorf("it waited %d times", calm)
	}
	for i, want := range []struct {
		samples, tried, failed int
		skipped                string
	}{{2, 2, 0, ""}, {0, 2, 2, ""}, {0, 0, 0, "not asked for"}, {0, 2, 2, ""}, {0, 0, 0, "not installed"},
		{0, 0, 0, "not asked for"}} {
		r := results[i]
		if len(r.Samples) != want.samples || r.Tried != want.tried || r.Failed != want.failed || r.Skipped != want.skipped ||
			(r.Failure != "") != (want.failed > 0) || r.Unit != "ms" {
			t.Errorf("%+v, want %+v", r, want)
		}
	}
	unprepared.why, order = "", nil
	if o, _ := unprepared.round(t.Context(), one); o.failed != 1 || len(o.samples) > 0 || order != nil {
		t.Errorf("what could not be prepared was run: %+v", o)
	}
}

// TestPlayHurries: when there is no time left, each contender has one round.
func TestPlayHurries(t *testing.T) {
	done := func(context.Context) error { return nil }
	s := scenario{load: one, rounds: 5, contenders: []contender{{name: "c", run: done}}}
	for until, want := range map[time.Time]int{{}: 5, time.Now(): 1, time.Now().Add(time.Hour): 5} {
		s.until = until
		if results, err := s.play(t.Context(), ""); err != nil || len(results[0].Samples) != want {
			t.Errorf("until %v: %+v, %v", until, results, err)
		}
	}
}

// TestPlayStops: a benchmark that is interrupted ends.
func TestPlayStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	runs := 0
	s := scenario{load: one, rounds: 1000, contenders: []contender{{name: "c", run: func(context.Context) error {
		runs++
		cancel()
		return nil
	}}}}
	if _, err := s.play(ctx, ""); !errors.Is(err, context.Canceled) || runs != 1 {
		t.Errorf("%d runs, %v", runs, err)
	}
}

func TestParse(t *testing.T) {
	for line, ok := range map[string]bool{
		"": true, "-rounds 3 -part start,memory -out x": true, "-part sandboxes": false, "-rounds 0": false, "extra": false,
		"soak -runs 10 -clients 2": true, "soak -many": false, "soak 10": false, "soak -clients 0": false,
		"-h": false, "compare -h": false, "compare": false, "compare a": true, "compare a b": true,
		"compare a b c": false, "compare -pairs 6 ": false, "compare -pairs 0 a": false, "compare -threshold -1 a": false,
		"compare -row python a": true,
	} {
		if _, err := parse(strings.Fields(line), io.Discard); (err == nil) != ok {
			t.Errorf("%q: %v", line, err)
		}
	}
	if c, err := parseCompare([]string{"HEAD"}, io.Discard); err != nil || c.new != "bin" || c.old != "HEAD" {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestTargetsAreOfScenarios: a target of a scenario or a contender that there is not would never be judged.
func TestTargetsAreOfScenarios(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cove"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	s := &server{}
	b := build{bin: dir, dir: dir, servers: map[string]*server{"": s}}
	for _, f := range forms {
		b.servers[strings.Join(f.settings, " ")] = s
	}
	c := &coveUnderTest{build: b, server: s}
	none := peers{why: map[string]string{}}
	for _, p := range all {
		none.why[p.name] = "not asked for"
	}
	var scenarios []scenario
	for _, of := range []func() ([]scenario, error){
		func() ([]scenario, error) { return startScenarios(t.Context(), c, none, 30) },
		func() ([]scenario, error) { return snippetScenarios(t.Context(), &b, none, 30), nil },
		func() ([]scenario, error) { return commandScenarios(t.Context(), &b, 30) },
		func() ([]scenario, error) { return sustainedScenarios(t.Context(), &b, 30) },
		func() ([]scenario, error) { return packageScenarios(t.Context(), &b, 30, nil) },
	} {
		more, err := of()
		if err != nil {
			t.Fatal(err)
		}
		scenarios = append(scenarios, more...)
	}
	known := map[string]bool{}
	for _, k := range keepings {
		for _, count := range k.counts {
			known[memoryName(k.name, count)+private] = true
		}
	}
	for _, s := range scenarios {
		for _, c := range s.contenders {
			if known[s.name+c.name] {
				t.Errorf("%s is twice in %s", c.name, s.name)
			}
			known[s.name+c.name] = true
		}
		if !known[s.name+result.Plain] {
			t.Errorf("%s has no plain process", s.name)
		}
	}
	for _, p := range []imageProject{goProject, goMountedProject, nodeProject} {
		for _, name := range []string{p.cold, p.changed} {
			known[name+coveBuild], known[name+dockerBuild] = true, true
		}
	}
	known[goChanged+coveCaches] = true
	known[aptInstall+coveApt] = true
	for _, target := range targets {
		if !known[target.Scenario+target.Contender] {
			t.Errorf("nothing measures %q of %q", target.Contender, target.Scenario)
		}
	}
}

// TestForms: each form but the cold one is a kind of the pool, and none is the kind of another.
func TestForms(t *testing.T) {
	kinds := []api.PoolKind{{Language: "python"}, {Language: "node"}, {}}
	for _, f := range forms {
		found := 0
		for _, k := range kinds {
			if f.kept != nil && f.kept(k, "python") {
				found++
			}
		}
		if want := map[bool]int{true: 0, false: 1}[f.kept == nil]; found != want {
			t.Errorf("%s is kept in %d kinds", f.name, found)
		}
	}
	p := api.Pool{Kinds: []api.PoolKind{{Language: "python", Hits: 3}, {Hits: 5}, {Language: "python", Hits: 4}}}
	if n := hits(p, func(k api.PoolKind) bool { return k.Language == "python" }); n != 7 {
		t.Errorf("%d hits", n)
	}
}

// TestPictures: each part that was measured has its pictures, and what was not measured is in none.
func TestPictures(t *testing.T) {
	of := func(part, scenario, group string, x float64, contender string, samples ...float64) result.Result {
		r := []result.Result{{Part: part, Scenario: scenario, Group: group, X: x, Contender: contender, Samples: samples}}
		result.Summarise(r)
		return r[0]
	}
	r := report{result.Report{Results: []result.Result{
		of("start", "one", "", 0, "cove", 4, 5), of("start", "one", "", 0, "docker run", 200),
		of("start", "one", "", 0, "podman run"),
		of("start", "many", "", 0, "cove", 9),
		of("one-liners", "print(1) in python", "python", 0, "cove, cold", 20),
		of("one-liners", "x", "node", 0, "cove, parked", 9),
		of("one-liners", "print(1) in python", "python", 0, "runc run", 99),
		of("sustained", "a", "python", 1, "cove", 50), of("sustained", "b", "python", 8, "cove", 60),
		of("memory", "c", "empty", 10, charged, 0.4), of("memory", "d", "empty", 100, charged, 0.3),
		of("memory", "d", "empty", 100, machine, -3),
		of("network", "e", "", 0, "direct", 1),
	}}}
	dir := filepath.Join(t.TempDir(), "out")
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		if strings.HasSuffix(e.Name(), ".svg") && !strings.Contains(string(text), "]("+e.Name()+")") {
			t.Errorf("the table does not show %s", e.Name())
		}
	}
	want := "README.md memory.svg one-liners.svg results.json start-1.svg start-2.svg sustained-python.svg"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("written: %s, want %s", got, want)
	}
	groups, series := grouped(withoutPeers(r.Results[4:7]))
	if len(groups) != 2 || len(series) != 2 || series[0].Values[0] != 20 {
		t.Errorf("%v: %+v", groups, series)
	}
	if rows := ranges(r.Results[:3], "one"); rows[0].Name != "podman run" && rows[0].Name != "cove" {
		t.Errorf("%+v", rows)
	}
}

// TestInPairs: every second pair begins with the new build, so that neither always comes second.
func TestInPairs(t *testing.T) {
	builds := [2]*build{{bin: "old"}, {bin: "new"}}
	var order []string
	samples, err := inPairs(t.Context(), builds, func(_ context.Context, b *build) (contender, error) {
		return contender{run: func(context.Context) error {
			order = append(order, b.bin)
			return nil
		}}, nil
	}, 3)
	if err != nil || len(samples[0]) != 3 || len(samples[1]) != 3 {
		t.Errorf("%v, %v", samples, err)
	}
	if got := strings.Join(order, " "); got != "old new new old old new new old" {
		t.Errorf("the order is %q", got)
	}
	_, err = inPairs(t.Context(), builds, func(_ context.Context, b *build) (contender, error) {
		return contender{run: func(context.Context) error {
			if b.bin == "new" {
				return errMade
			}
			return nil
		}}, nil
	}, 3)
	if !errors.Is(err, errMade) || !strings.Contains(err.Error(), "new: ") {
		t.Errorf("the failure of the new build: %v", err)
	}
}

func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	if _, err := programsOf(t.Context(), dir, ""); err == nil {
		t.Error("an empty directory has programs")
	}
	if err := os.WriteFile(filepath.Join(dir, "cove"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := programsOf(t.Context(), dir, ""); err != nil || got != dir {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{"no-such-revision", "--all", ""} {
		if got, err := programsOf(t.Context(), bad, ""); err == nil {
			t.Errorf("%q is %q", bad, got)
		}
	}
}
