package fit

import (
	"reflect"
	"slices"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/sandbox"
)

// TestFit checks that a request's own statements take precedence, and that only the machine's owner gets the network of
// an agent, which has the machine's credentials.
func TestFit(t *testing.T) {
	needs := cove.Network{Enabled: true, Mode: cove.NetworkLimited, Allow: []string{"models.test"},
		Credentials: []string{"models"}}
	e := Equipment{Agent: "robot", Outfit: agent.Outfit{Network: needs, Env: map[string]string{"A": "agent", "B": "agent"},
		Path: "/opt/robot/bin", Screen: []string{"robot"}, Layers: []cove.Layer{{Name: "robot@1", Target: "/opt/robot"}}}}
	models, both := []string{"models"}, []string{"models.test", "own.test"}
	own := cove.Network{Enabled: true, Allow: []string{"own.test"}}
	none := cove.Network{}
	for name, c := range map[string]struct {
		who         cove.Principal
		asked       *cove.Network
		allow       []string
		credentials []string
		network     bool
	}{
		"the owner":                       {cove.MachineOwner(), nil, []string{"models.test"}, []string{"models"}, true},
		"the owner, with hosts":           {cove.MachineOwner(), &own, both, models, true},
		"the owner, without a network":    {cove.MachineOwner(), &none, nil, nil, false},
		"a key holder":                    {cove.KeyHolder("ci"), nil, nil, nil, false},
		"a key holder, with hosts":        {cove.KeyHolder("ci"), &own, []string{"own.test"}, nil, true},
		"an address of a keyless server":  {cove.Address("192.0.2.1"), nil, nil, nil, false},
		"a user of the machine":           {cove.LocalUser(1000), nil, nil, nil, false},
		"a user, with a network of hosts": {cove.LocalUser(1000), &own, []string{"own.test"}, nil, true},
	} {
		q := sandbox.Request{Spec: cove.Spec{Env: map[string]string{"A": "request"}, Network: c.asked}}
		got := e.Fit(c.who, q)
		n := got.Network
		if n == nil {
			n = &cove.Network{}
		}
		slices.Sort(n.Allow)
		if n.Enabled != c.network || !slices.Equal(n.Allow, c.allow) || !slices.Equal(n.Credentials, c.credentials) {
			t.Errorf("%s: %+v", name, n)
		}
		if got.Agent != "robot" || got.Path != e.Path || !reflect.DeepEqual(got.Layers, e.Layers) ||
			!slices.Equal(got.Screen, e.Screen) || got.Env["A"] != "request" || got.Env["B"] != "agent" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
