//go:build linux

package native

import (
	"sync"

	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/transparent"
)

// planNetwork is the network of a sandbox whose ways out lead to the gateway. The guest only sends the messages, in its
// own network namespace, before anything else runs there: in a Begin or a Setup.
var planNetwork = sync.OnceValues(func() ([]guest.Step, error) {
	plan := transparent.Plan{TCPPort: engine.TransparentPort, DNSPort: engine.DNSPort}
	routes, err := plan.Routes()
	if err != nil {
		return nil, err
	}
	rules, err := plan.Firewall()
	if err != nil {
		return nil, err
	}
	return []guest.Step{
		{Kind: guest.StepNetlink, Target: guest.NetlinkRoute, Data: routes},
		{Kind: guest.StepNetlink, Target: guest.NetlinkNetfilter, Data: rules},
	}, nil
})
