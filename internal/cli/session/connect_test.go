package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/test/await"
)

// TestServerThatHangs: a command says that it waits for a server that does not answer, and not that it waits for one
// that does.
func TestServerThatHangs(t *testing.T) {
	dir, err := os.MkdirTemp("", "cove-cli-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	dial := func(name string, h http.HandlerFunc) (said *lockedBuffer, b *Backend) {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: h}
		go s.Serve(l)
		t.Cleanup(func() { s.Close() })
		said = new(lockedBuffer)
		sess := &Session{Terminal: &ui.Terminal{Say: &ui.Speaker{W: said}, Getenv: func(string) string { return "" }}}
		if b, err = sess.Dial("unix:" + l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		return said, b
	}
	asked := make(chan struct{})
	answered, lives := dial("lives", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"ok"}`)
		close(asked)
	})
	hanging, hangs := dial("hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	await.That(t, "the wait is said", func() bool {
		return strings.Contains(hanging.String(), "hangs does not answer; this command waits for it")
	})
	<-asked
	if got := answered.String(); got != "" {
		t.Errorf("of one that answers: %q", got)
	}
	for _, b := range []*Backend{lives, hangs} {
		if err := errors.Join(b.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	}
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

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

// TestOneConnection: a command asks a server for its settings and for what it wants on the same connection.
func TestOneConnection(t *testing.T) {
	dir, err := os.MkdirTemp("", "cove-cli-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("COVE_HOME", dir)
	t.Setenv("COVE_RUN_DIR", dir)
	sess := &Session{Terminal: &ui.Terminal{Say: &ui.Speaker{W: new(lockedBuffer)}, Getenv: os.Getenv}}
	cfg, err := sess.Config()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", cfg.Socket())
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	asked := map[string][]string{} // paths by connection
	s := &http.Server{
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			c := fmt.Sprintf("%p", r.Context().Value(connKey{}))
			asked[c] = append(asked[c], r.URL.Path)
			mu.Unlock()
			if r.URL.Path == "/settings" {
				json.NewEncoder(w).Encode(api.SettingDigests{Digests: cfg.Digests()})
				return
			}
			fmt.Fprint(w, `{"status":"ok"}`)
		}),
	}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	b, err := sess.Connect(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Client.Health(t.Context()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	all := slices.Collect(maps.Values(asked))
	if len(all) != 1 || !slices.Equal(all[0], []string{"/settings", "/health"}) {
		t.Errorf("asked by connection: %q", all)
	}
}

type connKey struct{}
