package repos

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// isPartial reports whether a mirror is partial.
func (s *Store) isPartial(key string) bool {
	if key == "" {
		return false
	}
	m, err := s.mirror(key).description()
	return err == nil && m.Partial
}

// inCone reports whether a sparse checkout contains a file: below the directories, or beside the way to them. No
// directories means all.
func inCone(file string, sparse []string) bool {
	parent := path.Dir(file)
	return len(sparse) == 0 || parent == "." || slices.ContainsFunc(sparse, func(dir string) bool {
		dir = path.Clean(dir)
		return parent == dir || strings.HasPrefix(parent, dir+"/") || strings.HasPrefix(dir, parent+"/")
	})
}

// blobs returns the ids of a tree's files in the checkout.
func (s *Store) blobs(ctx context.Context, held []*os.File, dir, tree string, sparse []string) ([]string, error) {
	ids, files := map[string]bool{}, maxFiles
	list := &fields{each: func(entry string) error {
		head, name, _ := strings.Cut(entry, "\t") // mode, type, id
		if f := strings.Fields(head); len(f) == 3 && f[1] == "blob" && hostgit.ValidID(f[2]) && inCone(name, sparse) {
			ids[f[2]] = true
			files--
		}
		if files < 0 {
			return errTooLarge
		}
		return nil
	}}
	_, err := s.git(ctx, held, hostgit.Run{Dir: dir, Command: []string{"ls-tree"}, Flags: []string{"-r", "-z"},
		Args: []string{tree}, Stdout: list})
	if files < 0 {
		return nil, s.tooMuch()
	}
	return slices.Sorted(maps.Keys(ids)), err
}

// lacking returns the ids that a repository and its alternates lack.
func (s *Store) lacking(ctx context.Context, held []*os.File, dir string, ids []string) ([]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	out, err := s.git(ctx, held, hostgit.Run{Dir: dir, Command: []string{"cat-file"},
		Flags: []string{"--batch-check=there", "--buffer"}, Stdin: strings.NewReader(strings.Join(ids, "\n") + "\n")})
	var missing []string
	for line := range strings.Lines(string(out)) {
		if id, ok := strings.CutSuffix(strings.TrimSpace(line), " missing"); ok {
			missing = append(missing, id)
		}
	}
	return missing, err
}

// complete fetches the missing files of a checkout. Files that every sandbox may read go into the mirror, for the next
// checkout.
func (w *making) complete(ctx context.Context, r remote, p peer, shared bool, sparse []string) error {
	lacking := func() ([]string, error) {
		ids, err := w.s.blobs(ctx, w.held, w.in(importDir), w.record.Base, sparse)
		if err != nil {
			return nil, err
		}
		return w.s.lacking(ctx, w.held, w.in(importDir), ids)
	}
	ids, err := lacking()
	if err != nil || len(ids) == 0 {
		return err
	}
	step := fmt.Sprintf("fetching %d files of %s", len(ids), w.record.From)
	tell(w.progress, step)
	bring := func(held []*os.File, dir string, ids []string) error {
		if r.git == "" {
			return w.s.bring(ctx, held, p, r.URL, dir, ids, following(w.progress, step))
		}
		return bringPromised(ctx, w.s, held, r, dir, ids, following(w.progress, step))
	}
	if !shared {
		return bring(w.held, w.in(importDir), ids)
	}
	m := w.s.mirror(r.Key)
	release, err := m.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	if ids, err = lacking(); err != nil { // another process was faster
		return err
	}
	return bring(m.held, m.dir, ids)
}

// supply fetches missing objects for showing a span of work of a partial mirror: contents of changed or moved files
// outside the checkout. It requests only objects in the history that the sandbox may read, whatever its work refers to.
func (s *Store) supply(ctx context.Context, r record, sp span) error {
	if !s.isPartial(r.Mirror) {
		return nil
	}
	out, err := s.git(ctx, nil, hostgit.Run{Dir: sp.dir, Command: []string{"diff-tree"},
		Flags: []string{"-r", "-z", "--raw", "--no-renames", "--no-abbrev"}, Args: []string{sp.base, sp.head},
		Paths: sp.paths})
	if err != nil {
		return err
	}
	changes, err := parseChanges(string(out))
	if err != nil {
		return err
	}
	var ids []string
	for _, c := range changes {
		for _, e := range []Entry{c.Old, c.New} {
			if e.ID != "" && strings.Trim(e.ID, "0") != "" {
				ids = append(ids, e.ID)
			}
		}
	}
	if ids, err = s.lacking(ctx, nil, sp.dir, ids); err != nil || len(ids) == 0 {
		return err
	}
	if ids, err = s.readable(ctx, sp.dir, r.Base, ids); err != nil || len(ids) == 0 {
		return err
	}
	from := remote{Source: Source{URL: r.Remote}, who: cove.ParsePrincipal(r.Client)}
	if !filepath.IsAbs(r.Source) { // of a directory the contents are at its origin
		if from, err = s.find(ctx, from.who, r.Source); err != nil {
			return err
		}
	}
	p, hangUp, err := s.dial(ctx, from, false)
	if err != nil {
		return err
	}
	err = s.bring(ctx, nil, p, from.URL, sp.dir, ids, nil)
	if e := hangUp(); err == nil {
		err = e
	}
	return err
}

// readable returns the ids that are in the history that a sandbox may read.
func (s *Store) readable(ctx context.Context, dir, base string, ids []string) ([]string, error) {
	asked, found := map[string]bool{}, map[string]bool{}
	for _, id := range ids {
		asked[id] = true
	}
	history := &fields{end: '\n', each: func(line string) error {
		if id := strings.TrimPrefix(line, "?"); asked[id] {
			found[id] = true
		}
		return nil
	}}
	_, err := s.git(ctx, nil, hostgit.Run{Dir: dir, Command: []string{"rev-list"},
		Flags: []string{"--objects", "--no-object-names", "--missing=print", "--glob=refs/shared"}, Args: []string{base},
		Stdout: history})
	return slices.Sorted(maps.Keys(found)), err
}

// span is work since the sandbox's start.
type span struct {
	dir        string // import.git
	base, head string // ids; base is an empty tree where the sandbox began without commits
	paths      []string
	held       *os.File // keeps the work from being tidied away; must be closed
}

// span returns imported work, and makes sure that all of it can be shown. Errors: NotFound, those of supply.
func (s *Store) span(ctx context.Context, id cove.SandboxID, w Work) (_ span, err error) {
	r, err := s.repositoryOf(id)
	if err != nil {
		return span{}, err
	}
	held, err := keepImported(ctx, s.importOf(id))
	if err != nil {
		return span{}, err
	}
	defer func() {
		if err != nil {
			held.Close()
		}
	}()
	dir := s.importOf(id)
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
			sp := span{dir: dir, base: base, head: ref.ID, paths: w.Paths, held: held}
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
		Flags: []string{"-ttree", "--stdin"}, Stdin: strings.NewReader("")})
}
