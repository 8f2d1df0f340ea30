// Package daemon builds Cove from its parts, top to bottom, and runs it: as a server, or inside a single command. It is
// the only package that names concrete engines and stores.
package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/agent/fit"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/engine/pool"
	"github.com/cove-sandbox/cove/internal/engines"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/gateway/outlet"
	"github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/httpapi"
	"github.com/cove-sandbox/cove/internal/image"
	imagefiles "github.com/cove-sandbox/cove/internal/image/files"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/localsocket"
	"github.com/cove-sandbox/cove/internal/meter"
	"github.com/cove-sandbox/cove/internal/packages/cache"
	"github.com/cove-sandbox/cove/internal/repos"
	"github.com/cove-sandbox/cove/internal/run"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/store/sqlite"
	"github.com/cove-sandbox/cove/internal/work"
)

// Daemon is Cove, running.
type Daemon struct {
	cfg         *config.Config
	log         *slog.Logger
	files       *files          // that cfg names
	credentials credential.Host // of the machine
	instance    *instance.Instance
	store       *sqlite.Store
	vault       store.Vault // of store
	images      *image.Store
	engines     *engine.Set
	executions  *execution.Executions
	sandboxes   *sandbox.Sandboxes
	processes   *sandbox.Processes
	agents      *fit.Agents
	outlet      outlet.Outlet
	work        *work.Service
	approvals   *gateway.Approvals
	runs        *run.Runner
	meter       *meter.Meter
	recorder    *gateway.Recorder
	accounts    *gateway.Accounts
	packages    *cache.Cache                    // which all gateways share; nil: none
	opened      atomic.Pointer[gateway.Gateway] // once it is
	api         *httpapi.Server
	memory      *memoryListener
	port        atomic.Uint32 // of the API on the network; 0 if it is not there

	openGateway func() (*gateway.Gateway, error) // once, when the first sandbox has a network
	openRepos   func() (*repos.Store, error)     // once
	detached    atomic.Pointer[gateway.Gateway]  // of long-lived sandboxes, once they are adopted
	warm        bool                             // the default engine is opened at once
	background  bool                             // a command has started the server

	copying   sync.Mutex     // held while a backup is written
	serving   sync.WaitGroup // listeners, the reaper, the engine being warmed
	stopReaps context.CancelFunc
	closeOnce sync.Once
	closeErr  error
}

// Options say what to build.
type Options struct {
	Config *config.Config
	Log    *slog.Logger
	// Background says that a command has started the server because none answered.
	Background bool
	// Warm opens the default engine at once, while the rest is being built: one sandbox is about to be asked for.
	Warm bool
}

// OpenImages opens the image store, which needs no daemon.
func OpenImages(cfg *config.Config, log *slog.Logger) (*image.Store, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, cove.Errorf(cove.Internal, "find this program: %w", err)
	}
	return image.Open(image.Options{Files: imagefiles.New(local.FindIDs(), self),
		Dir: filepath.Join(cfg.Home, "images"), Home: cfg.Home, Most: int64(cfg.Disk.ImagesMB) << 20, Log: log,
		CheckPath: func(path string) (string, error) { return pathRules(cfg).Check(path, nil) },
	})
}

// directories makes what everything else stands in. The run directory is passed through by guests on their way to the
// staging directory; what is private in it has directories of its own.
func directories(cfg *config.Config) error {
	for _, d := range []struct {
		name, path string
		mode       os.FileMode
	}{{"home", cfg.Home, 0o700}, {"run_dir", cfg.RunDir, 0o755}} {
		if err := os.MkdirAll(d.path, d.mode); err != nil {
			return cove.Errorf(cove.StorageFull, "the directory %s cannot be made: %w", d.path, err).
				WithHint("set another with %s in the configuration or COVE_%s", d.name,
					map[string]string{"home": "HOME", "run_dir": "RUN_DIR"}[d.name])
		}
		info, err := os.Stat(d.path)
		if err != nil {
			return cove.Errorf(cove.StorageFull, "the directory %s: %w", d.path, err)
		}
		if err := judgeOwner(d.path, info.Sys().(*syscall.Stat_t).Uid, os.Geteuid(), info.Mode()); err != nil {
			return err
		}
	}
	return nil
}

// judgeOwner refuses a directory in which another user could put something in place of what is Cove's.
func judgeOwner(path string, owner uint32, own int, mode os.FileMode) error {
	const others = 0o022
	switch {
	case owner != 0 && int(owner) != own:
		return cove.Errorf(cove.Forbidden, "the directory %s belongs to another user, %d", path, owner).
			WithHint("set COVE_HOME and COVE_RUN_DIR to directories of your own")
	case mode&others != 0:
		return cove.Errorf(cove.Forbidden, "other users may write to the directory %s", path).
			WithHint("close it to them: chmod go-w %s", path)
	}
	return nil
}

// engineOptions returns the configuration of engines for an instance.
func engineOptions(cfg *config.Config, of *instance.Instance, log *slog.Logger) engines.Options {
	return engines.Options{Guest: GuestPath(cfg), RunDir: cfg.RunDir, Instance: of.ID,
		CgroupParent: cfg.Sandbox.CgroupParent, Ready: cfg.Sandbox.Ready, Paths: pathRules(cfg),
		Disks: repos.Disks(cfg.Home), Log: log}
}

// pathRules are the rules of users' host paths, which know where Cove's own things are.
func pathRules(cfg *config.Config) hostpath.Rules {
	r := hostpath.Rules{Own: []string{cfg.Home, cfg.RunDir}, Files: (&files{cfg: cfg}).places, Named: hostgit.Named}
	for _, f := range policy.Local {
		r.Guarded = append(r.Guarded, string(f))
	}
	return r
}

// GuestPath returns the path of the cove-guest program: as configured, else beside this program.
func GuestPath(cfg *config.Config) string {
	if cfg.Guest != "" {
		return cfg.Guest
	}
	self, err := os.Executable()
	if err != nil {
		return "cove-guest"
	}
	return filepath.Join(filepath.Dir(self), "cove-guest")
}

// warmPool has the sandboxes prepared that the configuration names.
func (d *Daemon) warmPool(ctx context.Context) {
	for _, w := range d.cfg.Sandbox.Pool.Warm {
		of := execution.Plain{Language: w.Runtime, Image: w.Image, Engine: w.Engine, Limits: w.Asks()}
		t := pool.Terms{Least: w.Least, Most: w.Most, Refill: w.Refill, Age: w.MaxAge.Std(), Setting: "sandbox.pool.warm"}
		if err := d.executions.Pool.Configure(ctx, of, t); err != nil {
			d.log.Warn("no sandbox is prepared", "for", w.Runtime, "image", w.Image, "error", err)
		}
	}
}

// open begins to listen in memory and on the instance's socket, and cleans up once after processes that were killed.
func (d *Daemon) open() error {
	if !d.warm { // the caller may list the records, in which dead executions must not run
		if err := d.executions.Abandon(context.Background()); err != nil {
			d.log.Warn("cannot put the records of earlier processes right", "error", err)
		}
	}
	d.serveLocal(d.memory)
	ln, err := listenPrivately(d.instance.Socket())
	if err != nil {
		return err
	}
	d.serveLocal(ln)
	ctx, cancel := context.WithCancel(context.Background())
	d.stopReaps = cancel
	d.serving.Go(func() {
		if d.warm {
			d.executions.Open() // what it has to sweep is swept too; an error shows when it is used
		}
		d.warmPool(ctx)
		select {
		case <-d.engines.Openings(): // of the engine that is swept now
		default:
		}
		for ctx.Err() == nil {
			if err := d.executions.Reap(ctx); err != nil && ctx.Err() == nil {
				d.log.Warn("cannot clean up after earlier processes", "error", err)
			}
			select {
			case <-d.engines.Openings(): // an engine that is opened later is swept, too
			case <-ctx.Done():
			}
		}
	})
	return nil
}

func (d *Daemon) serveLocal(ln net.Listener) {
	d.serving.Go(func() {
		if err := d.api.ServeLocal(ln); err != nil {
			d.log.Error("a local listener failed", "error", err)
		}
	})
}

// Client talks to this daemon without a network.
func (d *Daemon) Client() (*client.Client, error) {
	return client.New(client.Options{Address: "http://cove", Dial: d.memory.dial})
}

// listener is one way in, and how it is served.
type listener struct {
	net.Listener
	serve func(net.Listener) error
}

// answerTimeout is how long answers may take once nothing runs any more.
const answerTimeout = 2 * time.Second

// answer lets requests in progress have their answers: who has killed the last
// execution is told so. What takes longer is cut.
func (d *Daemon) answer() error {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	if err := d.api.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// Close waits for running executions until ctx ends, kills the rest, and leaves nothing behind. It may be called again.
func (d *Daemon) Close(ctx context.Context) error {
	d.closeOnce.Do(func() { d.closeErr = d.close(ctx) })
	return d.closeErr
}

func (d *Daemon) close(ctx context.Context) error {
	var errs []error
	d.stopReaps()
	if d.runs != nil {
		d.runs.Leave()
	}
	if d.executions != nil {
		d.executions.Close(ctx)
		errs = append(errs, d.sandboxes.Close(ctx))
	}
	if d.runs != nil {
		d.runs.Close()
	}
	if d.api != nil {
		errs = append(errs, d.answer())
	}
	for _, g := range []*gateway.Gateway{d.opened.Load(), d.detached.Load()} {
		if g != nil {
			g.Close()
		}
	}
	d.memory.Close()
	d.serving.Wait()
	if d.engines != nil { // one may have been opened after they were closed
		errs = append(errs, d.engines.Close())
	}
	d.recorder.Flush()
	d.accounts.Flush()
	if d.store != nil {
		errs = append(errs, d.store.Close())
	}
	if d.instance != nil {
		errs = append(errs, d.instance.Release())
	}
	return errors.Join(errs...)
}

// newAgents makes the agents of this machine.
func (d *Daemon) newAgents() *fit.Agents {
	return fit.New(fit.Options{
		Executions: d.executions, Store: d.vault, Dir: filepath.Join(d.cfg.Home, "agents"),
		Beside: filepath.Dir(GuestPath(d.cfg)), Configuration: d.files, Credentials: d.credentials,
		Agents: sync.OnceValue(func() []agent.Agent { return agent.Merge(d.cfg.Agents) }), // most commands ask for none
	})
}

// newRuns makes the runner of agents.
func (d *Daemon) newRuns() *run.Runner {
	return run.New(run.Options{
		Sandboxes: d.sandboxes, Processes: d.processes, Agents: d.agents, Work: work.Runs{Service: d.work}, Store: d.vault,
		Places: d.executions, Flush: d.recorder.Flush,
		Bounds: run.Bounds{Size: int64(d.cfg.History.MaxMB) << 20, Free: int64(d.cfg.History.MinFreeMB) << 20},
		Dir:    filepath.Join(d.cfg.Home, "runs"), Clock: clock.Real(), Log: d.log,
	})
}

// tendRuns puts runs right until ctx ends.
func (d *Daemon) tendRuns(ctx context.Context) {
	for {
		select {
		case <-time.After(execution.ReapInterval):
		case <-ctx.Done():
			return
		}
		if err := d.runs.Recover(ctx); err != nil && ctx.Err() == nil {
			d.log.Error("not every run could be put right", "error", err)
		}
	}
}

// listenPrivately listens on a unix socket that only its owner may connect to,
// in place of one that a dead process has left.
func listenPrivately(path string) (net.Listener, error) {
	ln, err := localsocket.Listen(path)
	if err != nil {
		return nil, cove.Errorf(cove.Unavailable, "cannot listen on %s: %w", path, err).
			WithHint("check run_dir: a socket's path has at most 107 bytes")
	}
	return ln, nil
}
