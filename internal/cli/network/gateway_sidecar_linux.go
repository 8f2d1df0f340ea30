package network

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/containers"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/linux/seccomp"
	"github.com/cove-sandbox/cove/internal/sidecar"
	"github.com/cove-sandbox/cove/internal/sidecar/outside"
)

// sidecarPatience is how long a sidecar may take until it is ready.
const sidecarPatience = time.Minute

// beside attaches a container whose network cannot be entered, by a sidecar, until ctx ends.
func (a attaching) beside(ctx context.Context, e containers.Engine, c containers.Container,
	g api.GatewayRegistration) error {
	if g.Dir == "" {
		g.Dir = ca.Dir
	}
	filter, err := seccomp.Filter(seccomp.Processes{User: cove.CodeUser})
	if err != nil {
		return err
	}
	setup, err := outside.Setup(gatewayPlan, sockets(), filter)
	if err != nil {
		return err
	}
	made, err := a.register(ctx, g)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	s, err := e.Sidecar(ctx, c, filepath.Join(filepath.Dir(self), "cove-guest"))
	if err != nil {
		return err
	}
	defer s.Close()
	ready, cancel := context.WithTimeout(ctx, sidecarPatience)
	defer cancel()
	end, err := outside.Begin(ready, s, setup, os.TempDir())
	if err != nil {
		return sidecarFailed(s, err)
	}
	t := &attachment{attaching: a, name: g.Name, sockets: end.Sockets}
	defer end.Close()
	defer func() {
		for _, f := range t.sockets {
			f.Close()
		}
	}()
	files, err := filesOf(made.Files)
	if err != nil {
		return err
	}
	if err := e.Put(ctx, c, made.Dir, files); err != nil {
		return err
	}
	held, err := a.gateway.HandOver(ctx, t.name, t.sockets)
	if err != nil {
		return err
	}
	a.Say.Line("attached the container %s as %s, by a sidecar", ui.Printable(c.Name), ui.Printable(t.name))
	if a.env {
		if err := a.Print(envText(made.Env)); err != nil {
			return err
		}
	}
	lives, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-end.Done():
			stop()
		case <-lives.Done():
		}
	}()
	if err = t.hold(lives, held); lives.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// sidecarFailed explains in the sidecar's own words, or the engine's.
func sidecarFailed(s *containers.Sidecar, err error) error {
	if failure, ok := errors.AsType[*sidecar.Failure](err); ok {
		return cove.Errorf(cove.Conflict, "the container's network cannot be led to the gateway: %s",
			ui.Printable(failure.Reason)).
			WithHint("it may be attached already; else start it with --network none, where the kernel has nf_tables")
	}
	s.Close()
	return cove.Errorf(cove.Unavailable, "the sidecar did not begin: %w: %s", err, ui.Printable(s.Complaint()))
}

// filesOf reads the files of a client, by their names.
func filesOf(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for _, e := range entries {
		if all[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return all, nil
}
