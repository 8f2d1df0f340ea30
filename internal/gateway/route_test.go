package gateway

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/egress/github"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// allow is a policy that allows hosts, and nothing else.
func allow(t *testing.T, hosts ...string) *policy.Document {
	t.Helper()
	d, err := policy.Args("test", policy.Allow, hosts...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestReplace(t *testing.T) {
	w, _ := newTestRoute(t)
	is := func(name string, want policy.Action) {
		t.Helper()
		if v := w.judge(requestOf(t, name, "GET", "/")); v.Action != want {
			t.Errorf("%s: %+v", name, v)
		}
	}
	is("allowed.test", policy.Allow)
	is("asked.test", policy.Ask)
	if _, err := w.Replace(allow(t, "asked.test", "other.test")); err != nil {
		t.Fatal(err)
	}
	is("allowed.test", policy.Deny)
	is("asked.test", policy.Allow)
	is("other.test", policy.Allow)
	if _, err := w.Replace(); err != nil {
		t.Fatal(err)
	}
	is("other.test", policy.Deny)
}

// TestChangeNarrowsFirst: while a change cuts what it does not allow, both policies have to allow.
func TestChangeNarrowsFirst(t *testing.T) {
	w, _ := newTestRoute(t)
	next, err := policy.Compile(policy.Machine{}, allow(t, "allowed.test", "asked.test", "other.test"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name         string
		there, other *policy.Policy
		want         policy.Action
	}{
		{"allowed.test", w.policy.Load(), next, policy.Allow},
		{"asked.test", w.policy.Load(), next, policy.Ask},
		{"other.test", w.policy.Load(), next, policy.Deny},
		{"missing.test", w.policy.Load(), next, policy.Deny},
	} {
		for range 2 {
			w.policy.Store(c.there)
			w.next.Store(c.other)
			if v := w.judge(requestOf(t, c.name, "GET", "/")); v.Action != c.want {
				t.Errorf("%s: %+v", c.name, v)
			}
			c.there, c.other = c.other, c.there
		}
	}
}

// TestKeptAuthority: a gateway that comes after another one has the same
// authority for the same sandbox, until it is discarded.
func TestKeptAuthority(t *testing.T) {
	home, files := t.TempDir(), t.TempDir()
	keep, err := ca.OpenStore(home)
	if err != nil {
		t.Fatal(err)
	}
	c := clocktest.NewManual(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	id := cove.NewSandboxID()
	open := func() (*Gateway, string) {
		g := New(Options{Dir: files, Keep: &keep, Clock: c, Log: slog.New(slog.DiscardHandler)})
		w, err := g.Open(Spec{Sandbox: id, Name: "test"})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		if w.Files() != filepath.Join(files, string(id)) || w.Env()["SSL_CERT_FILE"] != ca.Bundle {
			t.Errorf("files in %s, environment %v", w.Files(), w.Env())
		}
		return g, string(w.Certificate())
	}
	_, first := open()
	if shown, err := os.ReadFile(filepath.Join(files, string(id), "ca.pem")); err != nil || string(shown) != first {
		t.Errorf("after the first has closed: %q, %v", shown, err)
	}
	g, second := open()
	if second != first {
		t.Error("another authority")
	}
	if err := g.Discard(id); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(files, "*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if _, third := open(); third == first {
		t.Error("the same authority after it was discarded")
	}
}

// TestNamesOfConnections: a name that is connected to is looked up as one that is asked for, and counts as much.
func TestNamesOfConnections(t *testing.T) {
	w, _ := newTestRoute(t)
	if _, err := w.Replace(allow(t, "*.wild.test")); err != nil {
		t.Fatal(err)
	}
	connect := func(name string) policy.Verdict {
		return proxyView{w}.Decide(t.Context(), connectTo(t, name, 443))
	}
	first, last := connect("first.wild.test"), policy.Verdict{}
	for i := range 500 {
		last = connect(fmt.Sprintf("n%d.wild.test", i))
	}
	if first.Action != policy.Allow || last.Action == policy.Allow || last.Rule != ruleNames {
		t.Errorf("the first: %+v, the last: %+v", first, last)
	}
	if v := connect("first.wild.test"); v.Action != policy.Allow {
		t.Errorf("one that was there before: %+v", v)
	}
	if a := w.filter.Answer(t.Context(), new(mdns.Msg).SetQuestion("another.wild.test.",
		mdns.TypeA)); a.Rcode != mdns.RcodeRefused {
		t.Errorf("a question for one more: %s", mdns.RcodeToString[a.Rcode])
	}
}

// TestNamedForTheRemote: a route of a repository opens whatever credential is named for the repository's host.
func TestNamedForTheRemote(t *testing.T) {
	t.Setenv("GH_TOKEN", "ghp_a-token-of-this-machine")
	t.Setenv("HOME", t.TempDir())
	g := New(Options{Dir: t.TempDir(), Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
		GitHub: github.NewServers()})
	t.Cleanup(g.Close)
	for _, pulls := range []bool{false, true} {
		w, err := g.Open(Spec{
			Sandbox: cove.NewSandboxID(), Name: "test", Policy: []*policy.Document{allow(t, "github.com", "api.github.com")},
			Credentials: []string{"github"}, Remote: "https://github.com/o/r", PullRequests: pulls,
		})
		if err != nil {
			t.Errorf("with pull requests: %v: %v", pulls, err)
			continue
		}
		for _, target := range []string{
			"https://github.com/o/r.git/info/refs?service=git-upload-pack", "https://api.github.com/repos/o/r/pulls",
		} {
			h, p, err := send(t, w, "GET", target, "")
			if err != nil || h.Header.Get("Authorization") == "" {
				t.Errorf("%s: %v, %v", target, err, h)
			}
			if p != nil {
				p.End(nil)
			}
		}
		w.Close()
	}
}
