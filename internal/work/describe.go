package work

import (
	"context"
	"io"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/repos"
	"github.com/cove-sandbox/cove/internal/store"
)

// Runs is the work of sandboxes for the records of runs, which are made also where the CPU time of a caller is used up.
type Runs struct{ *Service }

// Changes returns the changed files of a sandbox.
func (r Runs) Changes(ctx context.Context, who cove.Principal, ref string) ([]store.FileChange, error) {
	var changes []repos.Change
	err := r.finish(ctx, who, ref, func(ctx context.Context, w taken) (err error) {
		changes, err = w.changes(ctx, repos.Work{}, repos.ChangeStyle{Renames: true})
		return err
	})
	return repos.Describe(changes), err
}

// Patch writes the changes of a sandbox to out.
func (r Runs) Patch(ctx context.Context, who cove.Principal, ref string, out io.Writer) error {
	return r.finish(ctx, who, ref, func(ctx context.Context, w taken) error {
		return w.diff(ctx, repos.Work{}, repos.DiffStyle{Binary: true}, out)
	})
}
