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
	"github.com/cove-sandbox/cove/test/asuser"
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
	u := asuser.New(t, user, enginetest.BuildGuest(t), ".local/bin")
	t.Cleanup(func() { // while there is its directory
		if out, err := exec.Command(podmanScript, "--stop", u.In("podman")).CombinedOutput(); err != nil {
			t.Errorf("stopping Podman: %v: %s", err, out)
		}
	})
	script, err := filepath.Abs(podmanScript)
	if err != nil {
		t.Fatal(err)
	}
	tests := strings.Join([]string{"^TestConformanceOfPodman$", "^TestAdversaryOfPodman$", "^TestPodmanOfThisUser$",
		"^TestPodmanImageOfLinks$", "^TestRootlessPodman$"}, "|")
	u.Run(t, tests, fmt.Sprintf("%d:1677721600:65536\n", user), "'"+script+`' "$0/podman" cove-user >&2`,
		podmanVar+"=unix://"+u.In("podman/run/podman.sock"))
}

// TestPodmanOfThisUser: containers of a user's own service last, are entered for a network, and have user namespaces of
// their own, in which root is another than this user; their control groups go with what was in them, at the latest with
// the next sweep.
func TestPodmanOfThisUser(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("TestPodmanOfUser runs it as an ordinary user")
	}
	o := podmanOptions(t)
	e := open(t, o)
	if c := e.capabilities; !c.Lasting || !c.MountOwners || !c.MountFlags || !c.UserNamespace || !c.Reach {
		t.Errorf("%+v", c)
	}
	sb := networked(t, e)
	if weak, err := weakIDs(sb.(*sandbox).current.pid, cove.CodeUser); err != nil || len(weak) > 0 {
		t.Errorf("its ids: %q, %v", weak, err)
	}
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
	if n := groups(); n != 1 {
		t.Errorf("%d groups of a sandbox", n)
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
	tpl := template()
	tpl.Lifetime = cove.LifetimeDetached
	sb, err := e.Prepare(t.Context(), tpl)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sb.Bind(t.Context(), engine.Binding{}), e.Close()); err != nil {
		t.Fatal(err)
	}
	e = open(t, o)
	if sb, err = e.Adopt(t.Context(), sb.ID()); err != nil {
		t.Fatal(err)
	}
	if n := groups(); n != 1 {
		t.Errorf("%d groups of a sandbox that was adopted", n)
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if n := groups(); n != 0 {
		t.Errorf("%d groups of a sandbox that was adopted are left", n)
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
