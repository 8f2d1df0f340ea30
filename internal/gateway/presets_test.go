package gateway

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// TestDenialNamesPreset: the remedy of a denied registry of this machine is its preset, inside and on the host, also
// while another tool has not answered.
func TestDenialNamesPreset(t *testing.T) {
	named := make(chan struct{})
	registry := func(tool string) ([]policy.Endpoint, error) {
		if tool == "cargo" {
			<-named
		}
		if tool != "npm" {
			return nil, cove.Errorf(cove.NotFound, "%s is not installed", tool)
		}
		return []policy.Endpoint{{Host: hostOf(t, "packages.lab.test"), Port: 443, From: "npm config"}}, nil
	}
	machine := policy.Machine{Registry: registry}
	w := routeWith(t, Options{Machine: machine}, document(t, "mode: limited\nrules:\n- hosts: good.lab.test\n"))
	view := proxyView{w}
	for _, c := range []struct{ host, remedy string }{
		{"packages.lab.test", "cove policy allow test --preset npm"},
		{"other.lab.test", "cove policy allow test other.lab.test"},
	} {
		v := view.Decide(context.Background(), connectTo(t, c.host, 443))
		if v.Action != policy.Deny || v.Remedy != c.remedy {
			t.Errorf("%s: %+v", c.host, v)
		}
		if c.host == "packages.lab.test" {
			close(named)
		}
		w.record(decision.Decision{Host: c.host, Verdict: decision.Deny, Stage: decision.StagePolicy,
			Remedy: "cove policy allow test " + c.host}) // the look-up of its name, before
		w.record(decision.Decision{Host: c.host, Port: 443, Verdict: decision.Deny, Stage: decision.StagePolicy,
			Remedy: v.Remedy})
	}
	want := []egress.Denial{{Place: "packages.lab.test", Flag: "--preset npm"},
		{Place: "other.lab.test", Flag: "--allow other.lab.test"}}
	if got := w.Denied(); !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	partly := routeWith(t, Options{Machine: machine},
		document(t, "mode: limited\nrules:\n- {hosts: packages.lab.test, methods: GET}\n"))
	request := requestOf(t, "packages.lab.test", "PUT", "/x")
	v := proxyView{partly}.Decide(context.Background(), request)
	if v.Remedy != "cove policy allow test packages.lab.test" {
		t.Errorf("a rule has the host: %+v", v)
	}
}

// TestUntrustedAuthority: a program that accepts certificates of an authority of its own alone is told apart, and is
// let through by the flag that its record names.
func TestUntrustedAuthority(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("here")) })
	const rules = "mode: limited\nrules:\n- hosts: example.com\n"
	o := newOrigin(t, page, rules)
	own := filepath.Join(t.TempDir(), "own.pem")
	if err := os.WriteFile(own, newOrigin(t, page, rules).route.Certificate(), 0o600); err != nil {
		t.Fatal(err)
	}
	curl := func(o *origin, ca string) (string, error) {
		out, err := exec.Command("curl", "-sS", "--proxy", o.proxy, "--cacert", ca, "https://example.com/").CombinedOutput()
		return string(out), err
	}
	if out, err := curl(o, o.ca); err != nil || out != "here" {
		t.Fatalf("with the sandbox's authority: %q, %v", out, err)
	}
	for range 2 {
		if out, err := curl(o, own); err == nil {
			t.Fatalf("with another authority: %q", out)
		}
	}
	all := o.decisions()
	i := slices.IndexFunc(all, func(d decision.Decision) bool { return d.Reason == distrusted("example.com") })
	if i < 0 || all[i].Remedy != "cove policy allow test --pass-through example.com" {
		t.Errorf("decisions: %+v", all)
	}
	want := []egress.Denial{{Place: "example.com", Flag: "--pass-through example.com", Untrusted: true}}
	if got := o.route.Denied(); !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	through := newOrigin(t, page, rules)
	documents, err := policy.Documents(cove.Network{PassThrough: []string{"example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := through.route.Extend(documents...); err != nil {
		t.Fatal(err)
	}
	if out, err := curl(through, through.upstream); err != nil || out != "here" {
		t.Errorf("passed through: %q, %v", out, err)
	}
}
