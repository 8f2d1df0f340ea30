//go:build linux

package native

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/mounts"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// launch takes a blank and has it build the sandbox. A prewarmed guest may have died while it waited, which can show
// only now: then another one takes its place, and once in that of a new guest. On error the caller destroys s.
func (s *sandbox) launch(ctx context.Context) error {
	for again := true; ; {
		b, prewarmed, err := s.engine.takeBlank(ctx, s.template)
		if err != nil {
			return err
		}
		if err = s.build(ctx, b); err == nil || !prewarmed && !again || !died(err) || ctx.Err() != nil {
			return err
		}
		again = prewarmed && again
		s.engine.o.Log.Warn("a guest has died, and another one takes its place", "error", cove.ErrorMessage(err))
		if err := s.bury(); err != nil {
			return err
		}
	}
}

// bury removes everything of a guest that has died, so that another one can be the sandbox's.
func (s *sandbox) bury() error {
	err := s.remove()
	if err == nil && s.keep != nil {
		err = s.keep.Remove()
	}
	if err == nil {
		s.blank, s.keep = nil, nil
	}
	return err
}

// build has a blank build the sandbox.
func (s *sandbox) build(ctx context.Context, b *blank) (err error) {
	if b.self != nil {
		if s.keep, err = s.engine.keep(s.template, b); err != nil {
			b.remove()
			return err
		}
	}
	s.blank = b
	// The limits are for what comes after: they are set while the guest builds.
	limited := make(chan error, 1)
	go func() { limited <- s.limit() }()
	return cmp.Or(s.setUp(ctx), <-limited)
}

// limit sets every limit of the group. The user has all of the limit of tasks: the guest's threads come on top, and
// where there may be a keeper, those of the keeper.
func (s *sandbox) limit() error {
	l, keeper := s.template.Limits, int64(0)
	if s.keep != nil {
		keeper = guest.Threads + guest.LateThreads
	}
	err := s.group.Limit(cgroup.Limits{Memory: l.Memory, CPUs: l.CPUs, PIDs: l.PIDs + s.tasks + keeper,
		Sockets: local.SocketMemory(l.Memory)})
	if err != nil {
		return cove.Errorf(cove.Unsupported, "cannot set the limits: %w", err).WithHint("run \"cove doctor\"")
	}
	return nil
}

// setUp sends the plan and, for an image, its trees. Without root the guest opens those itself.
func (s *sandbox) setUp(ctx context.Context) error {
	network, err := s.lacks()
	if err != nil {
		return err
	}
	var lacking []rootfs.File
	// Root has a name, and its files are its own to change.
	if t := s.template; t.Rootfs.Kind == engine.RootfsDir && !t.User.MayBeRoot() {
		lacking = rootfs.Names(t.Rootfs.Stack(), t.User)
	}
	plan := planSetup(s.template, s.engine.host, lacking, network)
	var given []*os.File
	defer func() { local.CloseAll(given) }()
	if s.template.Rootfs.Kind == engine.RootfsDir {
		if given, err = s.openTrees(&plan); err != nil {
			return err
		}
	}
	if err := s.client.Setup(ctx, plan, local.Descriptors(given)); err != nil {
		return s.explain("build the sandbox", err)
	}
	return nil
}

// openTrees opens the trees of the plan, or has the guest do that.
func (s *sandbox) openTrees(plan *guest.Setup) (given []*os.File, err error) {
	all := trees(s.template)
	if s.engine.root {
		userns, err := s.namespace()
		if err != nil {
			return nil, err
		}
		defer userns.Close()
		for _, dir := range all {
			tree, err := mappedTree(unix.AT_FDCWD, dir, userns)
			if err != nil {
				return given, err
			}
			given = append(given, tree)
		}
		return given, nil
	}
	for i := range plan.Steps {
		if step := &plan.Steps[i]; step.Kind == guest.StepBind && step.FD != nil {
			dir := all[*step.FD]
			if _, err := os.Stat(dir); err != nil {
				return nil, imageMissing(err)
			}
			step.FD, step.Source = nil, dir
		}
	}
	return nil, nil
}

// lacks returns the network steps of the sandbox that its blank does not have yet.
func (s *sandbox) lacks() ([]guest.Step, error) {
	switch wanted := s.template.Network != cove.NetworkNone; {
	case wanted == s.online:
		return nil, nil
	case !wanted:
		return nil, cove.Errorf(cove.Internal, "sandbox %s has been given a network", s.ID())
	}
	return planNetwork()
}

// namespace opens the user namespace of the sandbox.
func (s *sandbox) namespace() (*os.File, error) {
	userns, err := os.Open("/proc/" + strconv.Itoa(s.process.PID()) + "/ns/user")
	if err != nil {
		return nil, s.explain("build the sandbox", err)
	}
	return userns, nil
}

// openTree opens an attachment whose files keep their owners.
func (s *sandbox) openTree(place *os.File) (*os.File, error) {
	userns, err := s.namespace()
	if err != nil {
		return nil, err
	}
	defer userns.Close()
	return mappedTree(int(place.Fd()), "", userns)
}

// mappedTree is a detached copy of a tree's mount on which the tree's owner ids are those of the sandbox.
func mappedTree(at int, dir string, userns *os.File) (*os.File, error) {
	tree, err := mounts.Clone(at, dir)
	if err != nil {
		return nil, imageMissing(err)
	}
	if err := mounts.Map(tree, userns); err != nil {
		tree.Close()
		return nil, cove.Errorf(cove.Unsupported, "the file system of %s has no idmapped mounts: %w", dir, err).
			WithHint("keep images on ext4, xfs, btrfs or tmpfs: set COVE_HOME")
	}
	return tree, nil
}

func imageMissing(err error) error {
	return cove.Errorf(cove.ImageMissing, "the root filesystem cannot be opened: %w", err)
}

// attach opens what a Binding attaches, in the order of planBind: as detached mounts, on which each source's owner is
// the sandbox's user, and files as they are. Without root the guest opens the sources itself, by what they are: there
// the user's processes have the caller's own id. An overlay that cannot be opened so is taken out of the binding.
func (s *sandbox) attach(b *engine.Binding) (trees []*os.File, sources []engine.Identity, err error) {
	open := func(place *os.File, clone func(*os.File) (*os.File, error)) error {
		if !s.engine.root {
			source, err := engine.Identify(place)
			sources = append(sources, source)
			return err
		}
		tree, err := clone(place)
		if err == nil {
			trees = append(trees, tree)
		}
		return err
	}
	for _, a := range b.Attachments {
		if a.Guard != nil || a.Memory != nil {
			continue // the guest finds it in what it has attached, or makes it
		}
		clone := s.openMount
		if a.Owners {
			clone = s.openTree
		}
		if err := open(a.Place, clone); err != nil {
			return trees, sources, err
		}
	}
	for i, f := range b.Files {
		if _, shown := shownAlready(b.Files, i); shown {
			continue
		}
		if err := open(f.Place, cloned); err != nil {
			return trees, sources, err
		}
	}
	if b.Overlay == nil {
		return trees, sources, nil
	}
	before, known := len(trees), len(sources)
	if err = s.openOverlay(*b, open); err != nil {
		s.engine.o.Log.Debug("a sandbox goes without its overlay", "sandbox", s.ID(), "error", err)
		local.CloseAll(trees[before:])
		b.Overlay, trees, sources = nil, trees[:before], sources[:known]
	}
	return trees, sources, nil
}

// openOverlay opens the lower directories of an overlay, and what keeps its changes: there owners are as in a
// Template.Layer, since the kernel makes files of its own.
func (s *sandbox) openOverlay(b engine.Binding,
	open func(*os.File, func(*os.File) (*os.File, error)) error) error {
	if !fits(s.template, b, s.engine.root) {
		return errors.New("its home has no place for it")
	}
	for _, place := range b.Overlay.Lower {
		if err := open(place, s.openMount); err != nil {
			return err
		}
	}
	if b.Changes == nil {
		return nil
	}
	if s.engine.root {
		u := s.template.User
		err := unix.Fchownat(int(b.Changes.Fd()), upperPlace[1:], u.UID, u.GID, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			return err
		}
	}
	return open(b.Changes, s.openTree)
}

func cloned(place *os.File) (*os.File, error) { return mounts.Clone(int(place.Fd()), "") }

func (s *sandbox) openMount(place *os.File) (*os.File, error) {
	of, err := local.OwnerOf(place)
	if err != nil {
		return nil, err
	}
	tree, err := cloned(place)
	if err != nil {
		return nil, err
	}
	userns, err := s.engine.ownership(s.blank, of, s.template.User)
	if err == nil {
		err = mounts.Map(tree, userns)
	}
	if err != nil {
		tree.Close()
		return nil, local.Unmappable(place.Name(), err)
	}
	return tree, nil
}
