package docker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/blkiodev"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/mounts"
	"github.com/cove-sandbox/cove/internal/linux/seccomp"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Labels of everything the engine makes. An image can bring labels too, so a label alone proves nothing: see owned.
const (
	labelRealm    = "cove.realm"    // the run directory; see realm
	labelInstance = "cove.instance" // who made it
	labelSandbox  = "cove.sandbox"
	labelNonce    = "cove.nonce" // which call made it
)

// guestPath holds the guest inside a sandbox.
const guestPath = "/.cove/guest"

// startTasks is the limit of tasks until the guest's own are counted: room for a Go program, and nothing else is there.
const startTasks = 64

// capsOfGuest lets the guest start processes as the user, end them, and drop its own bounding set. No other process in
// the container ever holds a capability: the guest drops them from what children can inherit.
var capsOfGuest = []string{"SETUID", "SETGID", "KILL", "SETPCAP"}

// wish is everything a container is made from.
type wish struct {
	name     string
	nonce    string
	realm    string
	instance cove.InstanceID
	template engine.Template
	hostname string
	guest    string // host path; empty: the image has it
	cpus     int    // that the daemon has
	resolver bool   // the daemon makes the files that say who and where the sandbox is
	owns     bool   // the sandbox's user is this process's
	call     string // host path of the socket that its guest is to call, if it is
	image    image
	binds    []bind
	rate     engine.Throughput
}

// image is a resolved image and what of it must be kept from taking effect.
type image struct {
	ID      string
	Env     []string // KEY=VALUE
	Volumes []string // paths that would become places without a limit
	WorkDir string
	// Entrypoint and Cmd are the image's own command.
	Entrypoint, Cmd []string
}

// bind is a host path to show inside.
type bind struct {
	source, target string
	readOnly       bool
	own            bool   // a file of Cove's, which is delivered to another machine
	existing       bool   // in place of a file of the image
	attributes     uint64 // of the mount, besides those of its place
}

func containerName(id cove.SandboxID) string { return "cove-" + string(id) }

// filesName is the name of the container by which files are delivered, and imageTag of the image that has them.
func filesName(id cove.SandboxID) string { return containerName(id) + "-files" }
func imageTag(id cove.SandboxID) string  { return "cove/sandbox:" + string(id) }

func sidecarName(id cove.SandboxID) string { return containerName(id) + "-sidecar" }

// owned reports whether this engine made a container: the labels agree with the name, which no image can set.
func owned(names []string, labels map[string]string) bool {
	id, err := cove.ParseSandboxID(labels[labelSandbox])
	if err != nil {
		return false
	}
	_, err = cove.ParseInstanceID(labels[labelInstance])
	return err == nil && slices.ContainsFunc([]string{containerName(id), sidecarName(id), filesName(id)},
		func(name string) bool { return slices.Contains(names, "/"+name) })
}

func plan(w wish) (*container.Config, *container.HostConfig, error) {
	profile, err := seccompProfile(processes(w.template.Shape))
	if err != nil {
		return nil, nil, err
	}
	tmpfs, err := tmpfsMounts(w)
	if err != nil {
		return nil, nil, err
	}
	config := &container.Config{
		Hostname: w.hostname,
		Image:    w.image.ID,
		Labels:   labels(w.realm, w.instance, w.template.ID, w.nonce),
		// Nothing that the image says about what to run takes effect.
		Entrypoint:  []string{guestPath, "--stdio"},
		Cmd:         []string{},
		Env:         without(w.image.Env),
		User:        "0:0",
		WorkingDir:  "/",
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		StopSignal:  "SIGKILL",
		// When Cove ends, however it does, the guest's input ends, and then the guest does; one that calls sees that its
		// connection ends.
		OpenStdin: true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
		// No network, and none of the daemon's work for networks either, which is most of the time that a container takes.
		NetworkDisabled: !w.resolver,
	}
	if w.call != "" {
		config.Entrypoint = []string{guestPath, "--call", callPath}
		config.OpenStdin, config.StdinOnce, config.AttachStdin = false, false, false
	}
	l := w.template.Limits
	pids, no := int64(0), false
	if l.PIDs > 0 {
		pids = l.PIDs + startTasks
	}
	host := &container.HostConfig{
		AutoRemove:     false,
		RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
		LogConfig:      container.LogConfig{Type: "none"},
		NetworkMode:    "none",
		IpcMode:        container.IPCModeNone, // its /dev/shm is one of the places
		CgroupnsMode:   container.CgroupnsModePrivate,
		CapDrop:        []string{"ALL"},
		CapAdd:         capsOfGuest,
		SecurityOpt:    []string{"no-new-privileges:true", "seccomp=" + profile},
		ReadonlyRootfs: true,
		MaskedPaths:    slices.Concat(rootfs.Masked, []string{"/sys", "/dev/mqueue"}),
		ReadonlyPaths:  rootfs.ReadOnly,
		Init:           &no,
		Tmpfs:          tmpfs,
		Mounts:         bindMounts(w),
		Resources: container.Resources{
			Memory: l.Memory, MemorySwap: l.Memory, // both together: no swap
			NanoCPUs:  int64(math.Round(min(l.CPUs, float64(w.cpus)) * 1e9)), // more is refused
			PidsLimit: &pids,
			Ulimits:   ulimits(l),
		},
	}
	if w.resolver {
		host.DNS = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
		host.DNSOptions = []string{"timeout:1", "attempts:1"}
		host.ExtraHosts = []string{w.hostname + ":127.0.0.1"}
		host.Sysctls = map[string]string{"net.ipv6.conf.lo.disable_ipv6": "0"}
	}
	if w.owns {
		host.UsernsMode = container.UsernsMode(fmt.Sprintf("keep-id:uid=%d,gid=%d", w.template.User.UID, w.template.User.GID))
	}
	throttle(&host.Resources, w.rate)
	return config, host, nil
}

func labels(realm string, by cove.InstanceID, id cove.SandboxID, nonce string) map[string]string {
	return map[string]string{labelRealm: realm, labelInstance: string(by), labelSandbox: string(id), labelNonce: nonce}
}

// ulimits returns the limits that the guest begins with. It lowers them with its seal.
func ulimits(l cove.Limits) []*container.Ulimit {
	// The one value with which the kernel runs no handler for a crash: see the policy's rule on setrlimit.
	all := []*container.Ulimit{{Name: "core", Soft: 1, Hard: 1}}
	// The guest needs more than its user may have. Where the user may have more, what the daemon itself has is the most
	// that it can surely give.
	if l.OpenFiles <= guestFiles {
		all = append(all, &container.Ulimit{Name: "nofile", Soft: guestFiles, Hard: guestFiles})
	}
	return all
}

// guestFiles is how many descriptors the guest may need for many processes.
const guestFiles = 4096

func processes(s cove.Shape) seccomp.Processes {
	return seccomp.Processes{User: s.User, Debuggers: s.Debuggers}
}

// seccompProfile is our own; a daemon's default lets too much through. It holds from the guest's first instruction on;
// the guest's own filter, which it loads with its seal, is the same policy and also refuses other ABIs.
func seccompProfile(p seccomp.Processes) (string, error) {
	oci, err := seccomp.For(p).OCI(seccomp.HostArch())
	if err != nil {
		return "", err
	}
	j, err := json.Marshal(oci)
	return string(j), err
}

// without has the daemon take every variable of the image from PID 1: a name without a value unsets it.
func without(env []string) []string {
	names := []string{}
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		names = append(names, name)
	}
	return names
}

// tmpfsMounts are the writable places, and what covers the image's volumes, which would be writable without a limit.
func tmpfsMounts(w wish) (map[string]string, error) {
	l := w.template.Limits
	places, err := divide(cmp.Or(l.Disk, defaultDisk), cmp.Or(l.Inodes, defaultInodes), w.template.User)
	if err != nil {
		return nil, err
	}
	tmpfs := map[string]string{}
	for _, v := range w.image.Volumes {
		tmpfs[path.Clean(v)] = "ro,nosuid,nodev,noexec,size=4096,nr_inodes=1,mode=555"
	}
	for _, p := range places {
		tmpfs[p.Name] = p.mountOptions(w.template.User.UID, w.template.NoExec)
	}
	for _, b := range w.binds {
		delete(tmpfs, b.target) // a mount of the user's takes its place
	}
	return tmpfs, nil
}

// Limits of a template that asks for none: tmpfs is never without one.
const (
	defaultDisk   = 100 << 20
	defaultInodes = 20_000
)

// bindMounts show each one file system and nothing mounted below it, which would keep its own flags and be writable.
func bindMounts(w wish) []mount.Mount {
	var binds []bind
	if w.guest != "" {
		binds = append(binds, bind{source: w.guest, target: guestPath, readOnly: true})
	}
	if w.call != "" {
		binds = append(binds, bind{source: w.call, target: callPath, readOnly: true})
	}
	var all []mount.Mount
	for _, b := range append(binds, w.binds...) {
		all = append(all, mount.Mount{
			Type: mount.TypeBind, Source: b.source, Target: b.target, ReadOnly: b.readOnly,
			BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate, NonRecursive: true},
		})
	}
	return all
}

// hostBinds show the host's toolchain, with what is mounted below it.
func hostBinds(h rootfs.Host, mountinfo string) []bind {
	var binds []bind
	for _, dir := range h.Dirs {
		binds = append(binds, bind{source: dir, target: dir, readOnly: true})
		for _, below := range mounts.Below(mountinfo, dir) {
			binds = append(binds, bind{source: below, target: below, readOnly: true})
		}
	}
	for _, name := range h.Etc {
		binds = append(binds, bind{source: name, target: name, readOnly: true})
	}
	return binds
}

// seal returns the guest's remaining steps: the container engine has built the root.
func seal(t engine.Template, attached []engine.Attachment) (guest.Bind, error) {
	filter, err := seccomp.Filter(processes(t.Shape))
	if err != nil {
		return guest.Bind{}, err
	}
	b := guest.Bind{Seal: guest.Seal{
		UserUID: t.User.UID, UserGID: t.User.GID, UserGroups: t.User.GroupIDs(), Filter: filter,
		OpenFiles: t.Limits.OpenFiles, FileSize: t.Limits.Disk,
	}}
	for _, w := range rootfs.Writables(t.User) {
		replaced := slices.ContainsFunc(attached, func(a engine.Attachment) bool { return path.Clean(a.Target) == w.Name })
		if !replaced {
			b.Scratch = append(b.Scratch, w.Name)
		}
	}
	return b, nil
}

// differences lists where the container that a daemon made is weaker than what was asked for. A daemon that ignores a
// field, a plugin that changes one, or an API that only looks like Docker's must not go unnoticed.
func differences(asked *container.HostConfig, made *container.HostConfig) []string {
	if made == nil {
		return []string{"the daemon does not describe it"}
	}
	var all []string
	want := func(ok bool, what string, got any) {
		if !ok {
			all = append(all, fmt.Sprintf("%s is %v", what, got))
		}
	}
	subset := func(want, have []string) bool {
		return !slices.ContainsFunc(want, func(s string) bool { return !slices.Contains(have, s) })
	}
	want(!made.Privileged, "privileged", made.Privileged)
	want(made.ReadonlyRootfs, "the read-only root", made.ReadonlyRootfs)
	want(made.NetworkMode == asked.NetworkMode, "the network", made.NetworkMode)
	want(made.PidMode == "" || made.PidMode == "private", "the pid namespace", made.PidMode)
	want(made.UTSMode == "", "the uts namespace", made.UTSMode)
	want(made.UsernsMode == "", "the user namespace", made.UsernsMode)
	want(made.IpcMode == asked.IpcMode, "the ipc namespace", made.IpcMode)
	want(made.CgroupnsMode == asked.CgroupnsMode, "the cgroup namespace", made.CgroupnsMode)
	want(made.Memory == asked.Memory, "the memory limit", made.Memory)
	want(asked.MemorySwap == 0 || made.MemorySwap == asked.MemorySwap || noSwap(), "the limit of memory and swap",
		made.MemorySwap)
	want(made.NanoCPUs == asked.NanoCPUs, "the CPU limit", made.NanoCPUs)
	want(*asked.PidsLimit == 0 || made.PidsLimit != nil && *made.PidsLimit == *asked.PidsLimit, "the limit of tasks",
		made.PidsLimit)
	want(subset(asked.SecurityOpt, made.SecurityOpt), "the list of security options", made.SecurityOpt)
	want(subset(asked.MaskedPaths, made.MaskedPaths), "the list of masked paths", made.MaskedPaths)
	want(subset(asked.ReadonlyPaths, made.ReadonlyPaths), "the list of read-only paths", made.ReadonlyPaths)
	want(len(made.CapAdd) == len(asked.CapAdd) && slices.Contains(made.CapDrop, "ALL"), "the list of capabilities",
		made.CapAdd)
	want(len(made.Devices)+len(made.DeviceRequests)+len(made.DeviceCgroupRules) == 0, "the list of devices", made.Devices)
	want(len(made.Binds) == 0 && len(made.Mounts) == len(asked.Mounts), "the number of mounts",
		len(made.Binds)+len(made.Mounts))
	for name, options := range asked.Tmpfs {
		want(made.Tmpfs[name] == options, "the file system at "+name, made.Tmpfs[name])
	}
	return all
}

// callFile is the socket that the guest of a detached sandbox calls, in the directory of the sandbox, and callPath its
// place inside. It is closed before the first process of the user may begin.
const (
	callFile = "call"
	callPath = "/.cove/call"
)

// noSwap reports that this host has no swap at all, so that there is nothing to keep from a container.
func noSwap() bool {
	swaps, err := os.ReadFile("/proc/swaps")
	return err == nil && strings.Count(string(swaps), "\n") <= 1
}

// throttle limits the throughput of a device.
func throttle(r *container.Resources, t engine.Throughput) {
	at := func(rate int64) []*blkiodev.ThrottleDevice {
		if rate <= 0 {
			return nil
		}
		return []*blkiodev.ThrottleDevice{{Path: t.Device, Rate: uint64(rate)}}
	}
	r.BlkioDeviceReadBps, r.BlkioDeviceWriteBps = at(t.Bytes), at(t.Bytes)
	r.BlkioDeviceReadIOps, r.BlkioDeviceWriteIOps = at(t.Operations), at(t.Operations)
}
