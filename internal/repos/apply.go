package repos

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/folder"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// Apply applies imported work to a person's checkout, entirely or not at all. A file that differs from the sandbox's
// base is a Conflict, or merged. dir must have passed package hostpath; no symlink in it is followed. If the process is
// killed in between, the next one rolls the changes back. Errors: NotFound, Forbidden (see Judge), Conflict, TooLarge,
// StorageFull.
func (s *Store) Apply(ctx context.Context, id cove.SandboxID, w Work, dir string, style ApplyStyle) (Applied, error) {
	sp, err := s.span(ctx, id, w)
	if err != nil {
		return Applied{}, err
	}
	defer sp.held.Close()
	done, err := apply(ctx, s, sp, dir, style)
	if err == nil && w.Paths == nil && style.Choice == nil && len(done.Conflicts) == 0 {
		s.Deliver(id, sp.head)
	}
	return done, err
}

func apply(ctx context.Context, s *Store, sp span, dir string, style ApplyStyle) (Applied, error) {
	changes, err := s.changes(ctx, sp, ChangeStyle{Patches: choosesParts(style.Choice)})
	if err != nil {
		return Applied{}, err
	}
	if changes, err = chosen(changes, style.Choice); err != nil {
		return Applied{}, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Applied{}, cove.Errorf(cove.NotFound, "the directory %q cannot be opened: %w", dir, err)
	}
	defer root.Close()
	if err := refuse(Judge(changes, checkout(ctx, root)), style.Restricted); err != nil {
		return Applied{}, err
	}
	for i, c := range changes {
		if parts := style.Choice[c.Path].Parts; parts != nil {
			if changes[i], err = part(ctx, s, sp.dir, c, parts); err != nil {
				return Applied{}, err
			}
		}
	}
	var ids []string
	for _, c := range changes {
		if isFile(c.New) {
			ids = append(ids, c.New.ID)
		}
	}
	content, err := s.contents(ctx, sp.dir, ids, maxApplied)
	if err != nil {
		return Applied{}, err
	}
	if err := s.takeBack(dir); err != nil {
		return Applied{}, err
	}
	t, err := openTree(dir)
	if err != nil {
		return Applied{}, err
	}
	defer t.close()
	if t.forms, err = workingForms(ctx, s, sp.dir, dir, changes); err != nil {
		return Applied{}, err
	}
	done := Applied{Changes: changes}
	meet := func(c Change, _ Entry, why error) (Change, error) { return c, why }
	if style.Merge {
		meet = func(c Change, have Entry, _ error) (Change, error) {
			return s.merge(ctx, sp.dir, t, c, have, content, &done)
		}
	}
	todo, err := t.pending(changes, meet)
	if err != nil || len(todo) == 0 {
		return done, err
	}
	return done, s.make(t, dir, todo, content)
}

// checkout returns what Judge needs to know of a directory, which is open as root.
func checkout(ctx context.Context, root *os.Root) Checkout {
	to := Checkout{Has: func(p string) bool {
		_, err := root.Lstat(p)
		return err == nil
	}}
	if common, own, err := folder.GitDirectories(root.Name()); err == nil { // else no git runs there
		for _, git := range slices.Compact([]string{common, own}) {
			to.Named = append(to.Named, hostgit.Named(ctx, git, root.Name())...)
		}
	}
	return to
}

// make applies judged changes to a directory, or none of them.
func (s *Store) make(t *tree, dir string, todo []Change, content map[string][]byte) error {
	j, err := s.begin(t, dir, todo)
	if err != nil {
		return err
	}
	defer j.close()
	err = t.stage(j.Staging, todo, content)
	for i := 0; i < len(todo) && err == nil; i++ {
		err = t.exchange(i, todo[i])
	}
	if err != nil {
		return errors.Join(err, t.rollback(j))
	}
	return t.commit(j)
}
