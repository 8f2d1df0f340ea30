package repos

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// direct is an Outlet that connects directly to the server.
type direct struct{ ca string }

func (d direct) Open(context.Context, cove.Principal, string, bool) (Route, error) {
	return Route{CA: d.ca, Close: func() error { return nil }}, nil
}

// named is an Outlet that leads every name to the server, as the gateway leads host.cove.internal to this machine.
type named struct{ server *gittest.Server }

func (n named) Open(context.Context, cove.Principal, string, bool) (Route, error) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, err := net.Dial("tcp", n.server.Addr().String())
		if err != nil || r.Method != http.MethodConnect {
			http.Error(w, "this is for CONNECT", http.StatusBadGateway)
			return
		}
		defer to.Close()
		from, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer from.Close()
		io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n")
		go io.Copy(to, from)
		io.Copy(from, to)
	}))
	return Route{CA: n.server.CA, Proxy: proxy.URL, Close: func() error { proxy.Close(); return nil }}, nil
}

// newStore returns a store whose remotes are on the server.
func newStore(t testing.TB, server *gittest.Server) *Store {
	t.Helper()
	o := Options{Home: t.TempDir()}
	if server != nil {
		o.Outlet = direct{server.CA}
	}
	return open(t, o)
}

func open(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var (
	owner = cove.MachineOwner()
	ci    = cove.KeyHolder("ci")
)

// spec asks for a workspace as a key does.
func spec(name string, r workspace.Repository) workspace.Spec { return specOf(ci, name, r) }

// ownSpec asks for a workspace as the machine's owner does.
func ownSpec(name string, r workspace.Repository) workspace.Spec { return specOf(owner, name, r) }

func specOf(who cove.Principal, name string, r workspace.Repository) workspace.Spec {
	return workspace.Spec{ID: cove.NewSandboxID(), Name: name, User: cove.AgentUser, Owner: who, Repository: &r}
}

// create makes a workspace and fails the test on an error.
func create(t testing.TB, s *Store, spec workspace.Spec) workspace.Workspace {
	t.Helper()
	w, err := s.Create(context.Background(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// names lists a directory.
func names(t testing.TB, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

func read(t testing.TB, parts ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func exists(parts ...string) bool {
	_, err := os.Lstat(filepath.Join(parts...))
	return err == nil
}
