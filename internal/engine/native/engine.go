//go:build linux

// Package native is the default engine: sandboxes made of the Linux kernel's own parts, with no daemon and nothing to
// download.
//
// One path launches every sandbox. A fork server forks its PID 1 into new user, pid, mount, network, ipc and uts
// namespaces and into a control group, and the host gives its user namespace a map of ids. Everything else is done
// inside, as the host's plan (plan.go, pure) tells PID 1 over a socket pair: an executor (package guest/remote). The
// executor of a detached sandbox outlives the host, and cove-guest holds the processes while there are any. So the host
// mounts nothing and runs nothing: what can be left behind is a control group and a taken id range, which carry the
// instance's name.
package native

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/forkserver"
	"github.com/cove-sandbox/cove/internal/prewarm"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Options configure the engine.
type Options struct {
	Guest        string          // absolute path of the cove-guest binary
	RunDir       string          // for locks and the staging directory; exists
	Instance     cove.InstanceID // whose sandboxes these are; held in RunDir
	CgroupParent string          // name of the group that holds all of Cove's; default "cove"
	Ready        int             // guests to keep ready, which halves a cold start
	Single       bool            // one sandbox will be asked for: what it takes is not made up for
	Paths        hostpath.Rules  // of the sources of mounts
	Disks        string          // directory below which sandboxes' disks are mounted, or ""
	Log          *slog.Logger
}

// Engine implements engine.Engine.
type Engine struct {
	o            Options
	capabilities engine.Capabilities
	program      *forkserver.Program // cove-guest
	hierarchy    *cgroup.Hierarchy
	prewarmed    prewarmed
	keeper       local.Registry
	ranges       *local.Ranges
	staging      string
	names        local.Names // of control groups
	host         rootfs.Host
	hostErr      error
	watches      []rootfs.Sysctl
	root         bool
	ids          local.IDs
	serial       atomic.Int64 // of control groups
	present      local.Present[*sandbox]
	locks        local.LockWatch
	forks        forks
}

// Name implements engine.Engine.
func (e *Engine) Name() string { return engineName }

const engineName = "native"

// Capabilities implements engine.Engine.
func (e *Engine) Capabilities() engine.Capabilities { return e.capabilities }

// sandbox implements engine.Sandbox: a blank that has been given a plan.
type sandbox struct {
	*blank
	engine   *Engine
	template engine.Template
	keep     *local.Detached // of a lasting one
	keeper   *guest.Keeper   // of a lasting one's processes; nil where PID 1 holds them, as in those of earlier versions

	keepOnce sync.Once
	keepErr  error

	locks atomic.Int64 // of files, for which it was killed

	mu        sync.Mutex
	bound     bool
	lasts     bool // without this process
	left      bool // to another process
	listeners []*os.File
}

// GiveBack implements engine.Giver.
func (s *sandbox) GiveBack(ctx context.Context, dir string) error {
	if !s.template.User.MayBeRoot() {
		return nil
	}
	return s.engine.ids.GiveBack(ctx, dir)
}

func (s *sandbox) ID() cove.SandboxID { return s.template.ID }

func (s *sandbox) destroyed() error {
	return cove.Errorf(cove.NotFound, "sandbox %s has been destroyed", s.ID())
}

// prewarmed holds guests that wait, so that no request waits for a process to start: half of a cold start. A guest that
// is online serves only sandboxes with a network; any other serves every sandbox.
type prewarmed struct {
	offline, online *prewarm.Buffer[*blank]
	detached        *prewarm.Buffer[*blank] // online
}
