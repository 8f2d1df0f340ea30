//go:build linux

package docker

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/system"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

// TestLocal: without root, with a daemon somewhere else, or with one that maps
// ids, what is not possible is refused with the reason. A network is possible in any case.
func TestLocal(t *testing.T) {
	for _, c := range []struct {
		root    bool
		here    bool
		option  string
		lasting string // why none lasts
	}{
		{root: true, here: true},
		{here: true, lasting: "root"},
		{root: true, lasting: "machine"},
		{root: true, here: true, option: "name=userns", lasting: "userns-remap"},
		{root: true, here: true, option: "name=rootless", lasting: "maps ids"},
	} {
		caps, err := capabilities(system.Info{OSType: "linux", Architecture: machine(),
			SecurityOptions: []string{"name=seccomp,profile=builtin", c.option}})
		if err != nil {
			t.Fatal(err)
		}
		addLocal(&caps, system.Info{SecurityOptions: []string{c.option}}, c.root, c.here)
		if has := c.lasting == ""; !caps.Listeners || caps.Lasting != has || caps.MountOwners != has ||
			caps.MountFlags != has {
			t.Errorf("%+v: %+v", c, caps)
		}
		if can := c.root && c.here; caps.Reach != can || (caps.Missing["reach"] == "") != can {
			t.Errorf("%+v: it connects into containers: %v, %q", c, caps.Reach, caps.Missing["reach"])
		}
		refused := func(why string, err error) {
			t.Helper()
			if (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
				t.Errorf("%+v: %v", c, err)
			}
		}
		shape := cove.Shape{User: cove.CodeUser}
		refused("", caps.Check(engine.Template{Shape: shape, Network: cove.NetworkLimited}))
		shape.Lifetime = cove.LifetimeDetached
		refused(c.lasting, caps.Check(engine.Template{Shape: shape, Network: cove.NetworkNone}))
	}
}

// TestIsHere: a socket of this machine whose server can be seen.
func TestIsHere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for address, want := range map[string]bool{"unix://" + path: true, "unix://" + path + "none": false,
		"tcp://127.0.0.1:2376": false, "ssh://host": false} {
		if isHere(address) != want {
			t.Errorf("%s: %t", address, !want)
		}
	}
}
