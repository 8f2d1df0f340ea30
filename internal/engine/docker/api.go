//go:build linux

package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/cove-sandbox/cove"
)

// A daemon that is restarted or busy is asked again a few times; one that hangs is given up after callTimeout.
const (
	callTimeout = 30 * time.Second
	attempts    = 3
	firstPause  = 100 * time.Millisecond
)

// api is the daemon, asked so that a call always comes back.
type api struct {
	c       *client.Client
	address string // the daemon's, for errors
	setting string // what it is of, for errors
	log     *slog.Logger
	timeout time.Duration // of one attempt; callTimeout
	podman  podman
}

// name names the daemon in errors.
func (a *api) name() string {
	if a.podman.engine {
		return "Podman service"
	}
	return "Docker daemon"
}

// do makes one call, again after a passing fault. f must be safe to repeat.
func (a *api) do(ctx context.Context, doing string, f func(context.Context) error) error {
	pause := firstPause
	for try := 1; ; try++ {
		err := a.once(ctx, f)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !passing(err) || try == attempts:
			return a.explain(doing, err)
		}
		a.log.Debug("asking the "+a.name()+" again", "doing", doing, "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause *= 4
	}
}

func (a *api) once(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	return f(ctx)
}

// passing reports a fault of the connection, or of a daemon that comes up or goes down; all others would recur.
func passing(err error) bool {
	var netErr net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrPermission):
		return false
	case client.IsErrConnectionFailed(err), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNREFUSED),
		cerrdefs.IsUnavailable(err), errors.As(err, &netErr):
		return true
	}
	return false
}

// explain gives an error its code and what to do about it.
func (a *api) explain(doing string, err error) error {
	text := err.Error()
	if known, ok := errors.AsType[*cove.Error](err); ok {
		return known
	}
	start, may, space := `start it ("systemctl start docker"), check `+a.setting+`, or use --engine native`,
		`run as root, have an administrator add you to the group "docker" (which is as good as root), `+
			"or use --engine native", `free some space: "docker system df" says what uses it`
	if a.podman.engine {
		start = fmt.Sprintf("start it (%q), check %s, or use --engine native", startPodman(os.Geteuid()), a.setting)
		may, space = "run as its user, or use --engine native", `free some space: "podman system df" says what uses it`
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return cove.Errorf(cove.Unavailable, "the %s at %s does not answer: cannot %s within %v",
			a.name(), a.address, doing, a.timeout).
			WithHint("look at the daemon's log, restart it, or use --engine native")
	case errors.Is(err, os.ErrPermission), strings.Contains(text, "permission denied while trying to connect"):
		return cove.Errorf(cove.Unavailable, "you may not use the %s at %s", a.name(), a.address).WithHint("%s", may)
	case passing(err):
		return cove.Errorf(cove.Unavailable, "the %s at %s does not answer: cannot %s: %w",
			a.name(), a.address, doing, err).WithHint("%s", start)
	case strings.Contains(text, "no space left on device"):
		return cove.Errorf(cove.StorageFull, "the %s cannot %s: %w", a.name(), doing, err).WithHint("%s", space)
	}
	return cove.Errorf(cove.Unavailable, "the %s cannot %s: %w", a.name(), doing, err).
		WithHint("look at the daemon's log")
}

// startPodman is the command by which a user starts Podman's service.
func startPodman(uid int) string {
	if uid != 0 {
		return "systemctl --user start podman.socket"
	}
	return "systemctl start podman.socket"
}

func (a *api) info(ctx context.Context) (info system.Info, err error) {
	err = a.do(ctx, "say what it is", func(ctx context.Context) error {
		r, err := a.c.Info(ctx, client.InfoOptions{})
		info = r.Info
		return err
	})
	return info, err
}

// create makes a container. When an answer was lost, the container is found again by its nonce. A caller who leaves is
// kept until the daemon has answered: a container that is still being made could not be removed.
func (a *api) create(ctx context.Context, name string, config *container.Config,
	host *container.HostConfig) (id string, err error) {
	taken := false
	err = a.do(context.WithoutCancel(ctx), "make a container", func(ctx context.Context) error {
		var warnings []string
		var err error
		if a.podman.engine {
			id, warnings, err = a.podman.create(ctx, name, config, host)
		} else {
			r, cerr := a.c.ContainerCreate(ctx, client.ContainerCreateOptions{Name: name, Config: config, HostConfig: host})
			id, warnings, err = r.ID, r.Warnings, cerr
		}
		for _, w := range warnings {
			if strings.Contains(w, "forwarding is disabled") { // no container of Cove's has an interface
				continue
			}
			a.log.Warn("the "+a.name()+" warns about a container", "container", name, "warning", w)
		}
		if taken = cerrdefs.IsConflict(err); taken {
			return nil
		}
		return err
	})
	if err != nil || !taken {
		return id, err
	}
	id, err = a.identify(ctx, name, config.Labels[labelNonce])
	if err == nil && id == "" {
		err = cove.Errorf(cove.Conflict, "a container %s exists already", name)
	}
	return id, err
}

// identify finds the container that was made with a nonce; "" if it is not there, or its name is another's.
func (a *api) identify(ctx context.Context, name, nonce string) (id string, err error) {
	err = a.do(ctx, "find a container", func(ctx context.Context) error {
		r, err := a.c.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
		if cerrdefs.IsNotFound(err) {
			return nil
		}
		if err == nil && r.Container.Config != nil && r.Container.Config.Labels[labelNonce] == nonce {
			id = r.Container.ID
		}
		return err
	})
	return id, err
}

// ready makes the first process of a container of Podman's. Attaching would do so too, and tell no reason when it
// fails.
func (a *api) ready(ctx context.Context, id string) error {
	if !a.podman.engine {
		return nil
	}
	return a.do(ctx, "make a container's process", func(ctx context.Context) error {
		return a.podman.libpod(ctx, "/containers/"+id+"/init", nil, nil)
	})
}

func (a *api) start(ctx context.Context, id string) error {
	return a.do(ctx, "start a container", func(ctx context.Context) error {
		_, err := a.c.ContainerStart(ctx, id, client.ContainerStartOptions{}) // no error if it runs already
		return err
	})
}

// attach connects to a container's streams, its input among them or not. It is tried once: an attachment that is lost
// takes the container's input with it.
func (a *api) attach(ctx context.Context, id string, input bool) (s *stream, err error) {
	err = a.once(ctx, func(ctx context.Context) error {
		attached, err := a.c.ContainerAttach(ctx, id, client.ContainerAttachOptions{Stream: true, Stdin: input,
			Stdout: true, Stderr: true})
		s = &stream{conn: attached.Conn, r: attached.Reader}
		return err
	})
	if err != nil && ctx.Err() == nil {
		err = a.explain("attach to a container", err)
	}
	return s, err
}

func (a *api) inspect(ctx context.Context, id string) (c container.InspectResponse, err error) {
	err = a.do(ctx, "describe a container", func(ctx context.Context) error {
		r, err := a.c.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		c = r.Container
		return err
	})
	return c, err
}

func (a *api) exists(ctx context.Context, id, path string) (found bool, err error) {
	err = a.do(ctx, "look for a file of a container", func(ctx context.Context) error {
		_, err := a.c.ContainerStatPath(ctx, id, client.ContainerStatPathOptions{Path: path})
		if found = err == nil; isGone(err) {
			return nil
		}
		return err
	})
	return found, err
}

func (a *api) limitPIDs(ctx context.Context, id string, n int64) error {
	return a.do(ctx, "limit a container", func(ctx context.Context) error {
		_, err := a.c.ContainerUpdate(ctx, id, client.ContainerUpdateOptions{Resources: &container.Resources{PidsLimit: &n}})
		return err
	})
}

// kill ends a container's processes. One that does not run, or is not there, has none.
func (a *api) kill(ctx context.Context, id string) error {
	return a.do(ctx, "end a container", func(ctx context.Context) error {
		_, err := a.c.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"})
		if isGone(err) || cerrdefs.IsConflict(err) || hasEnded(err) {
			return nil
		}
		return err
	})
}

// hasEnded reports the error about a container that has ended while the daemon was about to end it, which has no code
// of its own.
func hasEnded(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "is not running") ||
		strings.Contains(err.Error(), "container state improper"))
}

// isGone reports that there is no such container. Podman says so without a code where it went meanwhile.
func isGone(err error) bool {
	return cerrdefs.IsNotFound(err) || err != nil && strings.Contains(err.Error(), "no such container")
}

// remove removes a container and everything that came with it. A container that is not there counts as removed; a
// removal already under way is waited for, and one that has ended meanwhile is removed then.
func (a *api) remove(ctx context.Context, nameOrID string) error {
	return a.do(ctx, "remove a container", func(ctx context.Context) error {
		for {
			_, err := a.c.ContainerRemove(ctx, nameOrID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
			switch {
			case isGone(err):
				return nil
			case !cerrdefs.IsConflict(err) && !hasEnded(err):
				return err
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

// list finds Cove's containers of one realm, running or not.
func (a *api) list(ctx context.Context, realm string) (found []container.Summary, err error) {
	err = a.do(ctx, "list its containers", func(ctx context.Context) error {
		r, err := a.c.ContainerList(ctx, client.ContainerListOptions{All: true,
			Filters: make(client.Filters).Add("label", labelRealm+"="+realm)})
		found = r.Items
		return err
	})
	return found, err
}
