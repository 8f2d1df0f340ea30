package agent

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/cli/report"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// view shows an agent's activity as it comes: its text, its tool calls with the beginning of their results, and denied
// requests. Control sequences in the text of the agent and its tools are removed.
type view struct {
	out     io.Writer
	say     func(func()) // lets Cove speak between what is written to out
	color   bool
	verbose bool       // everything, however long
	columns func() int // of the terminal; 0 where there is none, and lines are as long as they are

	// The output shown last decides where a blank line goes, and whether a result stands below its call.
	texted bool            // the agent has said something
	begun  bool            // anything was shown
	calls  map[string]tool // that wait for their results, by id
	latest string          // id of the call whose title was shown last
	spoken string          // what the agent has said last
	denied map[string]bool // denials that were shown

	mu    sync.Mutex
	does  string // the agent's activity, for the status line
	usage api.AgentUsage
	files map[string]bool // that it has changed, as far as its calls tell
}

const foldedLines = 6

func newView(out io.Writer, columns func() int) *view {
	return &view{out: out, columns: columns, say: func(do func()) { do() },
		calls: map[string]tool{}, denied: map[string]bool{}, files: map[string]bool{}}
}

func (v *view) message(m api.Message) {
	v.count(m)
	switch m.Type {
	case api.MessageThinking:
		v.text(m)
	case api.MessageToolCall:
		v.call(m)
	case api.MessageToolResult:
		v.result(m)
	}
}

// count takes in what the messages say was used so far, and which files are changed.
func (v *view) count(m api.Message) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if m.Type == api.MessageUsage && m.Usage != nil {
		v.usage = *m.Usage
	}
	if m.Type == api.MessageToolCall {
		for _, file := range readTool(m).files {
			v.files[file] = true
		}
	}
}

// text shows what the agent says; what its model keeps to itself is folded.
func (v *view) text(m api.Message) {
	content := strings.Trim(plainLines(m.Content), "\n")
	if strings.TrimSpace(content) == "" {
		return
	}
	v.apart()
	v.texted = true
	if !m.Reasoning {
		v.spoken = m.Content
		for line := range strings.SplitSeq(content, "\n") {
			v.wrapped("", line, "")
		}
		return
	}
	v.folded(v.wrap(content, "  "), "  ", ui.Dim)
}

// apart leaves a line between what the agent says and everything else.
func (v *view) apart() {
	if v.begun {
		fmt.Fprintln(v.out)
	}
	v.begun, v.latest = true, ""
}

func (v *view) end() {
	if v.begun {
		fmt.Fprintln(v.out)
	}
	v.begun = false
}

func (v *view) call(m api.Message) {
	if v.texted || !v.begun {
		v.apart()
	}
	v.texted, v.begun = false, true
	t := readTool(m)
	v.calls[m.Call] = t
	v.title("● ", t)
	v.latest = m.Call
}

func (v *view) title(mark string, t tool) {
	name, about := oneLine(t.name), oneLine(t.about)
	width := v.width(maxTitle)
	name = ansi.Truncate(name, max(1, width-ansi.StringWidth(mark)), "…")
	line := mark + ui.Paint(v.color, ui.Bold, name)
	if left := width - ansi.StringWidth(mark+name) - 2; about != "" && left > 8 {
		line += "  " + ansi.Truncate(about, left, "…")
	}
	fmt.Fprintln(v.out, line)
}

// maxTitle is how long a title is where no terminal bounds it.
const maxTitle = 200

// width is that of the terminal, or how much is enough without one.
func (v *view) width(without int) int { return cmp.Or(v.columns(), without) }

// result shows the beginning of a tool's answer below its call; of a changed file the call says it all.
func (v *view) result(m api.Message) {
	call, known := v.calls[m.Call]
	delete(v.calls, m.Call)
	text := strings.Trim(plainLines(m.Output), "\n")
	if !m.IsError && !v.verbose && (text == "" || len(call.files) > 0) {
		return
	}
	if v.latest != m.Call || !known {
		if v.texted || !v.begun {
			v.apart()
		}
		if !known {
			call.name = cmp.Or(m.Tool, "a tool")
		}
		v.title("○ ", call)
	}
	v.texted, v.begun, v.latest = false, true, ""
	if m.IsError {
		v.failed(cmp.Or(text, "it failed"))
	} else if text != "" {
		v.folded(text, "  │ ", ui.Dim)
	}
}

// folded shows the first lines of a text, and how many there are more.
func (v *view) folded(text, margin, color string) {
	lines := strings.Split(text, "\n")
	more := 0
	if !v.verbose && len(lines) > foldedLines+1 {
		more = len(lines) - foldedLines
		lines = lines[:foldedLines]
	}
	for _, line := range lines {
		if v.verbose {
			v.wrapped(margin, line, color)
			continue
		}
		v.cut(margin, line, color)
	}
	if more > 0 {
		v.cut(margin, fmt.Sprintf("… %d more lines", more), color)
	}
}

// failed shows the answer of a tool that has failed: its first line, and the last ones, with which tests and compilers
// end.
func (v *view) failed(text string) {
	const margin = "  ✗ "
	lines := strings.Split(text, "\n")
	last := lines[max(0, len(lines)-foldedLines+1):]
	if v.verbose || len(lines) <= foldedLines+1 {
		v.folded(text, margin, ui.Red)
		return
	}
	v.cut(margin, lines[0], ui.Red)
	v.cut(margin, fmt.Sprintf("… %d lines", len(lines)-1-len(last)), ui.Red)
	v.folded(strings.Join(last, "\n"), margin, ui.Red)
}

func (v *view) cut(margin, line, color string) {
	v.painted(margin, ansi.Truncate(line, max(1, v.width(maxFolded)-ansi.StringWidth(margin)), "…"), color)
}

// maxFolded is how much of a line is shown of a result that is folded, where no terminal bounds it.
const maxFolded = 500

// wrapped shows a line, in as many as the terminal needs.
func (v *view) wrapped(margin, line, color string) {
	for part := range strings.SplitSeq(v.wrap(line, margin), "\n") {
		v.painted(margin, strings.TrimRight(part, " "), color)
	}
}

// wrap breaks lines between words, where the terminal would break them anywhere.
func (v *view) wrap(text, margin string) string {
	if v.columns() == 0 {
		return text
	}
	width := max(1, v.columns()-ansi.StringWidth(margin))
	return ansi.Hardwrap(ansi.Wrap(text, width, ""), width, true) // Wrap may leave a line with a column too many
}

func (v *view) painted(margin, line, color string) {
	line = strings.TrimRight(margin+line, " ")
	if color != "" {
		line = ui.Paint(v.color, color, line)
	}
	fmt.Fprintln(v.out, line)
}

// decision shows a denied request, once, and the command that would allow it.
func (v *view) decision(d api.Decision, s *ui.Speaker) {
	if d.Verdict != api.VerdictDeny || strings.HasPrefix(d.Rule, agent.PolicySource) {
		return // or it is denied because the agent does without
	}
	key := cmp.Or(d.Remedy, report.Attempt(d)+"\x00"+d.Reason)
	if v.denied[key] {
		return
	}
	v.denied[key] = true
	v.say(func() {
		reason := d.Reason
		if d.Rule != "" {
			reason = cmp.Or(reason, "it is denied") + " (" + d.Rule + ")"
		}
		s.Line("not let out: %s: %s", report.Attempt(d), reason)
		if d.Remedy != "" {
			fmt.Fprintln(s.W, "      to allow it: "+ui.Printable(d.Remedy))
		}
	})
	v.latest = "" // a result that comes now has no call above it
}

func (v *view) log(text string) {
	if text = strings.Trim(plainLines(text), "\n"); text != "" {
		v.folded(text, "  ! ", ui.Dim)
		v.begun, v.latest = true, ""
	}
}

func (v *view) doing(words string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.does = words
}

// status is the line below, of at most width columns; what does not fit is left out.
func (v *view) status(elapsed time.Duration, width int) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	parts := []string{clock(elapsed), ui.Printable(v.does)}
	if u := usedText(v.usage); u != "" {
		parts = append(parts, u)
	}
	if n := len(v.files); n > 0 {
		parts = append(parts, ui.Counted(n, "file", "files"))
	}
	line := ""
	for i, p := range append(parts, "ctrl-c interrupts") {
		if i > 0 {
			p = " · " + p
		}
		if ansi.StringWidth(line+p) > width {
			continue
		}
		line += p
	}
	return line
}

// clock is a time that runs: 0:05, 12:34, 1:02:03.
func clock(d time.Duration) string {
	s := int(d.Seconds())
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// usedText describes the use of models in a few words. It is empty if there was none.
func usedText(u api.AgentUsage) string {
	in := u.InputTokens + u.CacheReadTokens + u.CacheWriteTokens
	if in+u.OutputTokens == 0 {
		return ""
	}
	text := tokens(in) + " tokens in, " + tokens(u.OutputTokens) + " out"
	if u.Cost > 0 {
		text += fmt.Sprintf(", $%.4f", u.Cost)
	}
	return text
}

// tokens is a number for people: 950, 12.3k, 1.2M.
func tokens(n int64) string {
	switch {
	case n >= 999_950:
		return fmt.Sprintf("%.1fM", float64(n)/1e6)
	case n >= 1000:
		return fmt.Sprintf("%.1fk", float64(n)/1e3)
	}
	return fmt.Sprint(n)
}

// plainLines is a text as a terminal would leave it, without anything that one obeys: escape sequences are gone, of a
// line that was written over its last state is left, tabs are blanks, and what else there is of control characters is
// spelled out.
func plainLines(text string) string {
	lines := strings.Split(strings.ReplaceAll(ansi.Strip(text), "\r\n", "\n"), "\n")
	for i, line := range lines {
		line = strings.TrimRight(line, "\r")
		line = line[strings.LastIndexByte(line, '\r')+1:]
		lines[i] = ui.Printable(strings.ReplaceAll(line, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

func oneLine(text string) string {
	text = strings.TrimSpace(text)
	first, rest, _ := strings.Cut(text, "\n")
	first = strings.Join(strings.Fields(plainLines(first)), " ")
	if strings.TrimSpace(rest) != "" {
		first += " …"
	}
	return first
}
