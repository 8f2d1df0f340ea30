// Package egress is the contract of what leaves a sandbox: the network that it may reach, and the route on which its
// requests leave. Package gateway implements routes.
package egress

import (
	"io"
	"os"
	"time"

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
	// Denied lists the places that were tried and not allowed, as "--allow" takes them.
	Denied() []string
	// Models returns the use of models, by provider.
	Models() []model.ProviderUsage
	// Concealed reads from a stream, in which the values of credentials that the route sets are blanked; offsets stay.
	Concealed(from io.Reader) io.Reader
	// Shut ends the connections and lets nothing through from now on; every decision is recorded when it returns. Close
	// also removes the route, which takes longer.
	Shut()
	Close()
}
