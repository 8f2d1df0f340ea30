package agent

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// clock is a time that runs: 0:05, 12:34, 1:02:03.
func clock(d time.Duration) string {
	s := int(d.Seconds())
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// usedText is what was used of models, in a few words; nothing if nothing was.
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

// plainLines is a text as a terminal would leave it, without anything that one
// obeys: escape sequences are gone, of a line that was written over its last
// state is left, tabs are blanks, and what else there is of control characters
// is spelled out.
func plainLines(text string) string {
	lines := strings.Split(strings.ReplaceAll(ansi.Strip(text), "\r\n", "\n"), "\n")
	for i, line := range lines {
		line = strings.TrimRight(line, "\r")
		line = line[strings.LastIndexByte(line, '\r')+1:]
		lines[i] = ui.Printable(strings.ReplaceAll(line, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// oneLine is the beginning of a text of several lines.
func oneLine(text string) string {
	text = strings.TrimSpace(text)
	first, rest, _ := strings.Cut(text, "\n")
	first = strings.Join(strings.Fields(plainLines(first)), " ")
	if strings.TrimSpace(rest) != "" {
		first += " …"
	}
	return first
}
