package repos

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// Create implements workspace.Workspaces. Everything belongs to the account that runs Cove; an engine that maps the
// owners of mounts shows it as the sandbox's user's (engine.Capabilities.MountOwners).
func (s *Store) Create(ctx context.Context, spec workspace.Spec,
	progress func(workspace.Step)) (_ workspace.Workspace, err error) {
	if _, err := cove.ParseSandboxID(string(spec.ID)); err != nil {
		return workspace.Workspace{}, err
	}
	final := s.directory(spec.ID)
	if _, err := os.Lstat(final); err == nil {
		return workspace.Workspace{}, cove.Errorf(cove.Conflict, "the workspace of %s is there already", spec.ID)
	}
	l, err := lock(ctx, s.creating(), filelock.Shared)
	if err != nil {
		return workspace.Workspace{}, err
	}
	defer l.Close()
	w := &making{s: s, spec: spec, dir: filepath.Join(s.workspaces, coming+string(spec.ID)), final: final,
		held: []*os.File{l}, progress: progress}
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return workspace.Workspace{}, cove.Errorf(cove.Conflict, "the workspace of %s is being made", spec.ID)
		}
		return workspace.Workspace{}, storageFull("make a workspace", err)
	}
	w.record = record{ID: spec.ID, Client: spec.Owner.String(), Created: time.Now().UTC()}
	defer func() {
		w.disk.held.End()
		if err != nil {
			err = errors.Join(w.disk.explain(err), s.abandonWorktree(context.WithoutCancel(ctx), w.record),
				removeWorkspace(w.dir))
			if w.files != "" {
				err = errors.Join(err, removeAll(w.files))
			}
		}
	}()
	if err := w.place(ctx); err != nil {
		return workspace.Workspace{}, err
	}
	if err := w.directories(); err != nil {
		return workspace.Workspace{}, err
	}
	if spec.Layer {
		w.record.Layer = true
		if err := engine.MakeLayer(filepath.Join(w.files, layerDir)); err != nil {
			return workspace.Workspace{}, err
		}
	}
	if spec.Bind != "" {
		if err := w.bind(); err != nil {
			return workspace.Workspace{}, err
		}
	}
	if spec.Repository != nil {
		if err := w.repository(ctx, *spec.Repository); err != nil {
			return workspace.Workspace{}, err
		}
	}
	if err := writeRecord(w.dir, w.record); err != nil {
		return workspace.Workspace{}, err
	}
	if err := os.Rename(w.dir, final); err != nil {
		return workspace.Workspace{}, storageFull("put the workspace in place", err)
	}
	if w.record.Within != "" {
		if err := s.lend(w.record); err != nil {
			return workspace.Workspace{}, errors.Join(err, s.Remove(context.WithoutCancel(ctx), spec.ID, false))
		}
	}
	return s.shape(w.record), nil
}

// place decides where the workspace's files are: on a new disk, or on that of the sandbox that will contain it.
func (w *making) place(ctx context.Context) (err error) {
	w.disk.disks = w.s.disks
	if w.spec.Within == "" {
		w.disk, err = w.s.disks.add(ctx, w.dir, w.spec.Disk)
		w.record.Disk, w.record.Files = w.disk.kind, w.disk.files()
	} else if w.host, err = w.s.hostOf(ctx, w.spec); err == nil {
		w.record.Files, w.record.Within = w.host.Files, w.host.ID
		w.record.Place = "work-" + strings.TrimPrefix(string(w.spec.ID), "sb_")[:12]
		if w.host.Disk != "" {
			w.disk = newDisk{disks: w.s.disks, dir: w.s.directory(w.host.ID), size: w.spec.Disk, kind: w.host.Disk}
		}
	}
	if err == nil {
		w.files = w.s.filesIn(w.dir, w.record)
	}
	return err
}

// bind uses a person's own directory as the workspace: a mount, whose .git is read-only inside like that of any other.
func (w *making) bind() error {
	if w.spec.Repository != nil || !filepath.IsAbs(w.spec.Bind) {
		return cove.Errorf(cove.InvalidArgument, "a directory that is bound is absolute, and takes the place of a repository")
	}
	w.record.Bound = filepath.Clean(w.spec.Bind)
	if info, err := os.Stat(w.record.Bound); err != nil || !info.IsDir() {
		return cove.Errorf(cove.InvalidArgument, "%s is not a directory", w.record.Bound)
	}
	return nil
}

// shape returns a workspace by its record.
func (s *Store) shape(r record) workspace.Workspace {
	files := s.filesIn(s.directory(r.ID), r)
	w := workspace.Workspace{
		ID: r.ID, Root: s.o.Home, Directory: filepath.Join(files, checkoutDir), Home: filepath.Join(files, homeDir),
		Disk: r.Disk, Hidden: r.Hidden, Worktree: r.Worktree,
		Checkout: workspace.Checkout{Source: r.Source, Remote: r.Remote, Branch: r.Branch, From: r.From, Base: r.Base,
			Shared: r.Shared},
	}
	if r.Within != "" {
		w.Directory, w.Home, w.Place = "", "", path.Join(cove.Home, r.Place)
		return w
	}
	w.Volumes = filepath.Join(files, volumesDir)
	if r.Layer {
		w.Layer = filepath.Join(files, layerDir)
	}
	if r.Bound != "" {
		w.Directory, w.Bound = r.Bound, true
	}
	if r.Hidden != "" && !filepath.IsAbs(r.Hidden) {
		w.Hidden = filepath.Join(files, r.Hidden)
	}
	if r.Mirror != "" {
		w.Borrowed = filepath.Join(s.mirror(r.Mirror).dir, "objects")
	}
	return w
}

// Open implements workspace.Workspaces.
func (s *Store) Open(ctx context.Context, id cove.SandboxID) (workspace.Workspace, error) {
	r, err := s.read(id)
	if err != nil {
		return workspace.Workspace{}, err
	}
	err = s.disks.mounted(ctx, r)
	if err = cmp.Or(err, s.disks.checkCheckout(r)); err != nil {
		return workspace.Workspace{}, err
	}
	return s.shape(r), nil
}

// CheckRemove implements workspace.Workspaces.
func (s *Store) CheckRemove(id cove.SandboxID, keepWork bool) error {
	if _, err := cove.ParseSandboxID(string(id)); err != nil {
		return err
	}
	dir := s.directory(id)
	r, err := readRecord(dir)
	if err != nil { // a workspace with an unreadable record is removed too, and its work cannot be kept
		if !keepWork || cove.ErrorCode(err) == cove.NotFound {
			return nil
		}
		return err
	}
	return refuseRemoval(r, keepWork, s.keptIn(dir, r))
}

// refuseRemoval refuses to remove a workspace in a way that its work does not allow. in is the directory with work that
// was kept, if that is still there. It is pure.
func refuseRemoval(r record, keepWork bool, in string) error {
	switch {
	case keepWork && r.Within != "":
		return cove.Errorf(cove.Unsupported, "the work of %s is within another sandbox, and goes with its checkout",
			r.ID).WithHint("push or apply it first, then remove it without keeping it")
	case !keepWork && in != "":
		return cove.Errorf(cove.Conflict, "the work of %s was kept, and is a directory of yours: %s", r.ID, in).
			WithHint("remove the rest: cove destroy --keep-work %s; or remove that directory first", r.ID)
	}
	return nil
}

// Remove implements workspace.Workspaces. A kept checkout borrows from its mirror until it has been removed and forget
// has run.
func (s *Store) Remove(ctx context.Context, id cove.SandboxID, keepWork bool) error {
	if err := s.CheckRemove(id, keepWork); err != nil {
		return err
	}
	dir := s.directory(id)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	r, err := readRecord(dir)
	if keepWork && r.Bound == "" {
		if err != nil {
			return err
		}
		return s.disks.keep(ctx, r, checkoutConfig(r, "", s.isPartial(r.Mirror), false))
	}
	if err == nil { // one with an unreadable record is removed too
		if r.Mirror != "" {
			s.mirror(r.Mirror).used()
		}
		if err := s.releaseWorktree(r); err != nil {
			return err
		}
		if err := s.takeHome(ctx, r); err != nil {
			return err
		}
	}
	gone := filepath.Join(s.workspaces, going+string(id)+"-"+time.Now().UTC().Format("20060102T150405.000000000"))
	if err := os.Rename(dir, gone); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return storageFull("remove the workspace of "+string(id), err)
	}
	return removeWorkspace(gone)
}

// List implements workspace.Workspaces.
func (s *Store) List(context.Context) ([]cove.SandboxID, error) {
	entries, err := os.ReadDir(s.workspaces)
	if err != nil {
		return nil, storageFull("read "+s.workspaces, err)
	}
	var ids []cove.SandboxID
	for _, e := range entries {
		id, err := cove.ParseSandboxID(e.Name())
		if err != nil || !e.IsDir() {
			continue
		}
		if r, err := readRecord(s.directory(id)); err == nil && r.Kept {
			continue
		}
		ids = append(ids, id) // including ones with unreadable records, so that they can be removed
	}
	slices.Sort(ids)
	return ids, nil
}
