//go:build linux

package daemon_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
)

// TestRefusedAtOnce: what a request names and the machine lacks is refused before an agent or a repository is
// fetched for it, and by a check.
func TestRefusedAtOnce(t *testing.T) {
	var fetched atomic.Int32
	remote := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fetched.Add(1)
		http.NotFound(w, nil)
	}))
	defer remote.Close()
	cfg := settings(t)
	cfg.Gateway.Providers = filepath.Join(cfg.Home, "..", "providers.yaml")
	must(t, os.WriteFile(cfg.Gateway.Providers, []byte("providers:\n"+
		"  - {name: house, kind: anthropic, base_url: 'http://127.0.0.1:9/v1'}\n"), 0o644))
	cfg.Agents = []agent.Agent{{
		Name: "absent", Title: "Absent", Program: "absent", Prompt: agent.ByStdin, Output: agent.FormatMessages,
		Provider: "anthropic", Options: agent.Options{Model: []string{"{model}"}},
		Headless: []string{"absent"}, Interactive: []string{"absent"},
		Package: agent.Package{Npm: "@cove-sandbox/absent", Version: "1.0.0"},
	}}
	cfg.Sandbox.CgroupParent = "cove-refused-" + strconv.Itoa(os.Getpid())
	p := serve(t, cfg, "ANTHROPIC_API_KEY=", "OPENAI_API_KEY=")

	provider := func(names ...string) *api.NetworkPermission {
		return &api.NetworkPermission{Enabled: true, ModelPermission: api.ModelPermission{Providers: names}}
	}
	with := func(change func(*api.NetworkPermission)) *api.NetworkPermission {
		n := provider("house")
		change(n)
		return n
	}
	must(t, os.WriteFile(cfg.ProfilesFile(), []byte("profiles: [{name: dear, network: {mode: limited, "+
		"providers: [house], budget: {cost: 5}}}]"), 0o644))
	for name, c := range map[string]struct {
		network *api.NetworkPermission
		profile string
		text    string
	}{
		"a budget in dollars": {with(func(n *api.NetworkPermission) { n.Budget = &api.ModelBudget{Cost: 5} }), "",
			"a budget in dollars cannot be judged: what the model provider house costs is not known"},
		"a budget in dollars of a profile": {nil, "dear", "what the model provider house costs is not known"},
		"a provider":                       {provider("nobody"), "", `no model provider "nobody"`},
		"a second provider":                {provider("house", "nobody"), "", `no model provider "nobody"`},
		"the key of a provider":            {provider("openai"), "", "no key"},
		"the agent's own provider":         {nil, "", "no key"},
		"a credential": {with(func(n *api.NetworkPermission) { n.Credentials = []string{"nobody"} }), "",
			"no credential"},
		"a preset":  {with(func(n *api.NetworkPermission) { n.Presets = []string{"nobody"} }), "", "nobody"},
		"a profile": {nil, "nobody", "nobody"},
	} {
		var steps []string
		step := func(p api.Progress) { steps = append(steps, p.Step) }
		made := api.SandboxRequest{Network: c.network, Profile: c.profile}
		run := api.RunRequest{Agent: "absent", Prompt: "do it", New: &made}
		_, err := p.StartRun(t.Context(), run, client.RunStream{Progress: func(p api.Progress) error {
			step(p)
			return nil
		}})
		errs := []error{err, p.CheckRun(t.Context(), run)}
		if c.network != nil && c.text != "no key" {
			made.Repository = &api.RepositoryRequest{Source: remote.URL + "/owner/repo.git"}
			_, err = p.CreateSandbox(t.Context(), made, step)
			errs = append(errs, err, p.CheckSandbox(t.Context(), made))
		}
		for i, err := range errs {
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s, %d: %v", name, i, err)
			}
		}
		if fetched.Swap(0) > 0 || len(steps) > 0 {
			t.Errorf("%s: something was fetched: %q", name, steps)
		}
	}
	// The model of a known provider counts as well, unless it is in the agent's own words.
	for word, known := range map[string]bool{"claude-unheard-of-9": false, "claude-sonnet-4-5": true, "sonnet[1m]": true} {
		n := provider("anthropic")
		n.Budget = &api.ModelBudget{Cost: 5}
		err := p.CheckRun(t.Context(), api.RunRequest{Agent: "absent", Prompt: "do it", Model: word,
			New: &api.SandboxRequest{Network: n}})
		if strings.Contains(fmt.Sprint(err), "cannot be judged: what the model \""+word+"\" of anthropic") == known ||
			strings.Contains(fmt.Sprint(err), "no key") != known {
			t.Errorf("a budget in dollars for the model %s: %v", word, err)
		}
	}
	list, err := p.Sandboxes(t.Context())
	if err != nil || len(list.Sandboxes) > 0 {
		t.Errorf("%+v, %v", list, err)
	}
	// What is there, is fetched.
	err = p.CheckRun(t.Context(), api.RunRequest{Agent: "absent", Prompt: "do it",
		New: &api.SandboxRequest{Network: provider("house")}})
	if err != nil || fetched.Load() > 0 {
		t.Errorf("a check of what may begin: %v", err)
	}
	var steps []string
	_, err = p.StartRun(t.Context(), api.RunRequest{Agent: "absent", Prompt: "do it",
		New: &api.SandboxRequest{Network: provider("house")}}, client.RunStream{Progress: func(p api.Progress) error {
		steps = append(steps, p.Step)
		return nil
	}})
	if err == nil || !slices.ContainsFunc(steps, func(s string) bool {
		return strings.Contains(s, "absent")
	}) {
		t.Errorf("an agent that is missing is not fetched: %v, %q", err, steps)
	}
}

// TestProcessesInSum: where all sandboxes have what they may have together, another one is told so, and begins again
// once there is room.
func TestProcessesInSum(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a control group whose limit it may change")
	}
	cfg := settings(t)
	cfg.Sandbox.CgroupParent = "cove-sum-" + strconv.Itoa(os.Getpid())
	p := serve(t, cfg)
	run := func() error {
		_, err := p.Execute(t.Context(), api.ExecuteRequest{Language: "bash", Code: "echo"})
		return err
	}
	if err := run(); err != nil { // a guest is ready from now on
		t.Fatal(err)
	}
	places, _ := filepath.Glob(filepath.Join(cgroup.Mount, "pids", cfg.Sandbox.CgroupParent, "pids.max"))
	unified, _ := filepath.Glob(filepath.Join(cgroup.Mount, cfg.Sandbox.CgroupParent, "pids.max"))
	places = append(places, unified...)
	if len(places) != 1 {
		t.Fatalf("the place has its limit at %q", places)
	}
	limit, err := os.ReadFile(places[0])
	must(t, err)
	must(t, os.WriteFile(places[0], []byte("0"), 0))
	for range 3 { // with the guest that was ready, and without
		if err := run(); cove.ErrorCode(err) != cove.Overloaded {
			t.Errorf("without room for a process: %v", err)
		}
	}
	must(t, os.WriteFile(places[0], limit, 0))
	if err := run(); err != nil {
		t.Errorf("with room again: %v", err)
	}
}
