package daemon

import (
	"context"
	"fmt"
	"io"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/httpapi"
	"github.com/cove-sandbox/cove/internal/repos"
	"github.com/cove-sandbox/cove/internal/sandbox"
)

// work brings work from sandboxes to the host: the manager has the sandboxes,
// and the store what came from them.
type work struct {
	manager *sandbox.Manager
	repos   func() (*repos.Store, error)
	outlet  outlet
}

var _ httpapi.Work = work{}

// take takes over what a sandbox has, its uncommitted work included.
func (w work) take(ctx context.Context, who cove.Principal, ref string) (*repos.Store, *sandbox.Work, []repos.Ref, error) {
	store, err := w.repos()
	if err != nil {
		return nil, nil, nil, err
	}
	in, err := w.manager.OpenWork(ctx, who, ref)
	if err != nil {
		return nil, nil, nil, err
	}
	defer in.Close()
	if err := in.Snapshot(ctx, repos.WorkRef); err != nil {
		return nil, nil, nil, err
	}
	refs, err := store.Import(ctx, in.ID, func(ctx context.Context, asIs bool) (repos.Stream, error) { return in.Connect(ctx, asIs) })
	return store, in, refs, err
}

// Import implements httpapi.Work.
func (w work) Import(ctx context.Context, who cove.Principal, ref string) (api.ImportedWork, error) {
	store, in, refs, err := w.take(ctx, who, ref)
	if err != nil {
		return api.ImportedWork{}, err
	}
	r := in.Record.Spec.Repository
	done := api.ImportedWork{Refs: []api.WorkRef{}, Base: r.Base, Branch: r.Branch, Remote: r.Remote, Directory: store.ImportDirectory(in.ID)}
	for _, ref := range refs {
		done.Refs = append(done.Refs, api.WorkRef{Name: ref.Name, ID: ref.ID})
	}
	return done, nil
}

// Diff implements httpapi.Work.
func (w work) Diff(ctx context.Context, who cove.Principal, ref string, of repos.Work, style repos.DiffStyle, out io.Writer) error {
	store, in, refs, err := w.take(ctx, who, ref)
	if err != nil || len(refs) == 0 {
		return err
	}
	return store.Diff(ctx, in.ID, of, style, out)
}

// Log implements httpapi.Work.
func (w work) Log(ctx context.Context, who cove.Principal, ref string, of repos.Work, short bool, out io.Writer) error {
	store, in, refs, err := w.take(ctx, who, ref)
	if err != nil || checkedOut(refs) == "" {
		return err
	}
	return store.Log(ctx, in.ID, of, short, out)
}

// Changes implements httpapi.Work.
func (w work) Changes(ctx context.Context, who cove.Principal, ref string, of repos.Work, style repos.ChangeStyle) ([]repos.Change, error) {
	store, in, refs, err := w.take(ctx, who, ref)
	if err != nil || len(refs) == 0 {
		return nil, err
	}
	return store.Changes(ctx, in.ID, of, style)
}

// Commits implements httpapi.Work.
func (w work) Commits(ctx context.Context, who cove.Principal, ref string, of repos.Work) ([]repos.Commit, error) {
	store, in, refs, err := w.take(ctx, who, ref)
	if err != nil || checkedOut(refs) == "" {
		return nil, err
	}
	return store.Commits(ctx, in.ID, of)
}

// Apply implements httpapi.Work.
func (w work) Apply(ctx context.Context, who cove.Principal, ref string, of repos.Work, dir string, style repos.ApplyStyle) (repos.Applied, error) {
	store, in, refs, err := w.take(ctx, who, ref)
	if err != nil || len(refs) == 0 {
		return repos.Applied{}, err
	}
	return store.Apply(ctx, in.ID, of, dir, style)
}

// Push implements httpapi.Work.
func (w work) Push(ctx context.Context, who cove.Principal, ref string, q api.PushRequest) (api.PushedWork, error) {
	store, in, refs, err := w.take(ctx, who, ref)
	if err != nil {
		return api.PushedWork{}, err
	}
	r := in.Record.Spec.Repository
	done := api.PushedWork{Remote: r.Remote, Branch: q.Branch, Commit: checkedOut(refs)}
	if done.Branch == "" {
		done.Branch = r.Branch
	}
	switch {
	case done.Commit == "":
		return done, cove.Errorf(cove.Conflict, "the sandbox %s has committed nothing", in.Record.Name).WithHint("commit inside, then push")
	case q.Commit != "" && q.Commit != done.Commit:
		return done, cove.Errorf(cove.Conflict, "the sandbox %s has committed more since it was looked at", in.Record.Name).WithHint("look at it again: cove log %s", in.Record.Name)
	}
	what := fmt.Sprintf("push %s to %s of %s", done.Commit, done.Branch, done.Remote)
	var way repos.Outlet = w.outlet
	if q.Ask {
		way = askingOutlet{outlet: w.outlet, manager: w.manager, of: who, id: in.ID, name: in.Record.Name, what: what + ", from the sandbox " + in.Record.Name}
	}
	err = store.Push(ctx, in.ID, repos.Work{Ref: "HEAD"}, done.Branch, way)
	in.Audit(ctx, who, "push", what, err)
	return done, err
}

// checkedOut is the commit that a sandbox has checked out, or nothing.
func checkedOut(refs []repos.Ref) string {
	for _, r := range refs {
		if r.Name == "HEAD" {
			return r.ID
		}
	}
	return ""
}
