package session

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// TestOtherVersion: a server that an update has left behind is talked to, and said to be one.
func TestOtherVersion(t *testing.T) {
	dir, err := os.MkdirTemp("", "cove-cli-") // short: a unix socket's path has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, serverSocket))
	if err != nil {
		t.Fatal(err)
	}
	now := `v0.0.1\u001b[2J` // as JSON has it
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		fmt.Fprintf(w, `{"status":"ok","version":"%s"}`, now)
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	said := func(server string) string {
		var b bytes.Buffer
		a := &Session{Terminal: &ui.Terminal{Say: &ui.Speaker{W: &b}, Getenv: func(string) string { return "" }},
			Settings: Settings{Home: dir, RunDir: dir}, Address: server}
		found, err := a.Server(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := found.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if got := said(""); !strings.Contains(got,
		`the server is of version v0.0.1\x1b[2J, this command of dev: "cove server stop" ends it`) {
		t.Errorf("%q", got)
	}
	if got := said("unix:" + filepath.Join(dir, serverSocket)); !strings.Contains(got, "of version v0.0.1") ||
		strings.Contains(got, "server stop") {
		t.Errorf("%q", got)
	}
	now = "dev"
	if got := said(""); got != "" {
		t.Errorf("%q", got)
	}
}
