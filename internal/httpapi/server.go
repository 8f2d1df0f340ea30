// Package httpapi owns Cove's HTTP edge: routes, wire formats, and what stands in front of them: identity, limits, and
// one answer for every error.
//
// A request passes the guards in the order of [Server.guards], each of which may refuse it; then its route's handler,
// which turns wire types into those of package sandbox and back. A route is closed unless it says otherwise.
package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/semaphore"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/store"
)

// Executor runs executions; execution.Executions is one.
type Executor interface {
	// Execute runs r to its end. It calls started once the execution has its id and before anything reaches out, which
	// may be nil: the result has the output too. The end of ctx ends the execution.
	Execute(ctx context.Context, who cove.Principal, r execution.Request, started func(cove.ExecutionID),
		out process.Output) (execution.Result, error)
	// Kill ends a running execution of the principal's. Errors: NotFound, Conflict when it
	// has ended or runs in another process.
	Kill(ctx context.Context, who cove.Principal, id cove.ExecutionID) error
	// Follow hands out the output of a running execution of the principal's from a position on,
	// to its end, after calling begun. Errors as Kill's.
	Follow(ctx context.Context, who cove.Principal, id cove.ExecutionID, from execution.Position, begun func(),
		out process.Output) error
	// ExtendNetwork adds to what a running execution of the principal's may reach. Errors as Kill's.
	ExtendNetwork(ctx context.Context, who cove.Principal, id cove.ExecutionID,
		documents []*policy.Document) (cut int, err error)
	// Certificate returns that of the authority which a running execution of the principal's
	// trusts, as PEM. Errors as ExtendNetwork's.
	Certificate(ctx context.Context, who cove.Principal, id cove.ExecutionID) ([]byte, error)
	// Models returns what a running execution of the principal's has used of models so far.
	Models(who cove.Principal, id cove.ExecutionID) []model.ProviderUsage
	Active() int
	Queued() int
	Runtimes(ctx context.Context, image, engine string) ([]execution.Runtime, error)
	// Health returns "ok", engine.Unused or the fault of each engine.
	Health(ctx context.Context) map[string]string
}

// Options is everything a Server needs. Executor, Store, Approvals and CheckPath
// must be set; of a gateway of its own Clients, Store and Approvals.
type Options struct {
	Executor  Executor
	Sandboxes Sandboxes // nil: there are no routes of long-lived sandboxes
	Processes Processes // of Sandboxes
	// Repositories is the store of repositories; nil: there are no routes of it.
	Repositories Repositories
	Work         Work // nil: there are no routes that bring work back
	Runs         Runs // nil: there are no routes of runs of agents
	// Agents are the coding agents of this machine; nil: there are no routes of them.
	Agents Agents
	// Profiles reads the named configurations that there are.
	Profiles func() ([]api.Profile, error)
	Clients  Clients
	Store    store.Vault
	// Approvals lists and answers the requests that wait.
	Approvals Approvals
	// CheckPath judges host paths as hostpath.Check does: with nil roots it applies only what is always refused.
	CheckPath func(path string, roots []string) (resolved string, err error)
	// Flush writes to Store what this process has decided and not written yet.
	Flush func()
	// Collectors are metrics beside the server's own.
	Collectors []prometheus.Collector
	Log        *slog.Logger // nil discards
	Clock      clock.Clock  // nil is the real one
	Version    string

	Keys         []Key       // none: only listeners on loopback are served
	TLS          *tls.Config // nil: plain HTTP on network listeners
	AllowedHosts []string    // names besides loopback's that a Host header may have on loopback
	WorkDirRoots []string    // what remote callers may attach; none by default
	Rate         Rate

	// Zero fields take the default in the comment.
	MaxRequests    int           // requests in progress: 1024
	MaxConnections int           // per network listener: 8192
	MaxBodies      int64         // bytes of request bodies in memory: 256 MiB
	Heartbeat      time.Duration // of streams: 15 s
	HeaderTimeout  time.Duration // all headers of a request: 10 s
	ReadTimeout    time.Duration // a whole request body: 30 s
	WriteTimeout   time.Duration // one write to a client that does not read: 30 s
}

const (
	idleTimeout    = 2 * time.Minute // between two requests on one connection
	maxHeaderBytes = 64 << 10
)

// Server serves the API. Make one with New.
type Server struct {
	Options
	mux     *http.ServeMux
	api     huma.API
	routes  []string // "METHOD /pattern", in order of registration
	http    *http.Server
	guards  []guard
	keys    keyring
	rates   *limiter
	places  chan struct{}
	bodies  *semaphore.Weighted
	metrics *metrics
	inputs  inputs
	audit   *auditor
	base    clock.Instant
	since   time.Time
	listens addresses
	closing chan struct{} // closed when streams without an end of their own are to end
}

// New builds a server; it serves nothing until Serve or ServeLocal.
func New(o Options) (*Server, error) {
	if o.Store == (store.Vault{}) || o.Clients == nil && (o.Executor == nil || o.CheckPath == nil) {
		return nil, errors.New("httpapi: Executor, Store and CheckPath must be set")
	}
	keys, err := newKeyring(o.Keys)
	if err != nil {
		return nil, err
	}
	o.fill()
	s := &Server{Options: o, mux: http.NewServeMux(), keys: keys, rates: newLimiter(o.Rate),
		places: make(chan struct{}, o.MaxRequests), bodies: semaphore.NewWeighted(o.MaxBodies), base: o.Clock.Monotonic(),
		since: o.Clock.Now(), closing: make(chan struct{})}
	s.audit = newAuditor()
	s.metrics = newMetrics(o.Executor)
	s.metrics.registry.MustRegister(o.Collectors...)
	s.guards = []guard{s.checkOrigin, s.authenticate, s.limitRate, s.takePlace, s.findRoute, s.limitBody}
	s.api = humago.New(recorder{s}, s.describe())
	s.addRoutes()
	s.http = &http.Server{
		Handler:           s,
		BaseContext:       baseContext,
		ReadHeaderTimeout: o.HeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	s.http.RegisterOnShutdown(sync.OnceFunc(func() { close(s.closing) }))
	return s, nil
}

func (o *Options) fill() {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = clock.Real()
	}
	setDefault(&o.MaxRequests, 1024)
	setDefault(&o.MaxConnections, 8192)
	setDefault(&o.MaxBodies, 256<<20)
	setDefault(&o.Heartbeat, 15*time.Second)
	setDefault(&o.HeaderTimeout, 10*time.Second)
	setDefault(&o.ReadTimeout, 30*time.Second)
	setDefault(&o.WriteTimeout, 30*time.Second)
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// CheckListener refuses a listener that would serve strangers: without API
// keys only loopback and unix sockets are served (invariant A1).
func (s *Server) CheckListener(ln net.Listener) error {
	if len(s.Keys) > 0 || isLoopback(ln.Addr()) {
		return nil
	}
	return cove.Errorf(cove.InvalidArgument,
		"refusing to listen on %s without API keys: every client that reaches it could run code", ln.Addr()).
		WithHint("add a key (cove config new-key), or listen on 127.0.0.1")
}

// Serve serves callers on the network until Shutdown or Close, with TLS when
// that is configured. It closes ln. Errors: InvalidArgument (see CheckListener).
func (s *Server) Serve(ln net.Listener) error {
	if err := s.CheckListener(ln); err != nil {
		ln.Close()
		return err
	}
	if len(s.Keys) == 0 {
		s.Log.Warn("no API keys: every local user can run code", "address", ln.Addr().String())
	} else if s.TLS == nil && !isLoopback(ln.Addr()) {
		s.Log.Warn("no TLS: API keys and code cross the network in clear", "address", ln.Addr().String())
	}
	defer s.listens.add(ln.Addr(), s.TLS != nil)()
	ln = origin{netutil.LimitListener(ln, s.MaxConnections), network(ln.Addr())}
	if s.TLS != nil {
		ln = origin{tls.NewListener(ln, s.TLS), network(ln.Addr())}
	}
	return s.serve(ln)
}

// ServeLocal serves the owner: callers whom the listener itself has let in, because only the owner can connect to it (a
// unix socket in a private directory, or connections within this process). It closes ln.
func (s *Server) ServeLocal(ln net.Listener) error {
	return s.serve(origin{ln, fromOwner})
}

func (s *Server) serve(ln net.Listener) error {
	if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown stops accepting and waits for requests in progress until ctx ends;
// then it cuts them. Who wants them to end sooner ends the executions.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.http.Close()
	}
	return err
}

// Close cuts everything at once.
func (s *Server) Close() error { return s.http.Close() }

// Routes lists the routes as "METHOD /pattern".
func (s *Server) Routes() []string { return s.routes }

// recorder is the mux as huma sees it; it remembers what was registered.
type recorder struct{ s *Server }

func (r recorder) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	r.s.routes = append(r.s.routes, pattern)
	r.s.mux.HandleFunc(pattern, handler)
}

func (r recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) { r.s.mux.ServeHTTP(w, req) }
