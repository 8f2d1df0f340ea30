//go:build linux

package docker

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/test/adversary"
	"github.com/cove-sandbox/cove/test/delegate"
	"github.com/cove-sandbox/cove/test/inner"
)

// TestPodmanOfUser runs the suites as an ordinary user, who has control groups and subordinate ids, with a Podman
// service of that user's.
func TestPodmanOfUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, who becomes the user")
	}
	for _, program := range []string{"podman", "runc", "newuidmap"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s: apt-get install podman runc uidmap", program)
		}
	}
	const user = 61001
	dir, err := os.MkdirTemp("", "cp")
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	t.Cleanup(func() {
		if out, err := exec.Command(podmanScript, "--stop", in("podman")).CombinedOutput(); err != nil {
			t.Errorf("stopping Podman: %v: %s", err, out)
		}
		os.RemoveAll(dir)
	})
	copied := func(from, to string) error {
		text, err := os.ReadFile(from)
		return errors.Join(err, os.WriteFile(to, text, 0o755))
	}
	probe, err := adversary.Probe(t)
	if err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs(podmanScript)
	if err != nil {
		t.Fatal(err)
	}
	accounts, err := os.ReadFile("/etc/passwd")
	err = errors.Join(err, os.Chmod(dir, 0o755), os.Mkdir(in("bin"), 0o755), os.Mkdir(in("t"), 0o700),
		os.Chown(in("t"), user, user), copied("/proc/self/exe", in("docker.test")),
		copied(enginetest.BuildGuest(t), in("bin/cove-guest")), os.WriteFile(in("bin/probe"), probe, 0o755),
		os.WriteFile(in("ids"), fmt.Appendf(nil, "%d:1677721600:65536\n", user), 0o644),
		os.WriteFile(in("passwd"), append(accounts, fmt.Sprintf("cove-user:x:%d:%[1]d::/:/bin/sh\n", user)...), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	args := slices.Concat([]string{"unshare", "--mount", "--propagation", "slave", "sh", "-c",
		`cd "$0" && mount --bind ids /etc/subuid && mount --bind ids /etc/subgid && mount --bind passwd /etc/passwd &&
		"$1" "$0/podman" cove-user >&2 && shift && exec "$@"`, dir, script},
		delegate.Enter(delegate.Groups(t, user)), delegate.As(user),
		[]string{in("docker.test"), "-test.timeout=20m", "-test.run=" + strings.Join([]string{"^TestConformanceOfPodman$",
			"^TestAdversaryOfPodman$", "^TestPodmanOfThisUser$", "^TestPodmanImageOfLinks$", "^TestRootlessPodman$"}, "|")},
		inner.Args)
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "HOME="+in("t"), "TMPDIR="+in("t"), "USER=cove-user", "COVE_TEST_BIN="+in("bin"),
		podmanVar+"=unix://"+in("podman/run/podman.sock"))
	output, err := inner.NewOutput()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = output, output
	_ = cmd.Run() // the exit code says it, and what ran
	output.Report(t, cmd.ProcessState.ExitCode())
}

// TestPodmanOfThisUser: without root a network is led to the gateway by a sidecar, and the control groups go with what
// was in them, at the latest with the next sweep.
func TestPodmanOfThisUser(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("TestPodmanOfUser runs it as an ordinary user")
	}
	e := open(t, podmanOptions(t))
	if why := e.capabilities.Missing["lasting"]; !strings.Contains(why, "system service") {
		t.Errorf("why no sandbox lasts: %q", why)
	}
	sb := networked(t, e)
	sayHere(t, sb)
	if got := outputOf(t, sb, "/bin/bash", "-c", "cat /etc/cove/own </dev/tcp/192.0.2.1/80 -"); got != "own\nhere\n" {
		t.Errorf("inside: %q", got)
	}
	groups := func() int {
		t.Helper()
		all, err := e.groups.List()
		if err != nil {
			t.Fatal(err)
		}
		prefix, _, _ := strings.Cut(e.names.Group(e.o.Instance, 1), ".") // of the run directory
		return len(slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, prefix+".") }))
	}
	if n := groups(); n != 2 {
		t.Errorf("%d groups of a sandbox and its sidecar", n)
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := e.groups.Create(e.names.Group(cove.NewInstanceID(), 1)); err != nil {
		t.Fatal(err)
	}
	if swept, err := e.Sweep(t.Context()); err != nil || len(swept.Items) != 1 {
		t.Errorf("%+v, %v", swept, err)
	}
	if n := groups(); n != 0 {
		t.Errorf("%d groups are left", n)
	}
	if left := podmanLeftovers(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestPodmanImageOfLinks: an image is refused in which a link stands for a directory that the container runtime fills,
// wherever it leads.
func TestPodmanImageOfLinks(t *testing.T) {
	o := podmanOptions(t)
	e := open(t, o)
	for _, link := range []string{"/bin", "/nowhere", "../../../tmp", "."} {
		root := t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(root, "bin"), 0o755),
			os.Symlink(link, filepath.Join(root, "sys"))); err != nil {
			t.Fatal(err)
		}
		tpl := template()
		tpl.Rootfs = engine.Rootfs{Kind: engine.RootfsDir, Dir: root}
		_, err := e.Prepare(t.Context(), tpl)
		if cove.ErrorCode(err) != cove.Forbidden || !strings.Contains(err.Error(), "the image's /sys is no directory") {
			t.Errorf("a link to %s: %v", link, err)
		}
	}
}
