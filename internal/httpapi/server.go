// Package httpapi owns Cove's HTTP edge: routes, wire formats, and what stands in front of them: identity, limits, and
// one answer for every error.
//
// A request passes the guards in the order of [guards], each of which may refuse it; then its route's handler,
// which turns wire types into those of package sandbox and back. A route is closed unless it says otherwise.
package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/share"
	"github.com/cove-sandbox/cove/internal/store"
)

const (
	idleTimeout    = 2 * time.Minute // between two requests on one connection
	maxHeaderBytes = 64 << 10
)

// Server serves the API. Make one with New.
type Server struct {
	guards
	connections *connections
	http        *http.Server
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
	s := &Server{guards: guards{common: newCommon(o), access: tableFor(o), keys: keys,
		rates:  newLimiter(o.Rate, ratesOf(o.Grants)),
		places: share.New(o.MaxRequests), streams: share.New(o.MaxStreams), bodies: share.New(o.MaxBodies)}}
	s.connections = newConnections(o.MaxConnections, s.metrics.registry, o.Clock, o.Log)
	s.all = sync.OnceValue(s.allRoutes)
	if o.ForOneCommand {
		s.first = newEdge(s.common)
		executionRoutes{s.first}.addStream()
	} else {
		s.all()
	}
	s.http = &http.Server{
		Handler:           s,
		BaseContext:       baseContext,
		ConnContext:       connContext,
		ReadHeaderTimeout: o.HeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		// OPTIONS * is a request like others: a stranger learns nothing by it.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	s.http.RegisterOnShutdown(sync.OnceFunc(func() { close(s.closing) }))
	return s, nil
}

// tableFor returns the table of what callers need for the routes of a server.
func tableFor(o Options) access.Table {
	table := access.Routes
	if o.Clients != nil {
		table = access.GatewayRoutes
	}
	if o.OpenMetrics {
		table = maps.Clone(table)
		table["GET /metrics"] = table["GET /metrics"].Opened()
	}
	return table
}

// allRoutes returns everything that this server does.
func (s *Server) allRoutes() *edge {
	e := newEdge(s.common)
	if s.Clients != nil {
		gatewayRoutes{e}.add()
	} else {
		executionRoutes{e}.add()
		systemRoutes{e}.add()
		profileRoutes{e}.add()
		if s.Pool != nil {
			poolRoutes{e}.add()
		}
		if s.Backup != nil {
			backupRoutes{e}.add()
		}
		if s.Sandboxes != nil {
			sandboxRoutes{e}.add()
			processRoutes{e}.add()
			terminalRoutes{e}.add()
			portRoutes{e}.add()
		}
		if s.Repositories != nil {
			repositoryRoutes{e}.add()
			repositoryRoutes{e}.addUploads()
		}
		if s.Work != nil {
			workRoutes{e}.add()
		}
		if s.Runs != nil {
			runRoutes{e}.add()
		}
		if s.Agents != nil {
			agentRoutes{e}.add()
		}
		if s.Generator != nil {
			generateRoutes{e}.add()
		}
		if s.Credentials != nil {
			ownerRoutes{e}.add()
		}
	}
	auditRoutes{e, new(sync.Mutex)}.add()
	approvalRoutes{e}.add()
	decisionRoutes{e}.add()
	systemRoutes{e}.addMetrics()
	e.addDocs()
	complete(e.api.OpenAPI(), s.access)
	return e
}

// CheckListener refuses a listener that would serve strangers: without API keys only loopback is served, where the
// kernel tells which local user has connected (invariant A1).
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
		s.Log.Warn("no API keys: every local user can run code, each apart from the others", "address", ln.Addr().String())
	} else if s.TLS == nil && !isLoopback(ln.Addr()) {
		s.Log.Warn("no TLS: API keys and code cross the network in clear", "address", ln.Addr().String())
	}
	defer s.listens.add(ln.Addr(), s.TLS != nil)()
	var config *tls.Config
	if s.TLS != nil {
		config = s.TLS.Clone()
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	return s.serve(ln, network(ln.Addr()), config)
}

// ServeLocal serves the owner: callers whom the listener itself has let in, because only the owner can connect to it (a
// unix socket in a private directory, or connections within this process). It closes ln.
func (s *Server) ServeLocal(ln net.Listener) error {
	return s.serve(ln, fromOwner, nil)
}

func (s *Server) serve(ln net.Listener, at door, config *tls.Config) error {
	shared := sharedListener{ln, at, s.connections}
	err := s.http.Serve(origin{newStrictListener(shared, config, s.HeaderTimeout), at})
	if !errors.Is(err, http.ErrServerClosed) {
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

// Requests returns how many requests are in progress, without those for health and those that end something.
func (s *Server) Requests() int { return int(s.places.Taken() + s.streams.Taken()) }

// Close cuts everything at once.
func (s *Server) Close() error { return s.http.Close() }

// Routes lists the routes as "METHOD /pattern".
func (s *Server) Routes() []string { return s.all().mux.patterns }
