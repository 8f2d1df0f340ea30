package cli_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/cli"
	"github.com/cove-sandbox/cove/internal/cli/embedded"
	"github.com/cove-sandbox/cove/internal/terminal/terminaltest"
)

// TestAtATerminal: colours are there, also the program's own, which end where it ends; a message begins a line of its
// own; and the terminal obeys nothing else of the program's.
func TestAtATerminal(t *testing.T) {
	dir, err := os.MkdirTemp("", "cove-cli-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := newFakeServer().serve(l)
	defer s.Close()
	t.Setenv("COVE_SERVER", "unix:"+filepath.Join(dir, "s"))
	t.Setenv("TERM", "xterm")
	const program = `out \x1b[1m\x1b]0\x3btitle\x07bold; limit oom`
	for _, c := range []struct{ name, noColor, want string }{
		{"with colours", "", "\x1b[0;1mbold\x1b[0m\r\n\x1b[2mcove:\x1b[0m stopped: out of memory"},
		{"without", "1", "\x1b[0;1mbold\x1b[0m\r\ncove: stopped: out of memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("NO_COLOR", c.noColor)
			master, terminal := terminaltest.Open(t)
			cli.Main(t.Context(), []string{"run", "python", "-c", program}, cli.Streams{Out: terminal, Err: terminal}, nil)
			if got := seen(t, master, "memory"); !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q in it", got, c.want)
			}
		})
	}
}

// TestBarAtATerminal: it stays within one line, however narrow, and goes.
func TestBarAtATerminal(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "rootfs.tar")
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	for i := range 40 {
		b := make([]byte, 1<<20)
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprint("usr/f", i), Mode: 0o644, Size: int64(len(b))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	t.Setenv("COVE_HOME", t.TempDir())
	t.Setenv("COVE_RUN_DIR", t.TempDir())
	t.Setenv("TERM", "xterm")
	const columns = 24
	master, terminal := terminaltest.Open(t)
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: 24}); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	shown := make(chan string)
	go func() { shown <- seen(t, master, "END") }()
	if code := cli.Main(t.Context(), []string{"image", "import", archive, "--name", "x"},
		cli.Streams{Out: out, Err: terminal}, embedded.Daemon{}); code != 0 {
		t.Errorf("exit code %d", code)
	}
	fmt.Fprint(terminal, "END")
	got := <-shown
	lines := strings.Split(strings.TrimSuffix(got, "\r\x1b[KEND"), "\r")
	if len(lines) < 2 || !strings.HasSuffix(got, "\r\x1b[KEND") || !strings.Contains(got, "unpacking ") {
		t.Fatalf("no bar that goes in %q", got)
	}
	for _, line := range lines {
		if line = strings.TrimSuffix(line, "\x1b[K"); len(line) >= columns || strings.ContainsAny(line, "\n\x1b") {
			t.Errorf("%q does not stay within %d columns", line, columns)
		}
	}
}

// seen reads what the terminal shows until a word is among it.
func seen(t *testing.T, master *os.File, word string) string {
	t.Helper()
	var got strings.Builder
	b := make([]byte, 4096)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && !strings.Contains(got.String(), word); {
		ready := []unix.PollFd{{Fd: int32(master.Fd()), Events: unix.POLLIN}}
		if unix.Poll(ready, 1000); ready[0].Revents == 0 {
			continue // what is waited for may never come
		}
		n, err := master.Read(b)
		if err != nil {
			t.Fatalf("%v after %q", err, got.String())
		}
		got.Write(b[:n])
	}
	if !strings.Contains(got.String(), word) {
		t.Errorf("%q is not seen in %q", word, got.String())
	}
	return got.String()
}
