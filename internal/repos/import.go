package repos

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

const maxImportRefs = 1000

// Import fetches a sandbox's work: its branches, its HEAD, its last stash, and WorkRef if it exists. Every object is
// checked, and none of them is executed. connect is called more than once. Refs of an earlier import that are missing
// now are removed. disk is the size of the sandbox's disk, which is what its imports may take together; 0 is none.
// Errors: NotFound, TooLarge, StorageFull, Unavailable, those of connect, and InvalidArgument for objects that git
// refuses.
func (s *Store) Import(ctx context.Context, id cove.SandboxID, disk int64, connect Connect) ([]Ref, error) {
	r, err := s.repositoryOf(id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, importTime)
	defer cancel()
	l, err := s.lockImports(ctx, r)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	i := importing{s: s, record: r, dir: s.importOf(id), disk: disk, held: []*os.File{l}, connect: connect}
	if err := i.clean(ctx, false); err != nil {
		return nil, err
	}
	refs, err := i.fetch(ctx)
	for _, free := range []func(context.Context) error{i.forget, i.tidyOthers, i.forgetOthers} {
		if _, is := errors.AsType[noRoom](err); !is {
			break
		}
		if e := errors.Join(cleanRepository(i.dir), free(ctx)); e != nil { // of what came of it
			return nil, errors.Join(err, e)
		}
		refs, err = i.fetch(ctx)
	}
	if over, is := errors.AsType[noRoom](err); is {
		err = over.error
	}
	if err != nil {
		err = errors.Join(err, cleanRepository(i.dir))
	}
	return refs, err
}

// lockImports waits for the lock of a sandbox's imports, which those of its checkouts share as they share their room.
func (c catalog) lockImports(ctx context.Context, r record) (*os.File, error) {
	of := r.ID
	if _, err := c.read(r.Within); r.Within != "" && err == nil {
		of = r.Within
	}
	return lock(ctx, filepath.Join(c.directory(of), ".import.lock"), filelock.Exclusive)
}

// importing is one import; the lock is held.
type importing struct {
	s       *Store
	record  record
	dir     string // import.git
	disk    int64
	held    []*os.File
	connect Connect
}

// forget removes what was imported before, all of which can be fetched again.
func (i importing) forget(ctx context.Context) error {
	return errors.Join(i.s.dropImported(ctx, i.held, i.dir, nil), i.clean(ctx, true))
}

// tidyOthers removes what nothing refers to from the imports that share the room.
func (i importing) tidyOthers(ctx context.Context) error {
	return i.others(func(other importing) error { return other.clean(ctx, true) })
}

// forgetOthers removes what was imported before of all that share the room.
func (i importing) forgetOthers(ctx context.Context) error {
	return i.others(func(other importing) error { return other.forget(ctx) })
}

// others calls f for the other imports that share the room, and so the lock.
func (i importing) others(f func(importing) error) error {
	var errs []error
	for _, r := range i.s.sharing(i.record) {
		if r.ID == i.record.ID {
			continue
		}
		if _, err := os.Lstat(i.s.importOf(r.ID)); errors.Is(err, fs.ErrNotExist) {
			continue // a sandbox without a repository, or just removed
		}
		other := i
		other.record, other.dir = r, i.s.importOf(r.ID)
		errs = append(errs, f(other))
	}
	return errors.Join(errs...)
}

// clean removes what a git that was killed has left, and what nothing refers to. That the latter cannot be removed
// prevents no import, unless it has to go.
func (i importing) clean(ctx context.Context, all bool) error {
	if err := cleanRepository(i.dir); err != nil {
		return storageFull("clean a repository", err)
	}
	r := importRepository{Store: i.s, dir: i.dir, partial: i.s.isPartial(i.record.Mirror)}
	err := r.tidy(ctx, i.held, all)
	if err == nil || all || ctx.Err() != nil {
		return err
	}
	i.s.disks.log.Warn("imported work cannot be tidied", "sandbox", i.record.ID, "error", err)
	if err := cleanRepository(i.dir); err != nil {
		return storageFull("clean a repository", err)
	}
	return nil
}

// room reserves the bytes that the import may bring, and returns them with the error of one that brings more.
func (i importing) room(ctx context.Context) (reserved *hostdisk.Reservation, left int64, over, err error) {
	now := room{most: cmp.Or(i.disk, 2*i.s.o.MaxImport), once: i.s.o.MaxImport}
	if now.used, err = i.s.takenOf(ctx, i.record); err != nil {
		return nil, 0, nil, err
	}
	reserved, err = i.s.disks.room.Reserve(func(free hostdisk.Room) (int64, error) {
		now.free = free
		left, over = now.left()
		return left, nil
	})
	return reserved, left, over, err
}

// fetch fetches the work, into the room that there is.
func (i importing) fetch(ctx context.Context) ([]Ref, error) {
	reserved, left, over, err := i.room(ctx)
	if err != nil {
		return nil, err
	}
	defer reserved.End()
	a, err := listRemote(ctx, i.held, i.s.stranger(i.connect, i.s.o.MaxImport, over, false), "--symref")
	if err != nil {
		return nil, err
	}
	want := a.work(!filepath.IsAbs(i.record.Hidden)) // a person's own repository has the person's stash
	if len(want) > maxImportRefs {
		return nil, cove.Errorf(cove.TooLarge, "the sandbox has %d branches; at most %d are taken", len(want), maxImportRefs)
	}
	if err := i.s.dropImported(ctx, i.held, i.dir, want); err != nil {
		return nil, err
	}
	if len(want) == 0 {
		return nil, nil
	}
	var in strings.Builder
	for _, name := range slices.Sorted(maps.Keys(want)) {
		fmt.Fprintf(&in, "+%s:%s%s\n", want[name], imported, name)
	}
	run := fetchRun(i.dir, bytes.NewBufferString(in.String()))
	run.Limits = hostgit.Limits{Memory: importMemory, FileSize: 2*left + 1, CPU: importCPU}
	_, err = i.s.stranger(i.connect, left, over, false)(ctx, i.held, run)
	if hostgit.ExitCode(err) > 0 && i.s.isPartial(i.record.Mirror) {
		run.Stdin = strings.NewReader(in.String())
		// Git accepts objects with missing references only from a filtered remote.
		run = leavingOut(run, stream, fmt.Sprintf("blob:limit=%d", i.s.o.MaxImport))
		_, err = i.s.stranger(i.connect, left, over, true)(ctx, i.held, run)
	}
	switch {
	case err == nil:
		return i.s.importedRefs(ctx, i.dir)
	case hostgit.ExitCode(err) > 0 && cove.ErrorCode(err) == cove.TooLarge:
		return nil, over
	case cove.ErrorCode(err) == cove.Internal:
		return nil, cove.Errorf(cove.InvalidArgument, "git refuses the sandbox's objects: %w",
			err).WithHint(`look at it inside: "git fsck"`)
	}
	return nil, err
}

// work returns the refs to import: names in import.git to names inside.
func (a advert) work(stash bool) map[string]string {
	want := map[string]string{}
	for ref := range a.refs {
		if name, ok := strings.CutPrefix(ref, "refs/heads/"); ok {
			want["heads/"+name] = ref
		}
	}
	if _, ok := a.refs[WorkRef]; ok {
		want["work"] = WorkRef
	}
	if a.stash != "" && stash {
		want["stash"] = stashRef
	}
	if a.at != "" {
		want["HEAD"] = "HEAD"
	}
	return want
}

// dropImported removes refs of an earlier import that are missing in the next one or conflict with it.
func (s *Store) dropImported(ctx context.Context, held []*os.File, dir string, want map[string]string) error {
	have, err := s.importedRefs(ctx, dir)
	if err != nil {
		return err
	}
	var in bytes.Buffer
	for _, r := range have {
		if _, ok := want[r.Name]; !ok {
			fmt.Fprintf(&in, "delete %s%s\n", imported, r.Name)
		}
	}
	if in.Len() == 0 {
		return nil
	}
	_, err = s.git(ctx, held, hostgit.Run{Dir: dir, Command: []string{"update-ref"},
		Flags: []string{"--stdin"}, Stdin: &in})
	return err
}

// ImportDirectory returns the git directory on the host that holds a sandbox's imported work, below refs/sandbox/.
func (s *Store) ImportDirectory(id cove.SandboxID) string { return s.importOf(id) }

// Push pushes imported work to a branch of the sandbox's remote, from the host and without force, through the given
// outlet. Errors: NotFound, InvalidArgument, Forbidden, Conflict, those of Outlet.Open.
func (s *Store) Push(ctx context.Context, id cove.SandboxID, w Work, branch string, outlet Outlet) error {
	r, err := s.repositoryOf(id)
	if err != nil {
		return err
	}
	if r.Remote == "" {
		return cove.Errorf(cove.InvalidArgument, "the repository of the sandbox has no address to push to").WithHint(
			"apply its work to your checkout instead: cove apply")
	}
	if !hostgit.ValidBranch(branch) {
		return cove.Errorf(cove.InvalidArgument, "%.200q is no name of a branch", branch)
	}
	sp, err := s.span(ctx, id, w)
	if err != nil {
		return err
	}
	defer sp.held.Close()
	// the machine pushes only for its owner
	p, hangUp, err := s.dialBy(ctx, outlet, remote{Source: Source{URL: r.Remote}, who: cove.MachineOwner()}, true)
	if err != nil {
		return err
	}
	run := hostgit.Run{Dir: sp.dir, Command: []string{"push"}, Flags: []string{"--no-verify", "--no-follow-tags"},
		Args: []string{sp.head + ":refs/heads/" + branch}}
	if s.isPartial(r.Mirror) { // what the remote has may be missing here, also where its branches have moved on
		run.Settings = []hostgit.Setting{{Key: "push.negotiate", Value: "true"}}
	}
	_, err = p(ctx, nil, run)
	if err != nil && (strings.Contains(err.Error(), "[rejected]") || strings.Contains(err.Error(), "fetch first") ||
		strings.Contains(err.Error(), "non-fast-forward")) {
		err = cove.Errorf(cove.Conflict, "the remote has commits on %s that the sandbox has not: %w", branch,
			err).WithHint("fetch and merge them in the sandbox, then push again")
	}
	if err == nil {
		s.Deliver(id, sp.head)
	}
	return errors.Join(err, hangUp())
}
