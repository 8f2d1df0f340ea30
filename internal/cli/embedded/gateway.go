package embedded

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/cove-sandbox/cove/internal/cli/network"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/daemon"
)

// Gateway implements network.Daemon.
func (Daemon) Gateway(ctx context.Context, sess *session.Session, o network.GatewayOptions) error {
	cfg, err := sess.Config()
	if err != nil {
		return err
	}
	log := sess.Logger(cfg)
	if o.BeyondLoopback {
		log.Warn("listening beyond loopback is allowed: a machine that reaches a client's address goes out as that client")
	}
	// Not as other commands: SIGHUP reads policies anew.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second one ends at once
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)

	g, err := daemon.OpenGateway(ctx, daemon.GatewayOptions{Config: cfg, State: o.State, Socket: o.Socket,
		Health: o.Health, BeyondLoopback: o.BeyondLoopback, Default: o.Default, Log: log})
	if err != nil {
		return err
	}
	go func() {
		for {
			select {
			case <-reload:
				if err := g.Reload(ctx); err != nil {
					log.Error("the policy stays as it is", "error", err)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	err = g.Serve(ctx)
	return cmp.Or(err, g.Close())
}
