package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/cli"
	"github.com/cove-sandbox/cove/internal/cli/embedded"
	"github.com/cove-sandbox/cove/internal/terminal/terminaltest"
)

// TestCheckSaysWhatItWaitsFor: while the program of a credential takes its time, "cove credentials check" says what it
// waits for: at a terminal at once, on a line that goes, and elsewhere after two seconds, in a line of its own.
func TestCheckSaysWhatItWaitsFor(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"credentials.yaml": "credentials:\n  - name: slow\n" +
			"    source: [command, sh, -c, 'sleep $WAIT; echo a-long-value']\n" +
			"    to: [{form: bearer, hosts: slow.example.com}]\n",
		"cove.yaml": "gateway:\n  credentials: " + filepath.Join(dir, "credentials.yaml") + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	programs := t.TempDir() // the other credentials have programs that take their time, too
	for _, name := range []string{"sh", "sleep"} {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(programs, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{"COVE_HOME": t.TempDir(), "COVE_RUN_DIR": t.TempDir(), "COVE_SERVER": "",
		"COVE_CONFIG": filepath.Join(dir, "cove.yaml"), "TERM": "xterm", "NO_COLOR": "1",
		"PATH": programs} {
		t.Setenv(name, value)
	}
	const message = "waiting for the values of credentials: their programs and files are asked"
	check := func(t *testing.T, wait string, to *os.File) {
		t.Setenv("WAIT", wait)
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		code := cli.Main(t.Context(), []string{"credentials", "check", "slow"}, cli.Streams{Out: out, Err: to},
			embedded.Daemon{})
		if shown, _ := os.ReadFile(out.Name()); code != 0 || !strings.Contains(string(shown), "slow ") {
			t.Errorf("exit code %d, with %q", code, shown)
		}
	}
	piped := func(wait, want string) {
		t.Run("piped "+wait, func(t *testing.T) {
			said, err := os.Create(filepath.Join(t.TempDir(), "err"))
			if err != nil {
				t.Fatal(err)
			}
			defer said.Close()
			check(t, wait, said)
			if got, _ := os.ReadFile(said.Name()); string(got) != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
	piped("0", "")
	piped("3", "cove: "+message+"\n")
	t.Run("terminal", func(t *testing.T) {
		master, terminal := terminaltest.Open(t)
		shown := make(chan string)
		go func() { shown <- seen(t, master, "END") }()
		check(t, "1", terminal)
		fmt.Fprint(terminal, "END")
		if got := <-shown; got != "\r"+message+"\x1b[K\r\x1b[KEND" {
			t.Errorf("%q", got)
		}
	})
}
