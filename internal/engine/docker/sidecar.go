//go:build linux

package docker

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/moby/moby/api/types/container"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/netjoin"
	"github.com/cove-sandbox/cove/internal/linux/seccomp"
	"github.com/cove-sandbox/cove/internal/linux/transparent"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/sidecar"
	"github.com/cove-sandbox/cove/internal/sidecar/outside"
)

// Where Cove cannot enter a container's network, since the daemon is on another machine or is root's and Cove is not, a
// second container does: the sidecar, whose network is the first one's, with nothing but loopback. It leads everything
// that wants to leave to its own sockets, gives up its privileges, and carries what arrives over its standard streams.
// So every decision and every key stays here, and neither container has a way out but the daemon's connection to this
// process. When that ends, so does the sidecar, and nothing leaves any more.

// sidecarCPUs is how many billionths of a processor a sidecar has.
const sidecarCPUs = 1e9

// planSidecar plans the sidecar of a container, by an image of its own.
func planSidecar(of, img string, files uint64, labels map[string]string) (*container.Config, *container.HostConfig) {
	tasks, no := int64(outside.Tasks), false
	return &container.Config{
			Image: img, Labels: labels,
			Entrypoint: []string{outside.Program, outside.Flag}, Cmd: []string{}, Env: []string{outside.Heap},
			User: "0:0", WorkingDir: "/", StopSignal: "SIGKILL",
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
			OpenStdin:   true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
		}, &container.HostConfig{
			NetworkMode:    container.NetworkMode("container:" + of),
			RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
			LogConfig:      container.LogConfig{Type: "none"},
			IpcMode:        container.IPCModeNone,
			CgroupnsMode:   container.CgroupnsModePrivate,
			CapDrop:        []string{"ALL"},
			CapAdd:         outside.Capabilities,
			SecurityOpt:    []string{"no-new-privileges:true"},
			ReadonlyRootfs: true,
			MaskedPaths:    slices.Concat(rootfs.Masked, []string{"/sys", "/dev/mqueue"}),
			ReadonlyPaths:  rootfs.ReadOnly,
			Init:           &no,
			Resources: container.Resources{
				Memory: outside.Memory, MemorySwap: outside.Memory, NanoCPUs: sidecarCPUs, PidsLimit: &tasks,
				Ulimits: []*container.Ulimit{{Name: "core", Soft: 1, Hard: 1},
					{Name: "nofile", Soft: int64(files), Hard: int64(files)}},
			},
		}
}

// relay makes the sidecar of a container, and returns sockets that stand for those that it has made there; called with
// changing held. Nothing but the guest runs yet. Errors: Unsupported when the daemon's kernel lacks what the network
// needs.
func relay(ctx context.Context, s *sandbox, c *running, plan transparent.Plan,
	sockets []netjoin.Socket) ([]*os.File, error) {
	e := s.engine
	filter, err := seccomp.Filter(processes(s.template.Shape))
	if err != nil {
		return nil, err
	}
	setup, err := outside.Setup(plan, sockets, filter)
	if err != nil {
		return nil, err
	}
	conn, err := startSidecar(ctx, s, c)
	if err != nil {
		return nil, err
	}
	ready, cancel := context.WithTimeout(ctx, e.api.timeout)
	defer cancel()
	end, err := outside.Begin(ready, conn, setup, e.o.RunDir)
	if err != nil {
		return nil, sidecarFailed(conn, err)
	}
	s.sidecar = end
	go attend(s, c, setup, end)
	return end.Sockets, nil
}

// startSidecar makes and starts a sidecar of a container; called with changing held.
func startSidecar(ctx context.Context, s *sandbox, c *running) (*stream, error) {
	e := s.engine
	img, err := e.importGuest(ctx)
	if err != nil {
		return nil, err
	}
	config, host := planSidecar(c.id, img.ID, outside.Files,
		labels(e.realm, e.o.Instance, s.ID(), e.newNonce()))
	id, err := create(ctx, s, sidecarName(s.ID()), config, host)
	if err != nil {
		return nil, err
	}
	if err := e.api.ready(ctx, id); err != nil {
		return nil, err
	}
	conn, err := e.api.attach(ctx, id, true)
	if err != nil {
		return nil, err
	}
	if err := e.api.start(ctx, id); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// sidecarFailed explains in the sidecar's own words.
func sidecarFailed(conn *stream, err error) error {
	if failure, ok := errors.AsType[*sidecar.Failure](err); ok {
		return cove.Errorf(cove.Unsupported, "the daemon's machine cannot lead a container's network to the gateway: %q",
			failure.Reason).WithHint("use a daemon whose kernel can, or --engine native")
	}
	if text := conn.complaint.Text(nil); text != "" {
		err = errors.Join(err, errors.New(text))
	}
	return cove.Errorf(cove.Unavailable, "the sidecar of a sandbox's network did not begin: %w", err).
		WithHint("look at the daemon's log")
}

// mostRestarts bounds how often a sidecar is started again: what programs in the sandbox do may end it.
const mostRestarts = 5

// attend starts a sidecar again that has ended before its sandbox. Until then, and if that fails, nothing leaves the
// sandbox: what leads its network to the sidecar stays in that network.
func attend(s *sandbox, c *running, setup sidecar.Setup, end *outside.End) {
	for restarts := 0; ; restarts++ {
		<-end.Done()
		if s.life.Err() != nil || errors.Is(end.Err(), outside.ErrUnused) {
			return
		}
		err := end.Err()
		if restarts < mostRestarts {
			s.engine.o.Log.Warn("the sidecar of a sandbox has ended, and is started again", "sandbox", s.ID(), "error", err)
			err = s.make(s.life, func(ctx context.Context) error {
				next, err := relayAgain(ctx, s, c, setup, end)
				if err == nil {
					s.sidecar, end = next, next
				}
				return err
			})
		}
		if s.life.Err() != nil {
			return
		}
		if err != nil || restarts == mostRestarts {
			s.engine.o.Log.Error("the sidecar of a sandbox has ended: nothing leaves the sandbox any more",
				"sandbox", s.ID(), "restarts", restarts, "error", err)
			return
		}
	}
}

// relayAgain makes the next sidecar of a container, in place of one that has ended; called with changing held. Programs
// of the user run beside it.
func relayAgain(ctx context.Context, s *sandbox, c *running, setup sidecar.Setup, end *outside.End) (*outside.End,
	error) {
	if s.life.Err() != nil {
		return nil, s.life.Err()
	}
	for i := len(s.traces) - 1; i >= 0; i-- {
		if s.traces[i].name != sidecarName(s.ID()) {
			continue
		}
		if err := eraseTrace(ctx, s, i); err != nil {
			return nil, err
		}
	}
	conn, err := startSidecar(ctx, s, c)
	if err != nil {
		return nil, err
	}
	ready, cancel := context.WithTimeout(ctx, s.engine.api.timeout)
	defer cancel()
	next, err := end.Again(ready, conn, setup)
	if err != nil {
		return nil, sidecarFailed(conn, err)
	}
	return next, nil
}

// importGuest makes the image of sidecars.
func (e *Engine) importGuest(ctx context.Context) (image, error) {
	program, err := os.ReadFile(e.o.Guest)
	if err != nil {
		return image{}, err
	}
	return e.imported(ctx, outside.ImageName(program), func(_ context.Context, w io.Writer) error {
		_, err := w.Write(outside.ImageFiles(program))
		return err
	})
}
