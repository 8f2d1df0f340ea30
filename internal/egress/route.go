// Package egress is the contract of what leaves a sandbox: the network that it may reach, and the route on which its
// requests leave. Package gateway implements routes.
package egress

import (
	"cmp"
	"context"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine"
)

// Route is the egress route of one sandbox.
type Route interface {
	// Bind adds what the route needs inside a root filesystem to a binding.
	Bind(*engine.Binding, engine.Rootfs) error
	// Env returns the variables that lead programs to the route.
	Env() map[string]string
	// Serve opens the route on the sockets that Bind asked for, in their order, and takes them over.
	Serve(sockets []*os.File) error
	// Extend adds to the policy, at once, and returns how many connections that has cut.
	Extend(...*policy.Document) (cut int, err error)
	// Replace replaces the policy, in the same way.
	Replace(...*policy.Document) (cut int, err error)
	// Rename sets the name of the sandbox.
	Rename(name string)
	// Certificate returns that of the sandbox's own authority, as PEM.
	Certificate() []byte
	// Holds returns the requests that wait for an answer, the oldest first, and a channel that is closed when they change.
	Holds() ([]approval.Hold, <-chan struct{})
	// EndBy limits how long requests are shown to wait.
	EndBy(time.Time)
	// Denied lists the places that were tried and not reached for lack of a rule, in the order of the first attempt.
	Denied() []Denial
	// Models returns the use of models, by provider.
	Models() []model.ProviderUsage
	// Providers returns the providers of models, of which requests tell how they fare.
	Providers() Providers
	// Concealed reads from a stream, in which the values of credentials that the route sets are blanked; offsets stay.
	Concealed(from io.Reader) io.Reader
	// Shut ends the connections and lets nothing through from now on; every decision is recorded when it returns. Close
	// also removes the route, which takes longer.
	Shut()
	Close()
}

// Leaver is implemented by routes of sandboxes that outlive this process.
type Leaver interface {
	// Leave is Close of a route whose sandbox goes on: its sockets stay as they are, for the next process.
	Leave()
}

// Leave leaves a route, or closes it where it is no Leaver.
func Leave(r Route) {
	if l, ok := r.(Leaver); ok {
		l.Leave()
		return
	}
	r.Close()
}

// Neighbours are the services of a sandbox's group, which the sandbox reaches by name, and no other one does.
type Neighbours interface {
	// Names returns all of their names.
	Names() []string
	// Dial connects to a TCP port of the one of a name. Errors: Unavailable.
	Dial(ctx context.Context, name string, port uint16) (net.Conn, error)
}

// Providers tell which providers of models refuse their credentials or are not reached, and try whether one is.
// *model.Refusals has the methods but Reach.
type Providers interface {
	Of(provider string) (err error, changed <-chan struct{})
	Outage(provider string) error
	Latest(provider string) error
	Forget(provider string)
	// Reach connects to a provider, and sends nothing. It changes no refusals.
	Reach(ctx context.Context, provider string) error
}

// Denial is a place that a sandbox did not reach, and what would let it.
type Denial struct {
	Place     string // HOST, HOST:PORT or tcp://HOST:PORT
	Flag      string // of the command line: "--allow HOST", "--preset npm"
	Untrusted bool   // it may be reached, and the program does not accept the sandbox's authority
}

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
	// Neighbours of its group; nil: none.
	Neighbours Neighbours
}

// NetworkOf parses the network of a request; nil is nothing. Errors: InvalidArgument, with the place.
func NetworkOf(n *cove.Network) (Network, error) {
	if n == nil {
		return Network{}, nil
	}
	asked := n.Opens() || n.Mode != "" || len(n.Deny)+len(n.Credentials)+len(n.Providers) > 0 || n.AllowPR ||
		n.Budget != (cove.Budget{}) // for what an agent needs
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
