//go:build linux

package docker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/dockercontext"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// slotsPerCPU bounds how many containers are made at once: a daemon makes more no faster, and each takes longer.
const slotsPerCPU = 4

// startPatience is how long New waits for the daemon's first answer.
const startPatience = 10 * time.Second

// desktop is the system of a daemon in a virtual machine, whose socket a program of this machine serves.
const desktop = "Docker Desktop"

// New asks the daemon what it can enforce. It fails when there is no daemon, or none that this engine can use.
func New(o Options) (*Engine, error) {
	if _, err := os.Stat(o.Guest); err != nil {
		return nil, local.NoGuest(err)
	}
	at := dockercontext.Endpoint{Host: o.Host}
	var err error
	switch {
	case o.Podman:
		at.Host = cmp.Or(o.Host, engine.PodmanHost(os.Getenv, os.Geteuid()))
	case o.Host == "":
		if at, err = dockercontext.Current(os.Getenv); err != nil {
			return nil, err
		}
	}
	from := setting(o.Podman, at.Context)
	options, err := dial(at, o.Podman)
	var c *client.Client
	if err == nil {
		c, err = client.New(options...)
	}
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "the address of the engine %s cannot be used: %w",
			nameOf(o.Podman), err).WithHint("check %s", from)
	}
	at.Host = cmp.Or(at.Host, c.DaemonHost())
	e := &Engine{
		o: o, api: &api{c: c, address: at.String(), setting: from, log: o.Log, timeout: callTimeout,
			podman: podman{c: c, engine: o.Podman, setting: from, filters: filepath.Join(o.RunDir, "podman", "filters"),
				limits: true}}, realm: instance.Realm(o.RunDir),
		keeper: local.Registry{RunDir: o.RunDir, Engine: nameOf(o.Podman)},
		id:     rand.Text(), slots: make(chan struct{}, slotsPerCPU*runtime.NumCPU()),
		nonces: map[string]bool{}, locks: local.LockWatch{Log: o.Log}, names: local.Names{RunDir: o.RunDir},
	}
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	var info system.Info
	root, here := os.Geteuid() == 0, isHere(c.DaemonHost())
	err = e.api.do(ctx, "say what it is", e.api.podman.is)
	switch {
	case err != nil:
	case o.Podman:
		var rootless bool
		err = e.api.do(ctx, "say what it is", func(ctx context.Context) (err error) {
			info, rootless, err = e.api.podman.info(ctx)
			return err
		})
		if err == nil {
			e.capabilities, err = podmanCapabilities(info, rootless, root, here)
		}
		if err == nil && rootless && !e.api.podman.keepsID {
			err = cove.Errorf(cove.Unsupported, "this Podman cannot hold a sandbox: it gives no container ids of its own").
				WithHint("use Podman 4.3 or newer, or --engine native")
		}
		if err == nil && rootless {
			err = limitUsers(e, info)
		}
	default:
		if info, err = e.api.info(ctx); err == nil {
			e.capabilities, err = capabilities(info)
		}
	}
	if err != nil {
		if e.groups != nil {
			err = errors.Join(err, e.groups.Close())
		}
		return nil, errors.Join(err, c.Close())
	}
	e.cpus = info.NCPU
	here = here && info.OperatingSystem != desktop
	addLocal(&e.capabilities, info, root, here)
	if e.owns = o.Podman && !root; e.owns {
		addOwn(&e.capabilities)
	}
	e.here, e.enters = here, here && (root || e.owns)
	e.limitsSockets = e.capabilities.SocketLimit && info.CgroupVersion != "2"
	e.host, e.hostErr = rootfs.ReadHost()
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	e.mountinfo = string(mountinfo)
	return e, nil
}

// dial returns the options of a client of a daemon.
func dial(at dockercontext.Endpoint, podman bool) ([]client.Opt, error) {
	switch {
	case podman:
		return []client.Opt{client.WithHost(at.Host)}, nil
	case strings.HasPrefix(at.Host, "ssh://"):
		return overSSH(at.Host)
	case at.Context == "" && at.Host == "":
		return []client.Opt{client.FromEnv}, nil
	case at.Context == "":
		return []client.Opt{client.FromEnv, client.WithHost(at.Host)}, nil
	case at.TLS == nil || !strings.HasPrefix(at.Host, "tcp://"):
		return []client.Opt{client.WithAPIVersionFromEnv(), client.WithHost(at.Host)}, nil
	}
	config, err := at.TLS.Config()
	if err != nil {
		return nil, err
	}
	secure := &http.Client{Transport: &http.Transport{TLSClientConfig: config}, CheckRedirect: client.CheckRedirect}
	return []client.Opt{client.WithAPIVersionFromEnv(), client.WithHTTPClient(secure), client.WithHost(at.Host)}, nil
}

func capabilities(info system.Info) (engine.Capabilities, error) {
	refuse := func(why, hint string) (engine.Capabilities, error) {
		return engine.Capabilities{}, cove.Errorf(cove.Unsupported, "this Docker daemon cannot hold a sandbox: %s", why).
			WithHint("%s", hint)
	}
	if info.OSType != "linux" {
		return refuse("it runs "+info.OSType+" containers", "switch it to Linux containers")
	}
	if info.Architecture != machine() && info.Architecture != runtime.GOARCH {
		return refuse("it runs on "+info.Architecture+", and this Cove is for "+machine(), "use a daemon on this machine")
	}
	if !has(info, "seccomp") {
		return refuse("it was built without seccomp", "use your distribution's package, or --engine native")
	}
	c := engine.Capabilities{
		Isolations:    []cove.Isolation{cove.IsolationContainer},
		Networks:      []cove.NetworkMode{cove.NetworkNone},
		UserNamespace: has(info, "userns"),
		OwnImages:     true, UserIDs: true, LateMount: true, Files: true, DiskLimit: true, NoExec: true,
		Pause: true, Debuggers: true,
		MemoryLimit: info.MemoryLimit, SwapLimit: info.SwapLimit || noSwap(),
		SocketLimit: info.CgroupVersion == "2",
		CPULimit:    info.CPUCfsPeriod && info.CPUCfsQuota, PIDsLimit: info.PidsLimit,
		Missing: map[string]string{
			"root":  "a container engine has no layer of a sandbox's own that its limit bounds; use --engine native",
			"users": "the ids of a container are ids of the machine, of which images would choose; use --engine native",
			"host_id_range": `the daemon gives all containers one range; "userns-remap" in its ` +
				`daemon.json gives them one apart from the host's`,
			"mount_flags": "a container engine gives a mount no flags but read-only; run cove as root " +
				"on the daemon's machine, or use --engine native",
			"socket_limit": "the daemon limits no buffers of sockets on control groups of version 1; run cove as root " +
				"on the daemon's machine, boot with version 2, or use --engine native",
			"mount_owners": "a container engine maps no owners in mounts; run cove as root on the daemon's machine, use " +
				"--engine native, or give the directory to the sandbox's user",
		},
	}
	if c.SocketLimit {
		delete(c.Missing, "socket_limit")
	}
	if !c.UserNamespace {
		c.Missing["user_namespace"] = `root inside is root outside, without its capabilities; ` +
			`"userns-remap" in the daemon's daemon.json changes that`
	}
	for name, is := range map[string]bool{"memory_limit": c.MemoryLimit, "cpu_limit": c.CPULimit,
		"pids_limit": c.PIDsLimit} {
		if !is {
			c.Missing[name] = `the daemon's kernel or cgroup delegation lacks the controller; see the warnings of "docker info"`
		}
	}
	if !c.SwapLimit {
		c.Missing["swap_limit"] = `the kernel does not account for swap; boot with "swapaccount=1" or turn swap off`
	}
	return c, nil
}

// podmanCapabilities says what a service of Podman's can enforce.
func podmanCapabilities(info system.Info, rootless, root, here bool) (engine.Capabilities, error) {
	refuse := func(why, hint string) (engine.Capabilities, error) {
		return engine.Capabilities{}, cove.Errorf(cove.Unsupported, "this Podman cannot hold a sandbox: %s", why).
			WithHint("%s", hint)
	}
	switch {
	case !here:
		return refuse("its process cannot be seen from here, and so not checked what it makes",
			"run cove outside of its container, or use --engine native")
	case rootless && root:
		return refuse("it is an ordinary user's, who could change what is made for root",
			`run cove as that user, or use Podman's system service ("systemctl start podman.socket")`)
	case !rootless && !root:
		return refuse("it runs as root, and what it makes can be checked and limited by root alone",
			"run cove as root, or use --engine native")
	}
	c, err := capabilities(info)
	if err != nil {
		return c, err
	}
	c.UserNamespace = false
	c.Missing["user_namespace"] = `root inside is root outside, without its capabilities; use --engine native`
	c.Missing["host_id_range"] = `all containers share the ids of the host; use --engine native`
	return c, nil
}

// limitUsers has the containers of a service without root limited: by Podman on control groups of version 2, and by
// Cove on version 1, where Podman limits none.
func limitUsers(e *Engine, info system.Info) error {
	c := &e.capabilities
	switch {
	case info.CgroupVersion == "1":
		if err := limitOurselves(e); err != nil {
			return err
		}
	case info.CgroupDriver != "systemd": // also where Podman finds no session of systemd
		return cove.Errorf(cove.Unsupported, "this Podman cannot hold a sandbox: without root its cgroup manager %s gives "+
			"containers no control groups, and so no limits", info.CgroupDriver).
			WithHint(`log in by a session of systemd, have cgroup_manager = "systemd" in containers.conf, ` +
				`and restart podman.socket; or use --engine native`)
	default:
		for name, is := range map[string]bool{"memory_limit": c.MemoryLimit, "cpu_limit": c.CPULimit,
			"pids_limit": c.PIDsLimit} {
			if !is {
				c.Missing[name] = `the controller is not delegated to you: "systemctl edit user@.service" as root with the ` +
					`lines "[Service]" and "Delegate=cpu memory pids", then log in again`
			}
		}
	}
	if !c.PIDsLimit { // nor are a container's processes counted
		return cove.Errorf(cove.Unsupported, "this Podman cannot hold a sandbox: no tasks of a container can be limited: %s",
			c.Missing["pids_limit"]).WithHint("use --engine native, or Podman's system service as root")
	}
	return nil
}

// limitOurselves finds a place for control groups of version 1 of Cove's own.
func limitOurselves(e *Engine) error {
	groups, err := cgroup.Find(cmp.Or(e.o.Groups, "cove") + "-podman") // the native engine has names of the same form
	if err != nil {
		return cove.Errorf(cove.Unavailable, "control groups cannot be used: %w", err).WithHint("run \"cove doctor\"")
	}
	e.groups, e.api.podman.limits = groups, false
	c := &e.capabilities
	c.MemoryLimit, c.SwapLimit, c.SocketLimit = groups.Has(cgroup.Memory), groups.Swap(), groups.Sockets()
	c.CPULimit, c.PIDsLimit, c.Pause = groups.Has(cgroup.CPU), groups.Has(cgroup.PIDs), false
	c.Missing["pause"] = "Podman pauses nothing without root on control groups of version 1"
	c.Missing["group_namespace"] = "on control groups of version 1 a container without root is moved into its own, " +
		"whose name on the host it can see"
	if c.SocketLimit {
		delete(c.Missing, "socket_limit")
	}
	for name, controller := range map[string]string{"memory_limit": cgroup.Memory, "swap_limit": cgroup.Memory,
		"cpu_limit": cgroup.CPU, "pids_limit": cgroup.PIDs} {
		delete(c.Missing, name)
		if why := groups.Missing(controller); why != "" {
			c.Missing[name] = why
		}
	}
	return nil
}

// machine is this processor's name as uname and the daemon say it.
func machine() string {
	return map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
}

// Prepare implements engine.Engine.
func (e *Engine) Prepare(ctx context.Context, t engine.Template) (engine.Sandbox, error) {
	if err := e.capabilities.Check(t); err != nil {
		return nil, err
	}
	sb := newSandbox(e, t)
	if err := e.present.Add(sb); err != nil {
		return nil, err
	}
	var err error
	if t.Lifetime == cove.LifetimeDetached {
		if sb.keep, err = e.keep(ctx, t); err != nil {
			e.present.Remove(sb)
			return nil, err
		}
	}
	err = sb.make(ctx, func(ctx context.Context) error {
		return sb.launch(ctx, rootfs.Hostname, nil, engine.Throughput{})
	})
	if err == nil {
		return sb, nil
	}
	// Destroying it also takes it out.
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), attempts*e.api.timeout)
	defer cancel()
	if left := sb.Destroy(cleanup); left != nil {
		e.o.Log.Warn("a container could not be removed yet", "sandbox", t.ID, "error", left)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, err
}

// Close implements engine.Engine.
func (e *Engine) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	again, err := e.present.Close(func(s *sandbox) error { return s.close(ctx) })
	if again {
		return err
	}
	e.locks.Close()
	if e.groups != nil {
		err = errors.Join(err, e.groups.Close())
	}
	return errors.Join(err, e.api.c.Close())
}

var _ engine.Adopter = (*Engine)(nil)

// Left implements engine.Adopter.
func (e *Engine) Left(context.Context) ([]cove.SandboxID, error) { return e.keeper.Left() }

// Runs implements engine.Adopter.
func (e *Engine) Runs(_ context.Context, id cove.SandboxID) (bool, error) { return e.keeper.Runs(id) }

// Adopt implements engine.Adopter.
func (e *Engine) Adopt(ctx context.Context, id cove.SandboxID) (engine.Sandbox, error) {
	k, err := e.keeper.Take(id, e.api.c.DaemonHost(), e.api.setting)
	if err != nil {
		return nil, err
	}
	s := newSandbox(e, k.Record.Template)
	s.keep, s.bound, s.lasts, s.traces = k, true, true, []trace{{id: k.Record.Name}}
	if err := e.present.Adopt(k, s, func() error { return s.adopt(ctx) }); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *sandbox) adopt(ctx context.Context) error {
	record := s.keep.Record
	made, err := s.engine.api.inspect(ctx, record.Name)
	if err != nil {
		return err
	}
	if made.State == nil || !made.State.Running {
		return cove.Errorf(cove.NotFound, "no long-lived sandbox %s runs", s.ID())
	}
	if made.State.Paused { // its guest does not answer
		if err := s.engine.api.freeze(ctx, record.Name, false); err != nil {
			return err
		}
	}
	c := &running{id: record.Name, pid: made.State.Pid, own: record.Tasks, group: groupOf(made.State.Pid, record.Name)}
	if s.engine.groups != nil {
		is, err := cgroup.Of(made.State.Pid)
		if err != nil {
			return cove.Errorf(cove.Unavailable, "the control group of sandbox %s cannot be found: %w", s.ID(), err)
		}
		c.group = s.engine.groups.Group(path.Base(is.Name()))
		if !c.group.Has(made.State.Pid) { // its process of Cove was started in another group
			c.group = is
		}
		s.traces[0].group = c.group
	}
	if c.client, s.listeners, err = s.keep.Connect(ctx, nil); err != nil {
		return err
	}
	s.use(c)
	return nil
}

// close is the end of the engine: a long-lived sandbox goes on.
func (s *sandbox) close(ctx context.Context) error {
	s.mu.Lock()
	c := s.current
	s.left = s.lasts && !s.destroyed && !s.ended && c != nil && c.answers()
	left := s.left
	s.mu.Unlock()
	if !left {
		return s.Destroy(ctx)
	}
	c.client.Close()
	s.watched.Wait()
	s.engine.present.Remove(s)
	return s.keep.Disown()
}
