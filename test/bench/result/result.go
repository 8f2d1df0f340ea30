// Package result holds what a benchmark has measured: it summarises samples, compares contenders, and writes the table.
package result

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Plain is the contender that ratios are relative to: the same program without a sandbox.
const Plain = "plain process"

// Report is a whole benchmark.
type Report struct {
	Machine Machine            `json:"machine"`
	Begun   time.Time          `json:"begun"`
	Took    float64            `json:"took_seconds"`
	Results []Result           `json:"results"`
	Targets []Judged           `json:"targets"`
	Figures map[string]float64 `json:"figures,omitempty"` // measured once, compared with nothing
}

// Machine describes where it was measured, as label and value.
type Machine [][2]string

// Result is what one contender did in one scenario.
type Result struct {
	Part      string    `json:"part"`
	Scenario  string    `json:"scenario"`
	Group     string    `json:"group,omitempty"` // of scenarios that belong into one picture
	X         float64   `json:"x,omitempty"`     // what the scenarios of a group differ in
	Contender string    `json:"contender"`
	Unit      string    `json:"unit"`
	Skipped   string    `json:"skipped,omitempty"` // why it was not measured
	Samples   []float64 `json:"samples,omitempty"`
	Last      []float64 `json:"last,omitempty"` // of each burst: when the last of it was done
	Tried     int       `json:"tried,omitempty"`
	Failed    int       `json:"failed,omitempty"`
	Failure   string    `json:"failure,omitempty"` // the first one
	Min       float64   `json:"min,omitempty"`
	P50       float64   `json:"p50,omitempty"`
	P95       float64   `json:"p95,omitempty"`
	P99       float64   `json:"p99,omitempty"`
	Ratio     float64   `json:"ratio_to_plain,omitempty"` // of the medians
}

// Success returns the share of the tries that did not fail, from 0 to 1.
func (r Result) Success() float64 {
	if r.Tried == 0 {
		return 0
	}
	return 1 - float64(r.Failed)/float64(r.Tried)
}

// Statistic is a figure of a Result.
type Statistic string

// The statistics.
const (
	Min  Statistic = "minimum"
	P50  Statistic = "p50"
	P95  Statistic = "p95"
	P99  Statistic = "p99"
	Last Statistic = "all done" // the median time at which a burst was done
)

// Of returns a statistic of samples; 0 without any.
func (s Statistic) Of(r Result) float64 {
	switch s {
	case Min:
		return Quantile(r.Samples, 0)
	case P95:
		return Quantile(r.Samples, 0.95)
	case P99:
		return Quantile(r.Samples, 0.99)
	case Last:
		return Quantile(r.Last, 0.5)
	}
	return Quantile(r.Samples, 0.5)
}

// Quantile returns the smallest sample that at least a share p of the samples do not exceed; 0 without samples.
func Quantile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	at := int(math.Ceil(p*float64(len(samples)))) - 1
	return slices.Sorted(slices.Values(samples))[max(at, 0)]
}

// Summarise fills in the statistics of the results of one scenario, and their ratios to the plain process.
func Summarise(all []Result) {
	base := 0.0
	for i := range all {
		r := &all[i]
		r.Min, r.P50, r.P95, r.P99 = Min.Of(*r), P50.Of(*r), P95.Of(*r), P99.Of(*r)
		if r.Contender == Plain {
			base = r.P50
		}
	}
	for i := range all {
		if base > 0 && len(all[i].Samples) > 0 {
			all[i].Ratio = all[i].P50 / base
		}
	}
}

// Target is what a figure ought to be: in the result's unit, or as a ratio to the same figure of the plain process or
// of another contender.
type Target struct {
	Scenario  string    `json:"scenario"`
	Contender string    `json:"contender"`
	Statistic Statistic `json:"statistic"`
	Ratio     bool      `json:"ratio,omitempty"` // to Plain, or to Beside
	Beside    string    `json:"beside,omitempty"`
	Bound     float64   `json:"bound"`
	Least     bool      `json:"least,omitempty"` // the bound is the least, not the most
}

// Judged is a Target beside what was measured.
type Judged struct {
	Target
	Measured float64 `json:"measured"`
	Unit     string  `json:"unit"`
	Met      bool    `json:"met"`
}

// Judge compares the targets with what was measured. Targets of what was not measured are left out.
func Judge(targets []Target, all []Result) (judged []Judged) {
	for _, t := range targets {
		r, ok := find(all, t.Scenario, t.Contender)
		j := Judged{Target: t, Measured: t.Statistic.Of(r), Unit: r.Unit}
		if t.Ratio {
			beside := cmp.Or(t.Beside, Plain)
			base, there := find(all, t.Scenario, beside)
			ok = ok && there && t.Statistic.Of(base) > 0
			if ok {
				j.Measured, j.Unit = j.Measured/t.Statistic.Of(base), "× "+strings.TrimSuffix(beside, " process")
			}
		}
		if !ok {
			continue
		}
		j.Met = j.Measured <= t.Bound
		if t.Least {
			j.Met = j.Measured >= t.Bound
		}
		judged = append(judged, j)
	}
	return judged
}

// find returns the result of a contender in a scenario, if it was measured.
func find(all []Result, scenario, contender string) (Result, bool) {
	i := slices.IndexFunc(all, func(r Result) bool {
		return r.Scenario == scenario && r.Contender == contender && len(r.Samples) > 0
	})
	if i < 0 {
		return Result{}, false
	}
	return all[i], true
}

// WriteJSON writes everything, each sample included. The samples of a result are on one line.
func (r Report) WriteJSON(w io.Writer) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(r); err != nil {
		return err
	}
	_, err := w.Write(numbers.ReplaceAllFunc(b.Bytes(), func(list []byte) []byte {
		return bytes.Join(bytes.Fields(list), nil)
	}))
	return err
}

// numbers is a list of numbers, one on each line.
var numbers = regexp.MustCompile(`\[\n[-+.0-9eE,\s]+\]`)
