package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

// group is neighbours that say their name and port, and end.
type group []string

func (g group) Names() []string { return g }

func (g group) Dial(_ context.Context, name string, port uint16) (net.Conn, error) {
	if port != 5432 {
		return nil, cove.Errorf(cove.Unavailable, "nothing listens on port %d of %s", port, name)
	}
	ours, theirs := net.Pipe()
	go func() {
		fmt.Fprintf(theirs, "%s at %d", name, port)
		theirs.Close()
	}()
	return halfClosed{ours}, nil
}

type halfClosed struct{ net.Conn }

func (halfClosed) CloseWrite() error { return nil }

// TestNeighbours: a sandbox looks up and reaches the services of its group, and another one neither; a denial of its
// own policy holds for them, too.
func TestNeighbours(t *testing.T) {
	r := &resolver{answer: at("203.0.113.1")}
	g := New(Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Clock: clock.Real(),
		Dialer: proxy.Direct{Resolver: r}})
	t.Cleanup(g.Close)
	denial, err := policy.Args("test", policy.Deny, "cache")
	if err != nil {
		t.Fatal(err)
	}
	open := func(of group, documents ...*policy.Document) *Route {
		s := Spec{Sandbox: cove.NewSandboxID(), Name: "test", Policy: documents}
		if of != nil {
			s.Neighbours = of
		}
		w, err := g.Open(s)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	within, stranger := open(group{"db", "cache"}, denial), open(nil)
	for _, c := range []struct {
		route   *Route
		name    string
		reached string
	}{{within, "db", "db at 5432"}, {within, "cache", ""}, {within, "dbx", ""}, {stranger, "db", ""},
		{open(group{"other"}), "db", ""}} {
		q := new(mdns.Msg).SetQuestion(c.name+".", mdns.TypeA)
		a := c.route.filter.Answer(t.Context(), q)
		if is := a.Rcode == mdns.RcodeSuccess && len(a.Answer) == 1; is != (c.reached != "") {
			t.Errorf("%s is looked up: %v", c.name, a)
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c.route.ServeProxy(ln)
		for port, want := range map[int]string{5432: c.reached, 5433: ""} {
			if got := through(t, ln.Addr().String(), fmt.Sprintf("%s:%d", c.name, port)); got != want {
				t.Errorf("%s at %d: %q, want %q", c.name, port, got, want)
			}
		}
	}
	if n := r.asked(); n > 0 {
		t.Errorf("the resolver was asked for %v", r.names)
	}
	if v, ok := within.Env()["NO_PROXY"], within.Env()["no_proxy"]; !strings.HasSuffix(v, ",db,cache") || ok != v {
		t.Errorf("NO_PROXY is %s, no_proxy %s", v, ok)
	}
	if v := stranger.Env()["NO_PROXY"]; v != noProxy {
		t.Errorf("of a stranger: %s", v)
	}
}

// through returns what a place says to a client of a proxy; empty where it is not reached.
func through(t *testing.T, at, place string) string {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", place, place)
	from := bufio.NewReader(c)
	answer, err := http.ReadResponse(from, &http.Request{Method: http.MethodConnect})
	if err != nil || answer.StatusCode != http.StatusOK {
		return ""
	}
	said, _ := io.ReadAll(from)
	return string(said)
}
