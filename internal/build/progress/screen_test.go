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
	s := NewScreen(&out, now, hides, func() int { return 40 })
	shows := func(want ...string) {
		t.Helper()
		s.mu.Lock() // it is drawn meanwhile
		defer s.mu.Unlock()
		s.draw()
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
	s.Begin("[one 1] FROM a-base-with-a-name-longer-than-the-terminal")
	s.End()
	const one = "=> [one 1] FROM a-base-with-a…"
	s.Begin("[one 2] RUN it")
	s.Line("a note")
	for i := range 9 {
		fmt.Fprintf(s, "\x1b[2Jline %d canary-7d1e55b4\n", i)
	}
	said := out.String()
	if strings.Contains(said, "canary") || strings.Contains(said, "2J") {
		t.Errorf("it has %q", said)
	}
	s.mu.Lock()
	s.last = []string{"a", "b", "c", "d", "e", "f", "g"} // without times
	s.mu.Unlock()
	now.Advance(1500 * time.Millisecond)
	shows(one+" 0.0s", "=> [one 2] RUN it 1.5s", "=> => a note", "=> => # b", "=> => # c", "=> => # d",
		"=> => # e", "=> => # f", "=> => # g")
	s.End()
	s.Begin("[one 3] RUN again")
	s.Cached()
	s.End()
	s.Begin("[one 4] RUN fails")
	s.mu.Lock()
	s.last = []string{"no such file"}
	s.mu.Unlock()
	failed := errors.New("failed")
	if err := s.Fail(failed); err != failed {
		t.Errorf("%v", err)
	}
	s.mu.Lock()
	s.text, s.last = "end", nil
	s.mu.Unlock()
	shows(one+" 0.0s", "=> [one 2] RUN it 1.5s", "=> => a note", "=> CACHED [one 3] RUN again 0.0s",
		"=> ERROR [one 4] RUN fails 0.0s", "no such file", "=> end 0.0s")
}
