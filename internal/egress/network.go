package egress

import (
	"cmp"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Network states the destinations that a sandbox may reach: a cove.Network, parsed and checked, with what its
// repository needs. The zero Network is nothing.
type Network struct {
	Mode   cove.NetworkMode
	Policy []*policy.Document // merged first to last; they state Mode
	// Credentials names those that the gateway sets on its requests.
	Credentials []string
	// Remote is the repository whose requests get the machine's own credential for it; with PullRequests, so do requests
	// to the API that opens them.
	Remote       string
	PullRequests bool
	// Providers names the model providers that it may use.
	Providers []string
	Budget    cove.Budget // for models
}

// NetworkOf parses the network of a request; nil is nothing. Errors: InvalidArgument, with the place.
func NetworkOf(n *cove.Network) (Network, error) {
	if n == nil {
		return Network{}, nil
	}
	asked := n.Mode != "" || len(n.Allow)+len(n.Deny)+len(n.Credentials)+len(n.Providers)+len(n.Policies) > 0 || n.AllowPR
	switch {
	case !n.Enabled && asked:
		return Network{}, cove.Errorf(cove.InvalidArgument, "permissions.network says what to reach, but not enabled").
			WithHint("set enabled to true, or leave the rest out")
	case !n.Enabled:
		return Network{}, nil
	case !asked:
		return Network{}, cove.Errorf(cove.InvalidArgument, "a network was asked for, but not to reach what").
			WithHint("name hosts in permissions.network.allow, or set mode to open")
	}
	docs, err := policy.Documents(*n)
	if err != nil {
		return Network{}, err
	}
	mode := cove.NetworkLimited
	for _, d := range docs {
		mode = cmp.Or(d.Mode, mode)
	}
	docs = append(docs, &policy.Document{Source: "permissions.network", Mode: mode})
	return Network{Mode: mode, Policy: docs, Credentials: n.Credentials, Providers: n.Providers, Budget: n.Budget}, nil
}

// With returns n with more, whose mode and budget win.
func (n Network) With(more Network) Network {
	n.Mode = more.Mode
	n.Policy = append(slices.Clip(n.Policy), more.Policy...)
	for _, c := range more.Credentials {
		if !slices.Contains(n.Credentials, c) {
			n.Credentials = append(slices.Clip(n.Credentials), c)
		}
	}
	n.Remote, n.PullRequests = cmp.Or(more.Remote, n.Remote), more.PullRequests || n.PullRequests
	n.Providers = append(slices.Clip(n.Providers), more.Providers...)
	n.Budget = more.Budget
	return n
}
