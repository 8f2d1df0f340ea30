package repos

import (
	"context"
	"os"
	"path/filepath"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/folder"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// maxPlain bounds the files of a directory without a repository, against copying a home by mistake.
const maxPlain = 100_000

// snapshot starts the branch at a commit of a person's working files. Git works in import.git.
func (w *making) snapshot(ctx context.Context, top, git string, most int) error {
	tell(w.progress, "taking what is not committed")
	p := folder.Snapshot{Top: top, Git: git, Base: w.record.Base, Dir: w.in(importDir), Index: w.in("snapshot.index"),
		Files: most, Bytes: w.s.o.MaxCheckout, Held: w.held, Tell: func(step string) { tell(w.progress, step) }}
	commit, err := p.Commit(ctx)
	if err != nil || commit == "" {
		return err
	}
	if err := p.Pack(ctx, commit); err != nil {
		return err
	}
	w.record.Base = commit
	return w.remember()
}

// plain makes the checkout of a directory outside any repository: a copy, in a new repository.
func (w *making) plain(ctx context.Context, dir string, want workspace.Repository) error {
	if dir == "/" || dir == filepath.Clean(os.Getenv("HOME")) {
		return cove.Errorf(cove.Forbidden, "%s is not copied: everything that is yours is in it",
			dir).WithHint("name the directory of a project")
	}
	w.record.Source, w.record.Repository = want.Source, keyOfDirectory(dir)
	at, err := w.plan(ctx, advert{}, want)
	if err != nil {
		return err
	}
	if err := w.importer("sha1", nil, false, at); err != nil {
		return err
	}
	if err := w.snapshot(ctx, dir, "", maxPlain); err != nil {
		return err
	}
	tell(w.progress, "copying "+dir)
	return w.private(ctx, at, nil, want.Sparse)
}

// plainDirectory returns the directory of a source outside any repository; empty for one inside. Errors:
// InvalidArgument, Forbidden, NotFound.
func (s *Store) plainDirectory(who cove.Principal, want workspace.Repository) (string, error) {
	src, err := ParseSource(who, want.Source)
	if err != nil {
		return "", err
	}
	if src.Dir == "" {
		return "",
			cove.Errorf(cove.InvalidArgument, "what is not committed is in a directory of this machine, and %s is none",
				want.Source).WithHint("name the directory, or leave it out")
	}
	dir, err := filepath.EvalSymlinks(src.Dir)
	if err != nil {
		return "", cove.Errorf(cove.NotFound, "there is no directory %s", src.Dir)
	}
	if _, err := folder.GitDirectory(dir); cove.ErrorCode(err) != cove.NotFound {
		return "", nil // its reader reports the error
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", cove.Errorf(cove.InvalidArgument, "%s is not a directory", src.Dir)
	}
	return dir, nil
}
