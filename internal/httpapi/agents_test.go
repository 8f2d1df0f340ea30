package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/agent/fit"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// fakeAgents are claude, which needs no key here, and keyed, which needs one and is in the list alone.
type fakeAgents struct{}

func (fakeAgents) claude(name, version string) (fit.Listed, error) {
	a := fit.Listed{Name: "claude", Title: "Claude Code", Installed: version, Ready: true, Builtin: true}
	if name != a.Name {
		return fit.Listed{}, cove.Errorf(cove.NotFound, "there is no agent %q", name)
	}
	return a, nil
}

func (f fakeAgents) Agents(context.Context) ([]fit.Listed, error) {
	a, err := f.claude("claude", "1.2.3")
	return []fit.Listed{a, {Name: "keyed", Title: "Keyed", Provider: "anthropic", Builtin: true}}, err
}

func (f fakeAgents) InstallAgent(_ context.Context, name, version string,
	progress func(workspace.Step)) (fit.Listed, error) {
	a, err := f.claude(name, version)
	if err == nil {
		progress(workspace.Step{Text: "fetching", Bytes: 3e6, Total: 9e6})
	}
	return a, err
}

func (f fakeAgents) RemoveAgent(_ context.Context, name, version string) ([]string, error) {
	if _, err := f.claude(name, version); err != nil || version == "" {
		return nil, err
	}
	return []string{version}, nil
}

func (f fakeAgents) CheckAgent(_ context.Context, name string) (fit.Report, error) {
	a, err := f.claude(name, "")
	return fit.Report{Agent: a.Name, Title: a.Title,
		Checks: []fit.Check{{Name: "runs", Found: "it does not", Fix: "install it"}}}, err
}

func (fakeAgents) EquipSandbox(cove.Principal, *sandbox.Request) error { return nil }

// TestAgents: every caller may list agents, and the owner alone changes the installs.
func TestAgents(t *testing.T) {
	h := start(t, nil)
	if all := decode[api.AgentList](t, h.get("/agents"), http.StatusOK).Agents; len(all) != 2 ||
		all[0].Installed != "1.2.3" {
		t.Errorf("%+v", all)
	}
	r := h.do(h.owner, "POST", "/agents/claude/install", `{"version":"1.2.4"}`)
	if got := told(t, r); !slices.Equal(got, []string{"0 progress", "0 installed"}) ||
		!strings.Contains(r.body, `"installed":"1.2.4"`) ||
		!strings.Contains(r.body, `"step":"fetching","bytes":3000000,"total":9000000,`) {
		t.Errorf("%q %s", got, r.body)
	}
	if removed := decode[api.AgentRemoval](t, h.do(h.owner, "DELETE", "/agents/claude/versions?version=1.2.3", ""),
		http.StatusOK).Removed; !slices.Equal(removed, []string{"1.2.3"}) {
		t.Errorf("%q", removed)
	}
	if removed := decode[api.AgentRemoval](t, h.do(h.owner, "DELETE", "/agents/claude/versions", ""),
		http.StatusOK).Removed; removed == nil || len(removed) != 0 {
		t.Errorf("%q", removed)
	}
	if report := decode[api.AgentReport](t, h.do(h.owner, "GET", "/agents/claude/doctor", ""),
		http.StatusOK); report.Healthy || report.Checks[0].Fix != "install it" {
		t.Errorf("%+v", report)
	}
	for _, c := range []struct{ method, path, body string }{{"POST", "install", "{}"}, {"DELETE", "versions", ""},
		{"GET", "doctor", ""}} {
		if r := h.do(h.owner, c.method, "/agents/nobody/"+c.path, c.body); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s of nobody: %d %s", c.path, r.StatusCode, r.body)
		}
		if r := h.do(h.client, c.method, "/agents/claude/"+c.path, c.body); r.StatusCode != http.StatusForbidden {
			t.Errorf("%s for who is not the owner: %d %s", c.path, r.StatusCode, r.body)
		}
	}
}
