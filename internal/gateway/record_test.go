package gateway

import (
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/redact"
	"github.com/cove-sandbox/cove/internal/secret"
)

func TestPathsWithoutSecrets(t *testing.T) {
	set, err := redact.New(secret.New("sk-test-0123456789"), secret.New("with/a/slash"))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"":                                 "",
		"/v1/items":                        "/v1/items",
		"/v1/sk-test-0123456789/x":         "/v1/…/x",
		"/v1/key=sk-test-0123456789;/x/":   "/v1/…/x/",
		"/v1/sk%2Dtest%2D0123456789":       "/v1/…",
		"/a/with/a/slash/b":                "/a/…/…/…/b",
		"/sk-test-0123456789/with/a/slash": "/…/…/…/…",
	} {
		if got := withoutSegments(path, set.Text(path)); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// TestRename: records and refusals have the sandbox's present name.
func TestRename(t *testing.T) {
	g, _, _ := newTestGateway(t)
	var names []string
	r, _, _, _ := newRecorder(t)
	r.o.Observe = func(d decision.Decision) { names = append(names, d.Execution) }
	g.o.Recorder = r
	w := openRoute(t, g, cove.MachineOwner(), asks)
	for _, name := range []string{"first", "second"} {
		w.Rename(name)
		if v := w.judge(requestOf(t, "denied.test", "GET", "/")); v.Action != policy.Deny ||
			!strings.Contains(v.Remedy, name) {
			t.Errorf("as %s it is told %+v", name, v)
		}
		w.record(decision.Decision{Host: name})
	}
	if !slices.Equal(names, []string{"first", "second"}) {
		t.Errorf("recorded is of %q", names)
	}
}

func FuzzPathsWithoutSecrets(f *testing.F) {
	const value = "abcdefgh/1234"
	set, err := redact.New(secret.New(value))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("/v1/" + value)
	f.Add("//")
	f.Fuzz(func(t *testing.T, path string) {
		got := withoutSegments(path, set.Text(path))
		if strings.Contains(got, value) || !strings.Contains(path, value) && set.Text(path) == path && got != path {
			t.Errorf("%q: %q", path, got)
		}
	})
}
