package sandbox_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// sharing is a request of somebody's who shares.
func sharing(branch string) sandbox.Request {
	return sandbox.Request{
		Repository: &workspace.Repository{Source: "o/r", Branch: branch}, Shared: true,
		Spec: cove.Spec{Profile: "crew", Env: map[string]string{"A": "b"}, Labels: map[string]string{"run": branch}},
	}
}

// TestShared: of several who ask at once for the same, one makes the sandbox, and
// each has a checkout in it, with a life of its own.
func TestShared(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	made := make([]view, 5)
	var all sync.WaitGroup
	for i := range made {
		all.Go(func() {
			v, err := s.Create(t.Context(), owner, sharing(string(rune('a'+i))), nil)
			if err != nil {
				t.Error(err)
			}
			made[i] = viewOf(v)
		})
	}
	all.Wait()
	host := made[0].Within
	for _, m := range made {
		if m.Within != host || host == "" || m.State != "running" || m.Spec.Labels["run"] == "" ||
			m.Spec.WorkDir != cove.Home+"/"+m.ID || m.Spec.Directory != "" {
			t.Errorf("made is %+v", m)
		}
	}
	if live := s.engine.Live(); len(live) != 1 || string(live[0]) != host {
		t.Fatalf("the engine has %v, and they are within %s", live, host)
	}
	grants := func() int { return strings.Count(h.ways.policyOf(host), "repository:") }
	if grants() != 1+len(made) {
		t.Errorf("its policy is %q", h.ways.policyOf(host))
	}

	first := made[0].Name
	_, err := s.Stop(t.Context(), owner, first)
	wantCode(t, "stopping it alone", err, cove.Conflict)
	wantCode(t, "keeping its files", fails(s.Destroy(t.Context(), owner, first, true)), cove.Unsupported)
	wantCode(t, "keeping those of all", fails(s.Destroy(t.Context(), owner, host, true)), cove.Unsupported)
	if _, err := s.Change(t.Context(), owner, first, sandbox.Change{Name: "mine"}); err != nil {
		t.Error(err)
	}
	if _, err := s.Destroy(t.Context(), owner, "mine", false); err != nil {
		t.Fatal(err)
	}
	s.wantState(t, host, cove.StateRunning)
	if grants() != len(made) {
		t.Errorf("after one has gone its policy is %q", h.ways.policyOf(host))
	}

	second := made[1].Name
	if _, err := s.Stop(t.Context(), owner, host); err != nil {
		t.Fatal(err)
	}
	s.wantState(t, second, cove.StateStopped)
	if _, err := s.Start(t.Context(), owner, second); err != nil {
		t.Fatal(err)
	}
	s.wantState(t, host, cove.StateRunning)
	s.wantState(t, second, cove.StateRunning)
	if _, err := s.Stop(t.Context(), owner, host); err != nil {
		t.Fatal(err)
	}
	again := s.make(t, sharing("z"))
	if again.Within != host || again.State != "running" {
		t.Errorf("the next is %+v", again)
	}

	s.end(t)
	s = h.adopt(t)
	s.wantState(t, second, cove.StateRunning)
	if grants() != len(made)+1 {
		t.Errorf("with the next server its policy is %q", h.ways.policyOf(host))
	}
	if _, err := s.Destroy(t.Context(), owner, host, false); err != nil {
		t.Fatal(err)
	}
	h.empty(t, s)
}

// TestCheckoutsCount: a checkout counts among the sandboxes that a key may have, like the one that it is in.
func TestCheckoutsCount(t *testing.T) {
	h := newHome(t)
	h.grants = access.Grants{ci: {Sandboxes: 3}}
	s := h.adopt(t)
	for _, branch := range []string{"a", "b"} {
		if _, err := s.Create(t.Context(), ci, sharing(branch), nil); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Create(t.Context(), ci, sharing("c"), nil)
	wantCode(t, "a third checkout", err, cove.Conflict)
	if err == nil || !strings.Contains(err.Error(), "this API key has 3 sandboxes") {
		t.Errorf("it says %v", err)
	}
	_, err = s.Create(t.Context(), ci, sandbox.Request{Name: "alone"}, nil)
	wantCode(t, "a sandbox beside them", err, cove.Conflict)
	if _, err := s.Create(t.Context(), owner, sharing("d"), nil); err != nil {
		t.Errorf("another's: %v", err)
	}
}

// TestNotShared: who asks for anything else, or is somebody else, has another sandbox.
func TestNotShared(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	host := s.make(t, sharing("a")).Within
	for name, change := range map[string]func(*sandbox.Request){
		"another profile":    func(q *sandbox.Request) { q.Profile = "other" },
		"no profile":         func(q *sandbox.Request) { q.Profile = "" },
		"another variable":   func(q *sandbox.Request) { q.Env = map[string]string{"A": "c"} },
		"another repository": func(q *sandbox.Request) { q.Repository.Source = "o/other" },
		"more memory":        func(q *sandbox.Request) { q.Limits.Memory = 1 << 30 },
		"another agent":      func(q *sandbox.Request) { q.Agent = "robot" },
		"a place that it may reach": func(q *sandbox.Request) {
			q.Network = &cove.Network{Enabled: true, Allow: []string{"a.example"}}
		},
		"a mount":           func(q *sandbox.Request) { q.Mounts = []cove.Mount{{Source: h.dir, Target: "/data"}} },
		"another principal": func(*sandbox.Request) {},
	} {
		q, who := sharing("b"), owner
		if name == "another principal" {
			who = ci
		}
		change(&q)
		v, err := s.Create(t.Context(), who, q, nil)
		m := viewOf(v)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if m.Within == host {
			t.Errorf("%s: it is within one of somebody else's", name)
		}
		if _, err := s.Destroy(t.Context(), owner, m.Within, false); err != nil {
			t.Error(err)
		}
	}
	for name, change := range map[string]func(*sandbox.Request){
		"no repository":         func(q *sandbox.Request) { q.Repository = nil },
		"a directory":           func(q *sandbox.Request) { q.Repository, q.Bind = nil, h.dir },
		"a worktree":            func(q *sandbox.Request) { q.Repository.Worktree = true },
		"what is not committed": func(q *sandbox.Request) { q.Repository.Uncommitted = true },
		"an SSH agent":          func(q *sandbox.Request) { q.SSHAgent = "/run/agent" },
	} {
		q := sharing("b")
		change(&q)
		_, err := s.Create(t.Context(), owner, q, nil)
		wantCode(t, name, err, cove.Unsupported)
	}
}

// TestCheckoutLeftByEarlierServer: a checkout that was half made or half removed goes with the next server, and a
// checkout that cannot be removed stays, as failed, until it can.
func TestCheckoutLeftByEarlierServer(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	half, going, whole := s.make(t, sharing("a")), s.make(t, sharing("b")), s.make(t, sharing("c"))
	host := cove.SandboxID(whole.Within)
	s.end(t)
	err := h.store.ChangeSandbox(t.Context(), host, func(b *store.Sandbox) error {
		b.Spec.Checkouts[0].State, b.Spec.Checkouts[1].State = cove.StatePreparing, cove.StateDestroying
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s = h.adopt(t)
	for _, gone := range []string{half.ID, going.ID} {
		_, err := s.Find(t.Context(), owner, gone)
		wantCode(t, "finding what is gone", err, cove.NotFound)
		if _, err := h.workspaces.Open(t.Context(), cove.SandboxID(gone)); err == nil {
			t.Errorf("the workspace of %s is left", gone)
		}
	}
	s.wantState(t, whole.ID, cove.StateRunning)

	h.workspaces.bad = cove.Errorf(cove.Unavailable, "busy")
	wantCode(t, "removing it", fails(s.Destroy(t.Context(), owner, whole.ID, false)), cove.Unavailable)
	s.wantState(t, whole.ID, cove.StateFailed)
	s.wantState(t, string(host), cove.StateRunning)
	h.workspaces.bad = nil
	if _, err := s.Destroy(t.Context(), owner, whole.ID, false); err != nil {
		t.Error(err)
	}
	if _, err := s.Destroy(t.Context(), owner, string(host), false); err != nil {
		t.Error(err)
	}
	h.empty(t, s)
}

// TestSharedByName: a shared sandbox has the name that is asked for, and what differs from it is refused.
func TestSharedByName(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	named := func(branch string) sandbox.Request {
		q := sharing(branch)
		q.SharedName = "crew"
		return q
	}
	made := make([]view, 4)
	var all sync.WaitGroup
	for i := range made {
		all.Go(func() {
			v, err := s.Create(t.Context(), owner, named(string(rune('a'+i))), nil)
			if err != nil {
				t.Error(err)
			}
			made[i] = viewOf(v)
		})
	}
	all.Wait()
	host, err := s.Find(t.Context(), owner, "crew")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range made {
		if m.Within != string(host.ID) {
			t.Errorf("%s is within %s, and crew is %s", m.Name, m.Within, host.ID)
		}
	}
	other := named("z")
	other.Limits.Memory = 1 << 30
	_, err = s.Create(t.Context(), owner, other, nil)
	wantCode(t, "one of another shape", err, cove.Conflict)
	if err == nil || !strings.Contains(err.Error(), "the sandbox crew is shared, and differs") {
		t.Errorf("it says %v", err)
	}
	s.make(t, sandbox.Request{Name: "alone"})
	other.SharedName = "alone"
	_, err = s.Create(t.Context(), owner, other, nil)
	wantCode(t, "one that is not shared", err, cove.Conflict)
	other.SharedName = "-"
	_, err = s.Create(t.Context(), owner, other, nil)
	wantCode(t, "no name", err, cove.InvalidArgument)
}
