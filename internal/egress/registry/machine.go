package registry

import (
	"context"
	"net"
	"net/netip"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Machine returns the part of this machine and its gateway that policies depend on. private are the ranges of private
// addresses that policies may allow.
func Machine(ctx context.Context, private []string) (policy.Machine, error) {
	packages := New()
	m := policy.Machine{Own: ownAddresses(), Registry: func(tool string) (
		[]policy.Endpoint, error) {
		return packages.Endpoints(ctx, tool)
	}}
	for _, s := range private {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return policy.Machine{}, err // the configuration has accepted it
		}
		m.Private = append(m.Private, p)
	}
	return m, nil
}

// ownAddresses are this machine's, loopback aside.
func ownAddresses() []netip.Addr {
	var own []netip.Addr
	addresses, _ := net.InterfaceAddrs() // a machine without addresses needs no protection
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() {
			own = append(own, p.Addr())
		}
	}
	return own
}
