//go:build linux

package docker

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/linux/enter"
	"github.com/cove-sandbox/cove/internal/linux/mounts"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// A container engine maps no owners, and gives mounts no flags. Where Cove is root on the daemon's machine, it gives
// every mount its flags, and covers what the daemon has mounted for the user with a mount of the same on which the
// source's owner is the sandbox's user.

// process is the container's PID 1 on this machine.
func (s *sandbox) process(ctx context.Context, c *running, what string) (int, error) {
	made, err := s.engine.api.inspect(ctx, c.id)
	if err != nil {
		return 0, err
	}
	if made.State == nil || s.engine.groups == nil && groupOf(made.State.Pid, c.id) == nil {
		return 0, notHere(what)
	}
	return made.State.Pid, nil
}

func notHere(what string) error {
	return cove.Errorf(cove.Unsupported, "the container's %s cannot be entered: its process is not on this machine", what).
		WithHint("use a daemon that runs here, beside this process, or --engine native")
}

// cover gives what is mounted to the sandbox's user, unless that is this user, who has it. Nothing but the guest runs
// yet.
func (s *sandbox) cover(ctx context.Context, c *running, attached []engine.Attachment) error {
	if len(attached) == 0 || s.engine.owns || !s.engine.capabilities.MountOwners {
		return nil
	}
	pid, err := s.process(ctx, c, "mounts")
	if err != nil {
		return err
	}
	var trees []*os.File
	defer func() { local.CloseAll(trees) }()
	var all []mounts.Attachment
	for _, a := range attached {
		tree, err := mounts.Clone(int(a.Place.Fd()), "")
		if err != nil {
			return err
		}
		trees = append(trees, tree)
		if err := give(s, tree); err != nil {
			return local.Unmappable(a.Place.Name(), err)
		}
		if err := mounts.Restrict(tree, attributes(a)); err != nil {
			return err
		}
		all = append(all, mounts.Attachment{Tree: tree, Target: a.Target})
	}
	return mounts.Attach(pid, all)
}

func attributes(a engine.Attachment) uint64 {
	all := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
	for attribute, is := range map[uint64]bool{unix.MOUNT_ATTR_RDONLY: a.ReadOnly, unix.MOUNT_ATTR_NOEXEC: a.NoExec,
		unix.MOUNT_ATTR_NOSYMFOLLOW: a.NoFollow} {
		if is {
			all |= attribute
		}
	}
	return all
}

// harden are the attributes of what a container engine mounts, which it gives no flags. Programs inside need the
// devices in /dev, and nothing else of the kernel's file systems can be run.
func harden(point string) uint64 {
	all := uint64(unix.MOUNT_ATTR_NOSUID)
	if !strings.HasPrefix(point+"/", "/dev/") {
		all |= unix.MOUNT_ATTR_NODEV
	}
	if point == "/dev" || strings.HasPrefix(point+"/", "/proc/") || strings.HasPrefix(point+"/", "/sys/") {
		all |= unix.MOUNT_ATTR_NOEXEC
	}
	return all
}

// restrict sets the flags of the mounts that a container has, and limits its pseudo-terminals, which belong to the
// group of tty, as container engines have it.
func restrict(ctx context.Context, e *Engine, pid int, binds []bind) error {
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return err
	}
	job := enter.Job{PID: pid, Attributes: map[string]uint64{"/": harden("/")},
		Changes: []mounts.Change{{Point: "/dev/pts", Options: []string{"gid=5", fmt.Sprint("max=", rootfs.Terminals)}}}}
	for _, point := range mounts.Below(string(table), "") {
		job.Attributes[point] = harden(point)
	}
	for _, b := range binds {
		point := path.Clean(b.target)
		if _, is := job.Attributes[point]; !is {
			return cove.Errorf(cove.Forbidden, "nothing is mounted at %s", point).
				WithHint("choose a target that is no symbolic link in the image, nor below one")
		}
		job.Attributes[point] |= b.attributes
	}
	_, err = do(ctx, e, job)
	return err
}

// give makes the owner of a detached mount the sandbox's user.
func give(s *sandbox, tree *os.File) error {
	of, err := local.OwnerOf(tree)
	if err != nil {
		return err
	}
	as := local.Owner{UID: s.template.User.UID, GID: s.template.User.GID}
	userns, err := local.Ownership(s.engine.o.Guest, nil, of, as)
	if err != nil {
		return err
	}
	defer userns.Close()
	return mounts.Map(tree, userns)
}
