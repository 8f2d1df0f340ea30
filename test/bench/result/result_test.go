package result

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64((i*37)%100 + 1) // 1 to 100, in another order
	}
	for _, c := range []struct {
		samples []float64
		p, want float64
	}{
		{nil, 0.5, 0}, {[]float64{7}, 0, 7}, {[]float64{7}, 0.99, 7}, {[]float64{2, 1}, 0.5, 1}, {[]float64{3, 1, 2}, 0.5, 2},
		{hundred, 0, 1}, {hundred, 0.5, 50}, {hundred, 0.95, 95}, {hundred, 0.99, 99}, {hundred, 1, 100},
	} {
		if got := Quantile(c.samples, c.p); got != c.want {
			t.Errorf("Quantile of %d samples at %v = %v, want %v", len(c.samples), c.p, got, c.want)
		}
	}
}

func TestSummarise(t *testing.T) {
	all := []Result{{Contender: "cove", Samples: []float64{5, 3, 4}}, {Contender: Plain, Samples: []float64{2, 2, 9}},
		{Contender: "absent", Skipped: "not installed"}}
	Summarise(all)
	if r := all[0]; r.Min != 3 || r.P50 != 4 || r.P99 != 5 || r.Ratio != 2 {
		t.Errorf("cove: %+v", r)
	}
	if all[1].Ratio != 1 || all[2].Ratio != 0 {
		t.Errorf("ratios: %v", all)
	}
	without := []Result{{Contender: "cove", Samples: []float64{5}}}
	if Summarise(without); without[0].Ratio != 0 {
		t.Errorf("there is a ratio to a plain process that was not measured: %v", without)
	}
}

// TestInterval: the bounds are those of tables of the sign test.
func TestInterval(t *testing.T) {
	count := func(n int) []float64 {
		all := make([]float64, n)
		for i := range all {
			all[n-1-i] = float64(i + 1)
		}
		return all
	}
	for _, c := range []struct {
		n          int
		confidence float64
		low, high  float64
	}{
		{0, 0.95, 0, math.Inf(1)}, {5, 0.95, 0, math.Inf(1)}, {6, 0.95, 1, 6}, {10, 0.95, 2, 9}, {20, 0.95, 6, 15},
		{30, 0.95, 10, 21}, {40, 0.95, 14, 27}, {40, 0.99, 12, 29}, {100, 0.95, 40, 61},
	} {
		if low, high := Interval(count(c.n), c.confidence); low != c.low || high != c.high {
			t.Errorf("of %d with %v: %v to %v, want %v to %v", c.n, c.confidence, low, high, c.low, c.high)
		}
	}
}

// noisy returns pairs as a shared machine gives them: a common drift, noise with a long tail, and a ratio of the two.
func noisy(r *rand.Rand, n int, ratio float64) (before, after []float64) {
	drift := 1.0
	sample := func() float64 {
		return drift * 20 * math.Exp(0.1*r.NormFloat64()) * (1 + math.Max(0, r.ExpFloat64()-2))
	}
	for range n {
		drift *= math.Exp(0.1 * r.NormFloat64())
		before, after = append(before, sample()), append(after, ratio*sample())
	}
	return before, after
}

// TestCompare: two builds that are the same are seldom called different, and changes are found, though each pair is
// noisier than the change.
func TestCompare(t *testing.T) {
	const times, pairs = 1000, 60
	for _, c := range []struct {
		ratio       float64
		want        Conclusion
		least, most int // of a thousand
	}{
		{1, Slower, 0, 10}, {1, Faster, 0, 10}, {1, Same, 300, 1000}, {1.05, Slower, 0, 120}, {1.3, Slower, 950, 1000},
		{1.3, Same, 0, 5}, {1 / 1.3, Faster, 950, 1000}, {1 / 1.3, Slower, 0, 0}, {1 / 1.3, Same, 0, 5},
		{1.1, Same, 0, 50}, {1 / 1.1, Same, 0, 50},
	} {
		r, found := rand.New(rand.NewPCG(1, 2)), 0
		for range times {
			before, after := noisy(r, pairs, c.ratio)
			if Compare("x", before, after, 1.1, 0.95).Conclusion == c.want {
				found++
			}
		}
		if found < c.least || found > c.most {
			t.Errorf("of a thousand with ratio %.2f, %d are %q; want %d to %d", c.ratio, found, c.want, c.least, c.most)
		}
	}
}

func TestCompareFew(t *testing.T) {
	c := Compare("few", []float64{1, 1, 1}, []float64{2, 2, 2}, 1.1, 0.95)
	if c.Conclusion != Undecided || c.Ratio != 2 {
		t.Errorf("three pairs decide: %v", c)
	}
	if c := Compare("none", nil, nil, 1.1, 0.95); c.Conclusion != Undecided {
		t.Errorf("no pairs decide: %v", c)
	}
}

func TestJudge(t *testing.T) {
	all := []Result{
		{Scenario: "python", Contender: "parked", Unit: "ms", Samples: []float64{3}},
		{Scenario: "python", Contender: Plain, Unit: "ms", Samples: []float64{15}},
		{Scenario: "burst", Contender: "cove", Unit: "ms", Samples: []float64{5, 90}, Last: []float64{90, 70, 80}},
		{Scenario: "rate", Contender: "cove", Unit: "runs/s", Samples: []float64{60}},
		{Scenario: "alone", Contender: "cove", Unit: "ms", Skipped: "not asked for"},
	}
	targets := []Target{
		{Scenario: "python", Contender: "parked", Statistic: P50, Ratio: true, Bound: 0.1},
		{Scenario: "python", Contender: "parked", Statistic: P50, Bound: 3},
		{Scenario: "burst", Contender: "cove", Statistic: Last, Bound: 80},
		{Scenario: "rate", Contender: "cove", Statistic: P50, Bound: 61, Least: true},
		{Scenario: "rate", Contender: "cove", Statistic: P50, Bound: 59, Least: true},
		{Scenario: "rate", Contender: "cove", Statistic: P50, Ratio: true, Bound: 1, Least: true}, // no plain process
		{Scenario: "alone", Contender: "cove", Statistic: P50, Bound: 1},
	}
	judged := Judge(targets, all)
	if len(judged) != 5 {
		t.Fatalf("%+v", judged)
	}
	for i, want := range []struct {
		measured float64
		met      bool
		unit     string
	}{{0.2, false, "× plain"}, {3, true, "ms"}, {80, true, "ms"}, {60, false, "runs/s"}, {60, true, "runs/s"}} {
		if j := judged[i]; j.Measured != want.measured || j.Met != want.met || j.Unit != want.unit {
			t.Errorf("%d: %+v, want %+v", i, j, want)
		}
	}
}

func report() Report {
	r := Report{Machine: Machine{{"processors", "2"}}, Begun: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: 321,
		Figures: map[string]float64{"server_at_rest_mib": 41.5}}
	samples := make([]float64, 100)
	for i := range samples {
		samples[i] = float64(i + 1)
	}
	r.Results = []Result{
		{Part: "start", Scenario: "one after the other", Contender: "cove", Unit: "ms", Samples: samples, Tried: 100},
		{Part: "start", Scenario: "one after the other", Contender: "few", Unit: "ms", Samples: samples[:99]},
		{Part: "start", Scenario: "one after the other", Contender: Plain, Unit: "ms", Samples: []float64{4, 5}, Tried: 4,
			Failed: 1, Failure: "exit | <1>"},
		{Part: "start", Scenario: "one after the other", Contender: "podman run", Unit: "ms", Skipped: "not installed"},
		{Part: "start", Scenario: "burst", Contender: "cove", Unit: "ms", Samples: []float64{9}, Last: []float64{12},
			Tried: 1},
		{Part: "start", Scenario: "burst", Contender: "podman run", Unit: "ms", Skipped: "not installed"},
	}
	Summarise(r.Results[:4])
	Summarise(r.Results[4:])
	r.Targets = Judge([]Target{{Scenario: "burst", Contender: "cove", Statistic: Last, Bound: 10}}, r.Results)
	return r
}

func TestWriteMarkdown(t *testing.T) {
	var out bytes.Buffer
	if err := report().WriteMarkdown(&out, []Picture{{"start.svg", "First command"}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Benchmark of 2 January 2026", "in 321 seconds", "| processors | 2 |\n",
		"![First command](start.svg)",
		"| **one after the other** | cove | 100 | 100 % | 50.0 ms | 95.0 | 99.0 | 12.5× |\n",
		"|  | plain process (exit \\| &lt;1>) | 4 | 75 % | 4.00 ms | - | - | 1.00× |\n",
		"|  | few | 99 | - | 50.0 ms | 95.0 | - | 12.5× |\n",
		"| **burst** | cove, all done in 12.0 ms | 1 | 100 % | 9.00 ms | - | - | - |\n",
		"| burst | cove | all done | ≤ 10.0 ms | 12.0 | **missed** |\n", "| server at rest mib | 41.5 |\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), "| podman run | not installed |"); n != 1 {
		t.Errorf("what was not measured is listed %d times:\n%s", n, out.String())
	}
}

func TestWriteJSON(t *testing.T) {
	var out bytes.Buffer
	if err := report().WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(out.Bytes(), []byte("\n")); n > 100 || !bytes.Contains(out.Bytes(), []byte("[1,2,3,4,")) {
		t.Errorf("the samples are on %d lines:\n%s", n, out.Bytes())
	}
	var back Report
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if len(back.Results) != 6 || len(back.Results[0].Samples) != 100 || back.Results[3].Skipped == "" ||
		len(back.Targets) != 1 {
		t.Errorf("%+v", back)
	}
}
