package repos

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/folder"
	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// Mirrors returns the mirrors of the store.
func (s *Store) Mirrors(ctx context.Context, who cove.Principal) ([]Mirror, error) {
	if !who.SeesAll() {
		return nil, cove.Errorf(cove.Forbidden, "the store of repositories is for the machine's owner")
	}
	all, err := s.described()
	if err != nil {
		return nil, err
	}
	records, err := s.records()
	if err != nil {
		return nil, err
	}
	for i := range all {
		if err := ctx.Err(); err != nil {
			return nil, cove.Errorf(cove.Canceled, "listing repositories: %w", err)
		}
		if all[i].Size, _, err = hostdisk.Tree(ctx, s.mirror(all[i].Key).dir); err != nil {
			return nil, err
		}
		for _, r := range records {
			if r.Mirror == all[i].Key {
				all[i].Borrowers = append(all[i].Borrowers, r.ID)
				if r.Kept {
					all[i].Kept = append(all[i].Kept, filepath.Join(s.filesIn(s.directory(r.ID), r), checkoutDir))
				}
			}
		}
	}
	return all, nil
}

// known returns a mirror by any of its names: the source as requested, its address, or its key. Errors: NotFound.
func (s *Store) known(who cove.Principal, source string) (Mirror, error) {
	all, err := s.described()
	if err != nil {
		return Mirror{}, err
	}
	keys := []string{source}
	if src, err := ParseSource(who, source); err == nil && src.Dir == "" {
		keys = append(keys, src.Key)
	} else if err == nil {
		if git, err := folder.GitDirectory(src.Dir); err == nil {
			keys = append(keys, keyOfDirectory(git))
		}
	}
	// The form in the list takes precedence.
	for _, key := range keys {
		for _, m := range all {
			if m.Key == key || m.Address == key {
				return m, nil
			}
		}
	}
	return Mirror{}, cove.Errorf(cove.NotFound, "the store has no repository %.200q",
		source).WithHint(`"cove repo list" shows them`)
}

// FetchMirror fetches a repository into the store. partial omits contents of files until their first checkout.
// Errors: those of ParseSource, Outlet.Open and git; Conflict if a complete mirror exists.
func (s *Store) FetchMirror(ctx context.Context, who cove.Principal, source string, partial bool,
	progress func(workspace.Step)) (Mirror, error) {
	r, err := s.find(ctx, who, source)
	if err != nil {
		return Mirror{}, err
	}
	if partial && r.git != "" {
		return Mirror{}, cove.Errorf(cove.InvalidArgument, "%s is on this machine, and taken whole",
			r.Dir).WithHint("leave out --partial")
	}
	tell(progress, fetchStep(r))
	m := s.mirror(r.Key)
	release, err := m.hold(ctx)
	if err != nil {
		return Mirror{}, err
	}
	defer release()
	p, hangUp, err := s.dial(ctx, r, false)
	if err != nil {
		return Mirror{}, err
	}
	_, err = m.fetch(ctx, r, p, asking{head: true, partial: partial}, progress)
	if err := errors.Join(err, hangUp()); err != nil {
		return Mirror{}, err
	}
	found, err := s.known(who, r.Key)
	if err == nil {
		found.Size, _, err = hostdisk.Tree(ctx, m.dir)
	}
	return found, err
}

// RemoveMirror removes a mirror without borrowers. Errors: NotFound, Conflict.
func (s *Store) RemoveMirror(ctx context.Context, who cove.Principal, source string) error {
	found, err := s.known(who, source)
	if err != nil {
		return err
	}
	m := s.mirror(found.Key)
	release, err := m.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := s.forget(ctx); err != nil {
		return err
	}
	// Borrowers register before they take the lock.
	ids, err := s.borrowers(m.key)
	if err != nil {
		return err
	}
	if len(ids) > 0 {
		return cove.Errorf(cove.Conflict, "%d workspaces borrow from %s, such as that of %s", len(ids),
			found.Address, ids[0]).
			WithHint("destroy those sandboxes first: their history would be gone")
	}
	return m.remove()
}

// CollectMirror repacks a mirror. It keeps every object while the mirror has borrowers or is partial; otherwise it
// drops unreachable objects.
func (s *Store) CollectMirror(ctx context.Context, who cove.Principal, source string) error {
	found, err := s.known(who, source)
	if err != nil {
		return err
	}
	m := s.mirror(found.Key)
	release, err := m.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := cleanRepository(m.dir); err != nil {
		return storageFull("clean a mirror", err)
	}
	if err := s.forget(ctx); err != nil {
		return err
	}
	ids, err := s.borrowers(m.key)
	if err != nil {
		return err
	}
	repack := m.joining(found.Partial, found.Address)
	if !found.Partial {
		repack.Flags = []string{"--quiet", "-a", "-d"}
		if len(ids) > 0 {
			repack.Flags = append(repack.Flags, "--keep-unreachable")
		}
	}
	runs := []hostgit.Run{
		{Command: []string{"pack-refs"}, Flags: []string{"--all"}},
		repack,
		{Command: []string{"commit-graph", "write"}, Flags: []string{"--reachable", "--no-progress"}},
	}
	if len(ids) == 0 && !found.Partial {
		runs = slices.Insert(runs, 2, hostgit.Run{Command: []string{"prune"}, Flags: []string{"--expire=now"}})
	}
	for _, r := range runs {
		if _, err := m.git(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// forget removes the records of kept workspaces whose checkout has been removed: they borrow no more.
func (s *Store) forget(ctx context.Context) error {
	records, err := s.records()
	if err != nil {
		return err
	}
	for _, r := range records {
		dir := s.directory(r.ID)
		if _, err := os.Lstat(filepath.Join(s.filesIn(dir, r), checkoutDir)); !r.Kept || !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if _, err := os.Lstat(imageIn(dir).File); err == nil {
			continue // its work is being moved
		}
		if err := s.Remove(ctx, r.ID, false); err != nil {
			return err
		}
	}
	return nil
}
