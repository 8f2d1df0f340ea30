package progress

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/egress/redact"
	"github.com/cove-sandbox/cove/internal/secret"
	"github.com/cove-sandbox/cove/internal/terminal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestScreen: a terminal has a line for each part, with the last lines of output below the present one, and below one
// that has failed. No secret and nothing that the terminal would obey is among them.
func TestScreen(t *testing.T) {
	hides, err := redact.New(secret.New("canary-7d1e55b4"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	now := clocktest.NewManual(time.Unix(1_700_000_000, 0))
	p := NewScreen(&out, now, hides, func() int { return 40 })
	defer p.Pause()
	output := func(part *Part, lines ...string) { // without times
		p.mu.Lock()
		part.last = lines
		p.mu.Unlock()
	}
	shows := func(want ...string) {
		t.Helper()
		p.mu.Lock() // it is drawn meanwhile
		defer p.mu.Unlock()
		p.view.(*screen).draw()
		term := terminal.New(terminal.Size{Rows: 60, Columns: 40})
		term.Write(bytes.ReplaceAll(out.Bytes(), []byte("\n"), []byte("\r\n")))
		var lines []string
		for line := range strings.Lines(term.Text()) {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, strings.Join(strings.Fields(line), " "))
			}
		}
		if text := strings.Join(lines, "\n"); text != strings.Join(want, "\n") {
			t.Errorf("it shows\n%s\nwant\n%s", text, strings.Join(want, "\n"))
		}
	}
	p.Begin("[one 1] FROM a-base-with-a-name-longer-than-the-terminal").End()
	const one = "=> [one 1] FROM a-base-with-a…"
	part := p.Begin("[one 2] RUN it")
	part.Line("a note")
	for i := range 9 {
		fmt.Fprintf(part, "\x1b[2Jline %d canary-7d1e55b4\n", i)
	}
	said := out.String()
	if strings.Contains(said, "canary") || strings.Contains(said, "2J") {
		t.Errorf("it has %q", said)
	}
	output(part, "a", "b", "c", "d", "e", "f", "g")
	now.Advance(1500 * time.Millisecond)
	shows(one+" 0.0s", "=> [one 2] RUN it 1.5s", "=> => a note", "=> => # b", "=> => # c", "=> => # d",
		"=> => # e", "=> => # f", "=> => # g")
	other := p.Begin("[two 2] RUN other")
	output(other, "x", "y")
	shows(one+" 0.0s", "=> [one 2] RUN it 1.5s", "=> => a note", "=> => # e", "=> => # f", "=> => # g",
		"=> [two 2] RUN other 0.0s", "=> => # x", "=> => # y")
	part.End()
	const two = "=> [one 2] RUN it 1.5s\n=> => a note"
	shows(one+" 0.0s", two, "=> [two 2] RUN other 0.0s", "=> => # x", "=> => # y")
	part = p.Begin("[one 3] RUN again")
	part.Cached()
	part.End()
	part = p.Begin("[one 4] RUN fails")
	output(part, "no such file")
	failed := errors.New("failed")
	if err := part.Fail(failed); err != failed {
		t.Errorf("%v", err)
	}
	other.Cancel()
	ended := []string{one + " 0.0s", two, "=> CACHED [one 3] RUN again 0.0s", "=> ERROR [one 4] RUN fails 0.0s",
		"no such file", "=> CANCELED [two 2] RUN other 0.0s"}
	shows(ended...)
	var many []*Part
	for i := range shownParts + 2 {
		many = append(many, p.Begin("[many %d]", i))
		ended = append(ended, fmt.Sprintf("=> [many %d] 0.0s", i))
	}
	shows(append(ended[:len(ended)-2], "=> => and 2 more")...)
	for _, part := range many {
		part.End()
	}
}
