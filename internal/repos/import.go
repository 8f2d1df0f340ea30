package repos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// WorkRef is the ref of the commit, in a sandbox's repository, that holds uncommitted work for Import.
const WorkRef = "refs/cove/work"

// imported is the prefix of the sandbox's refs in import.git: HEAD, work, and heads/NAME.
const imported = "refs/sandbox/"

const (
	maxImportRefs = 1000
	importMemory  = 4 << 30 // bytes
	importCPU     = 10 * time.Minute
)

// Ref is a ref imported from a sandbox.
type Ref struct {
	Name string // "HEAD", "work" (WorkRef), "heads/NAME"
	ID   string
}

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

func (s *Store) importedRefs(ctx context.Context, dir string) ([]Ref, error) {
	out, err := s.git(ctx, nil, hostgit.Run{Dir: dir, Command: []string{"for-each-ref"},
		Flags: []string{"--format=%(objectname) %(refname)"}, Args: []string{imported}})
	if err != nil {
		return nil, err
	}
	var refs []Ref
	for line := range strings.Lines(string(out)) {
		id, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		refs = append(refs, Ref{Name: strings.TrimPrefix(name, imported), ID: id})
	}
	return refs, nil
}

// ImportDirectory returns the git directory on the host that holds a sandbox's imported work, below refs/sandbox/.
func (s *Store) ImportDirectory(id cove.SandboxID) string {
	return filepath.Join(s.directory(id), importDir)
}

// repositoryOf returns the record of a workspace with a repository.
func (s *Store) repositoryOf(id cove.SandboxID) (record, error) {
	r, err := s.read(id)
	if err == nil && r.Source == "" {
		err = cove.Errorf(cove.InvalidArgument, "the sandbox works on no repository")
	}
	return r, err
}

// Work selects a part of the imported work.
type Work struct {
	// Ref is one of Import's refs; empty means uncommitted work if there is any, else HEAD.
	Ref   string
	Paths []string // below the root of the repository; nil is all
}

// span is work since the sandbox's start.
type span struct {
	dir        string // import.git
	base, head string // ids; base is an empty tree where the sandbox began without commits
	paths      []string
}

// span returns imported work, and makes sure that all of it can be shown. Errors: NotFound, those of supply.
func (s *Store) span(ctx context.Context, id cove.SandboxID, w Work) (span, error) {
	r, err := s.repositoryOf(id)
	if err != nil {
		return span{}, err
	}
	dir := filepath.Join(s.directory(id), importDir)
	refs, err := s.importedRefs(ctx, dir)
	if err != nil {
		return span{}, err
	}
	names := []string{w.Ref}
	if w.Ref == "" {
		names = []string{"work", "HEAD"}
	}
	for _, p := range w.Paths {
		if !filepath.IsLocal(p) {
			return span{}, cove.Errorf(cove.InvalidArgument, "%.200q is no path in a repository", p)
		}
	}
	for _, name := range names {
		for _, ref := range refs {
			if ref.Name != name {
				continue
			}
			base := r.Base
			if base == "" {
				base, err = s.emptyTree(ctx, dir)
			}
			sp := span{dir: dir, base: base, head: ref.ID, paths: w.Paths}
			if err == nil {
				err = s.supply(ctx, r, sp)
			}
			return sp, err
		}
	}
	return span{}, cove.Errorf(cove.NotFound, "there is no such work of the sandbox: %q",
		names[0]).WithHint("it has to be imported first")
}

// emptyTree returns the id of the empty tree, which git knows without storing it.
func (s *Store) emptyTree(ctx context.Context, dir string) (string, error) {
	return s.line(ctx, nil, hostgit.Run{Dir: dir, Command: []string{"hash-object"},
		Flags: []string{"-t", "tree", "--stdin"}, Stdin: strings.NewReader("")})
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
	_, err = p(ctx, nil, hostgit.Run{Dir: sp.dir, Command: []string{"push"},
		Flags: []string{"--no-verify", "--no-follow-tags"}, Args: []string{sp.head + ":refs/heads/" + branch}})
	if err != nil && (strings.Contains(err.Error(), "[rejected]") || strings.Contains(err.Error(), "fetch first") ||
		strings.Contains(err.Error(), "non-fast-forward")) {
		err = cove.Errorf(cove.Conflict, "the remote has commits on %s that the sandbox has not: %w", branch,
			err).WithHint("fetch and merge them in the sandbox, then push again")
	}
	return errors.Join(err, hangUp())
}

// cleanRepository removes the remains of a git process that was killed while writing. The caller must hold the lock
// that excludes writers.
func cleanRepository(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if name := d.Name(); strings.HasSuffix(name, ".lock") || strings.HasPrefix(name, "tmp_") ||
			strings.HasPrefix(name, ".tmp-") {
			return os.Remove(path)
		}
		return nil
	})
}
