package storetest

import (
	"errors"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

func lasting(name string, owner cove.Principal) store.Sandbox {
	return store.Sandbox{
		ID: cove.NewSandboxID(), Name: name, Owner: owner, State: cove.StatePreparing, CreatedAt: epoch, LastUsedAt: epoch,
		Spec: store.SandboxSpec{Spec: cove.Spec{Shape: cove.Shape{
			Isolation: cove.IsolationContainer, User: cove.AgentUser, Lifetime: cove.LifetimeDetached,
		}}},
	}
}

func wantConflict(t *testing.T, doing string, err error) {
	t.Helper()
	if cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("%s: %v, want conflict", doing, err)
	}
}

func sandboxes(t *testing.T, open Open) {
	dir := t.TempDir()
	s := at(t, open, dir)
	has := func(s store.Store, want ...store.Sandbox) {
		t.Helper()
		got, err := s.Sandboxes(t.Context())
		must(t, err)
		if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
	has(s)
	plain, whole := lasting("plain", cove.MachineOwner()), lasting("whole", cove.KeyHolder("ci"))
	whole.Reason = "'; DROP TABLE \u00e9"
	whole.Spec = store.SandboxSpec{
		Spec: cove.Spec{
			Engine: "native", Image: "debian:stable", Profile: "p", Agent: "a", Path: "/opt/a/bin",
			Screen: []string{"a", "--screen"}, Bind: "/bound",
			Layers: []cove.Layer{{Name: "robot/1.0.0", Target: "/opt/robot"}},
			Shape: cove.Shape{
				Isolation: cove.IsolationMicroVM, User: cove.User{UID: 1001, Name: "u", Home: "/home/u", Shell: "/bin/bash"},
				Lifetime: cove.LifetimeDetached,
				Limits: cove.Limits{Memory: 1, CPUs: 0.5, PIDs: 3, Disk: 4, Inodes: 5, OpenFiles: 6, Stdout: 7,
					Stderr: 8, Timeout: 9},
			},
			Network: &cove.Network{
				Enabled: true, Credentials: []string{"github"}, Allow: []string{"a.test"},
				Policies:  []cove.PolicyText{{Source: "p.yaml", Text: "rules: []"}},
				Providers: []string{"anthropic"}, Budget: cove.Budget{Requests: 3, Cost: 0.5},
			},
			WorkDir: cove.Workspace, Env: map[string]string{"A": "b"},
			Mounts:  []cove.Mount{{Source: "/a", Target: "/b", ReadOnly: true}},
			AllowPR: true, SSHAgent: "/s", Git: &cove.GitIdentity{Name: "Ada", Email: "ada@example.com"},
			Labels: map[string]string{"k": "v"},
		},
		Digest:  "sha256:1",
		Changes: []store.NetworkChange{{Allow: []string{"b.test"}}},
		Repository: &store.SandboxRepository{
			Source: "o/r", Remote: "https://git.example/o/r", Branch: "cove/whole", From: "main", Base: "1234",
			Shared: []string{"main"},
		},
		Directory: "/d",
	}
	must(t, s.AddSandbox(t.Context(), plain, store.Room{}))
	must(t, s.AddSandbox(t.Context(), whole, store.Room{}))
	has(s, whole, plain)
	has(at(t, open, dir), whole, plain)
	if got, err := s.Sandbox(t.Context(), whole.ID); err != nil || !reflect.DeepEqual(got, whole) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, whole)
	}

	whole.LastUsedAt = epoch.Add(time.Hour)
	must(t, s.TouchSandbox(t.Context(), whole.ID, whole.LastUsedAt))
	must(t, s.TouchSandbox(t.Context(), whole.ID, epoch))
	has(s, whole, plain)

	must(t, s.ChangeSandbox(t.Context(), whole.ID, func(b *store.Sandbox) error {
		if !reflect.DeepEqual(*b, whole) {
			t.Errorf("to be changed is %+v, want %+v", *b, whole)
		}
		b.Name, b.Spec.Labels = "other", map[string]string{"k": "w"}
		b.State, b.Owner = cove.StateFailed, cove.KeyHolder("nobody") // which are not changed so
		return nil
	}))
	whole.Name, whole.Spec.Labels = "other", map[string]string{"k": "w"}
	has(s, whole, plain)
	refused := errors.New("refused")
	if err := s.ChangeSandbox(t.Context(), whole.ID,
		func(b *store.Sandbox) error { b.Name = "x"; return refused }); !errors.Is(err, refused) &&
		!strings.Contains(err.Error(), "refused") {
		t.Errorf("a change that is refused: %v", err)
	}
	has(s, whole, plain)

	checkout := store.Checkout{
		ID: cove.NewSandboxID(), Name: "checkout", State: cove.StatePreparing, Labels: map[string]string{"k": "v"},
		CreatedAt: epoch, LastUsedAt: epoch,
	}
	with := func(name string) func(*store.Sandbox) error {
		return func(b *store.Sandbox) error {
			checkout.Name = name
			b.Spec.Checkouts = []store.Checkout{checkout}
			return nil
		}
	}
	wantConflict(t, "a checkout of its own sandbox's name", s.ChangeSandbox(t.Context(), whole.ID, with(whole.Name)))
	must(t, s.ChangeSandbox(t.Context(), whole.ID, with("checkout")))
	whole.Spec.Checkouts = []store.Checkout{checkout}
	has(s, whole, plain)
	another := whole
	another.ID, another.Name, another.Spec.Checkouts = cove.NewSandboxID(), "checkout", nil
	wantConflict(t, "a sandbox of a checkout's name", s.AddSandbox(t.Context(), another, store.Room{}))
	another.Name = "another"
	wantConflict(t, "a sandbox beyond two and a checkout", s.AddSandbox(t.Context(), another, store.Room{All: 3}))

	wantConflict(t, "removing one that is preparing", s.RemoveSandbox(t.Context(), plain.ID))
	must(t, s.MoveSandbox(t.Context(), plain.ID, cove.StatePreparing, cove.StateDestroying, ""))
	must(t, s.RemoveSandbox(t.Context(), plain.ID))
	has(s, whole)
	for doing, err := range map[string]error{
		"read":   func() error { _, err := s.Sandbox(t.Context(), plain.ID); return err }(),
		"move":   s.MoveSandbox(t.Context(), plain.ID, cove.StatePreparing, cove.StateReady, ""),
		"change": s.ChangeSandbox(t.Context(), plain.ID, func(*store.Sandbox) error { return nil }),
		"touch":  s.TouchSandbox(t.Context(), plain.ID, epoch),
		"remove": s.RemoveSandbox(t.Context(), plain.ID),
	} {
		if cove.ErrorCode(err) != cove.NotFound {
			t.Errorf("%s one that is not there: %v", doing, err)
		}
	}
}

func sandboxNames(t *testing.T, open Open) {
	s := at(t, open, t.TempDir())
	mine, theirs, second := lasting("same", cove.MachineOwner()), lasting("same", cove.KeyHolder("ci")),
		lasting("second", cove.MachineOwner())
	must(t, s.AddSandbox(t.Context(), mine, store.Room{}))
	must(t, s.AddSandbox(t.Context(), theirs, store.Room{})) // names are each client's own
	must(t, s.AddSandbox(t.Context(), second, store.Room{}))
	wantConflict(t, "a name again", s.AddSandbox(t.Context(), lasting("same", cove.MachineOwner()), store.Room{}))
	again := lasting("third", cove.MachineOwner())
	again.ID = mine.ID
	wantConflict(t, "an id again", s.AddSandbox(t.Context(), again, store.Room{}))
	wantConflict(t, "renamed to a name that is taken",
		s.ChangeSandbox(t.Context(), second.ID, func(b *store.Sandbox) error { b.Name = "same"; return nil }))
	if got, err := s.Sandbox(t.Context(), second.ID); err != nil || got.Name != "second" {
		t.Errorf("then it is %+v, %v", got, err)
	}
}

func sandboxesAreBounded(t *testing.T, open Open) {
	s := at(t, open, t.TempDir())
	first := lasting("a", cove.MachineOwner())
	must(t, s.AddSandbox(t.Context(), first, store.Room{All: 2}))
	must(t, s.AddSandbox(t.Context(), lasting("b", cove.KeyHolder("ci")), store.Room{All: 3}))
	wantConflict(t, "more than its share", s.AddSandbox(t.Context(), lasting("d", cove.KeyHolder("ci")), store.Room{All: 3}))
	wantConflict(t, "one too many", s.AddSandbox(t.Context(), lasting("c", cove.MachineOwner()), store.Room{All: 2}))
	must(t, s.MoveSandbox(t.Context(), first.ID, cove.StatePreparing, cove.StateDestroying, ""))
	must(t, s.RemoveSandbox(t.Context(), first.ID))
	must(t, s.AddSandbox(t.Context(), lasting("c", cove.MachineOwner()), store.Room{All: 2}))

	// What one owner may have.
	ci := cove.KeyHolder("ci")
	wantConflict(t, "one too many of its own", s.AddSandbox(t.Context(), lasting("d", ci), store.Room{Own: 1}))
	must(t, s.AddSandbox(t.Context(), lasting("d", cove.KeyHolder("other")), store.Room{Own: 1}))
	disk := func(name string, mb int64) store.Sandbox {
		b := lasting(name, ci)
		b.Spec.Limits.Disk = mb << 20
		return b
	}
	must(t, s.AddSandbox(t.Context(), disk("e", 100), store.Room{Disk: 100<<20 + lasting("b", ci).Spec.Limits.Disk}))
	room := store.Room{Disk: 300<<20 + lasting("b", ci).Spec.Limits.Disk}
	wantConflict(t, "more disk than is left", s.AddSandbox(t.Context(), disk("f", 201), room))
	must(t, s.AddSandbox(t.Context(), disk("f", 200), room))

	// A checkout counts like a sandbox.
	other := cove.KeyHolder("other")
	host := lasting("host", other)
	host.Spec.Checkouts = []store.Checkout{{ID: cove.NewSandboxID(), Name: "checkout"}}
	must(t, s.AddSandbox(t.Context(), host, store.Room{}))
	wantConflict(t, "a fourth", s.AddSandbox(t.Context(), lasting("g", other), store.Room{Own: 3}))
	must(t, s.AddSandbox(t.Context(), lasting("g", other), store.Room{Own: 4}))
}

// sandboxStates: whatever state one is in and whichever it is taken for, what happens is what cove's table has.
func sandboxStates(t *testing.T, open Open) {
	s := at(t, open, t.TempDir())
	for _, is := range cove.States {
		for _, from := range cove.States {
			for _, to := range cove.States {
				b := lasting(string(is)+string(from)+string(to), cove.MachineOwner())
				b.State = is
				must(t, s.AddSandbox(t.Context(), b, store.Room{}))
				err := s.MoveSandbox(t.Context(), b.ID, from, to, "because")
				want := b
				if is == from && from.CanBecome(to) {
					must(t, err)
					want.State, want.Reason = to, "because"
				} else {
					wantConflict(t, b.Name, err)
				}
				if got, err := s.Sandbox(t.Context(), b.ID); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s: it is %+v, %v", b.Name, got, err)
				}
			}
		}
	}
}

// sandboxMovesOnce: of many who move one at the same time, over two openings of the store, one does.
func sandboxMovesOnce(t *testing.T, open Open) {
	dir := t.TempDir()
	one, two := at(t, open, dir), at(t, open, dir)
	b := lasting("a", cove.MachineOwner())
	b.State = cove.StateRunning
	must(t, one.AddSandbox(t.Context(), b, store.Room{}))
	var moved atomic.Int32
	var movers sync.WaitGroup
	for i := range 8 {
		s, to := one, cove.StateStopped
		if i%2 == 1 {
			s, to = two, cove.StatePaused
		}
		movers.Go(func() {
			err := s.MoveSandbox(t.Context(), b.ID, cove.StateRunning, to, "")
			if err == nil {
				moved.Add(1)
			} else {
				wantConflict(t, "a second move", err)
			}
		})
	}
	movers.Wait()
	if n := moved.Load(); n != 1 {
		t.Errorf("it was moved %d times", n)
	}
}
