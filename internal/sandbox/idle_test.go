package sandbox_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// works are sandboxes with work, by name.
type works struct {
	s    *server
	with []string
}

func (w *works) Holds(ctx context.Context, who cove.Principal, ref string) (bool, error) {
	v, err := w.s.Find(ctx, who, ref)
	return slices.Contains(w.with, v.Name), err
}

// TestIdle: a sandbox in which nothing runs is stopped when its time is over, and destroyed if it has no work, on
// record as done by Cove itself.
func TestIdle(t *testing.T) {
	now := clocktest.NewManual(time.Now())
	h := newHome(t)
	of := &works{with: []string{"worked"}}
	h.clock, h.works, h.idle = now, of, sandbox.Idle{Stop: time.Hour, Remove: 3 * time.Hour}
	s := h.adopt(t)
	of.s = s
	repository := func() *workspace.Repository { return &workspace.Repository{Source: "o/r"} }
	for _, name := range []string{"worked", "unchanged", "busy"} {
		s.make(t, sandbox.Request{Name: name, Repository: repository()})
	}
	s.make(t, sandbox.Request{Name: "files"}) // which are not looked into
	in, err := s.Enter(t.Context(), owner, "busy")
	if err != nil {
		t.Fatal(err)
	}
	runs, err := in.Guest.Guest().Start(t.Context(), guest.ProcessSpec{Args: []string{"sh", "-c", "read x"}, Env: in.Env,
		Dir: "/tmp", Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	later := func(d time.Duration) {
		t.Helper()
		now.Advance(d)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { s.RunReconciler(ctx, time.Minute); close(ended) }()
		now.BlockUntil(1) // it has looked, and waits for the next time
		cancel()
		<-ended
	}
	states := func() string {
		t.Helper()
		var all []string
		for _, name := range []string{"worked", "unchanged", "busy", "files"} {
			state := cove.StateDestroyed
			if v, err := s.Find(t.Context(), owner, name); err == nil {
				state = v.State
			}
			all = append(all, string(state))
		}
		return strings.Join(all, " ")
	}
	for _, c := range []struct {
		after time.Duration
		want  string
	}{
		{59 * time.Minute, "running running running running"},
		{2 * time.Minute, "stopped stopped running stopped"},
		{90 * time.Minute, "stopped stopped running stopped"},
		{time.Hour, "stopped destroyed running stopped"},
	} {
		later(c.after)
		if got := states(); got != c.want {
			t.Errorf("after %s more they are %s, want %s", c.after, got, c.want)
		}
	}
	if _, why := s.state(t, "worked"); !strings.HasPrefix(why, "idle for 1h") {
		t.Errorf("the reason is %q", why)
	}
	if err := runs.Signal(t.Context(), 9); err != nil {
		t.Fatal(err)
	}
	runs.Wait(t.Context())
	later(59 * time.Minute)
	if got, want := states(), "stopped destroyed running stopped"; got != want {
		t.Errorf("right after its program has ended they are %s, want %s", got, want)
	}
	later(2 * time.Hour)
	if got, want := states(), "stopped destroyed stopped stopped"; got != want {
		t.Errorf("long after they are %s, want %s", got, want)
	}
	for action, want := range map[string]int{"sandbox-idle-stop": 4, "sandbox-idle-remove": 1} {
		page, err := store.NewVault(h.store).For(owner).Audit(t.Context(), store.AuditQuery{Action: action, Limit: 10})
		if err != nil || len(page.Records) != want {
			t.Errorf("%s is on record %d times, %v", action, len(page.Records), err)
		}
		for _, r := range page.Records {
			if r.Who != "" || r.Verdict != "ok" {
				t.Errorf("%+v", r)
			}
		}
	}
}
