//go:build linux

package agents

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/terminal"
	"github.com/cove-sandbox/cove/internal/terminal/terminaltest"
	"github.com/cove-sandbox/cove/test/await"
)

const note = `
aside: A title
prompts:
  - when: leave a note
    turns:
      - say: I write a note.
        do: [{shell: echo kept >note}]
      - say: The note is there.
`

// TestScreen: somebody works with the agents' own screens, takes over what they have done, and looks at it again.
func TestScreen(t *testing.T) {
	l := newLab(t, note)
	size := terminal.Size{Rows: 40, Columns: 120}
	for _, a := range []struct{ name, ready string }{
		{"claude", `bypass permissions on`},
		{"codex", `Ask Codex to do anything`},
	} {
		t.Run(a.name, func(t *testing.T) {
			dir := l.project(t, a.name)
			p := terminaltest.Sit(t, size, l.command(t.Context(), dir, a.name))
			p.Sees(a.ready)
			p.Types("leave a note")
			p.Sees(`(?m)^[❯›]\PL+leave a note`)
			p.Types("\r")
			p.Sees(`The note is there\.`)
			p.Types("/exit")
			p.Sees(`(?m)^[❯›]\PL+exit`)
			p.Types("\r")
			p.Sees(`take it over into`)
			p.Types("y\r")
			p.Leaves(0)
			if text, err := os.ReadFile(filepath.Join(dir, "note")); string(text) != "kept\n" {
				t.Errorf("%q, %v", text, err)
			}

			run := l.ended(t)
			if run.Agent != a.name || !run.Interactive || run.Status != api.RunSucceeded {
				t.Errorf("%+v", run)
			}
			got := l.cove(t, dir, "runs", "replay", "--speed", "0", run.ID)
			played := terminal.New(size)
			shown := false
			for part := range slices.Chunk([]byte(got.stdout), 64) {
				played.Write(part)
				shown = shown || strings.Contains(played.Text(), "The note is there.")
			}
			if !shown {
				t.Errorf("the recording does not show it: %+v", got)
			}
			if n := searchFiles(t, filepath.Join(l.dir, "home"), dir); n < 10 || strings.Contains(p.Text(), key) {
				t.Errorf("the key was looked for in %d files, and on the screen", n)
			}
		})
	}
}

// TestScreenInterrupted: ctrl-c leaves the agents' own screens, and the terminal is as it was before.
func TestScreenInterrupted(t *testing.T) {
	l := newLab(t, note)
	for _, a := range []struct {
		name, ready, asks string // asks: whether it was meant
	}{
		{"claude", `bypass permissions on`, `(?i)press ctrl-c again`},
		{"codex", `Ask Codex to do anything`, ""},
		{"opencode", `Ask anything`, ""},
		{"gemini", `Type your message`, `Press Ctrl\+C again`},
	} {
		t.Run(a.name, func(t *testing.T) {
			dir := l.project(t, "ctrl-"+a.name)
			p := terminaltest.Sit(t, terminal.Size{Rows: 40, Columns: 120}, l.command(t.Context(), dir, a.name))
			p.Sees(a.ready)
			if a.asks == "" {
				p.Types("\x03")
			} else {
				interrupt(t, p, a.ready, a.asks)
			}
			p.Leaves(0)
		})
	}
}

// interrupt presses ctrl-c until the command ends. A program that is interrupted asks whether it was meant, and takes a
// second ctrl-c for the answer only while it shows the question, which a loaded machine can miss.
func interrupt(t *testing.T, p *terminaltest.Person, ready, question string) {
	t.Helper()
	shows := func(pattern string) bool { return regexp.MustCompile(pattern).MatchString(p.Text()) }
	for range 20 {
		await.That(t, "it is ready", func() bool { return p.Ended() || shows(ready) })
		if p.Ended() {
			return
		}
		p.Types("\x03")
		await.That(t, "it asks", func() bool { return p.Ended() || shows(question) })
		p.Types("\x03")
		await.That(t, "it asks no more", func() bool { return p.Ended() || !shows(question) })
	}
	t.Fatalf("it does not end\n%s", p.Text())
}
