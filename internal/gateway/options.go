package gateway

import (
	"cmp"
	"context"
	"crypto/x509"
	"log/slog"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/github"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/git/inspect"
	git "github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/packages"
	"github.com/cove-sandbox/cove/internal/packages/cache"
	"github.com/cove-sandbox/cove/internal/store"
)

// Described holds the descriptions of a machine's owner for its gateways.
type Described struct {
	Credentials []credential.Credential // in addition to the presets
	Providers   []model.Provider        // of models, as returned by model.Parse; nil means the built-in ones
}

// Options configure a Gateway.
type Options struct {
	Dir string // for files that are mounted into sandboxes; made on demand
	// Keep stores the authorities of sandboxes that outlive this process, so that their trust continues; nil: none does.
	Keep *ca.Store
	// Ahead is the number of sandboxes whose authority and files are made in advance (Next), after a route has closed,
	// when no caller waits. With Keep there are none.
	Ahead   int
	Bundle  func() []byte  // roots that sandboxes trust beside their own authority, PEM
	Roots   *x509.CertPool // trusted for origins; the host's own by default
	Dialer  proxy.Direct   // connects to origins
	Machine policy.Machine
	// Described returns what this machine's owner has described, for each route anew; nil: nothing.
	Described func() (Described, error)
	Values    *credential.Values // the cache of the credentials' values; nil: one of its own
	Budget    cove.Budget        // for a sandbox without its own
	Bandwidth int64              // bytes per second of each sandbox, in each direction; 0: no limit
	Accounts  *Accounts          // of callers of the API; nil: none of these may use models of the machine's owner
	GitHub    github.Servers
	// Packs inspects pushed packs where a policy judges git. Nil: such pushes are refused.
	Packs Inspector
	// Pushed learns the commits that were pushed through the route of an object (Spec), once the server has taken them;
	// may be nil.
	Pushed func(object string, commits []string)
	// Packages is the cache of packages that all sandboxes share, by reading only; nil: none.
	Packages *cache.Cache
	// Suites returns the repositories that this machine's apt uses, with their keys. It is asked once; nil: none.
	Suites func() []packages.Suite
	// Sums returns the checksum database of this machine's go, the zero one if there is none. It is asked once; nil: none.
	Sums      func() packages.Sums
	Spool     string // directory on disk for pushes and large bodies until they go on; the system's temporary one if empty
	Rate      Rate
	Timeouts  proxy.Timeouts
	Patience  time.Duration // how long a request waits for an approval; 2 min
	Approvals *store.Vault  // nil stores no approval beyond a sandbox
	// reports the port of Cove's API on this machine, which sandboxes may not reach; nil: none
	OwnPort  func(port uint16) bool
	Recorder *Recorder // receives every decision; may be nil
	Clock    clock.Clock
	Log      *slog.Logger
}

// Spec describes the egress route of a sandbox.
type Spec struct {
	Sandbox cove.SandboxID
	Name    string         // its name for "cove policy allow": its execution
	Owner   cove.Principal // the principal whose sandbox it is
	// Asker sees and answers the route's questions, and Object is the route in the audit log of that; Owner and Sandbox if
	// not set. They differ where the host acts for a sandbox, on a route of its own.
	Asker       cove.Principal
	Object      string
	Policy      []*policy.Document // merged first to last
	Credentials []string           // names
	// Remote is a repository whose requests get the machine's own credential; with PullRequests so does the API's host.
	Remote       string
	PullRequests bool
	Providers    []string          // names of permitted model providers, the default first
	Budget       cove.Budget       // for all models together
	Neighbours   egress.Neighbours // of the sandbox's group; may be nil
}

func (s Spec) identity() *identity {
	id := &identity{sandbox: s.Sandbox, owner: s.Owner, asker: cmp.Or(s.Asker, s.Owner),
		object: cmp.Or(s.Object, string(s.Sandbox))}
	id.name.Store(&s.Name)
	return id
}

// Inspector looks into packs; inspect.Inspector is one.
type Inspector interface {
	Inspect(ctx context.Context, job inspect.Job) (git.Facts, error)
	// Unreachable returns the wants that are not in the history of tips.
	Unreachable(ctx context.Context, sandbox inspect.Sandbox, tips, wants []string, most int64,
		server inspect.Upstream) ([]string, error)
}
