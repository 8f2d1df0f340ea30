//go:build linux

package docker

import (
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

// TestNetworks: without root, or with a daemon somewhere else, a network is
// refused with the reason.
func TestNetworks(t *testing.T) {
	for _, c := range []struct {
		root    bool
		address string
		why     string
	}{
		{true, "unix:///run/docker.sock", ""},
		{false, "unix:///run/docker.sock", "root"},
		{true, "tcp://192.0.2.1:2376", "machine"},
		{true, "ssh://host", "machine"},
	} {
		caps := engine.Capabilities{
			Isolations: []cove.Isolation{cove.IsolationContainer}, Networks: []cove.NetworkMode{cove.NetworkNone}, Missing: map[string]string{},
		}
		addNetworks(&caps, c.root, c.address)
		if has := slices.Contains(caps.Networks, cove.NetworkLimited); has != (c.why == "") || caps.Listeners != has {
			t.Errorf("%+v: %+v", c, caps)
		}
		err := caps.Check(engine.Template{Isolation: cove.IsolationContainer, Network: cove.NetworkLimited})
		if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
