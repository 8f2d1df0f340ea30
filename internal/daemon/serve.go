package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/profiler"
	"github.com/cove-sandbox/cove/internal/sandbox"
)

// Serve listens for others until ctx ends, then gives running executions the
// configured grace and closes the daemon. One server may use a home.
func (d *Daemon) Serve(ctx context.Context) error {
	lock, err := instance.Await(ctx, func() (*os.File, error) { return instance.LockHome(d.cfg.Home) })
	if err != nil {
		return err
	}
	defer lock.Close()
	running, err := instance.Await(ctx, func() (*os.File, error) { return instance.LockRunDirectory(d.cfg.RunDir) })
	if err != nil {
		return err
	}
	defer running.Close()
	if err := d.executions.Open(); err != nil {
		return err
	}
	if err := d.adopt(ctx); err != nil {
		return err
	}
	stopProfiles, err := d.serveProfiles()
	if err != nil {
		return err
	}
	defer stopProfiles() // last: also the end of the server can be looked into
	listeners, err := d.listen(ctx)
	if err != nil {
		return err
	}
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		d.serving.Go(func() { failed <- l.serve(l) })
		d.log.Info("listening", "address", l.Addr().String())
	}
	reaps, stop := context.WithCancel(ctx)
	defer stop()
	d.serving.Go(func() { d.executions.RunReaper(reaps) })
	d.serving.Go(func() { d.sandboxes.RunReconciler(reaps, execution.ReapInterval) })
	d.serving.Go(func() { d.sandboxes.WatchDisks(reaps) })
	d.serving.Go(func() { d.processes.MeterCPU(reaps) })
	d.serving.Go(func() { dropUploads(reaps, d.cfg.Home) })
	d.serving.Go(func() { d.tendRuns(reaps) })
	d.serving.Go(func() { d.giveBack(reaps) })
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stop()
	grace, cancel := context.WithTimeout(context.Background(), d.cfg.ShutdownGrace.Std())
	defer cancel()
	d.log.Info("shutting down", "running", d.executions.Load().Running)
	return errors.Join(err, d.Close(grace))
}

// serveProfiles serves profiles to the machine's owner where that is configured, until stop is called.
func (d *Daemon) serveProfiles() (stop func(), err error) {
	if !d.cfg.Server.Debug {
		return func() {}, nil
	}
	profiles, err := profiler.Listen(filepath.Join(d.cfg.RunDir, "cove-debug.sock"), d.log)
	if err != nil {
		return nil, cove.Errorf(cove.Unavailable, "profiles cannot be served: %w", err).
			WithHint("check run_dir, or leave out server.debug")
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := profiles.Serve(); err != nil {
			d.log.Error("profiles are not served any more", "error", err)
		}
	})
	d.log.Info("serving profiles", "address", profiles.Addr().String())
	return func() {
		profiles.Close()
		serving.Wait()
	}, nil
}

func (d *Daemon) listen(ctx context.Context) ([]listener, error) {
	local, err := listenPrivately(d.cfg.Socket())
	if err != nil {
		return nil, err
	}
	all := []listener{{local, d.api.ServeLocal}}
	if d.cfg.Listen == "" {
		return all, nil
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", d.cfg.Listen)
	if err == nil {
		if err = d.api.CheckListener(ln); err == nil {
			d.port.Store(uint32(ln.Addr().(*net.TCPAddr).Port))
			return append(all, listener{ln, d.api.Serve}), nil
		}
		ln.Close()
	}
	local.Close()
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, cove.Errorf(cove.Conflict, "%s is in use by another program", d.cfg.Listen).
			WithHint("stop it, or choose another address with --listen")
	}
	if cove.ErrorCode(err) == cove.Internal {
		return nil, cove.Errorf(cove.InvalidArgument, "cannot listen on %s: %w", d.cfg.Listen, err).
			WithHint("choose another address with --listen")
	}
	return nil, err
}

// Busy reports whether something runs that ends with the server or needs it: executions, requests, and sandboxes that
// are not stopped.
func (d *Daemon) Busy(ctx context.Context) bool {
	if load := d.executions.Load(); load.Running+load.Waiting > 0 || d.api.Requests() > 0 {
		return true
	}
	all, err := d.sandboxes.List(ctx, cove.System("server"))
	runs := func(s sandbox.View) bool { return s.State != cove.StateStopped }
	return err != nil || slices.ContainsFunc(all.Sandboxes, runs)
}
