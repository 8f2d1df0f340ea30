//go:build linux

package docker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/enter"
	"github.com/cove-sandbox/cove/internal/linux/mounts"
	"github.com/cove-sandbox/cove/internal/rootfs"
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
func fit(ctx context.Context, e *Engine, pid int, w wish) error {
	l := w.template.Limits
	places, err := divide(cmp.Or(l.Disk, defaultDisk), cmp.Or(l.Inodes, defaultInodes), w.template.User)
	if err != nil {
		return err
	}
	job := enter.Job{PID: pid}
	for _, p := range places {
		if slices.ContainsFunc(w.binds, func(b bind) bool { return b.target == p.Name }) {
			continue // a mount of the user's takes its place
		}
		job.Changes = append(job.Changes, mounts.Change{Point: p.Name,
			Options: []string{fmt.Sprintf("nr_inodes=%d", p.inodes)},
			Owner:   &mounts.Owner{UID: w.template.User.UID, GID: w.template.User.UID}})
	}
	if _, err := do(ctx, e, job); err != nil {
		return cove.Errorf(cove.Unsupported, "a writable place of a container cannot be limited: %w", err).
			WithHint("see that no writable place of the image is a symbolic link, or use --engine native")
	}
	return nil
}

// enclose puts a container's process into a control group of Cove's own, where Podman limits none, and leaves the group
// in the trace. Nothing but the guest runs there yet.
func enclose(ctx context.Context, e *Engine, by cove.InstanceID, t *trace, pid int,
	r container.Resources) (*cgroup.Group, error) {
	g, err := e.groups.Create(e.names.Group(by, e.serial.Add(1)))
	if err == nil {
		t.group = g
		err = g.Limit(cgroup.Limits{Memory: r.Memory, CPUs: float64(r.NanoCPUs) / 1e9, PIDs: *r.PidsLimit})
	}
	if err == nil {
		_, err = do(ctx, e, enter.Job{PID: pid, Groups: g.Dirs()})
	}
	if err != nil {
		return nil, cove.Errorf(cove.Unavailable, "a container cannot be put into a control group: %w", err).
			WithHint("run \"cove doctor\"")
	}
	return g, nil
}

// check completes a container, and refuses one that is weaker than what was asked for.
func check(ctx context.Context, e *Engine, c *running, w wish, asked *container.HostConfig) error {
	if c.group == nil {
		return notHere("limits")
	}
	if err := fit(ctx, e, c.pid, w); err != nil {
		return err
	}
	job := enter.Job{PID: c.pid, Environ: true}
	if e.owns {
		job.Sysctls = map[string]string{}
		for _, s := range rootfs.ReadWatches() {
			job.Sysctls[s.Name] = s.Value
		}
	}
	done, err := do(ctx, e, job)
	if err != nil {
		return unchecked(err)
	}
	weaker, err := weaknesses(c.pid, asked, c.group)
	if err != nil {
		return unchecked(err)
	}
	weaker = append(weaker, weakEnv(strings.Split(string(done.Environ), "\x00"), w.image.Env)...)
	if e.owns {
		ids, err := weakIDs(c.pid, w.template.User)
		if err != nil {
			return unchecked(err)
		}
		weaker = append(weaker, ids...)
	}
	if len(weaker) > 0 {
		return e.notAsked(weaker)
	}
	return nil
}

func unchecked(err error) error {
	return cove.Errorf(cove.Unavailable, "a container cannot be checked: %w", err).WithHint("use --engine native")
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
