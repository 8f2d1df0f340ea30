package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engines"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/gateway/clients"
	"github.com/cove-sandbox/cove/internal/httpapi"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/meter"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/store/sqlite"
	"github.com/cove-sandbox/cove/internal/version"
)

// GatewayOptions make a gateway of its own.
type GatewayOptions struct {
	Config         *config.Config
	State          string // directory: database, authorities
	Socket         string // path of the unix socket that clients are registered over
	Health         string // HOST:PORT that tells how the gateway is; none if empty
	BeyondLoopback bool   // listeners may be where other machines reach them
	// Default describes the client of the command line, anew at each reload; nil: there is none.
	Default func() (api.GatewayRegistration, error)
	Log     *slog.Logger
}

// Gateway is a gateway of its own: for containers that Cove does not start.
type Gateway struct {
	o        GatewayOptions
	lock     *os.File
	store    *sqlite.Store
	vault    store.Vault // of store
	recorder *gateway.Recorder
	clients  *clients.Registry
	api      *httpapi.Server
	control  net.Listener
	health   net.Listener

	instance *instance.Instance
	engines  *engine.Set // of the sandboxes in which pushes are looked into
}

// OpenGateway builds a gateway whose clients are served from now on; Serve comes next, and Close in any case. Errors:
// Conflict when another gateway uses the state or an address, StorageFull, InvalidArgument.
func OpenGateway(ctx context.Context, o GatewayOptions) (_ *Gateway, err error) {
	g := &Gateway{o: o}
	defer func() {
		if err != nil {
			g.Close()
		}
	}()
	if err := os.MkdirAll(o.State, 0o700); err != nil {
		return nil, cove.Errorf(cove.StorageFull, "the directory %s cannot be made: %w", o.State, err).
			WithHint("choose another with --state")
	}
	if err := os.MkdirAll(o.Config.RunDir, 0o755); err != nil {
		return nil, cove.Errorf(cove.StorageFull, "the directory %s cannot be made: %w", o.Config.RunDir, err).
			WithHint("choose another with --run-dir")
	}
	if g.lock, err = instance.Await(ctx, func() (*os.File, error) {
		return instance.LockDirectory(o.State, "gateway", "choose another with --state",
			"stop it, or give this one a state of its own with --state, and --socket")
	}); err != nil {
		return nil, err
	}
	bounds := sqlite.Bounds{Audit: int64(o.Config.Audit.MaxMB) << 20}
	if g.store, err = sqlite.OpenBounded(ctx, filepath.Join(o.State, "cove.db"), bounds, o.Log); err != nil {
		return nil, err
	}
	g.vault = store.NewVault(g.store)
	keep, err := ca.OpenStore(o.State)
	if err != nil {
		return nil, err
	}
	// Clients pass through here to what they are to trust, so it is not private.
	options, err := gatewayOptions(&files{cfg: o.Config})
	if err != nil {
		return nil, err
	}
	var served *gateway.Gateway
	counted := meter.New(meter.Options{State: func() gateway.State { return served.State() },
		Lost: func() int64 { return g.recorder.Lost() }})
	g.recorder = gateway.NewRecorder(gateway.RecorderOptions{Store: g.vault, Keep: o.Config.Audit.Decisions,
		Observe: counted.Observe, Clock: clock.Real(), Log: o.Log})
	options.Dir, options.Keep = filepath.Join(o.Config.RunDir, "gateway"), &keep
	options.Recorder, options.Approvals, options.Log = g.recorder, &g.vault, o.Log
	options.Packages = packagesIn(o.State, o.Config.Gateway, o.Log)
	if g.instance, err = instance.Hold(o.Config.RunDir); err != nil {
		return nil, err
	}
	of := engineOptions(o.Config, g.instance, o.Log)
	of.Sweep = true // a server sweeps at its start, and a gateway when the first push needs an engine
	g.engines = engines.New(of, o.Config.Engine)
	if options.Spool, options.Packs, err = packs(o.State, g.engines, nil, o.Log); err != nil {
		return nil, err
	}
	served = gateway.New(options)
	g.clients, err = clients.New(ctx, clients.Options{Gateway: served, Store: g.vault, BeyondLoopback: o.BeyondLoopback,
		Version: version.Version, Clock: clock.Real(), Log: o.Log})
	if err != nil {
		return nil, err
	}
	if err := g.Reload(ctx); err != nil {
		return nil, err
	}
	approvals := gateway.NewApprovals(store.Auditor{Store: g.vault, Clock: clock.Real(), Log: o.Log})
	approvals.Add(served)
	if g.api, err = httpapi.New(httpapi.Options{Clients: g.clients, Approvals: approvals, Store: g.vault,
		Flush: g.recorder.Flush, Collectors: []prometheus.Collector{counted}, Log: o.Log,
		Version: version.Version}); err != nil {
		return nil, err
	}
	if g.control, _, err = clients.Listen("unix:"+o.Socket, false); err != nil {
		return nil, err
	}
	if o.Health != "" {
		if g.health, _, err = clients.Listen(o.Health, o.BeyondLoopback); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Reload reads the default client's policy anew, if there is one, and puts it
// in force at once. On error the one before stays.
func (g *Gateway) Reload(ctx context.Context) error {
	if g.o.Default == nil {
		return nil
	}
	registration, err := g.o.Default()
	if err != nil {
		return err
	}
	made, err := g.clients.SetDefault(ctx, cove.MachineOwner(), httpapi.Registration(registration))
	if err == nil {
		g.o.Log.Info("the default client is served", "address", made.Listen, "files", made.Files, "cut", made.Cut)
	}
	return err
}

// Serve serves until ctx ends.
func (g *Gateway) Serve(ctx context.Context) error {
	var serving sync.WaitGroup
	defer serving.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 2)
	serving.Go(func() { failed <- g.api.ServeLocal(g.control) })
	g.o.Log.Info("clients are registered over a socket", "address", "unix:"+g.o.Socket)
	health := &http.Server{Handler: g.healthHandler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 10 * time.Second, MaxHeaderBytes: 8 << 10,
		ErrorLog: slog.NewLogLogger(g.o.Log.Handler(), slog.LevelDebug)}
	if g.health != nil {
		serving.Go(func() { failed <- health.Serve(g.health) })
		g.o.Log.Info("health is told", "address", "http://"+g.health.Addr().String()+"/health")
	}
	serving.Go(func() { g.prune(ctx) })
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	g.o.Log.Info("shutting down")
	g.clients.Close()
	answers, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	g.api.Shutdown(answers) // what takes longer is cut
	health.Close()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// healthHandler answers GET /health and nothing else, since its listener has no authentication.
func (g *Gateway) healthHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		h := api.GatewayHealth(g.clients.Health())
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if h.Status != "ok" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		json.NewEncoder(w).Encode(h) // who has gone needs no answer
	})
	return mux
}

// pruneEvery is how often decisions are removed that are too old.
const pruneEvery = time.Hour

func (g *Gateway) prune(ctx context.Context) {
	retention := g.o.Config.Audit.Retention.Std()
	if retention == 0 {
		return
	}
	ticker := time.NewTicker(pruneEvery)
	defer ticker.Stop()
	for {
		if _, err := g.vault.For(cove.System("")).Prune(ctx, time.Now().Add(-retention)); err != nil && ctx.Err() == nil {
			g.o.Log.Warn("cannot remove old decisions", "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// Close closes every way out and leaves what is kept of the clients.
func (g *Gateway) Close() error {
	var errs []error
	if g.clients != nil {
		g.clients.Close()
	}
	for _, l := range []net.Listener{g.control, g.health} {
		if l != nil {
			l.Close() // Serve may have
		}
	}
	if g.engines != nil {
		errs = append(errs, g.engines.Close(), g.instance.Release())
	}
	g.recorder.Flush()
	if g.store != nil {
		errs = append(errs, g.store.Close())
	}
	if g.lock != nil {
		errs = append(errs, g.lock.Close())
	}
	return errors.Join(errs...)
}
