package result

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Picture is a chart of the report, in a file beside the table.
type Picture struct{ File, Title string }

// WriteMarkdown writes the machine, the pictures, the targets and one table of all results.
func (r Report) WriteMarkdown(w io.Writer, pictures []Picture) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmark of %s\n\n", r.Begun.Format("2 January 2006"))
	fmt.Fprintf(&b, "Written by `make bench`, in %.0f seconds; `results.json` has every sample. Absolute times are\n"+
		"those of this machine: the ratios are the finding. They are medians, beside that of a plain process that\n"+
		"does the same.\n\n", r.Took)
	b.WriteString("| machine | |\n|---|---|\n")
	for _, m := range r.Machine {
		fmt.Fprintf(&b, "| %s | %s |\n", m[0], cell(m[1]))
	}
	for _, p := range pictures {
		fmt.Fprintf(&b, "\n![%s](%s)\n", p.Title, p.File)
	}
	r.writeTargets(&b)
	b.WriteString("\n## Results\n\n| | | runs | success | p50 | p95 | p99 | × plain |\n" +
		"|---|---|--:|--:|--:|--:|--:|--:|\n")
	scenario := ""
	for _, one := range r.Results {
		if one.Skipped != "" {
			continue
		}
		name := ""
		if one.Scenario != scenario {
			name, scenario = "**"+cell(one.Scenario)+"**", one.Scenario
		}
		fmt.Fprintf(&b, "| %s | %s\n", name, one.row())
	}
	r.writeSkipped(&b)
	if len(r.Figures) > 0 {
		b.WriteString("\n## Figures that were taken once\n\n| | |\n|---|--:|\n")
		for _, name := range slices.Sorted(maps.Keys(r.Figures)) {
			fmt.Fprintf(&b, "| %s | %s |\n", strings.ReplaceAll(name, "_", " "), Figure(r.Figures[name]))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// row is a line of the table, without its first cell.
func (r Result) row() string {
	success, p := fmt.Sprintf("%.4g %%", 100*r.Success()), [3]string{"-", "-", "-"}
	if r.Tried == 0 {
		success = "-"
	}
	ratio := "-"
	if r.Ratio > 0 {
		ratio = Figure(r.Ratio) + "×"
	}
	if len(r.Samples) > 0 {
		p[0] = Figure(r.P50) + " " + r.Unit
	}
	if len(r.Samples) >= 20 { // of fewer, it is the largest
		p[1] = Figure(r.P95)
	}
	if len(r.Samples) >= 100 {
		p[2] = Figure(r.P99)
	}
	name := cell(r.Contender)
	if last := Last.Of(r); last > 0 {
		name += fmt.Sprintf(", all done in %s %s", Figure(last), r.Unit)
	}
	if r.Failure != "" {
		name += fmt.Sprintf(" (%s)", cell(r.Failure))
	}
	return fmt.Sprintf("%s | %d | %s | %s | %s | %s | %s |", name, max(r.Tried, len(r.Samples)), success, p[0], p[1], p[2],
		ratio)
}

func (r Report) writeTargets(b *strings.Builder) {
	if len(r.Targets) == 0 {
		return
	}
	b.WriteString("\n## Targets\n\n| | | figure | target | measured | |\n|---|---|---|--:|--:|---|\n")
	for _, t := range r.Targets {
		sign, verdict := "≤", "met"
		if t.Least {
			sign = "≥"
		}
		if !t.Met {
			verdict = "**missed**"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s %s %s | %s | %s |\n", cell(t.Scenario), cell(t.Contender), t.Statistic, sign,
			Figure(t.Bound), t.Unit, Figure(t.Measured), verdict)
	}
}

// writeSkipped lists each contender that was not measured once, with the reason.
func (r Report) writeSkipped(b *strings.Builder) {
	var lines []string
	for _, one := range r.Results {
		line := fmt.Sprintf("| %s | %s |", cell(one.Contender), cell(one.Skipped))
		if one.Skipped != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(b, "\n## Not measured\n\n| | why |\n|---|---|\n%s\n", strings.Join(lines, "\n"))
	}
}

// cell makes a text fit into a cell of a table.
func cell(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > 200 {
		text = string(r[:200]) + "…"
	}
	return strings.NewReplacer("|", "\\|", "<", "&lt;").Replace(text)
}

// Figure writes a number with about three digits.
func Figure(f float64) string {
	switch {
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}
