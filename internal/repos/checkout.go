package repos

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/folder"
	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// repository makes the checkout of a repository, with the ignored files that are wanted.
func (w *making) repository(ctx context.Context, want workspace.Repository) error {
	if err := checkRepository(want); err != nil {
		return err
	}
	if want.Upload != nil {
		return uploaded(ctx, w, want)
	}
	if len(want.Ignored) == 0 {
		return w.checkedOut(ctx, want)
	}
	r, err := w.s.find(ctx, w.spec.Owner, want.Source) // whether the directory may be read
	if err != nil {
		return err
	}
	top, paths, err := checkIgnored(ctx, r.Dir, want.Ignored)
	if err != nil {
		return err
	}
	if err := w.checkedOut(ctx, want); err != nil {
		return err
	}
	return takeIgnored(ctx, top, paths, filepath.Join(w.files, checkoutDir), w.progress)
}

// checkedOut makes the checkout of a repository, as git does.
func (w *making) checkedOut(ctx context.Context, want workspace.Repository) error {
	if want.Uncommitted {
		dir, err := w.s.plainDirectory(w.spec.Owner, want)
		if err != nil {
			return err
		}
		if dir != "" {
			return w.plain(ctx, dir, want)
		}
	}
	r, err := w.s.find(ctx, w.spec.Owner, want.Source)
	if err != nil {
		return err
	}
	w.record.Source, w.record.Repository = want.Source, r.Key
	if want.Worktree && r.git != "" {
		if w.record.Remote, err = origin(ctx, r); err != nil {
			return err
		}
		return w.worktreeOf(ctx, r, want)
	}
	if want.Depth == 0 {
		w.record.Mirror = r.Key
	}
	// From here on the mirror cannot be removed.
	if err := w.claim(); err != nil {
		return err
	}
	var address string
	var why error
	var asking sync.WaitGroup
	asking.Go(func() { address, why = origin(ctx, r) })
	at, refs, err := w.obtain(ctx, r, want)
	asking.Wait()
	if err := cmp.Or(err, why); err != nil {
		return err
	}
	w.record.Remote = address
	if err := w.checkFormat(ctx, r); err != nil {
		return err
	}
	if want.Uncommitted {
		top, err := folder.Top(r.Dir)
		if err != nil {
			return err
		}
		if err := w.snapshot(ctx, top, r.git, maxFiles); err != nil {
			return err
		}
	}
	tell(w.progress, w.checkoutStep())
	if want.Worktree {
		return w.worktree(ctx, at, refs, want.Sparse)
	}
	return w.private(ctx, at, refs, want.Sparse)
}

// checkFormat refuses a directory with SHA-256 ids whose remote has SHA-1 ids: nothing of it can be pushed there. A
// remote that does not answer, or is empty, is not known to have either. Errors: Unsupported.
func (w *making) checkFormat(ctx context.Context, r remote) error {
	if r.git == "" || w.record.Remote == "" || len(w.record.Base) != hex.EncodedLen(sha256.Size) {
		return nil
	}
	p, hangUp, err := w.s.dial(ctx, remote{Source: Source{URL: w.record.Remote}, who: r.who}, false)
	if err != nil {
		return nil
	}
	a, err := listRemote(ctx, w.held, p, "--heads", "--tags")
	if err := errors.Join(err, hangUp()); err != nil || len(a.refs) == 0 || a.objectFormat() == "sha256" {
		return ctx.Err()
	}
	return cove.Errorf(cove.Unsupported, "the repository %s has SHA-256 object ids, and its remote %s has SHA-1 ids: "+
		"nothing can be pushed to it", r.Dir, w.record.Remote).WithHint("name a remote with SHA-256 ids, or none: "+
		"git -C %s remote remove origin", r.Dir)
}

// checkRepository refuses contradictory requests. Errors: InvalidArgument.
func checkRepository(want workspace.Repository) error {
	bad := func(format string, args ...any) error { return cove.Errorf(cove.InvalidArgument, format, args...) }
	if want.Upload != nil {
		if err := checkUpload(want); err != nil {
			return err
		}
	}
	switch {
	case len(want.Ignored) > 0 && !filepath.IsAbs(want.Source):
		return bad("only a directory of this machine has ignored files to take, and %s is none", want.Source)
	case want.Depth < 0:
		return bad("a depth is the number of commits")
	case want.Depth > 0 && want.Worktree:
		return bad("a worktree has the history of its repository: it has no depth of its own")
	case want.Uncommitted && (want.Worktree || want.Depth > 0 || want.From != ""):
		return bad("what is not committed comes after what is checked out: it goes with no worktree, depth or other " +
			"beginning")
	case len(want.Sparse) > maxSparse:
		return bad("at most %d directories can be checked out", maxSparse)
	}
	for _, dir := range want.Sparse {
		clean := path.Clean(dir)
		if dir == "" || !filepath.IsLocal(clean) || strings.HasPrefix(dir, "-") || strings.ContainsAny(dir, `*?[]!\"`) ||
			strings.ContainsFunc(dir, unicode.IsControl) {
			return bad("%.200q is no directory of a repository", dir)
		}
	}
	return nil
}

// obtain fetches the required objects into the mirror and the workspace's import.git, and decides the start. refs are
// those that every sandbox may read, and the starting ref.
func (w *making) obtain(ctx context.Context, r remote,
	want workspace.Repository) (at start, refs map[string]string, err error) {
	p, hangUp, err := w.s.dial(ctx, r, false)
	if err != nil {
		return start{}, nil, err
	}
	defer func() { err = errors.Join(err, hangUp()) }()
	tell(w.progress, fetchStep(r))
	var a advert
	if want.Depth > 0 {
		a, err = listRemote(ctx, w.held, p, "--symref")
	} else {
		a, err = w.mirrored(ctx, r, p)
	}
	if err != nil {
		return start{}, nil, err
	}
	if at, err = w.plan(ctx, a, want); err != nil {
		return start{}, nil, err
	}
	refs = a.shared(w.s.o.Shared)
	for _, ref := range slices.Sorted(maps.Keys(refs)) {
		if name, ok := strings.CutPrefix(ref, "refs/heads/"); ok {
			w.record.Shared = append(w.record.Shared, name)
		}
	}
	_, shared := refs[at.ref]
	if want.Depth > 0 {
		refs = map[string]string{} // their commits are missing
	}
	if at.ref != "" {
		refs[at.ref] = at.id
	}
	w.head = a.guessHead()
	if w.partial && want.Worktree {
		return start{}, nil, cove.Errorf(cove.InvalidArgument,
			"the store has the repository in part, and git beside a worktree fetches nothing by itself").WithHint(
			"leave out --worktree, or have it whole: cove repo remove, then cove repo fetch")
	}
	if err := w.importer(a.objectFormat(), refs, shared && want.Depth == 0, at); err != nil {
		return start{}, nil, err
	}
	if at.id == "" {
		return at, refs, nil
	}
	if !shared || want.Depth > 0 {
		if err := w.extra(ctx, r, p, at, want.Depth); err != nil {
			return start{}, nil, err
		}
	}
	w.record.Base = at.id
	if !strings.HasPrefix(at.ref, "refs/heads/") { // a branch always leads to a commit
		w.record.Base, err = w.s.line(ctx, w.held, hostgit.Run{Dir: w.in(importDir), Command: []string{"rev-parse"},
			Flags: []string{"--verify", "--quiet"}, Args: []string{at.id + "^{commit}"}})
		if err != nil {
			return start{}, nil, cove.Errorf(cove.NotFound, "the repository has no commit %s", at.id)
		}
	}
	if err := w.remember(); err != nil {
		return start{}, nil, err
	}
	if w.partial {
		err = w.complete(ctx, r, p, shared, want.Sparse)
	}
	return at, refs, err
}

// mirrored updates the mirror. If the remote does not answer, the machine's owner gets the last state. Other clients do
// not: only the remote knows whether they may read it.
func (w *making) mirrored(ctx context.Context, r remote, p peer) (advert, error) {
	m := w.s.mirror(r.Key)
	release, err := m.hold(ctx)
	if err != nil {
		return advert{}, err
	}
	defer release()
	a, err := m.fetch(ctx, r, p, asking{}, w.progress)
	was, _ := m.description()
	w.partial = was.Partial
	if cove.ErrorCode(err) != cove.Unavailable || ctx.Err() != nil || !r.who.IsOwner() || !m.there() {
		return a, err
	}
	tell(w.progress, "the remote does not answer; using what was fetched before")
	refs, e := m.refs(ctx)
	if e != nil || len(refs) == 0 {
		return advert{}, err
	}
	return advert{head: m.head(), refs: refs}, nil
}
