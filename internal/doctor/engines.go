package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/job"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/linux/binfmt"
	"github.com/cove-sandbox/cove/internal/pattern"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// checkGuest starts the guest program, which must have this version: their protocol is not compatible across versions.
func checkGuest(ctx context.Context, h *host) outcome {
	const fix = "install cove-guest of the same version beside cove (\"make build\" builds both), or set COVE_GUEST"
	path := h.options.Guest
	if path == "" {
		return fail("not found", fix)
	}
	if found := changed(path); found != "" {
		return fail(found, "install Cove anew: sandboxes of an ordinary user could change this file in versions before "+
			"that of docs/changes.md, and another user may have written to it")
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return fail(fmt.Sprintf("%s: %v", path, err), fix)
	}
	name, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	switch {
	case name != "cove-guest":
		return fail(path+" is not cove-guest", fix)
	case version != h.options.Version:
		return fail(fmt.Sprintf("%s is version %s, cove is %s", path, version, h.options.Version), fix)
	}
	return ok(fmt.Sprintf("version %s in %s", version, path))
}

// changed says what of a program's mode or owner lets others decide what it does; "" is for nothing.
func changed(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "" // which its start says
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	switch {
	case info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0:
		return fmt.Sprintf("%s has the mode %v: every user would run it with the rights of its owner", path, info.Mode())
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Sprintf("%s has the mode %v: every user may write to it", path, info.Mode())
	case owner != 0 && owner != os.Geteuid():
		return fmt.Sprintf("%s belongs to the user %d, who may write to it", path, owner)
	}
	return ""
}

// checkEmulators reads what runs programs of images of other architectures.
func checkEmulators(_ context.Context, h *host) outcome {
	var inside, outside []string
	for _, e := range binfmt.Emulators(filepath.Join(h.root, binfmt.Dir)) {
		if e.Fixed {
			inside = append(inside, e.Name)
		} else {
			outside = append(outside, e.Name)
		}
	}
	switch {
	case outside != nil:
		return warn("emulators that sandboxes do not find: "+strings.Join(outside, ", "),
			"register them with binfmt_misc with the flag F, as Debian's qemu-user-static does")
	case inside != nil:
		return info("emulated by " + strings.Join(inside, ", "))
	}
	return info("their images do not run: binfmt_misc has no emulator")
}

func engineChecks(o Options) []check {
	var all []check
	for _, e := range o.Engines {
		all = append(all,
			check{"engine." + e.Name, "engines", "a sandbox of " + e.Name, e.Name,
				func(ctx context.Context, h *host) outcome { return tryEngine(ctx, e, h.options.Engine) }},
			check{"workspace." + e.Name, "engines", "a long-lived sandbox of " + e.Name, e.Name,
				func(ctx context.Context, h *host) outcome { return tryWorkspace(ctx, e, h.options.Home) }},
			check{"network." + e.Name, "engines", "a network in a sandbox of " + e.Name, e.Name,
				func(ctx context.Context, _ *host) outcome { return tryNetwork(ctx, e) }})
	}
	return all
}

// tryEngine makes, uses and removes a sandbox. A missing engine is a finding only if it is the default.
func tryEngine(ctx context.Context, e Engine, standard string) outcome {
	eng, err := e.Open(ctx)
	if cove.ErrorCode(err) == cove.Unavailable && e.Name != standard {
		return info("not tried: it is not here")
	}
	if err != nil {
		return failed(err)
	}
	defer eng.Close()
	if o, complete := enforces(eng.Capabilities()); !complete {
		return o
	}
	if len(e.Args) == 0 {
		return ok("answers, and can enforce every limit")
	}
	start := time.Now()
	if err := runIn(ctx, eng, e.Plan, "/", e.Args...); err != nil {
		return failed(err)
	}
	return ok(fmt.Sprintf("made, used and removed in %d ms", time.Since(start).Milliseconds()))
}

// tryWorkspace makes a long-lived sandbox as "cove new" does, with a workspace and a home below Cove's own home, and
// writes to them as its user.
func tryWorkspace(ctx context.Context, e Engine, home string) outcome {
	eng, err := e.Open(ctx)
	if err != nil {
		return info("not tried: the engine cannot be used")
	}
	defer eng.Close()
	c := eng.Capabilities()
	if !c.Lasting || !c.MountOwners {
		return info(cmp.Or(c.Missing["lasting"], c.Missing["mount_owners"],
			"none: its sandboxes end with the command that makes them"))
	}
	if _, complete := enforces(c); len(e.Args) == 0 || !complete {
		return info("not tried: no sandbox can be made")
	}
	dir, err := os.MkdirTemp(home, "doctor-")
	if err != nil {
		return fail("no directory can be made in "+home+": "+err.Error(),
			"see to its permissions, or set another with COVE_HOME")
	}
	defer os.RemoveAll(dir)
	start := time.Now()
	if err := workIn(ctx, eng, e.Plan, dir); err != nil {
		return failed(err)
	}
	return ok(fmt.Sprintf("made in %s, used and removed in %d ms", home, time.Since(start).Milliseconds()))
}

// workIn has a long-lived sandbox write to its workspace and home, below dir, and looks for the files on the host.
func workIn(ctx context.Context, eng engine.Engine, plan provision.Plan, dir string) error {
	defer func() { plan.Binding.Close() }()
	targets := map[string]string{"checkout": cove.Workspace, "home": cove.Home}
	for name, target := range targets {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return err
		}
		if err := plan.Binding.Attach(hostpath.Own{Dir: dir, Name: name}, engine.Attachment{Target: target}); err != nil {
			return err
		}
	}
	plan.User, plan.Lifetime = cove.AgentUser, cove.LifetimeDetached
	const script = "echo tried > file && cp file " + cove.Home
	if err := runIn(ctx, eng, plan, cove.Workspace, "/bin/sh", "-c", script); err != nil {
		return err
	}
	for name := range targets {
		file, err := os.Stat(filepath.Join(dir, name, "file"))
		if err != nil {
			return fmt.Errorf("what was written inside is not on the host: %w", err)
		}
		if uid := file.Sys().(*syscall.Stat_t).Uid; int(uid) != os.Geteuid() {
			return fmt.Errorf("what was written inside belongs to user %d on the host, and not to %d", uid, os.Geteuid())
		}
	}
	return nil
}

// tryNetwork makes a sandbox whose egress leads to the gateway. Everything without network works if it fails.
func tryNetwork(ctx context.Context, e Engine) outcome {
	eng, err := e.Open(ctx)
	if err != nil {
		return info("not tried: the engine cannot be used")
	}
	defer eng.Close()
	if !slices.Contains(eng.Capabilities().Networks, cove.NetworkLimited) {
		return info(cmp.Or(eng.Capabilities().Missing["listeners"], "none: its sandboxes reach nothing"))
	}
	if _, complete := enforces(eng.Capabilities()); len(e.Args) == 0 || !complete {
		return info("not tried: no sandbox can be made")
	}
	plan := e.Plan
	plan.Network = cove.NetworkLimited
	sb, err := eng.Prepare(ctx, plan.Template())
	if err != nil {
		return warn(failed(err).found, "the kernel needs nf_tables with nat, redirect and reject (modules nft_chain_nat, "+
			"nft_redir, nft_ct, nft_reject_inet)")
	}
	err = sb.Bind(ctx, engine.Binding{Hostname: rootfs.Hostname, Listeners: engine.RouteListeners()})
	for _, f := range sb.Listeners() {
		f.Close()
	}
	if err := errors.Join(err, sb.Destroy(context.WithoutCancel(ctx))); err != nil {
		return failed(err)
	}
	return ok("every way out leads to the gateway")
}

func failed(err error) outcome {
	hint := cove.ErrorHint(err)
	if strings.Contains(hint, "cove doctor") {
		hint = ""
	}
	return fail(strings.TrimSuffix(err.Error(), " ("+cove.ErrorHint(err)+")"), hint)
}

// runIn makes a sandbox, runs a program in its directory dir, and removes it.
func runIn(ctx context.Context, eng engine.Engine, plan provision.Plan, dir string, args ...string) (err error) {
	j, err := job.Open(ctx, eng, clock.Real(), plan)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	o, err := j.Run(ctx, guest.ProcessSpec{Args: args, Env: rootfs.Env(plan.User), Dir: dir}, process.Attendance{})
	switch {
	case err != nil:
		return err
	case o.Lost != nil:
		return o.Lost
	case o.Code != 0:
		return fmt.Errorf("%s ended with exit code %d inside", strings.Join(args, " "), o.Code)
	}
	return nil
}

func enforces(c engine.Capabilities) (o outcome, complete bool) {
	limits := []struct {
		name string
		has  bool
	}{
		{"memory_limit", c.MemoryLimit}, {"swap_limit", c.SwapLimit}, {"cpu_limit", c.CPULimit},
		{"pids_limit", c.PIDsLimit}, {"disk_limit", c.DiskLimit},
	}
	var missing, fixes []string
	for _, l := range limits {
		if l.has {
			continue
		}
		missing = append(missing, l.name)
		if why := c.Missing[l.name]; why != "" && !slices.Contains(fixes, why) {
			fixes = append(fixes, why)
		}
	}
	return fail("cannot enforce "+strings.Join(missing, ", "), strings.Join(fixes, "\n")), missing == nil
}

func (h *host) dockerSocket() string {
	return strings.TrimPrefix(cmp.Or(h.options.Docker.Host, "/var/run/docker.sock"), "unix://")
}

type dockerVersion struct {
	Version    string
	APIVersion string `json:"ApiVersion"`
	Components []component
}

type component struct{ Name, Version string }

func (h *host) docker(ctx context.Context) (v dockerVersion, err error) {
	if h.options.DockerErr != nil {
		return v, h.options.DockerErr
	}
	return versionAt(ctx, h.dockerSocket())
}

// versionAt asks a container engine that serves Docker's API at a socket what it is.
func versionAt(ctx context.Context, socket string) (v dockerVersion, err error) {
	if strings.Contains(socket, "://") {
		return v, fmt.Errorf("%s is not on this machine", socket)
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/version", nil)
	if err != nil {
		return v, err
	}
	response, err := client.Do(request)
	if err != nil {
		return v, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return v, errors.New(response.Status)
	}
	return v, json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&v)
}

func checkDocker(ctx context.Context, h *host) outcome {
	v, err := h.docker(ctx)
	of, check := "", "check DOCKER_HOST and the engine"
	if name := h.options.Docker.Context; name != "" {
		of = fmt.Sprintf(", of the Docker context %q", name)
		check = `check the context ("docker context ls") and the engine`
	}
	switch {
	case err == nil:
		return ok(fmt.Sprintf("version %s, API %s%s", v.Version, v.APIVersion, of))
	case h.options.DockerErr != nil:
		o := failed(err)
		return h.noDocker(o.found, o.fix)
	case errors.Is(err, fs.ErrPermission):
		return h.noDocker("you may not use "+h.dockerSocket()+of,
			"sudo usermod -aG docker $USER    # then log in again; the group is as good as root")
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return h.noDocker("no engine answers at "+h.dockerSocket()+of,
			"sudo systemctl start docker    # or install it: sudo apt-get install docker.io")
	}
	return h.noDocker(err.Error()+of, check)
}

// noDocker fails if Docker is requested, and is a note otherwise.
func (h *host) noDocker(found, fix string) outcome { return h.without(docker, found, fix) }

func (h *host) without(name, found, fix string) outcome {
	if h.options.Engine == name {
		return fail(found, fix)
	}
	return info(found + "; --engine " + name + " would need it")
}

// checkPodman asks Podman's service. What it can enforce, the checks of the engine say.
func checkPodman(ctx context.Context, h *host) outcome {
	socket := strings.TrimPrefix(h.options.Podman, "unix://")
	v, err := versionAt(ctx, socket)
	switch {
	case err == nil && !slices.ContainsFunc(v.Components, func(c component) bool { return c.Name == "Podman Engine" }):
		return h.without(podman, "another engine answers at "+socket, "check CONTAINER_HOST")
	case err == nil:
		return ok(fmt.Sprintf("version %s, API %s", v.Version, v.APIVersion))
	case errors.Is(err, fs.ErrPermission):
		return h.without(podman, "you may not use "+socket, "run cove as the service's user")
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		start := "sudo systemctl start podman.socket"
		if os.Geteuid() != 0 {
			start = "systemctl --user start podman.socket"
		}
		return h.without(podman, "no service answers at "+socket,
			start+"    # or install it: sudo apt-get install podman")
	}
	return h.without(podman, err.Error(), "check CONTAINER_HOST and the service")
}

// checkRunc compares the version of Docker's container runtime with known vulnerable ones.
func checkRunc(ctx context.Context, h *host) outcome {
	v, err := h.docker(ctx)
	if err != nil {
		return info("not known without the engine")
	}
	for _, c := range v.Components {
		if c.Name == "runc" {
			return judgeRunc(c.Version)
		}
	}
	return info("the engine does not say which it uses")
}

// runcVersion is a version in runc's notation: 1.1.5, 1.4.0-rc.2, 1.1.5+ds1.
type runcVersion struct {
	major, minor, patch int
	candidate           int  // of "-rc.N"; 0 for a release
	distribution        bool // modified by a distribution
}

var runcPattern = pattern.New(`^v?(\d+)\.(\d+)\.(\d+)(?:[-~]rc\.?(\d+))?(.*)$`)

func parseRunc(text string) (v runcVersion, ok bool) {
	m := runcPattern.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return v, false
	}
	n := func(i int) int { v, _ := strconv.Atoi(m[i]); return v }
	return runcVersion{n(1), n(2), n(3), n(4), m[5] != ""}, true
}

// before reports whether v precedes a release or candidate.
func (v runcVersion) before(major, minor, patch, candidate int) bool {
	rank := func(c int) int { // a release follows its candidates
		if c == 0 {
			return 1 << 20
		}
		return c
	}
	return slices.Compare([]int{v.major, v.minor, v.patch, rank(v.candidate)},
		[]int{major, minor, patch, rank(candidate)}) < 0
}

// judgeRunc knows vulnerabilities through which a container reaches the host: CVE-2025-31133, CVE-2025-52565 and
// CVE-2025-52881, fixed in 1.2.8, 1.3.3 and 1.4.0-rc.3; and CVE-2024-21626, fixed in 1.1.12.
func judgeRunc(text string) outcome {
	v, ok := parseRunc(text)
	if !ok {
		return warn(fmt.Sprintf("version %q is not one that can be judged", text),
			"compare it with runc's security advisories")
	}
	var holes []string
	if v.before(1, 1, 12, 0) {
		holes = append(holes, "CVE-2024-21626")
	}
	if v.before(1, 2, 8, 0) ||
		!v.before(1, 3, 0, 1) && v.before(1, 3, 3, 0) ||
		!v.before(1, 4, 0, 1) && v.before(1, 4, 0, 3) {
		holes = append(holes, "CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881")
	}
	switch {
	case holes == nil:
		return outcome{status: OK, found: "version " + text}
	case v.distribution:
		return warn(fmt.Sprintf("version %s has %s, unless your distribution has mended it", text, strings.Join(holes, ", ")),
			"compare with your distribution's security tracker, or install runc 1.2.8, 1.3.3, 1.4.0 or later")
	}
	return fail(fmt.Sprintf("version %s has %s: containers can get at the host", text, strings.Join(holes, ", ")),
		"install runc 1.2.8, 1.3.3, 1.4.0 or later")
}
