//go:build linux

package native

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/forkserver"
	"github.com/cove-sandbox/cove/internal/linux/zygote"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// New looks at what the host offers. It fails only when the engine cannot be used at all; what it cannot enforce is in
// Capabilities.
func New(o Options) (*Engine, error) {
	if o.CgroupParent == "" {
		o.CgroupParent = "cove"
	}
	program, err := local.OpenProgram(o.Guest)
	if err != nil {
		return nil, err
	}
	hierarchy, err := cgroup.Find(o.CgroupParent)
	if err != nil {
		program.Close()
		return nil, cove.Errorf(cove.Unavailable, "control groups cannot be used: %w", err).WithHint("run \"cove doctor\"")
	}
	e, err := newEngine(o, program, hierarchy)
	if err != nil {
		program.Close()
		hierarchy.Close()
	}
	return e, err
}

func newEngine(o Options, program *forkserver.Program, hierarchy *cgroup.Hierarchy) (*Engine, error) {
	// Descriptors that this process was itself given without close-on-exec must not reach a guest.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil { // 5.11
		return nil, cove.Errorf(cove.Unsupported, "close_range: %w", err).WithHint("Cove needs Linux 5.12 or newer")
	}
	e := &Engine{
		o: o, program: program, hierarchy: hierarchy, root: os.Geteuid() == 0,
		ids:     local.FindIDs(),
		keeper:  local.Registry{RunDir: o.RunDir, Engine: engineName},
		ranges:  local.NewRanges(),
		names:   local.Names{RunDir: o.RunDir},
		locks:   local.LockWatch{Log: o.Log},
		staging: filepath.Join(o.RunDir, "staging"),
		forks:   forks{program: program, without: o.Disks, log: o.Log},
	}
	if o.Single { // a copy of the mounts takes as long as it saves in one start
		e.forks.without = ""
	}
	if err := os.MkdirAll(e.staging, 0o755); err != nil {
		return nil, cove.Errorf(cove.StorageFull, "the run directory cannot be used: %w", err).
			WithHint("choose another with --run-dir or COVE_RUN_DIR")
	}
	if err := e.checkPassage(); err != nil {
		return nil, err
	}
	e.host, e.hostErr = rootfs.ReadHost()
	e.watches = rootfs.ReadWatches()
	e.capabilities = e.look()
	e.prewarmed = e.newPrewarmed(max(o.Ready, 0))
	if o.Ready > 0 || o.Single {
		e.forks.begin()
	}
	if e.capabilities.PIDsLimit {
		e.prewarmed.offline.Refill()
	}
	return e, nil
}

// checkPassage refuses a staging directory that the users of root's sandboxes cannot reach. The sandboxes of another
// user have that one among theirs, and reach what the user does.
func (e *Engine) checkPassage() error {
	if !e.root {
		return nil
	}
	for dir := e.staging; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return cove.Errorf(cove.Unavailable, "the run directory cannot be used: %w", err)
		}
		if info.Mode().Perm()&0o001 == 0 {
			return cove.Errorf(cove.Unavailable, "the run directory %s cannot be used: sandboxes have users of their own, "+
				"who may not pass through %s (mode %#o)", e.o.RunDir, dir, info.Mode().Perm()).
				WithHint("chmod o+x %s, or choose another run directory with --run-dir or COVE_RUN_DIR", dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func (e *Engine) look() engine.Capabilities {
	h := e.hierarchy
	c := engine.Capabilities{
		Isolations:    []cove.Isolation{cove.IsolationContainer},
		Networks:      []cove.NetworkMode{cove.NetworkNone, cove.NetworkLimited, cove.NetworkHostOnly, cove.NetworkOpen},
		UserIDs:       e.ids.Separate(),
		HostIDRange:   e.ids.Ranged(),
		Root:          e.ids.Separate(),
		Debuggers:     e.ids.Separate(), // else PID 1 is one of the user's own
		Users:         e.ids.Separate(),
		UserNamespace: true, DiskLimit: true, NoExec: true, Lasting: true, Layers: true,
		LateMount: true, MountFlags: true, MountOwners: true, Files: true, Listeners: true, FileSockets: true,
		Overlay:     takesNotes(),
		MemoryLimit: h.Has(cgroup.Memory), SwapLimit: h.Swap(), SocketLimit: h.Sockets(),
		CPULimit: h.Has(cgroup.CPU), PIDsLimit: h.Has(cgroup.PIDs), Pause: h.Has(cgroup.Freezer),
		Throughput: h.Has(cgroup.BlockIO), Reach: true, Zygotes: zygote.Supported,
		Missing: map[string]string{},
	}
	for name, controller := range map[string]string{"memory_limit": cgroup.Memory, "swap_limit": cgroup.Memory,
		"cpu_limit": cgroup.CPU, "pids_limit": cgroup.PIDs, "pause": cgroup.Freezer, "throughput": cgroup.BlockIO} {
		if why := h.Missing(controller); why != "" {
			c.Missing[name] = why
		}
	}
	if c.MemoryLimit && !c.SwapLimit {
		c.Missing["swap_limit"] = `the kernel does not account for swap; boot with "swapaccount=1" or turn swap off`
	}
	if c.MemoryLimit && !c.SocketLimit {
		c.Missing["socket_limit"] = "the kernel has no " + cgroup.SocketLimit + "; boot with control groups of version 2"
	}
	if !c.UserIDs {
		c.Missing["user_ids"] = `no subordinate ids: install newuidmap (Debian package uidmap) and run ` +
			`"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER"`
	}
	if !c.Root {
		c.Missing["root"], c.Missing["debuggers"] = c.Missing["user_ids"], c.Missing["user_ids"]
		c.Missing["users"] = c.Missing["user_ids"]
	}
	if why := untraceable(); why != "" && c.Debuggers {
		c.Debuggers, c.Missing["debuggers"] = false, why
	}
	if !c.Overlay {
		c.Missing["overlay"] = "tmpfs keeps no extended attributes of users here; Linux 6.6 does"
	}
	if !c.HostIDRange {
		c.Missing["host_id_range"] = "a range of host ids for each sandbox needs root"
	}
	return c
}

// takesNotes reports whether a tmpfs keeps extended attributes of users, in which an overlay notes that a directory was
// made anew.
func takesNotes() bool {
	fd, err := unix.MemfdCreate("cove", unix.MFD_CLOEXEC)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Fsetxattr(fd, "user.cove", []byte("x"), 0) == nil
}

// untraceable returns why programs cannot trace others here, or may not: "" is for no reason.
func untraceable() string {
	setting := func(name string) string {
		text, _ := os.ReadFile("/proc/sys/" + name) // not there: the kernel has no such setting
		return strings.TrimSpace(string(text))
	}
	if scope := setting("kernel/yama/ptrace_scope"); scope > "1" {
		return "kernel.yama.ptrace_scope is " + scope + ", with which no program traces others; the setting 1 permits it"
	}
	if setting("fs/suid_dumpable") == "1" {
		return "fs.suid_dumpable is 1, with which the kernel lets programs trace those that are changing their user; " +
			"the settings 0 and 2 do not"
	}
	return ""
}

// Prepare implements engine.Engine.
func (e *Engine) Prepare(ctx context.Context, t engine.Template) (engine.Sandbox, error) {
	if err := e.capabilities.Check(t); err != nil {
		return nil, err
	}
	if !e.capabilities.PIDsLimit {
		return nil, cove.Errorf(cove.Unsupported, "a sandbox needs a control group of its own: %s",
			e.capabilities.Missing["pids_limit"]).
			WithHint("run \"cove doctor\"")
	}
	if t.Rootfs.Kind == engine.RootfsHost && e.hostErr != nil {
		return nil, e.hostErr
	}
	s := &sandbox{engine: e, template: t}
	if err := e.present.Add(s); err != nil {
		return nil, err
	}
	if err := s.launch(ctx); err != nil {
		s.Destroy(context.WithoutCancel(ctx))
		e.present.Remove(s)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	return s, nil
}

// Close implements engine.Engine.
func (e *Engine) Close() error {
	again, err := e.present.Close((*sandbox).close)
	if again {
		return err
	}
	e.locks.Close()
	e.prewarmed.close()
	e.forks.close()
	e.ranges.Close()
	return errors.Join(err, e.hierarchy.Close(), e.program.Close())
}

// Sweep implements engine.Engine. The processes of a dead instance's sandboxes end with their sockets; what may be left
// are groups, and stuck processes in them.
func (e *Engine) Sweep(ctx context.Context) (engine.Swept, error) {
	var swept engine.Swept
	removed, err := e.keeper.Sweep()
	if err != nil {
		return swept, err
	}
	swept.Items = removed
	groups, err := e.hierarchy.List()
	if err != nil {
		return swept, cove.Errorf(cove.Unavailable, "cannot list the control groups: %w", err)
	}
	var errs []error
	for _, name := range groups {
		if ctx.Err() != nil {
			return swept, ctx.Err()
		}
		if !e.names.Orphan(name) {
			continue
		}
		g := e.hierarchy.Group(name)
		if err := errors.Join(g.Kill(), g.Remove(removalPatience)); err != nil {
			errs = append(errs, err)
			continue
		}
		swept.Sandboxes++
		swept.Items = append(swept.Items, "control group "+name)
	}
	return swept, errors.Join(errs...)
}
