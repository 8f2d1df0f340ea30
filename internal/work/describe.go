package work

import (
	"context"
	"fmt"
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
	return Describe(changes), err
}

// Patch writes the changes of a sandbox to out.
func (r Runs) Patch(ctx context.Context, who cove.Principal, ref string, out io.Writer) error {
	return r.finish(ctx, who, ref, func(ctx context.Context, w taken) error {
		return w.diff(ctx, repos.Work{}, repos.DiffStyle{Binary: true}, out)
	})
}

// Describe returns changes in the form of a record.
func Describe(changes []repos.Change) []store.FileChange {
	all := []store.FileChange{}
	for _, c := range changes {
		kind := "changed"
		switch {
		case c.Old == (repos.Entry{}):
			kind = "added"
		case c.New == (repos.Entry{}):
			kind = "deleted"
		case c.OldPath != "":
			kind = "renamed"
		}
		all = append(all, store.FileChange{Path: c.Path, OldPath: c.OldPath, Change: kind, OldMode: modeText(c.Old),
			NewMode: modeText(c.New), NewID: c.New.ID, Added: c.Added, Removed: c.Removed, Binary: c.Binary, Patch: c.Patch})
	}
	return all
}

// modeText returns the mode of an entry as git writes it.
func modeText(e repos.Entry) string {
	if e.Mode == 0 {
		return ""
	}
	return fmt.Sprintf("%06o", e.Mode)
}
