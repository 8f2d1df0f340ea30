package doctor

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

var colors = map[Status]string{OK: "32", Info: "2", Warn: "33", Fail: "31"}

// Text writes the report for people: findings under their area, statuses and titles in columns, fixes indented below.
// color adds colors.
func (r Report) Text(w io.Writer, color bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Cove %s on Linux %s, %s, engine %s\n", clean(r.Version), clean(r.Kernel), r.User, r.Engine)
	width := 0
	for _, f := range r.Findings {
		width = max(width, utf8.RuneCountInString(f.Title))
	}
	area := ""
	for _, f := range r.Findings {
		if f.Area != area {
			area = f.Area
			fmt.Fprintf(&b, "\n%s\n", area)
		}
		status := fmt.Sprintf("%-4s", f.Status)
		if color {
			status = "\x1b[" + colors[f.Status] + "m" + status + "\x1b[0m"
		}
		fmt.Fprintf(&b, "  %s  %-*s  %s\n", status, width, f.Title, clean(f.Found))
		for line := range strings.Lines(f.Fix) {
			fmt.Fprintf(&b, "        %s\n", clean(strings.TrimRight(line, "\n")))
		}
	}
	fmt.Fprintf(&b, "\n%s\n", r.verdict())
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Report) verdict() string {
	counts := fmt.Sprintf("%s, %s", plural(r.count(Fail), "failure"), plural(r.count(Warn), "warning"))
	if r.Healthy {
		return fmt.Sprintf("The %s engine holds its invariants here (%s).", r.Engine, counts)
	}
	return fmt.Sprintf("The %s engine cannot hold its invariants here (%s): see what failed above.", r.Engine, counts)
}

func plural(n int, noun string) string {
	switch n {
	case 0:
		return "no " + noun + "s"
	case 1:
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// clean removes control characters from other programs' texts.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}
