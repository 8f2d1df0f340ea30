package httpapi

import (
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/store"
)

func decide(t *testing.T, docs []*policy.Document, name string) policy.Action {
	t.Helper()
	p, err := policy.Compile(policy.Machine{}, docs...)
	if err != nil {
		t.Fatal(err)
	}
	h, err := policy.ParseHost(name)
	if err != nil {
		t.Fatal(err)
	}
	return p.Decide(policy.Request{Layer: policy.LayerConnect, Host: h, Port: 443}).Action
}

// reached is what the last execution may reach.
func (h *harness) reached(t *testing.T) egress.Network {
	t.Helper()
	n, err := egress.NetworkOf(h.fake.request().Network)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestNetwork: what a request asks to reach becomes a policy, in which what is denied wins.
func TestNetwork(t *testing.T) {
	h := start(t, nil)
	for _, c := range []struct {
		network        string
		mode           cove.NetworkMode
		allows, denies string // hosts
	}{
		{`{"enabled":false}`, "", "", ""},
		{`{"enabled":true,"allow":["a.test","*.b.test"],"deny":["x.b.test"]}`, cove.NetworkLimited, "a.test y.b.test",
			"b.test x.b.test c.test"},
		{`{"enabled":true,"mode":"open","deny":["a.test"]}`, cove.NetworkOpen, "b.test", "a.test"},
		{`{"enabled":true,"policies":[{"source":"p.yaml","text":"mode: open\nrules: [{hosts: a.test, action: deny}]"}]}`,
			cove.NetworkOpen, "b.test", "a.test"},
		{
			`{"enabled":true,"policies":[{"source":"p.yaml","text":"rules: [{hosts: a.test}]"},{"source":"q.yaml","text":"rules: [{hosts: c.test}, {hosts: d.test, action: deny}]"}],"allow":["b.test"]}`, cove.NetworkLimited, "a.test b.test c.test", "d.test e.test"},
		{`{"enabled":true,"mode":"limited","policies":[{"source":"p.yaml","text":"mode: open"}]}`,
			cove.NetworkLimited, "", "a.test"},
	} {
		if r := h.post("/execute", `{"language":"python","code":"x","permissions":{"network":`+
			c.network+`}}`); r.StatusCode != 200 {
			t.Errorf("%s: status %d: %s", c.network, r.StatusCode, r.body)
			continue
		}
		n := h.reached(t)
		if n.Mode != c.mode {
			t.Errorf("%s: mode %q, want %q", c.network, n.Mode, c.mode)
		}
		for _, name := range strings.Fields(c.allows) {
			if got := decide(t, n.Policy, name); got != policy.Allow {
				t.Errorf("%s: %s: %s", c.network, name, got)
			}
		}
		for _, name := range strings.Fields(c.denies) {
			if got := decide(t, n.Policy, name); got != policy.Deny {
				t.Errorf("%s: %s: %s", c.network, name, got)
			}
		}
	}
}

// TestAllowPR: what may be asked of GitHub is a part of the policy.
func TestAllowPR(t *testing.T) {
	h := start(t, nil)
	for network, want := range map[string]bool{
		`{"enabled":true,"allow":["api.github.com"],"allow_pr":true}`: true,
		`{"enabled":true,"allow":["api.github.com"]}`:                 false,
		`{"enabled":true,"allow":["api.github.com"],"allow_pr":true,"policies":[{"source":"p.yaml","text":"github: {pull_requests: deny}"}]}`: false,
	} {
		if r := h.post("/execute", `{"language":"python","code":"x","permissions":{"network":`+
			network+`}}`); r.StatusCode != 200 {
			t.Errorf("%s: status %d: %s", network, r.StatusCode, r.body)
			continue
		}
		p, err := policy.Compile(policy.Machine{}, h.reached(t).Policy...)
		if err != nil || p.GitHub().PullRequests != want {
			t.Errorf("%s: %t, %v", network, p.GitHub().PullRequests, err)
		}
	}
}

// TestModels: providers and a budget go to the sandbox, and what it uses shows while it runs.
func TestModels(t *testing.T) {
	h := start(t, nil)
	r := h.do(h.owner, "POST", "/execute",
		`{"language":"python","code":"x","permissions":{"network":{"enabled":true,"providers":["anthropic"],"budget":{"requests":3,"cost":0.5}}}}`)
	if got := h.reached(t); r.StatusCode != 200 || !slices.Equal(got.Providers, []string{"anthropic"}) ||
		got.Budget != (cove.Budget{Requests: 3, Cost: 0.5}) || got.Mode != cove.NetworkLimited {
		t.Errorf("status %d: %s; %+v", r.StatusCode, r.body, got)
	}
	for _, wrong := range []string{`{"requests":0}`, `{"tokens":-1}`, `{"cost":-1}`, `{"dollars":1}`} {
		if r := h.do(h.owner, "POST", "/execute",
			`{"language":"python","code":"x","permissions":{"network":{"enabled":true,"providers":["anthropic"],"budget":`+
				wrong+`}}}`); r.StatusCode != 422 && r.StatusCode != 400 {
			t.Errorf("%s: status %d", wrong, r.StatusCode)
		}
	}
	h.store.executions = map[cove.ExecutionID]store.Execution{someID: {ID: someID, Status: cove.StatusRunning}}
	if r := h.get("/executions/" + someID); !strings.Contains(r.body, `"provider":"anthropic"`) {
		t.Errorf("while it runs: %s", r.body)
	}
}

// TestNetworkOfStrangers: a key does not open what is the machine's own.
func TestNetworkOfStrangers(t *testing.T) {
	h := start(t, nil)
	for _, network := range []string{
		`{"enabled":true,"mode":"host-only","allow":["host.cove.internal:5432"]}`,
		`{"enabled":true,"allow":["10.0.0.0/8"]}`,
		`{"enabled":true,"allow":["a.test"],"credentials":["github"]}`,
		`{"enabled":true,"providers":["anthropic"]}`,
		`{"enabled":true,"policies":[{"source":"p.yaml","text":"rules: [{cidrs: 192.168.0.0/16}]"}]}`,
	} {
		if r := h.post("/execute", `{"language":"python","code":"x","permissions":{"network":`+
			network+`}}`); r.StatusCode != 403 {
			t.Errorf("%s: status %d", network, r.StatusCode)
		}
	}
	if r := h.post("/executions/"+string(cove.NewExecutionID())+"/network",
		`{"allow":["169.254.169.254"]}`); r.StatusCode != 403 && r.StatusCode != 400 {
		t.Errorf("a change: status %d", r.StatusCode)
	}
}

func TestAuthority(t *testing.T) {
	h := start(t, nil)
	path := "/executions/" + string(cove.NewExecutionID()) + "/ca"
	if got := decode[api.Authority](t, h.get(path), 200); got.Certificate != "a certificate" {
		t.Errorf("%+v", got)
	}
	if r := h.get("/executions/x/ca"); r.StatusCode != 404 {
		t.Errorf("no id: status %d", r.StatusCode)
	}
	h.fake.killErr = cove.Errorf(cove.Conflict, "it has no network")
	if r := h.get(path); r.StatusCode != 409 {
		t.Errorf("without a network: status %d", r.StatusCode)
	}
}

func TestChangeNetwork(t *testing.T) {
	h := start(t, nil)
	path := "/executions/" + string(cove.NewExecutionID()) + "/network"
	done := decode[api.NetworkChanged](t, h.post(path, `{"allow":["a.test"],"deny":["b.test"]}`), 200)
	if done.Cut != 2 || decide(t, h.fake.extended, "a.test") != policy.Allow ||
		decide(t, h.fake.extended, "b.test") != policy.Deny {
		t.Errorf("%+v, %+v", done, h.fake.extended)
	}
	for body, status := range map[string]int{`{"allow":["a b"]}`: 400, `{"allow":"a.test"}`: 400, `{"nothing":1}`: 400} {
		if r := h.post(path, body); r.StatusCode != status {
			t.Errorf("%s: status %d, want %d", body, r.StatusCode, status)
		}
	}
	if r := h.post("/executions/x/network", `{}`); r.StatusCode != 404 {
		t.Errorf("no id: status %d", r.StatusCode)
	}
	h.fake.killErr = cove.Errorf(cove.Conflict, "it has no network")
	if r := h.post(path, `{"allow":["a.test"]}`); r.StatusCode != 409 {
		t.Errorf("without a network: status %d", r.StatusCode)
	}
}
