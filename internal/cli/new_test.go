package cli_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/cli"
	"github.com/cove-sandbox/cove/internal/cli/embedded"
	"github.com/cove-sandbox/cove/internal/terminal/terminaltest"
)

// atFakeServer makes this process's commands talk to a fake server, with a terminal that is wide enough.
func atFakeServer(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cove-cli-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := newFakeServer().serve(l)
	t.Cleanup(func() { s.Close() })
	t.Setenv("COVE_SERVER", "unix:"+filepath.Join(dir, "s"))
	t.Setenv("COVE_HOME", filepath.Join(dir, "home"))
	t.Setenv("COVE_RUN_DIR", filepath.Join(dir, "run"))
	t.Setenv("HOME", dir)
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	t.Chdir(dir)
	master, terminal = terminaltest.Open(t)
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 100, Row: 40}); err != nil {
		t.Fatal(err)
	}
	return master, terminal
}

// TestDestroyAllIsTypedTwice: once is not enough, and --yes says nothing.
func TestDestroyAllIsTypedTwice(t *testing.T) {
	for _, c := range []struct {
		name, typed string
		code        int
		want        string
	}{
		{"no", "no\n", 125, "nothing was done"},
		{"once", "1\n\n", 125, "nothing was done"},
		{"yes is no number", "y\ny\n", 125, "nothing was done"},
		{"twice", "1\n1\n", 0, "calm-heron"},
	} {
		t.Run(c.name, func(t *testing.T) {
			master, terminal := atFakeServer(t)
			done := make(chan int)
			go func() {
				done <- cli.Main(t.Context(), []string{"destroy", "--all", "--yes"},
					cli.Streams{In: terminal, Out: terminal, Err: terminal}, embedded.Daemon{})
			}()
			shown := seen(t, master, "go on: ")
			for line := range strings.Lines(c.typed) {
				if _, err := master.WriteString(line); err != nil {
					t.Fatal(err)
				}
			}
			shown = strings.Join(strings.Fields(shown), " ")
			if !strings.Contains(shown, "destroy every sandbox, calm-heron, with the work in it? type how many") {
				t.Errorf("%q", shown)
			}
			if code := <-done; code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if got := seen(t, master, c.want); !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q in it", got, c.want)
			}
		})
	}
}

// asks runs "cove new" at a terminal.
func asks(t *testing.T, terminal *os.File, args ...string) chan int {
	done := make(chan int)
	go func() {
		done <- cli.Main(t.Context(), append([]string{"new"}, args...),
			cli.Streams{In: terminal, Out: terminal, Err: terminal}, embedded.Daemon{})
	}()
	return done
}

// TestNewAsksAtATerminal: what is suggested is the repository that was used last,
// enter takes what is suggested, and who leaves has made nothing.
func TestNewAsksAtATerminal(t *testing.T) {
	master, terminal := atFakeServer(t)
	done := asks(t, terminal)
	shown := ""
	for _, question := range []string{"Repository", "Branch", "From", "Network", "program of its terminal"} {
		shown += seen(t, master, question)
		if question != "program of its terminal" {
			master.WriteString("\r")
		}
	}
	for _, word := range []string{"[owner/repo]", "Branch", "From", "limited", "[1]", "program of its terminal"} {
		if !strings.Contains(shown, word) {
			t.Errorf("no %q in %q", word, shown)
		}
	}
	master.WriteString("\x03")
	if shown := seen(t, master, "nothing was made"); !strings.Contains(shown, "nothing was made") {
		t.Errorf("%q", shown)
	}
	if code := <-done; code != 125 {
		t.Errorf("exit code %d", code)
	}
}

// TestNewAsksLineByLine: a terminal that draws nothing is asked so, and the answers make the command line.
func TestNewAsksLineByLine(t *testing.T) {
	master, terminal := atFakeServer(t)
	t.Setenv("TERM", "dumb")
	done := asks(t, terminal, "--name", "asked", "--no-attach")
	for _, line := range []struct{ question, answer string }{
		{"Repository", "owner/repo-two"}, {"Branch", "topic"}, {"From", "v2"}, {"Network", "2"}, {"Agent", "claude"},
	} {
		if shown := seen(t, master, line.question); !strings.Contains(shown, line.question) {
			t.Fatalf("no %q in %q", line.question, shown)
		}
		master.WriteString(line.answer + "\n")
	}
	if shown := seen(t, master, "cove apply asked"); !strings.Contains(shown, "the sandbox asked is ready") {
		t.Errorf("%q", shown)
	}
	if code := <-done; code != 0 {
		t.Fatalf("exit code %d", code)
	}
	made, err := os.Create(filepath.Join(t.TempDir(), "made"))
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	if code := cli.Main(t.Context(), []string{"info", "asked", "--json"},
		cli.Streams{Out: made, Err: os.Stderr}, embedded.Daemon{}); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	text, err := os.ReadFile(made.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`\"source\":\"owner/repo-two\",\"branch\":\"topic\",\"from\":\"v2\"`,
		`\"agent\":\"claude\"`, `\"mode\":\"limited\"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}
