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
	dockerWhy  string
	serial     *atomic.Int64
}

const peerImage = "cove/bench:empty"

// newPeers prepares those that are installed; stop ends what it started.
func newPeers(ctx context.Context, dir string) (p peers, stop func()) {
	p = peers{dir: dir, serial: new(atomic.Int64)}
	p.host, _ = rootfs.ReadHost()
	if _, err := exec.LookPath("dockerd"); err != nil {
		p.dockerWhy = "not installed"
		return p, func() {}
	}
	state := filepath.Join(dir, "docker")
	out, err := exec.CommandContext(ctx, "scripts/start-docker.sh", state).Output()
	if err != nil {
		p.dockerWhy = "its daemon does not start"
		return p, func() {}
	}
	p.dockerHost = strings.TrimSpace(string(out))
	if err := p.importEmpty(ctx); err != nil {
		p.dockerWhy = err.Error()
	}
	return p, func() { exec.Command("scripts/start-docker.sh", "--stop", state).Run() }
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
	return func(ctx context.Context) error { return exec.CommandContext(ctx, args[0], args[1:]...).Run() }
}

func (p peers) bubblewrap(args ...string) contender {
	if _, err := exec.LookPath("bwrap"); err != nil {
		return contender{name: "bubblewrap", why: "not installed"}
	}
	all := []string{"bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--uid", "65534", "--gid", "65534",
		"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"}
	for _, d := range p.host.Dirs {
		all = append(all, "--ro-bind", d, d)
	}
	for _, l := range p.host.Links {
		all = append(all, "--symlink", l.Target, l.Name)
	}
	return contender{name: "bubblewrap", run: plain(append(append(all, "--"), args...)...)}
}

func (p peers) docker(args ...string) contender {
	if p.dockerWhy != "" {
		return contender{name: "docker run", why: p.dockerWhy}
	}
	l := runtimes.Defaults
	all := []string{"docker", "run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt",
		"no-new-privileges",
		"--memory", strconv.FormatInt(l.Memory, 10), "--cpus", fmt.Sprint(l.CPUs), "--pids-limit",
		strconv.FormatInt(l.PIDs, 10),
		"--tmpfs", "/tmp", "--user", "65534"}
	for _, d := range p.host.Dirs {
		all = append(all, "-v", d+":"+d+":ro")
	}
	all = append(append(all, peerImage), args...)
	return contender{name: "docker run", run: func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, all[0], all[1:]...)
		cmd.Env = append(os.Environ(), "DOCKER_HOST="+p.dockerHost)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
		}
		return nil
	}}
}

func (p peers) runc(args ...string) contender {
	if _, err := exec.LookPath("runc"); err != nil {
		return contender{name: "runc run", why: "not installed"}
	}
	bundle := filepath.Join(p.dir, "bundle"+strconv.FormatInt(p.serial.Add(1), 10))
	if err := p.bundle(bundle, args); err != nil {
		return contender{name: "runc run", why: err.Error()}
	}
	return contender{name: "runc run", run: func(ctx context.Context) error {
		id := "cove-bench-" + strconv.FormatInt(p.serial.Add(1), 10)
		cmd := exec.CommandContext(ctx, "runc", "--root", filepath.Join(p.dir, "runc"), "run", "--bundle", bundle, id)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
		}
		return nil
	}}
}

// bundle writes an OCI bundle with Cove's limits and seccomp policy.
func (p peers) bundle(dir string, args []string) error {
	profile, err := seccomp.Snippet().OCI(seccomp.HostArch())
	if err != nil {
		return err
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
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	for _, link := range p.host.Links {
		if err := os.Symlink(link.Target, filepath.Join(root, link.Name)); err != nil {
			return err
		}
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644)
}
