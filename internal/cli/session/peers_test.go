package session

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/instance"
)

// TestReadersFindTheLiving: a process that ends just when it is asked does not keep another from answering.
func TestReadersFindTheLiving(t *testing.T) {
	dir, err := os.MkdirTemp("", "cove-cli-") // short: a unix socket's path has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Mkdir(filepath.Join(dir, instance.Dir), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		l, err := net.Listen("unix", filepath.Join(dir, instance.Dir, name+".sock"))
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if name == "a" {
				panic(http.ErrAbortHandler)
			}
			fmt.Fprintf(w, `{"status":"ok","version":%q}`, name)
		})}
		go s.Serve(l)
		t.Cleanup(func() { s.Close() })
	}
	a := &Session{Terminal: &ui.Terminal{Say: &ui.Speaker{W: io.Discard}, Getenv: func(string) string { return "" }},
		Settings: Settings{Home: dir, RunDir: dir}}
	var h api.Health
	err = a.ReadRecords(t.Context(), func(c *client.Client) (err error) {
		h, err = c.Health(t.Context())
		return err
	})
	if err != nil || h.Version != "b" {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestLiveSocketsSkipsDeadOnes(t *testing.T) {
	dir, err := os.MkdirTemp("", "cove-[x]-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Mkdir(filepath.Join(dir, "instances"), 0o700); err != nil {
		t.Fatal(err)
	}
	alive := filepath.Join(dir, "instances", "in_b.sock")
	for _, path := range []string{filepath.Join(dir, "cove.sock"), filepath.Join(dir, "instances", "in_a.sock"), alive} {
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
			t.Fatal(err)
		}
		if path != alive {
			syscall.Close(fd) // the file stays, as after kill -9
			continue
		}
		defer syscall.Close(fd)
		if err := syscall.Listen(fd, 1); err != nil {
			t.Fatal(err)
		}
	}
	if got := liveSockets(t.Context(), dir); len(got) != 1 || got[0] != alive {
		t.Errorf("%q", got)
	}
}
