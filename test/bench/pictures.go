//go:build linux

package main

import (
	"cmp"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove/test/bench/chart"
	"github.com/cove-sandbox/cove/test/bench/result"
)

// write writes the table, every sample, and the charts of what was measured.
func (r *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	save := func(name string, write func(io.Writer) error) error {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		defer f.Close()
		if err := write(f); err != nil {
			return err
		}
		return f.Close()
	}
	var pictures []result.Picture
	for _, p := range picturesOf(r.Results) {
		if err := save(p.file, p.chart.Write); err != nil {
			return err
		}
		pictures = append(pictures, result.Picture{File: p.file, Title: p.chart.Title})
	}
	if err := save("results.json", r.WriteJSON); err != nil {
		return err
	}
	return save("README.md", func(w io.Writer) error { return r.WriteMarkdown(w, pictures) })
}

type picture struct {
	file  string
	chart chart.Chart
}

// picturesOf draws the parts that were measured.
func picturesOf(all []result.Result) (pictures []picture) {
	part := func(name string) (of []result.Result) {
		for _, r := range all {
			if r.Part == name && len(r.Samples) > 0 {
				of = append(of, r)
			}
		}
		return of
	}
	begin := part("start")
	for i, name := range scenariosOf(begin) {
		file := "start-" + strconv.Itoa(i+1) + ".svg"
		pictures = append(pictures, picture{file, chart.Ranges(capital(name), "ms, from the median to the 99th percentile",
			ranges(begin, name))})
	}
	if of := part("one-liners"); len(of) > 0 {
		groups, series := grouped(withoutPeers(of))
		pictures = append(pictures, picture{"one-liners.svg", chart.Bars("One-liners, median", "ms", groups, series)})
	}
	for _, group := range groupsOf(part("sustained")) {
		pictures = append(pictures, picture{"sustained-" + group + ".svg",
			chart.Lines("Single-use runs of "+group, "clients that never pause", "runs a second", true,
				lines(part("sustained"), func(r result.Result) string { return r.Contender }, group))})
	}
	if of := part("memory"); len(of) > 0 {
		of = slices.DeleteFunc(of, func(r result.Result) bool { return r.Contender != charged })
		kind := func(r result.Result) string { return r.Group }
		pictures = append(pictures, picture{"memory.svg", chart.Lines("Memory of a prepared sandbox: "+charged,
			"sandboxes that are prepared", "MiB each", true, lines(of, kind, ""))})
	}
	return pictures
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

func scenariosOf(all []result.Result) (names []string) {
	for _, r := range all {
		if !slices.Contains(names, r.Scenario) {
			names = append(names, r.Scenario)
		}
	}
	return names
}

func groupsOf(all []result.Result) (names []string) {
	for _, r := range all {
		if !slices.Contains(names, r.Group) {
			names = append(names, r.Group)
		}
	}
	return names
}

// ranges are the contenders of a scenario, the fastest first.
func ranges(all []result.Result, scenario string) (rows []chart.Range) {
	for _, r := range all {
		if r.Scenario == scenario {
			rows = append(rows, chart.Range{Name: r.Contender, Low: r.P50, Mid: r.P50, High: r.P99,
				Strong: strings.HasPrefix(r.Contender, "cove")})
		}
	}
	slices.SortStableFunc(rows, func(a, b chart.Range) int { return cmp.Compare(a.Mid, b.Mid) })
	return rows
}

// withoutPeers keeps Cove's forms and the plain process, which every group has.
func withoutPeers(all []result.Result) []result.Result {
	return slices.DeleteFunc(slices.Clone(all), func(r result.Result) bool {
		return r.Contender != result.Plain && !strings.HasPrefix(r.Contender, "cove")
	})
}

// grouped are the medians of each contender, one for each group.
func grouped(all []result.Result) (groups []string, series []chart.Series) {
	groups = groupsOf(all)
	for _, r := range all {
		at := slices.IndexFunc(series, func(s chart.Series) bool { return s.Name == r.Contender })
		if at < 0 {
			at = len(series)
			empty := make([]float64, len(groups))
			for i := range empty {
				empty[i] = math.NaN()
			}
			series = append(series, chart.Series{Name: r.Contender, Values: empty, Muted: r.Contender == result.Plain})
		}
		series[at].Values[slices.Index(groups, r.Group)] = r.P50
	}
	return groups, series
}

// lines are the medians over x, one line for each name; of one group, or of all if it is empty.
func lines(all []result.Result, name func(result.Result) string, group string) (series []chart.Series) {
	for _, r := range all {
		if group != "" && r.Group != group {
			continue
		}
		at := slices.IndexFunc(series, func(s chart.Series) bool { return s.Name == name(r) })
		if at < 0 {
			at = len(series)
			series = append(series, chart.Series{Name: name(r), Muted: r.Contender == result.Plain})
		}
		series[at].X, series[at].Values = append(series[at].X, r.X), append(series[at].Values, r.P50)
	}
	return series
}
