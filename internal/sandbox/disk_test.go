package sandbox_test

import (
	"context"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/workspace"
	"github.com/cove-sandbox/cove/test/await"
)

// TestDiskForOthers: where the kernel cannot bound a disk, only the machine's owner gets a sandbox, unless the owner
// has accepted it for others.
func TestDiskForOthers(t *testing.T) {
	h := newHome(t)
	h.workspaces.bounds = cove.Errorf(cove.Unsupported, "only root may mount").WithHint("run Cove as root")
	s := h.adopt(t)
	key := cove.KeyHolder("ci")
	_, err := s.Create(t.Context(), key, sandbox.Request{Name: "theirs"}, nil)
	if hint := cove.ErrorHint(err); cove.ErrorCode(err) != cove.Unsupported ||
		!strings.Contains(hint, "run Cove as root") || !strings.Contains(hint, "sandbox.lasting.watched_disks") {
		t.Errorf("for a key: %v (%s)", err, hint)
	}
	wantCode(t, "a dry run", s.Check(t.Context(), key, sandbox.Request{Name: "theirs"}), cove.Unsupported)
	s.make(t, sandbox.Request{Name: "mine"})
	s.end(t)

	accepting := h.lasting()
	accepting.WatchedDisks = true
	s = h.serve(t)
	if err := s.Adopt(t.Context(), accepting); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), key, sandbox.Request{Name: "theirs"}, nil); err != nil {
		t.Errorf("accepted: %v", err)
	}
	s.end(t)

	s = h.adopt(t) // as by a version that does not accept it
	if v, err := s.Create(t.Context(), key, sandbox.Request{Name: "theirs", Ensure: true}, nil); err != nil ||
		v.Name != "theirs" {
		t.Errorf("the one that is there: %v", err)
	}
}

// TestThroughput: the limit of throughput is that of the sandbox's own disk, and a sandbox without one does not start.
func TestThroughput(t *testing.T) {
	h := newHome(t)
	h.workspaces.device = "/dev/loop9"
	limited := h.lasting()
	limited.Throughput = engine.Throughput{Bytes: 1 << 20, Operations: 50}
	s := h.serve(t)
	if err := s.Adopt(t.Context(), limited); err != nil {
		t.Fatal(err)
	}
	made := s.make(t, sandbox.Request{Name: "one"})
	want := engine.Throughput{Device: "/dev/loop9", Bytes: 1 << 20, Operations: 50}
	if b := s.engine.Sandbox(cove.SandboxID(made.ID)).Binding(); b.Throughput != want {
		t.Errorf("bound with %+v", b.Throughput)
	}
	h.workspaces.bounds = cove.Errorf(cove.Unsupported, "it is on the disk of others")
	_, err := s.Create(t.Context(), owner, sandbox.Request{Name: "two"}, nil)
	if cove.ErrorCode(err) != cove.Unsupported || !strings.Contains(cove.ErrorMessage(err), "sandbox.lasting.throughput") {
		t.Errorf("without a disk of its own: %v", err)
	}
}

// TestDiskResized: the size of a disk is the sandbox's limit from then on, and a size that is refused is not.
func TestDiskResized(t *testing.T) {
	h := newHome(t)
	s := h.adopt(t)
	s.make(t, sandbox.Request{Name: "one"})
	if v, err := s.Change(t.Context(), owner, "one", sandbox.Change{Disk: 8 << 30}); err != nil ||
		v.Spec.Limits.Disk != 8<<30 {
		t.Errorf("grown: %+v, %v", v.Spec.Limits, err)
	}
	for size, code := range map[int64]cove.Code{64 << 20: cove.Conflict, 1: cove.InvalidArgument,
		1 << 50: cove.InvalidArgument} {
		if _, err := s.Change(t.Context(), owner, "one", sandbox.Change{Disk: size}); cove.ErrorCode(err) != code {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if v, err := s.Find(t.Context(), owner, "one"); err != nil || v.Spec.Limits.Disk != 8<<30 {
		t.Errorf("refused: %+v, %v", v.Spec.Limits, err)
	}
	if _, err := s.Stop(t.Context(), owner, "one"); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Change(t.Context(), owner, "one", sandbox.Change{Name: "two", Disk: 64 << 20}); err != nil ||
		v.Spec.Limits.Disk != 64<<20 || v.Name != "two" {
		t.Errorf("stopped: %+v, %v", v, err)
	}
	want := []workspace.Disk{{Bytes: 8 << 30, Inodes: runtime.Lasting.Inodes}, {Bytes: 64 << 20, Inodes: 16384}}
	if !slices.Equal([]workspace.Disk{h.workspaces.resized[0], h.workspaces.resized[2]}, want) {
		t.Errorf("resized: %+v", h.workspaces.resized)
	}
}

// TestDiskWatched: a sandbox is paused beyond the limit that Cove watches, and one that writes while the machine's disk
// is short; others go on.
func TestDiskWatched(t *testing.T) {
	const gib = 1 << 30
	plenty, short := hostdisk.Room{Free: 50 * gib, Total: 100 * gib}, hostdisk.Room{Free: gib / 2, Total: 100 * gib}
	for name, c := range map[string]struct {
		room   hostdisk.Room
		kind   workspace.DiskKind
		first  int64
		second int64
		files  int64
		wrong  error
		paused string
	}{
		"within its limit":         {plenty, workspace.DiskWatched, gib, 2 * gib, 0, nil, ""},
		"beyond its limit":         {plenty, workspace.DiskWatched, gib, 100 * gib, 0, nil, "cove limits one --disk"},
		"too many files":           {plenty, workspace.DiskWatched, gib, gib, 10_000_000, nil, "10000000 files"},
		"the kernel counts them":   {plenty, workspace.DiskImage, gib, gib, 10_000_000, nil, ""},
		"held by the kernel":       {plenty, workspace.DiskImage, gib, 100 * gib, 0, nil, ""},
		"of an earlier version":    {plenty, "", gib, 100 * gib, 0, nil, ""},
		"writes on a full machine": {short, workspace.DiskImage, gib, gib + 1, 0, nil, "free some space"},
		"an earlier one writes":    {short, "", gib, gib + 1, 0, nil, "free some space"},
		"does not write there":     {short, workspace.DiskImage, gib, gib, 0, nil, ""},
		"cannot be measured":       {plenty, workspace.DiskWatched, gib, gib, 0, fs.ErrPermission, "cannot be measured"},
		"is being removed":         {plenty, workspace.DiskWatched, gib, gib, 0, fs.ErrNotExist, ""},
		"the kernel bounds it":     {plenty, workspace.DiskImage, gib, gib, 0, fs.ErrPermission, ""},
	} {
		t.Run(name, func(t *testing.T) {
			now := clocktest.NewManual(time.Now())
			h := newHome(t)
			h.clock = now
			h.workspaces.room, h.workspaces.used = c.room, &workspace.Used{Bytes: c.first, Kind: c.kind}
			s := h.adopt(t)
			s.make(t, sandbox.Request{Name: "one"})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { s.WatchDisks(ctx); close(ended) }()
			now.BlockUntil(1)
			h.workspaces.mu.Lock()
			h.workspaces.used = &workspace.Used{Bytes: c.second, Files: c.files, Kind: c.kind}
			h.workspaces.unmeasured = c.wrong
			h.workspaces.mu.Unlock()
			now.Advance(time.Minute)
			now.BlockUntil(1)
			cancel()
			<-ended
			h.workspaces.unmeasured = nil
			v, err := s.Find(t.Context(), owner, "one")
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case c.paused == "" && v.State != cove.StateRunning:
				t.Errorf("%s: %s", v.State, v.Reason)
			case c.paused != "" && (v.State != cove.StatePaused || !strings.Contains(v.Reason, c.paused)):
				t.Errorf("%s: %q", v.State, v.Reason)
			}
			if v.State == cove.StatePaused {
				if _, err := s.Resume(t.Context(), owner, "one"); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestDiskQuota: the disks of an API key's sandboxes are never more together than the key may have, also by growing.
func TestDiskQuota(t *testing.T) {
	h := newHome(t)
	key := cove.KeyHolder("ci")
	h.grants = access.Grants{key: {Disk: 3 << 30}}
	s := h.adopt(t)
	for _, name := range []string{"one", "two"} {
		q := sandbox.Request{Name: name}
		q.Limits.Disk = 1 << 30
		if _, err := s.Create(t.Context(), key, q, nil); err != nil {
			t.Fatal(err)
		}
	}
	grow := func(name string, bytes int64) error {
		_, err := s.Change(t.Context(), key, name, sandbox.Change{Disk: bytes})
		return err
	}
	if err := grow("one", 2<<30); err != nil {
		t.Errorf("to what the key may have: %v", err)
	}
	resized := len(h.workspaces.resized)
	err := grow("two", 1<<30+1<<20)
	if cove.ErrorCode(err) != cove.Conflict || !strings.Contains(err.Error(), "3072 MiB") {
		t.Errorf("beyond what the key may have: %v", err)
	}
	if err := grow("two", 64<<20); cove.ErrorCode(err) != cove.Conflict { // the fake lets none shrink while it runs
		t.Errorf("shrinking: %v", err)
	}
	if v, err := s.Find(t.Context(), key, "two"); err != nil || v.Spec.Limits.Disk != 1<<30 {
		t.Errorf("refused: %+v, %v", v.Spec.Limits, err)
	}
	if n := len(h.workspaces.resized) - resized; n != 1 {
		t.Errorf("%d disks were resized", n)
	}
}

// TestDiskWatchWaitsForNone: a sandbox is held to its limit while the tree of another is still being measured.
func TestDiskWatchWaitsForNone(t *testing.T) {
	h := newHome(t)
	h.workspaces.room = hostdisk.Room{Free: 50 << 30, Total: 100 << 30}
	h.workspaces.used = &workspace.Used{Bytes: 100 << 30, Kind: workspace.DiskWatched}
	s := h.adopt(t)
	h.workspaces.large = cove.SandboxID(s.make(t, sandbox.Request{Name: "large"}).ID)
	s.make(t, sandbox.Request{Name: "one"})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.WatchDisks(ctx); close(ended) }()
	await.That(t, "the sandbox beyond its limit is paused", func() bool {
		v, err := s.Find(t.Context(), owner, "one")
		return err == nil && v.State == cove.StatePaused
	})
	if v, err := s.List(t.Context(), owner); err != nil || len(v.Sandboxes) != 2 {
		t.Errorf("%+v, %v", v, err)
	}
	cancel()
	<-ended
}
