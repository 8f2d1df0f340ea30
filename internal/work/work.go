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
	Places       sandbox.Places
	Repositories func() (*repos.Store, error) // opens the store on first use
	Outlet       outlet.Outlet
}

// Service brings work from sandboxes to the host. Each call imports the work anew, first.
type Service struct{ o Options }

// New returns a Service.
func New(o Options) *Service { return &Service{o} }

// taken is the work of a sandbox in the store of repositories.
type taken struct {
	*repos.Store
	in   *sandbox.Work
	refs []repos.Ref
}

// ask calls f with the work of a sandbox, unless the caller's CPU time is used up; see finish.
func (s *Service) ask(ctx context.Context, who cove.Principal, ref string,
	f func(ctx context.Context, w taken) error) error {
	if err := s.o.Places.Spare(ctx, who); err != nil {
		return err
	}
	return s.finish(ctx, who, ref, f)
}

// finish calls f with the work of a sandbox, including uncommitted work. git that runs for it counts in the caller's
// CPU time. It is for the end of what was let in before.
func (s *Service) finish(ctx context.Context, who cove.Principal, ref string,
	f func(ctx context.Context, w taken) error) error {
	ctx, charge := s.o.Places.Charge(ctx, who)
	defer charge()
	w, err := s.take(ctx, who, ref)
	if err != nil {
		return err
	}
	return f(ctx, w)
}

// take imports the work of a sandbox.
func (s *Service) take(ctx context.Context, who cove.Principal, ref string) (w taken, err error) {
	if w.Store, err = s.o.Repositories(); err != nil {
		return w, err
	}
	if w.in, err = s.o.Sandboxes.OpenWork(ctx, who, ref); err != nil {
		return w, err
	}
	defer w.in.Close()
	if err := w.in.Snapshot(ctx, repos.WorkRef); err != nil {
		return w, err
	}
	w.refs, err = w.Store.Import(ctx, w.in.ID, w.in.Record.Spec.Limits.Disk,
		func(ctx context.Context, asIs bool) (repos.Stream, error) { return w.in.Connect(ctx, asIs) })
	return w, err
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
func (s *Service) Import(ctx context.Context, who cove.Principal, ref string) (all Imported, err error) {
	err = s.ask(ctx, who, ref, func(_ context.Context, w taken) error {
		r := w.in.Record.Spec.Repository
		all = Imported{w.refs, r.Base, r.Branch, r.Remote, w.ImportDirectory(w.in.ID)}
		return nil
	})
	return all, err
}

// Diff writes the changes of a sandbox to out, as git prints them.
func (s *Service) Diff(ctx context.Context, who cove.Principal, ref string, of repos.Work, style repos.DiffStyle,
	out io.Writer) error {
	return s.ask(ctx, who, ref, func(ctx context.Context, w taken) error { return w.diff(ctx, of, style, out) })
}

func (w taken) diff(ctx context.Context, of repos.Work, style repos.DiffStyle, out io.Writer) error {
	if len(w.refs) == 0 {
		return nil
	}
	return w.Store.Diff(ctx, w.in.ID, of, style, out)
}

// Log writes the commits of a sandbox to out, as git prints them.
func (s *Service) Log(ctx context.Context, who cove.Principal, ref string, of repos.Work, short bool,
	out io.Writer) error {
	return s.ask(ctx, who, ref, func(ctx context.Context, w taken) error {
		if checkedOut(w.refs) == "" {
			return nil
		}
		return w.Store.Log(ctx, w.in.ID, of, short, out)
	})
}

// Changes returns the changed files of a sandbox.
func (s *Service) Changes(ctx context.Context, who cove.Principal, ref string, of repos.Work,
	style repos.ChangeStyle) (all []repos.Change, err error) {
	err = s.ask(ctx, who, ref, func(ctx context.Context, w taken) error {
		all, err = w.changes(ctx, of, style)
		return err
	})
	return all, err
}

func (w taken) changes(ctx context.Context, of repos.Work, style repos.ChangeStyle) ([]repos.Change, error) {
	if len(w.refs) == 0 {
		return nil, nil
	}
	return w.Store.Changes(ctx, w.in.ID, of, style)
}

// Held counts the work of a sandbox that was neither pushed nor applied.
func (s *Service) Held(ctx context.Context, who cove.Principal, ref string) (h repos.Held, err error) {
	err = s.ask(ctx, who, ref, func(ctx context.Context, w taken) error {
		h, err = w.Store.Held(ctx, w.in.ID, w.refs)
		return err
	})
	return h, err
}

// Holds reports whether there is such work, for the end of a run or of an idle sandbox.
func (s *Service) Holds(ctx context.Context, who cove.Principal, ref string) (is bool, err error) {
	err = s.finish(ctx, who, ref, func(ctx context.Context, w taken) error {
		h, err := w.Store.Held(ctx, w.in.ID, w.refs)
		is = h != repos.Held{}
		return err
	})
	return is, err
}

// Commits returns the commits of a sandbox.
func (s *Service) Commits(ctx context.Context, who cove.Principal, ref string,
	of repos.Work) (all []repos.Commit, err error) {
	err = s.ask(ctx, who, ref, func(ctx context.Context, w taken) error {
		if checkedOut(w.refs) == "" {
			return nil
		}
		all, err = w.Store.Commits(ctx, w.in.ID, of)
		return err
	})
	return all, err
}

// Apply makes the changes of a sandbox in a directory of the host.
func (s *Service) Apply(ctx context.Context, who cove.Principal, ref string, of repos.Work, dir string,
	style repos.ApplyStyle) (done repos.Applied, err error) {
	err = s.ask(ctx, who, ref, func(ctx context.Context, w taken) error {
		if len(w.refs) == 0 {
			return nil
		}
		done, err = w.Store.Apply(ctx, w.in.ID, of, dir, style)
		w.in.Audit(ctx, who, "apply", appliedText(done.Changes, style.Choice, dir), err)
		return err
	})
	return done, err
}

// Send writes the work of a sandbox for a client that applies it on its own machine.
func (s *Service) Send(ctx context.Context, who cove.Principal, ref string, out io.Writer) error {
	return s.ask(ctx, who, ref, func(ctx context.Context, w taken) error {
		if len(w.refs) == 0 {
			return cove.Errorf(cove.Conflict, "the sandbox %s has no work yet", w.in.Record.Name)
		}
		err := w.Store.Send(ctx, w.in.ID, out)
		w.in.Audit(ctx, who, "apply", "send all changes to the caller, who applies them on another machine", err)
		return err
	})
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
func (s *Service) Push(ctx context.Context, who cove.Principal, ref string, q Push) (done Pushed, err error) {
	err = s.ask(ctx, who, ref, func(ctx context.Context, w taken) error {
		done, err = w.push(ctx, who, q, s.o.Outlet)
		return err
	})
	return done, err
}

func (w taken) push(ctx context.Context, who cove.Principal, q Push, out outlet.Outlet) (Pushed, error) {
	r, name := w.in.Record.Spec.Repository, w.in.Record.Name
	done := Pushed{Remote: r.Remote, Branch: cmp.Or(q.Branch, r.Branch), Commit: checkedOut(w.refs)}
	switch {
	case done.Commit == "":
		return done, cove.Errorf(cove.Conflict, "the sandbox %s has committed nothing", name).
			WithHint("commit inside, then push")
	case q.Commit != "" && q.Commit != done.Commit:
		return done, cove.Errorf(cove.Conflict, "the sandbox %s has committed more since it was looked at", name).
			WithHint("look at it again: cove log %s", name)
	}
	what := fmt.Sprintf("push %s to %s of %s", done.Commit, done.Branch, done.Remote)
	var route repos.Outlet = out
	if q.Ask {
		route = out.Asking(outlet.Asker{Who: who, Sandbox: w.in.ID, Name: name, What: what + ", from the sandbox " + name})
	}
	err := w.Store.Push(ctx, w.in.ID, repos.Work{Ref: "HEAD"}, done.Branch, route)
	w.in.Audit(ctx, who, "push", what, err)
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
