// Package work brings the work of sandboxes to the host: it imports what a sandbox has in its repository, and shows,
// applies and pushes it.
package work

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/gateway/outlet"
	"github.com/cove-sandbox/cove/internal/git/forge"
	"github.com/cove-sandbox/cove/internal/repos"
	"github.com/cove-sandbox/cove/internal/sandbox"
)

// Options configure a Service. All are required.
type Options struct {
	Sandboxes    *sandbox.Sandboxes
	Repositories func() (*repos.Store, error) // opens the store on first use
	Outlet       outlet.Outlet
}

// Service brings work from sandboxes to the host. Each call imports the work anew, first.
type Service struct{ o Options }

// New returns a Service.
func New(o Options) *Service { return &Service{o} }

// take imports the work of a sandbox, including uncommitted work.
func (s *Service) take(ctx context.Context, who cove.Principal, ref string) (*repos.Store, *sandbox.Work,
	[]repos.Ref, error) {
	store, err := s.o.Repositories()
	if err != nil {
		return nil, nil, nil, err
	}
	in, err := s.o.Sandboxes.OpenWork(ctx, who, ref)
	if err != nil {
		return nil, nil, nil, err
	}
	defer in.Close()
	if err := in.Snapshot(ctx, repos.WorkRef); err != nil {
		return nil, nil, nil, err
	}
	refs, err := store.Import(ctx, in.ID, in.Record.Spec.Limits.Disk,
		func(ctx context.Context, asIs bool) (repos.Stream, error) { return in.Connect(ctx, asIs) })
	return store, in, refs, err
}

// Imported is the work of a sandbox in the store of repositories.
type Imported struct {
	Refs      []repos.Ref
	Base      string // id of the commit that the sandbox began at
	Branch    string // the sandbox's own
	Remote    string // where it can be pushed; may be empty
	Directory string // git directory on the machine, with the refs below refs/sandbox/
}

// Import imports the work of a sandbox into the store of repositories.
func (s *Service) Import(ctx context.Context, who cove.Principal, ref string) (Imported, error) {
	store, in, refs, err := s.take(ctx, who, ref)
	if err != nil {
		return Imported{}, err
	}
	r := in.Record.Spec.Repository
	return Imported{refs, r.Base, r.Branch, r.Remote, store.ImportDirectory(in.ID)}, nil
}

// Diff writes the changes of a sandbox to out, as git prints them.
func (s *Service) Diff(ctx context.Context, who cove.Principal, ref string, of repos.Work, style repos.DiffStyle,
	out io.Writer) error {
	store, in, refs, err := s.take(ctx, who, ref)
	if err != nil || len(refs) == 0 {
		return err
	}
	return store.Diff(ctx, in.ID, of, style, out)
}

// Log writes the commits of a sandbox to out, as git prints them.
func (s *Service) Log(ctx context.Context, who cove.Principal, ref string, of repos.Work, short bool,
	out io.Writer) error {
	store, in, refs, err := s.take(ctx, who, ref)
	if err != nil || checkedOut(refs) == "" {
		return err
	}
	return store.Log(ctx, in.ID, of, short, out)
}

// Changes returns the changed files of a sandbox.
func (s *Service) Changes(ctx context.Context, who cove.Principal, ref string, of repos.Work,
	style repos.ChangeStyle) ([]repos.Change, error) {
	store, in, refs, err := s.take(ctx, who, ref)
	if err != nil || len(refs) == 0 {
		return nil, err
	}
	return store.Changes(ctx, in.ID, of, style)
}

// Held counts the work of a sandbox that was neither pushed nor applied.
func (s *Service) Held(ctx context.Context, who cove.Principal, ref string) (repos.Held, error) {
	store, in, refs, err := s.take(ctx, who, ref)
	if err != nil {
		return repos.Held{}, err
	}
	return store.Held(ctx, in.ID, refs)
}

// Holds reports whether there is such work.
func (s *Service) Holds(ctx context.Context, who cove.Principal, ref string) (bool, error) {
	h, err := s.Held(ctx, who, ref)
	return h != repos.Held{}, err
}

// Commits returns the commits of a sandbox.
func (s *Service) Commits(ctx context.Context, who cove.Principal, ref string, of repos.Work) ([]repos.Commit, error) {
	store, in, refs, err := s.take(ctx, who, ref)
	if err != nil || checkedOut(refs) == "" {
		return nil, err
	}
	return store.Commits(ctx, in.ID, of)
}

// Apply makes the changes of a sandbox in a directory of the host.
func (s *Service) Apply(ctx context.Context, who cove.Principal, ref string, of repos.Work, dir string,
	style repos.ApplyStyle) (repos.Applied, error) {
	store, in, refs, err := s.take(ctx, who, ref)
	if err != nil || len(refs) == 0 {
		return repos.Applied{}, err
	}
	done, err := store.Apply(ctx, in.ID, of, dir, style)
	in.Audit(ctx, who, "apply", appliedText(done.Changes, style.Choice, dir), err)
	return done, err
}

// Send writes the work of a sandbox for a client that applies it on its own machine.
func (s *Service) Send(ctx context.Context, who cove.Principal, ref string, out io.Writer) error {
	store, in, refs, err := s.take(ctx, who, ref)
	if err != nil {
		return err
	}
	if len(refs) == 0 {
		return cove.Errorf(cove.Conflict, "the sandbox %s has no work yet", in.Record.Name)
	}
	err = store.Send(ctx, in.ID, out)
	in.Audit(ctx, who, "apply", "send all changes to the caller, who applies them on another machine", err)
	return err
}

// mostNamed is how many files a record names.
const mostNamed = 50

// appliedText names the files that are applied, and those of which a part is.
func appliedText(changes []repos.Change, choice map[string]repos.Choice, dir string) string {
	files := "files"
	if len(changes) == 1 {
		files = "file"
	}
	text := fmt.Sprintf("apply %d %s to %s", len(changes), files, dir)
	for i, c := range changes {
		switch {
		case i == mostNamed:
			return text + fmt.Sprintf(" and %d more", len(changes)-i)
		case i == 0:
			text += ": "
		default:
			text += ", "
		}
		text += fmt.Sprintf("%.200q", c.Path)
		if choice[c.Path].Parts != nil {
			text += " in part"
		}
	}
	return text
}

// Push selects the commits of a push.
type Push struct {
	Branch string // of the remote; empty is the sandbox's own
	Commit string // that the sandbox must have checked out; empty is any
	Ask    bool   // wait for a person's approval
}

// Pushed describes the commits of a push.
type Pushed struct{ Remote, Branch, Commit string }

// Push pushes the commits of a sandbox to its remote.
func (s *Service) Push(ctx context.Context, who cove.Principal, ref string, q Push) (Pushed, error) {
	store, in, refs, err := s.take(ctx, who, ref)
	if err != nil {
		return Pushed{}, err
	}
	r := in.Record.Spec.Repository
	done := Pushed{Remote: r.Remote, Branch: cmp.Or(q.Branch, r.Branch), Commit: checkedOut(refs)}
	switch {
	case done.Commit == "":
		return done, cove.Errorf(cove.Conflict, "the sandbox %s has committed nothing", in.Record.Name).
			WithHint("commit inside, then push")
	case q.Commit != "" && q.Commit != done.Commit:
		return done, cove.Errorf(cove.Conflict, "the sandbox %s has committed more since it was looked at", in.Record.Name).
			WithHint("look at it again: cove log %s", in.Record.Name)
	}
	what := fmt.Sprintf("push %s to %s of %s", done.Commit, done.Branch, done.Remote)
	var route repos.Outlet = s.o.Outlet
	if q.Ask {
		route = s.o.Outlet.Asking(outlet.Asker{Who: who, Sandbox: in.ID, Name: in.Record.Name,
			What: what + ", from the sandbox " + in.Record.Name})
	}
	err = store.Push(ctx, in.ID, repos.Work{Ref: "HEAD"}, done.Branch, route)
	in.Audit(ctx, who, "push", what, err)
	return done, err
}

// Pull opens a pull request for a pushed branch.
func (s *Service) Pull(ctx context.Context, who cove.Principal, ref string, q forge.Pull) (forge.Opened, error) {
	shown, err := s.o.Sandboxes.Find(ctx, who, ref)
	if err != nil {
		return forge.Opened{}, err
	}
	if shown.Spec.Repository == nil || shown.Spec.Repository.Remote == "" {
		return forge.Opened{}, cove.Errorf(cove.InvalidArgument,
			"the sandbox %s has no remote that could take a pull request", shown.Name).
			WithHint("bring its work back: cove apply %s", shown.Name)
	}
	return s.o.Outlet.OpenPull(ctx, shown.Spec.Repository.Remote, q)
}

// checkedOut returns the id of the commit that a sandbox has checked out, or nothing.
func checkedOut(refs []repos.Ref) string {
	for _, r := range refs {
		if r.Name == "HEAD" {
			return r.ID
		}
	}
	return ""
}
