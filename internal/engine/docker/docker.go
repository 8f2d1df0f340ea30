//go:build linux

// Package docker is the engine that has a Docker daemon make its sandboxes, over the Engine API from 1.41 (Docker
// 20.10) on, and the engine that has a Podman service do so, from Podman 4.0 on.
//
// A sandbox is a container whose only program is cove-guest, bind-mounted read-only as PID 1, and whose attached
// standard streams carry the guest protocol. What the container is, is decided by plan.go, which is pure: everything
// the native engine does by itself is asked of the daemon there, and what the daemon says it has made is compared with
// it before anything runs.
//
// # What differs from the native engine
//
// A container cannot be changed once it is made. So a Binding with mounts or with a host name of its own makes the
// container anew, and costs a cold start. Everything writable is several tmpfs mounts instead of one, so the disk limit
// is divided among them (places.go). Descriptors do not travel over a daemon's streams: listeners are made by entering
// the container's network, and a guest that is to last speaks over a socket of this machine (lasting.go). Root inside
// is the daemon's root without its capabilities, unless the daemon remaps users. Files in mounts keep the owners they
// have on the host, unless Cove is root on the daemon's machine (mounts.go), or the service is this user's own, whose
// containers have user namespaces in which the sandbox's user is this user.
package docker

import (
	"context"
	"fmt"
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
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/sidecar/outside"
)

// Options configure the engine.
type Options struct {
	Podman   bool            // the daemon is a service of Podman's
	Host     string          // the daemon's address; empty is what the docker command uses, or Podman's usual socket
	Guest    string          // absolute path of the cove-guest binary, as the daemon sees it
	RunDir   string          // where instances hold their locks
	Groups   string          // name of the control group that holds those of containers that Podman does not limit
	Instance cove.InstanceID // whose sandboxes these are; held in RunDir
	Paths    hostpath.Rules  // of the sources of mounts
	Log      *slog.Logger
}

// Engine implements engine.Engine.
type Engine struct {
	o             Options
	api           *api
	capabilities  engine.Capabilities
	realm         string
	id            string // of this value: it begins the nonces of its containers
	host          rootfs.Host
	hostErr       error
	keeper        local.Registry
	cpus          int               // that the daemon has
	here          bool              // the daemon is on this machine
	enters        bool              // the networks of its containers
	owns          bool              // the sandboxes' users are this process's
	groups        *cgroup.Hierarchy // of containers that Podman does not limit; nil when it limits all
	names         local.Names       // of control groups
	serial        atomic.Int64      // of control groups
	limitsSockets bool              // of its containers, on control groups of version 1, where the daemon does not
	mountinfo     string            // of this process, for what is mounted below the host's toolchain

	importing sync.Mutex    // one image at a time
	slots     chan struct{} // held while a container is made; see slotsPerCPU

	present local.Present[*sandbox]
	locks   local.LockWatch

	mu     sync.Mutex
	nonces map[string]bool // of the containers that have an owner; see Sweep
}

var (
	_ engine.Engine   = (*Engine)(nil)
	_ engine.Resolver = (*Engine)(nil)
)

// Name implements engine.Engine.
func (e *Engine) Name() string { return nameOf(e.api.podman.engine) }

func nameOf(podman bool) string {
	if podman {
		return engine.Podman
	}
	return engine.Docker
}

// setting names what the daemon's address is of: a variable of the environment, or a context of the docker command.
func setting(podman bool, context string) string {
	switch {
	case podman:
		return "CONTAINER_HOST"
	case context != "":
		return fmt.Sprintf("the Docker context %q", context)
	}
	return "DOCKER_HOST"
}

// Capabilities implements engine.Engine.
func (e *Engine) Capabilities() engine.Capabilities { return e.capabilities }

// sandbox implements engine.Sandbox.
type sandbox struct {
	engine   *Engine
	template engine.Template
	done     chan struct{}   // closed when PID 1 has gone for good
	keep     *local.Detached // of a lasting one

	life context.Context // ends when the sandbox is destroyed
	stop context.CancelFunc

	changing sync.Mutex   // held while a container is made or removed; acquired before mu
	traces   []trace      // of containers that may exist; guarded by changing
	image    string       // of this sandbox alone, which may exist; guarded by changing
	removed  bool         // guarded by changing
	sidecar  *outside.End // of one whose network is not entered; guarded by changing

	watched sync.WaitGroup

	mu        sync.Mutex
	current   *running      // nil before there is one, and while it is made anew
	latest    *guest.Client // current's, and its predecessor's meanwhile
	listeners []*os.File
	bound     bool
	lasts     bool // without this process
	left      bool // to another process
	destroyed bool
	ended     bool // done is closed
	last      engine.Stats
}

// trace holds what is known of a requested container.
type trace struct {
	name  string
	nonce string
	id    string        // empty until the daemon has answered
	group *cgroup.Group // of Cove's own that it is in
}

// running is a container whose guest answers.
type running struct {
	id     string
	pid    int           // of PID 1, on the daemon's machine
	stream *stream       // nil in one that was adopted
	silent chan struct{} // closed at the stream's end; nil where the guest speaks over it
	client *guest.Client
	group  *cgroup.Group // nil when the daemon is not on this host
	own    int64         // the guest's own tasks
}

func (s *sandbox) ID() cove.SandboxID { return s.template.ID }

func (s *sandbox) Listeners() []*os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listeners
}

func (s *sandbox) Done() <-chan struct{} { return s.done }

func (s *sandbox) Guest() *guest.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest
}
