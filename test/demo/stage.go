package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// shown is how many lines of output an act gets.
const shown = 5

// stage prints the demonstration.
type stage struct {
	w     io.Writer
	color bool
	count int
	bad   int
	rows  [][3]string
}

func newStage(f *os.File) *stage {
	return &stage{w: f, color: term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == ""}
}

func (s *stage) paint(code, text string) string {
	if !s.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *stage) title(version string) {
	var u unix.Utsname
	kernel := ""
	if unix.Uname(&u) == nil {
		kernel = "Linux " + unix.ByteSliceToString(u.Release[:])
	}
	fmt.Fprintf(s.w, "\n%s\n%s\n", s.paint("1", "Cove: untrusted code, contained"),
		s.paint("2", fmt.Sprintf("%s · %s · %d cores", version, kernel, runtime.NumCPU())))
}

func (s *stage) part(title string) {
	fmt.Fprintf(s.w, "\n%s\n", s.paint("1;4", title))
}

func (s *stage) act(a act, r result, why string) {
	s.count++
	fmt.Fprintf(s.w, "\n%s %s\n", s.paint("1", fmt.Sprintf("%2d", s.count)), s.paint("1", a.title))
	for line := range strings.Lines("$ " + commandLine(a) + "\n") {
		fmt.Fprintf(s.w, "   %s\n", s.paint("36", strings.TrimRight(line, "\n")))
	}
	s.output(r.stdout, "")
	s.output(r.stderr, "33")
	mark, ending := s.paint("32", "✓"), ending(r)
	switch {
	case why != "" && r.missing():
		mark, ending = s.paint("33", "–"), why
	case why != "":
		mark, ending = s.paint("31", "✗"), fmt.Sprintf("%s: %s", ending, why)
		s.bad++
	}
	fmt.Fprintf(s.w, "   %s %s %s\n", mark, ending, s.paint("2", "in "+timeText(r.took)))
	s.rows = append(s.rows, [3]string{a.title, ending, timeText(r.took)})
}

// output shows the first lines of what was printed, and what Cove said last.
func (s *stage) output(text, color string) {
	if text == "" {
		return
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	said := len(lines)
	for said > 0 && strings.HasPrefix(lines[said-1], "cove: ") {
		said--
	}
	head, tail := lines[:said], lines[said:]
	rest := max(0, len(head)-shown)
	s.lines(head[:len(head)-rest], color)
	if rest > 0 {
		s.lines([]string{fmt.Sprintf("… and %d more lines", rest)}, "2")
	}
	s.lines(tail, color)
}

func (s *stage) lines(lines []string, color string) {
	for _, line := range lines {
		line = clean(line)
		if color != "" {
			line = s.paint(color, line)
		}
		fmt.Fprintf(s.w, "   │ %s\n", line)
	}
}

// clean keeps a program's output from moving the cursor or filling the screen.
func clean(line string) string {
	line = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '·'
		}
		return r
	}, strings.ToValidUTF8(line, "·"))
	if utf8.RuneCountInString(line) > 110 {
		return string([]rune(line)[:109]) + "…"
	}
	return line
}

// commandLine is the act as it would be typed.
func commandLine(a act) string {
	words := []string{"cove"}
	for _, arg := range a.args {
		words = append(words, quoted(arg))
	}
	line := strings.Join(words, " ")
	if a.stdin != "" {
		line = fmt.Sprintf("printf %q | %s", a.stdin, line)
	}
	return strings.ReplaceAll(line, "\n", "\n    ")
}

// quoted is a word as a shell takes it.
func quoted(word string) string {
	switch {
	case !strings.ContainsAny(word, " \t\n\"'$;&|<>(){}[]*?!\\"):
		return word
	case !strings.Contains(word, "'"):
		return "'" + word + "'"
	case !strings.ContainsAny(word, "\"$`\\!"):
		return `"` + word + `"`
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func ending(r result) string {
	if v := r.verdict(); v != "" {
		short, _, _ := strings.Cut(v, " (")
		return short
	}
	return fmt.Sprintf("exit code %d", r.code)
}

// close prints the table of what happened.
func (s *stage) close(left []string, seen bool) {
	fmt.Fprintf(s.w, "\n%s\n\n", s.paint("1;4", "What happened"))
	widths := [3]int{}
	for _, row := range s.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range s.rows {
		fmt.Fprintf(s.w, "   %s  %s  %s\n", pad(row[0], widths[0]), pad(row[1], widths[1]), pad(row[2], -widths[2]))
	}
	fmt.Fprintln(s.w)
	switch {
	case len(left) > 0:
	case seen:
		fmt.Fprintf(s.w, "   %s nothing is left on this machine: no process, no control group, no mount, no file\n",
			s.paint("32", "✓"))
	default:
		fmt.Fprintf(s.w, "   %s no mount and no file is left; control groups were not seen\n", s.paint("33", "–"))
	}
	for _, item := range left {
		fmt.Fprintf(s.w, "   %s left behind: %s\n", s.paint("31", "✗"), item)
	}
	if s.bad == 0 && len(left) == 0 {
		fmt.Fprintf(s.w, "   %s everything went as it should\n\n", s.paint("32", "✓"))
	} else {
		fmt.Fprintf(s.w, "   %s %d of %d did not go as they should\n\n", s.paint("31", "✗"), s.bad, s.count)
	}
}

func pad(text string, width int) string {
	n := max(width, -width) - utf8.RuneCountInString(text)
	if width < 0 {
		return strings.Repeat(" ", n) + text
	}
	return text + strings.Repeat(" ", n)
}

func timeText(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
