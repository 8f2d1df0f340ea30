package daemon

import (
	"context"
	"crypto/tls"
	"log/slog"
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/engine/pool"
	"github.com/cove-sandbox/cove/internal/engines"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/generate"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/httpapi"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/meter"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/spool"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/store/sqlite"
	"github.com/cove-sandbox/cove/internal/version"
	"github.com/cove-sandbox/cove/internal/work"
)

// New builds a daemon that is reached by Client, and by other commands of the
// same user over its instance's socket. Close must be called.
func New(ctx context.Context, o Options) (_ *Daemon, err error) {
	cfg, log := o.Config, o.Log
	d := &Daemon{cfg: cfg, log: log, files: &files{cfg: cfg}, background: o.Background,
		memory: newMemoryListener(), stopReaps: func() {}}
	d.credentials = credential.Host{Own: d.files.Credentials, Values: credential.NewValues(clock.Real()),
		TakesVariables: o.Background}
	d.openGateway, d.openRepos = sync.OnceValues(d.newGateway), sync.OnceValues(d.newRepos)
	defer func() {
		if err != nil {
			d.Close(ctx)
		}
	}()
	if err := directories(cfg); err != nil {
		return nil, err
	}
	if d.instance, err = instance.Hold(cfg.RunDir); err != nil {
		return nil, err
	}
	d.warm = o.Warm
	of := engineOptions(cfg, d.instance, log)
	of.Single = d.warm
	d.engines = engines.New(of, cfg.Engine)
	if d.warm {
		d.serving.Go(func() { d.engines.Get("") }) // an error shows when it is used
	}
	bounds := sqlite.Bounds{Size: int64(cfg.History.MaxMB) << 20, Audit: int64(cfg.Audit.MaxMB) << 20,
		Free: int64(cfg.History.MinFreeMB) << 20}
	if d.store, err = sqlite.OpenBounded(ctx, cfg.Database(), bounds, log); err != nil {
		return nil, err
	}
	d.vault = store.NewVault(d.store)
	if d.images, err = OpenImages(cfg, log); err != nil {
		return nil, err
	}
	d.meter = meter.New(meter.Options{State: d.network, Lost: func() int64 { return d.recorder.Lost() }})
	d.recorder = gateway.NewRecorder(gateway.RecorderOptions{Store: d.vault, Keep: cfg.Audit.Decisions,
		Observe: d.meter.Observe, Clock: clock.Real(), Log: log})
	grants := cfg.Grants()
	d.packages = packagesIn(cfg.Home, cfg.Gateway, log)
	d.accounts = gateway.NewAccounts(d.vault, grants, clock.Real(), log)
	bounded := cfg.Bounds()
	if !local.FindIDs().Ranged() {
		bounded = bounded.ForUser()
	}
	d.executions = execution.New(execution.Options{
		NextRoute: d.nextRoute, OpenRoute: d.openRoute,
		Engines: d.engines, Defaults: cfg.Spec(), Images: d.images, Store: d.vault, Spool: newSpool(cfg, log),
		Instance: d.instance.ID, RunDir: cfg.RunDir, Bounds: bounded,
		MaxConcurrent: cfg.Sandbox.MaxConcurrent, MaxQueued: cfg.Sandbox.Queue, MaxWait: cfg.Sandbox.MaxWait.Std(),
		MaxComputing: cfg.Sandbox.Computing(runtime.GOMAXPROCS(0)), Processors: runtime.GOMAXPROCS(0),
		Pool: d.poolOptions(), PythonModules: cfg.Sandbox.Pool.PythonModules,
		Retention: cfg.Audit.Retention.Std(), Grants: grants, Clock: clock.Real(), Log: log,
	})
	d.sandboxes = sandbox.New(sandbox.Options{
		Engines: d.engines, Defaults: cfg.LastingSpec(), Images: d.images, Store: d.vault, Bounds: cfg.Bounds(),
		Grants: grants, Places: d.executions, Clock: clock.Real(), Log: log,
	})
	d.processes = sandbox.NewProcesses(d.sandboxes)
	d.approvals = gateway.NewApprovals(store.Auditor{Store: d.vault, Clock: clock.Real(), Log: log})
	d.agents = d.newAgents()
	if d.outlet, err = d.newOutlet(); err != nil {
		return nil, err
	}
	d.work = work.New(work.Options{Sandboxes: d.sandboxes, Places: d.executions, Repositories: d.openRepos,
		Outlet: d.outlet})
	d.runs = d.newRuns()
	if d.api, err = d.newAPI(); err != nil {
		return nil, err
	}
	return d, d.open()
}

// poolOptions returns the options of the pool of prepared sandboxes, which is empty where there will be one execution.
func (d *Daemon) poolOptions() pool.Options {
	if d.warm {
		return pool.Options{}
	}
	p := d.cfg.Sandbox.Pool
	containers := pool.Terms{Usual: p.Docker.Size, Most: p.Docker.Size, Refill: p.Docker.Refill, Age: p.MaxAge.Std(),
		Setting: "sandbox.pool.docker.size"}
	return pool.Options{
		Terms:   pool.Terms{Most: p.Size, Age: p.MaxAge.Std(), Setting: "sandbox.pool.size"},
		Engines: map[string]pool.Terms{engine.Docker: containers, engine.Podman: containers},
		Memory:  int64(p.MemoryMB) << 20, Zygotes: p.Zygotes,
	}
}

// newSpool returns the place of outputs until they are answered. It leaves more space free than the history needs,
// which would otherwise make room for what is gone soon.
func newSpool(cfg *config.Config, log *slog.Logger) *spool.Spool {
	return spool.New(spool.Options{Dir: cfg.Home, Memory: int64(cfg.Server.OutputMemoryMB) << 20,
		Disk: int64(cfg.Server.OutputDiskMB) << 20, Free: 2 * int64(cfg.History.MinFreeMB) << 20, Log: log})
}

func (d *Daemon) newAPI() (*httpapi.Server, error) {
	cfg := d.cfg
	o := httpapi.Options{
		Executor: d.executions, Pool: d.executions.Pool, Sandboxes: d.sandboxes, Processes: d.processes,
		Images:       images{d},
		Backup:       func(ctx context.Context, file string) (api.Backup, error) { return writeBackup(ctx, d, file) },
		Approvals:    d.approvals,
		Repositories: repositories{d.openRepos}, Agents: d.agents, Work: d.work, Runs: d.runs,
		Generator: generate.New(generate.Options{Executions: d.executions, Outlet: d.outlet, Providers: d.files.Providers,
			Credentials: d.credentials, Clock: clock.Real()}),
		Credentials: d.credentials, Settings: sync.OnceValue(cfg.Digests),
		Background: d.background, Profiles: d.files.Profiles, Store: d.vault, Flush: d.recorder.Flush,
		Collectors: []prometheus.Collector{d.meter}, CheckPath: pathRules(cfg).Check,
		CheckProject: hostpath.CheckProject, Log: d.log, Version: version.Version,
		OpenMetrics:  cfg.Server.Metrics == config.MetricsOpen,
		AllowedHosts: cfg.AllowedHosts, WorkDirRoots: cfg.Sandbox.AllowedWorkdirRoots,
		Grants:        cfg.Grants(),
		ForOneCommand: d.warm,
		Rate:          httpapi.Rate{PerSecond: cfg.RateLimit.PerSecond, Burst: cfg.RateLimit.Burst},
	}
	for _, k := range cfg.APIKeys {
		o.Keys = append(o.Keys, httpapi.Key{Name: k.Name, Hash: k.Hash})
	}
	if cfg.TLS.Cert != "" {
		pair, err := tls.LoadX509KeyPair(cfg.TLS.Cert, cfg.TLS.Key)
		if err != nil {
			return nil, cove.Errorf(cove.InvalidArgument, "the TLS certificate cannot be used: %w", err).
				WithHint("check tls.cert and tls.key")
		}
		o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	return httpapi.New(o)
}
