//go:build linux

package docker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/mounts"
)

// plain refuses an image in which a symbolic link stands for a directory that the container runtime fills. Docker puts
// a directory there before; with Podman, runc would follow the link, and make files where it leads on the host.
func (e *Engine) plain(ctx context.Context, id string) error {
	for _, name := range []string{"/dev", "/proc", "/sys"} {
		var there *container.PathStat
		err := e.api.do(ctx, "look for a directory of an image", func(ctx context.Context) (err error) {
			there, err = e.api.podman.place(ctx, id, name)
			return err
		})
		if err != nil {
			return err
		}
		// Of a link Podman 4 tells both: that it is one, and where it leads.
		if there != nil && (!there.Mode.IsDir() || there.LinkTarget != name) {
			return cove.Errorf(cove.Forbidden, "the image's %s is no directory", name).
				WithHint("use another image, or --engine native")
		}
	}
	return nil
}

// fit gives the writable places what Podman knows no options for: a limit of files, and an owner.
func fit(ctx context.Context, guest string, pid int, w wish) error {
	l := w.template.Limits
	places, err := divide(cmp.Or(l.Disk, defaultDisk), cmp.Or(l.Inodes, defaultInodes), w.template.User)
	if err != nil {
		return err
	}
	var all []mounts.Change
	for _, p := range places {
		if slices.ContainsFunc(w.binds, func(b bind) bool { return b.target == p.Name }) {
			continue // a mount of the user's takes its place
		}
		all = append(all, mounts.Change{Point: p.Name, Options: []string{fmt.Sprintf("nr_inodes=%d", p.inodes)},
			Owner: &mounts.Owner{UID: w.template.User.UID, GID: w.template.User.UID}})
	}
	change := mounts.Reconfigure
	if os.Geteuid() != 0 {
		change = func(pid int, all ...mounts.Change) error { return withinUsers(ctx, guest, pid, all) }
	}
	if err := change(pid, all...); err != nil {
		return cove.Errorf(cove.Unsupported, "a writable place of a container cannot be limited: %w", err).
			WithHint("see that no writable place of the image is a symbolic link, or use --engine native")
	}
	return nil
}

// withinUsers changes file systems of a container of this user's: in its user namespace, which only a process with one
// thread can enter.
func withinUsers(ctx context.Context, guest string, pid int, all []mounts.Change) error {
	list, err := json.Marshal(all)
	if err != nil {
		return err
	}
	process := strconv.Itoa(pid)
	cmd := exec.CommandContext(ctx, "nsenter", "--user", "--target", process, "--", guest, "--reconfigure", process)
	cmd.Stdin = bytes.NewReader(list)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(said))
	}
	return nil
}

// enclose puts a container's process into a control group of Cove's own, where Podman limits none, and leaves the group
// in the trace. Nothing but the guest, or a sidecar, runs there yet.
func enclose(e *Engine, t *trace, pid int, r container.Resources) (*cgroup.Group, error) {
	g, err := e.groups.Create(e.names.Group(e.o.Instance, e.serial.Add(1)))
	if err == nil {
		t.group = g
		err = errors.Join(g.Limit(cgroup.Limits{Memory: r.Memory, CPUs: float64(r.NanoCPUs) / 1e9, PIDs: *r.PidsLimit}),
			g.Take(pid))
	}
	if err != nil {
		return nil, cove.Errorf(cove.Unavailable, "a container cannot be put into a control group: %w", err).
			WithHint("run \"cove doctor\"")
	}
	return g, nil
}

// check completes a container, and refuses one that is weaker than what was asked for.
func check(ctx context.Context, e *Engine, c *running, pid int, w wish, asked *container.HostConfig) error {
	if c.group == nil {
		return notHere("limits")
	}
	if err := fit(ctx, e.o.Guest, pid, w); err != nil {
		return err
	}
	return strong(e, pid, asked, w.image.Env, c.group)
}

// checkSidecar completes a sidecar of Podman's that waits for its setup, and refuses one that is weaker than what was
// asked for.
func checkSidecar(ctx context.Context, e *Engine, id string, asked *container.HostConfig, t *trace) error {
	if !e.api.podman.engine {
		return nil
	}
	made, err := e.api.inspect(ctx, id)
	if err != nil {
		return err
	}
	if made.State == nil || !made.State.Running {
		return nil // it says why on its streams
	}
	group := groupOf(made.State.Pid, id)
	if e.groups != nil {
		if group, err = enclose(e, t, made.State.Pid, asked.Resources); err != nil {
			return err
		}
	}
	if group == nil {
		return notHere("limits")
	}
	return strong(e, made.State.Pid, asked, nil, group)
}

// strong refuses a container that is weaker than what was asked for, as the kernel shows it.
func strong(e *Engine, pid int, asked *container.HostConfig, image []string, group *cgroup.Group) error {
	weaker, err := weaknesses(pid, asked, image, group)
	if err != nil {
		return cove.Errorf(cove.Unavailable, "a container cannot be checked: %w", err).WithHint("use --engine native")
	}
	if len(weaker) > 0 {
		return e.notAsked(weaker)
	}
	return nil
}

// notAsked refuses a container that is weaker than what was asked for.
func (e *Engine) notAsked(weaker []string) error {
	hint := "use Docker Engine 20.10 or newer without plugins that change containers, or --engine native"
	if e.api.podman.engine {
		hint = "use Podman 4 or newer with no containers.conf that adds to containers, or --engine native"
	}
	return cove.Errorf(cove.Unsupported, "the %s did not make the container that was asked for: %s", e.api.name(),
		strings.Join(weaker, "; ")).WithHint("%s", hint)
}
