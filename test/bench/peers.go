//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/cove-sandbox/cove/internal/linux/seccomp"
	"github.com/cove-sandbox/cove/internal/rootfs"
	runtimes "github.com/cove-sandbox/cove/internal/runtime"
)

// peers are the other ways to run a command contained, on the same root: the host's toolchain, read-only.
type peers struct {
	dir        string
	host       rootfs.Host
	dockerHost string
	why        map[string]string // by name: why one is not measured
	serial     *atomic.Int64
}

const peerImage = "cove/bench:empty"

// newPeers prepares those that are installed; stop ends what it started.
func newPeers(ctx context.Context, dir string) (p peers, stop func()) {
	p = peers{dir: dir, serial: new(atomic.Int64), why: map[string]string{}}
	p.host, _ = rootfs.ReadHost()
	stop = func() {}
	if _, err := exec.LookPath("dockerd"); err != nil {
		p.why["docker run"] = "not installed"
	} else {
		state := filepath.Join(dir, "docker")
		stop = func() { exec.Command("scripts/start-docker.sh", "--stop", state).Run() }
		out, err := exec.CommandContext(ctx, "scripts/start-docker.sh", state).Output()
		p.dockerHost = strings.TrimSpace(string(out))
		if err == nil {
			err = p.importEmpty(ctx)
		}
		if err != nil {
			p.why["docker run"] = "its daemon does not serve: " + err.Error()
		}
	}
	p.try(ctx)
	return p, stop
}

// importEmpty gives docker an image with nothing but the places to mount on.
func (p peers) importEmpty(ctx context.Context) error {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, dir := range append([]string{"/tmp", "/proc", "/dev", "/sys", "/etc"}, p.host.Dirs...) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: 0o755}); err != nil {
			return err
		}
	}
	for _, l := range p.host.Links {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: l.Name[1:], Linkname: l.Target}); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "docker", "import", "-", peerImage)
	cmd.Env, cmd.Stdin = append(os.Environ(), "DOCKER_HOST="+p.dockerHost), &archive
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("docker import: %s", bytes.TrimSpace(out))
	}
	return nil
}

func plain(args ...string) func(context.Context) error {
	return func(ctx context.Context) error { return command(ctx, nil, args) }
}

func command(ctx context.Context, env, args []string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// peer is another way to run a command contained.
type peer struct {
	name, program string
	// line returns what makes the command line of each run.
	line func(p peers, args []string) (func() []string, error)
}

// all are the peers that are known of. Container runtimes have Cove's limits; the others have no control group.
var all = []peer{
	{"bubblewrap", "bwrap", peers.bubblewrap}, {"runc run", "runc", peers{}.oci("runc")},
	{"crun run", "crun", peers{}.oci("crun")},
	{"docker run", "docker", peers.docker}, {"podman run", "podman", peers.podman}, {"srt", "srt", peers.srt},
	{"nsjail", "nsjail", peers.nsjail}, {"isolate", "isolate", peers.isolate},
}

// contenders run a command by each peer. One that is not installed, or does not run here, says why.
func (p peers) contenders(args ...string) (list []contender) {
	for _, one := range all {
		c := contender{name: one.name, why: p.why[one.name]}
		if c.why == "" {
			line, err := one.line(p, args)
			if err != nil {
				c.why = err.Error()
			}
			c.run = func(ctx context.Context) error { return command(ctx, p.environ(), line()) }
		}
		list = append(list, c)
	}
	return list
}

// try finds out which peers do not run here.
func (p peers) try(ctx context.Context) {
	for _, one := range all {
		if _, err := exec.LookPath(one.program); err != nil {
			p.why[one.name] = "not installed"
			continue
		}
		if p.why[one.name] != "" {
			continue
		}
		line, err := one.line(p, []string{"/bin/true"})
		if err == nil {
			err = command(ctx, p.environ(), line())
		}
		if err != nil {
			p.why[one.name] = "it does not run here: " + err.Error()
		}
	}
}

func (p peers) environ() []string { return append(os.Environ(), "DOCKER_HOST="+p.dockerHost) }

// fixed makes the same command line for each run.
func fixed(line []string) (func() []string, error) { return func() []string { return line }, nil }

func (p peers) bubblewrap(args []string) (func() []string, error) {
	line := []string{"bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--uid", "65534", "--gid",
		"65534", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"}
	for _, d := range p.host.Dirs {
		line = append(line, "--ro-bind", d, d)
	}
	for _, l := range p.host.Links {
		line = append(line, "--symlink", l.Target, l.Name)
	}
	return fixed(append(append(line, "--"), args...))
}

// hardened are options that docker and podman share.
func (p peers) hardened() []string {
	l := runtimes.Defaults
	line := []string{"run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt",
		"no-new-privileges", "--memory", strconv.FormatInt(l.Memory, 10), "--cpus", fmt.Sprint(l.CPUs),
		"--pids-limit", strconv.FormatInt(l.PIDs, 10), "--tmpfs", "/tmp", "--user", "65534"}
	for _, d := range p.host.Dirs {
		line = append(line, "-v", d+":"+d+":ro")
	}
	return line
}

func (p peers) docker(args []string) (func() []string, error) {
	return fixed(slices.Concat([]string{"docker"}, p.hardened(), []string{peerImage}, args))
}

// podman has the root of an OCI bundle, and storage of its own. The limits of open files and processes are those that
// a machine in a container may set.
func (p peers) podman(args []string) (func() []string, error) {
	bundle, err := p.bundle(args)
	line := []string{"podman", "--root", filepath.Join(p.dir, "podman"), "--runroot", filepath.Join(p.dir, "podman-run"),
		"--cgroup-manager", "cgroupfs", "--events-backend", "none"}
	if _, missing := exec.LookPath("runc"); missing == nil {
		line = append(line, "--runtime", "runc") // as docker
	}
	line = append(append(line, p.hardened()...), "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--rootfs",
		filepath.Join(bundle, "rootfs"))
	call, _ := fixed(append(line, args...))
	return call, err
}

// oci runs bundles by a runtime.
func (peers) oci(name string) func(p peers, args []string) (func() []string, error) {
	return func(p peers, args []string) (func() []string, error) {
		bundle, err := p.bundle(args)
		return func() []string {
			return []string{name, "--root", filepath.Join(p.dir, name), "run", "--bundle", bundle,
				"cove-bench-" + strconv.FormatInt(p.serial.Add(1), 10)}
		}, err
	}
}

// srt reads all of the machine and reaches no host.
func (p peers) srt(args []string) (func() []string, error) {
	settings := filepath.Join(p.dir, "srt.json")
	call, _ := fixed(append([]string{"srt", "--settings", settings, "--"}, args...))
	return call, os.WriteFile(settings, []byte(`{"network": {"allowedDomains": [], "deniedDomains": []},
 "filesystem": {"denyRead": [], "allowWrite": ["/tmp"], "denyWrite": []}}`), 0o644)
}

// nsjail has no control group, which would have to be made for it first.
func (p peers) nsjail(args []string) (func() []string, error) {
	line := []string{"nsjail", "--mode", "o", "--really_quiet", "--user", "65534:65534", "--group", "65534:65534",
		"--time_limit", "60", "--rlimit_as", "inf", "--tmpfsmount", "/tmp"}
	for _, d := range p.host.Dirs {
		line = append(line, "--bindmount_ro", d)
	}
	for _, link := range p.host.Links {
		line = append(line, "--symlink", link.Target+":"+link.Name)
	}
	return fixed(append(append(line, "--"), args...))
}

// isolate makes a box, runs in it and removes it.
func (p peers) isolate(args []string) (func() []string, error) {
	const boxes = 1000 // by default
	const script = `box=$1; shift
isolate -b "$box" --init >/dev/null && isolate -b "$box" --silent --processes=64 --run -- "$@"
code=$?; isolate -b "$box" --cleanup; exit $code`
	return func() []string {
		box := strconv.FormatInt(p.serial.Add(1)%boxes, 10)
		return append([]string{"sh", "-c", script, "sh", box}, args...)
	}, nil
}

// bundle writes an OCI bundle with Cove's limits and seccomp policy, and returns its directory.
func (p peers) bundle(args []string) (string, error) {
	dir := filepath.Join(p.dir, "bundle"+strconv.FormatInt(p.serial.Add(1), 10))
	profile, err := seccomp.Snippet().OCI(seccomp.HostArch())
	if err != nil {
		return "", err
	}
	l := runtimes.Defaults
	quota, period := int64(l.CPUs*100_000), uint64(100_000)
	spec := specs.Spec{
		Version: "1.0.2", Root: &specs.Root{Path: "rootfs", Readonly: true},
		Process: &specs.Process{Args: args, Env: []string{"PATH=" + rootfs.Path}, Cwd: "/", NoNewPrivileges: true,
			User: specs.User{UID: 65534, GID: 65534}},
		Mounts: []specs.Mount{
			{Source: "proc", Destination: "/proc", Type: "proc"},
			{Source: "tmpfs", Destination: "/dev", Type: "tmpfs", Options: []string{"nosuid", "mode=755"}},
			{Source: "tmpfs", Destination: "/tmp", Type: "tmpfs", Options: []string{"nosuid", "nodev"}},
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace}},
			MaskedPaths: rootfs.Masked, ReadonlyPaths: rootfs.ReadOnly, Seccomp: profile,
			Resources: &specs.LinuxResources{
				Memory: &specs.LinuxMemory{Limit: &l.Memory}, Pids: &specs.LinuxPids{Limit: &l.PIDs},
				CPU: &specs.LinuxCPU{Quota: &quota, Period: &period},
			},
		},
	}
	for _, d := range p.host.Dirs {
		spec.Mounts = append(spec.Mounts, specs.Mount{Source: d, Destination: d, Type: "bind",
			Options: []string{"rbind", "ro"}})
	}
	root := filepath.Join(dir, "rootfs")
	for _, place := range append([]string{"proc", "dev", "sys", "tmp", "etc", "run"}, p.host.Dirs...) {
		if err := os.MkdirAll(filepath.Join(root, place), 0o755); err != nil {
			return "", err
		}
	}
	for _, link := range p.host.Links {
		if err := os.Symlink(link.Target, filepath.Join(root, link.Name)); err != nil {
			return "", err
		}
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644)
}
