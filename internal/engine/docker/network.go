//go:build linux

package docker

import (
	"context"
	"os"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/netjoin"
	"github.com/cove-sandbox/cove/internal/linux/transparent"
)

// addNetworks says what c can do beyond no network at all. The daemon gives a
// container a network namespace with nothing but loopback; to make the gateway
// its only way out, Cove enters it, which takes root on the daemon's own
// machine.
func addNetworks(c *engine.Capabilities, root bool, address string) {
	networks := []cove.NetworkMode{cove.NetworkLimited, cove.NetworkHostOnly, cove.NetworkOpen}
	why := ""
	switch {
	case !root:
		why = "only root can lead a container's network to the gateway; run cove as root, or use --engine native"
	case !strings.HasPrefix(address, "unix://"):
		why = "a container's network can be led to the gateway only on the daemon's own machine; use --engine native"
	default:
		c.Networks, c.Listeners = append(c.Networks, networks...), true
		return
	}
	c.Missing["listeners"] = why
	for _, n := range networks {
		c.Missing["network "+string(n)] = why
	}
}

// listen makes the sockets of a binding in the container's network, and leads
// everything that wants to leave it there. Nothing but the guest runs yet.
func (s *sandbox) listen(ctx context.Context, c *running, listeners []guest.Listen) ([]*os.File, error) {
	if len(listeners) == 0 {
		return nil, nil
	}
	made, err := s.engine.api.inspect(ctx, c.id)
	if err != nil {
		return nil, err
	}
	if made.State == nil || groupOf(made.State.Pid, c.id) == nil {
		return nil, cove.Errorf(cove.Unsupported, "the container's network cannot be entered: its process is not on this machine").
			WithHint("use a daemon that runs here, beside this process, or --engine native")
	}
	var sockets []netjoin.Socket
	for _, l := range listeners {
		sockets = append(sockets, netjoin.Socket{Network: l.Network, Address: l.Address})
	}
	return netjoin.Take(made.State.Pid, transparent.Plan{TCPPort: engine.TransparentPort, DNSPort: engine.DNSPort}, sockets)
}

// shown are the binds of Cove's own files. What is shown only in place of
// another is asked of the container that is there.
func (s *sandbox) shown(ctx context.Context, files []engine.File) (binds []bind, err error) {
	s.mu.Lock()
	id := s.current.id
	s.mu.Unlock()
	for _, f := range files {
		if f.Existing {
			there, err := s.engine.api.exists(ctx, id, f.Target)
			if err != nil {
				return nil, err
			}
			if !there {
				continue
			}
		}
		binds = append(binds, bind{source: f.Source, target: f.Target, readOnly: true})
	}
	return binds, nil
}
