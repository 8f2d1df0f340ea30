package repos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

const (
	maxImportRefs = 1000
	importMemory  = 4 << 30 // bytes
	importCPU     = 10 * time.Minute
)

// Import fetches a sandbox's work: its branches, its HEAD, and WorkRef if it exists. Every object is checked, and none
// of them is executed. connect is called more than once. Refs of an earlier import that are missing now are removed.
// Errors: NotFound, TooLarge, Unavailable, those of connect, and InvalidArgument for objects that git refuses.
func (s *Store) Import(ctx context.Context, id cove.SandboxID, connect Connect) ([]Ref, error) {
	r, err := s.repositoryOf(id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, importTime)
	defer cancel()
	dir := filepath.Join(s.directory(id), importDir)
	l, err := lock(ctx, filepath.Join(s.directory(id), ".import.lock"), syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	held := []*os.File{l}
	if err := cleanRepository(dir); err != nil {
		return nil, storageFull("clean a repository", err)
	}
	p := s.stranger(connect, s.o.MaxImport, false)
	a, err := listRemote(ctx, held, p, "--symref")
	if err != nil {
		return nil, err
	}
	want := a.work()
	if len(want) > maxImportRefs {
		return nil, cove.Errorf(cove.TooLarge, "the sandbox has %d branches; at most %d are taken", len(want), maxImportRefs)
	}
	if err := s.dropImported(ctx, held, dir, want); err != nil {
		return nil, err
	}
	if len(want) == 0 {
		return nil, nil
	}
	var in strings.Builder
	for _, name := range slices.Sorted(maps.Keys(want)) {
		fmt.Fprintf(&in, "+%s:%s%s\n", want[name], imported, name)
	}
	run := fetchRun(dir, bytes.NewBufferString(in.String()))
	run.Limits = hostgit.Limits{Memory: importMemory, FileSize: 2 * s.o.MaxImport, CPU: importCPU}
	_, err = p(ctx, held, run)
	if hostgit.ExitCode(err) > 0 && s.isPartial(r.Mirror) {
		_, err = s.importPartial(ctx, held, connect, run, in.String())
	}
	if err != nil {
		if cove.ErrorCode(err) == cove.Internal {
			return nil, cove.Errorf(cove.InvalidArgument, "git refuses the sandbox's objects: %w",
				err).WithHint(`look at it inside: "git fsck"`)
		}
		return nil, err
	}
	return s.importedRefs(ctx, dir)
}

// work returns the refs to import: names in import.git to names inside.
func (a advert) work() map[string]string {
	want := map[string]string{}
	for ref := range a.refs {
		if name, ok := strings.CutPrefix(ref, "refs/heads/"); ok {
			want["heads/"+name] = ref
		}
	}
	if _, ok := a.refs[WorkRef]; ok {
		want["work"] = WorkRef
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
func (s *Store) ImportDirectory(id cove.SandboxID) string {
	return filepath.Join(s.directory(id), importDir)
}

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
