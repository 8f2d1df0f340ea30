package httpapi

import (
	"context"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/git/forge"
	"github.com/cove-sandbox/cove/internal/httpapi/workspec"
	"github.com/cove-sandbox/cove/internal/repos"
	"github.com/cove-sandbox/cove/internal/work"
)

// workRoutes bring the work of sandboxes back.
type workRoutes struct{ *edge }

// workErrors are the errors of routes that look at a sandbox's work.
var workErrors = append([]cove.Code{cove.TooLarge, cove.Unsupported, cove.RuntimeMissing}, sandboxErrors...)

// add adds the routes that bring work back from sandboxes.
func (s workRoutes) add() {
	route(s, huma.Operation{OperationID: "import-work", Method: http.MethodPost, Path: "/sandboxes/{sandbox}/import",
		Tags:        []string{"work"},
		Summary:     "Take over what a sandbox has done in its repository",
		Description: "Git runs inside and sends; every object is checked, and nothing of it is run.",
	}, workErrors, s.importWork)

	route(s, huma.Operation{OperationID: "diff-work", Method: http.MethodGet, Path: "/sandboxes/{sandbox}/diff",
		Tags:    []string{"work"},
		Summary: "Show what a sandbox has changed",
		Description: "From the commit that it began at, what is not committed included. The text is the sandbox's: a " +
			"terminal may obey what is in it.",
		Responses: textResponses(),
	}, workErrors, s.diffWork)

	route(s, huma.Operation{OperationID: "log-work", Method: http.MethodGet, Path: "/sandboxes/{sandbox}/log",
		Tags:    []string{"work"},
		Summary: "Show what a sandbox has committed",
		Description: "Since the commit that it began at, newest first. The text is the sandbox's: a terminal may obey what " +
			"is in it.",
		Responses: textResponses(),
	}, workErrors, s.logWork)

	route(s, huma.Operation{OperationID: "list-work-changes", Method: http.MethodGet, Path: "/sandboxes/{sandbox}/changes",
		Tags:    []string{"work"},
		Summary: "List what a sandbox has changed", Description: "The same as its diff, for programs.",
	}, workErrors, s.listChanges)

	route(s, huma.Operation{OperationID: "count-held-work", Method: http.MethodGet, Path: "/sandboxes/{sandbox}/held",
		Tags:    []string{"work"},
		Summary: "Count the work of a sandbox that is nowhere else",
		Description: "What was neither pushed, from inside or by the machine's owner, nor applied: it would be lost with " +
			"the sandbox.",
	}, workErrors, s.countHeld)

	route(s, huma.Operation{OperationID: "list-work-commits", Method: http.MethodGet, Path: "/sandboxes/{sandbox}/commits",
		Tags:    []string{"work"},
		Summary: "List what a sandbox has committed", Description: "The same as its log, for programs.",
	}, workErrors, s.listCommits)

	route(s, huma.Operation{OperationID: "apply-work", Method: http.MethodPost, Path: "/sandboxes/{sandbox}/apply",
		Tags:    []string{"work"},
		Summary: "Change a checkout on the machine as a sandbox has changed its own",
		Description: "All of it or nothing: what is not as the sandbox found it (unless it is to " +
			"be merged), leaves the checkout, or is git's own is refused.",
	}, workErrors, s.applyWork)

	route(s, huma.Operation{OperationID: "send-work", Method: http.MethodGet, Path: "/sandboxes/{sandbox}/work",
		Tags:    []string{"work"},
		Summary: "Send what a client needs to change a checkout of its own",
		Description: "A line with the ids of the trees that the sandbox began at and has come to, and then a pack of " +
			"git's with the trees and files that differ, before and after.",
		Responses: map[string]*huma.Response{"200": {Description: "The line and the pack",
			Content: map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString,
				Format: "binary"}}}}},
	}, workErrors, s.sendWork)

	route(s, huma.Operation{OperationID: "push-work", Method: http.MethodPost, Path: "/sandboxes/{sandbox}/push",
		Tags:        []string{"work"},
		Summary:     "Push what a sandbox has committed",
		Description: "With the machine's credentials, and without force.",
	}, workErrors, s.pushWork)

	route(s, huma.Operation{OperationID: "open-pull-request", Method: http.MethodPost, Path: "/sandboxes/{sandbox}/pull",
		Tags:    []string{"work"},
		Summary: "Open a pull request for what was pushed",
		Description: "With the machine's credentials, by the API of GitHub and of servers that " +
			"speak the same.",
	}, workErrors, s.openPull)
}

// textResponses documents a response that is text of a sandbox.
func textResponses() map[string]*huma.Response {
	return map[string]*huma.Response{"200": {Description: "Text, as git writes it", Content: map[string]*huma.MediaType{
		"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}}}}
}

// importWork is POST /sandboxes/{sandbox}/import.
func (s workRoutes) importWork(ctx context.Context, in *SandboxPath) (*answer[api.ImportedWork], error) {
	who := exchangeOf(ctx).who
	w, err := s.Work.Import(ctx, who, in.Sandbox)
	done := api.ImportedWork{Refs: make([]api.WorkRef, len(w.Refs)), Base: w.Base, Branch: w.Branch, Remote: w.Remote}
	for i, ref := range w.Refs {
		done.Refs[i] = api.WorkRef{Name: ref.Name, ID: ref.ID}
	}
	if who.IsOwner() {
		done.Directory = w.Directory
	}
	return &answer[api.ImportedWork]{done}, err
}

type diffInput struct {
	SandboxPath
	Stat   bool     `query:"stat" doc:"Which files, and how many lines"`
	Names  bool     `query:"names" doc:"Which files"`
	Binary bool     `query:"binary" doc:"With the contents of binary files, so that git can apply the patch"`
	Path   []string `query:"path,explode" maxItems:"1000" doc:"Of the repository; all when absent"`
}

// diffWork is GET /sandboxes/{sandbox}/diff.
func (s workRoutes) diffWork(ctx context.Context, in *diffInput) (*huma.StreamResponse, error) {
	return s.text(ctx, func(who cove.Principal, out io.Writer) error {
		return s.Work.Diff(ctx, who, in.Sandbox, repos.Work{Paths: in.Path},
			repos.DiffStyle{Stat: in.Stat, Names: in.Names, Binary: in.Binary}, out)
	})
}

type logInput struct {
	SandboxPath
	Short bool     `query:"short" doc:"One line for each commit"`
	Path  []string `query:"path,explode" maxItems:"1000" doc:"Of the repository; all when absent"`
}

// logWork is GET /sandboxes/{sandbox}/log.
func (s workRoutes) logWork(ctx context.Context, in *logInput) (*huma.StreamResponse, error) {
	return s.text(ctx, func(who cove.Principal, out io.Writer) error {
		return s.Work.Log(ctx, who, in.Sandbox, repos.Work{Ref: "HEAD", Paths: in.Path}, in.Short, out)
	})
}

// countHeld is GET /sandboxes/{sandbox}/held.
func (s workRoutes) countHeld(ctx context.Context, in *SandboxPath) (*answer[api.HeldWork], error) {
	h, err := s.Work.Held(ctx, exchangeOf(ctx).who, in.Sandbox)
	return &answer[api.HeldWork]{api.HeldWork(h)}, err
}

type changesInput struct {
	SandboxPath
	Patch bool     `query:"patch" doc:"With the patch of each file"`
	Path  []string `query:"path,explode" maxItems:"1000" doc:"Of the repository; all when absent"`
}

// listChanges is GET /sandboxes/{sandbox}/changes.
func (s workRoutes) listChanges(ctx context.Context, in *changesInput) (*answer[api.WorkChanges], error) {
	changes, err := s.Work.Changes(ctx, exchangeOf(ctx).who, in.Sandbox, repos.Work{Paths: in.Path},
		repos.ChangeStyle{Renames: true, Patches: in.Patch})
	return &answer[api.WorkChanges]{api.WorkChanges{Changes: workspec.Changes(changes)}}, err
}

type commitsInput struct {
	SandboxPath
	Path []string `query:"path,explode" maxItems:"1000" doc:"Of the repository; all when absent"`
}

// listCommits is GET /sandboxes/{sandbox}/commits.
func (s workRoutes) listCommits(ctx context.Context, in *commitsInput) (*answer[api.WorkCommits], error) {
	commits, err := s.Work.Commits(ctx, exchangeOf(ctx).who, in.Sandbox, repos.Work{Ref: "HEAD", Paths: in.Path})
	done := api.WorkCommits{Commits: []api.WorkCommit{}}
	for _, c := range commits {
		done.Commits = append(done.Commits, api.WorkCommit{ID: c.ID, Parents: append([]string{}, c.Parents...),
			Author: api.WorkPerson(c.Author), Committer: api.WorkPerson(c.Committer), Message: c.Message})
	}
	return &answer[api.WorkCommits]{done}, err
}

// text answers with text that write writes.
func (s workRoutes) text(ctx context.Context,
	write func(cove.Principal, io.Writer) error) (*huma.StreamResponse, error) {
	return download(ctx, "text/plain; charset=utf-8", write)
}

type applyInput struct {
	SandboxPath
	Body api.ApplyRequest
}

// applyWork is POST /sandboxes/{sandbox}/apply.
func (s workRoutes) applyWork(ctx context.Context, in *applyInput) (*answer[api.AppliedWork], error) {
	dir, err := s.CheckProject(in.Body.Directory)
	if err != nil {
		return nil, err
	}
	of, style, err := workspec.ApplyStyle(in.Body)
	if err != nil {
		return nil, err
	}
	done, err := s.Work.Apply(ctx, exchangeOf(ctx).who, in.Sandbox, of, dir, style)
	if err != nil {
		return nil, err
	}
	return &answer[api.AppliedWork]{workspec.AppliedWork(done)}, nil
}

// sendWork is GET /sandboxes/{sandbox}/work.
func (s workRoutes) sendWork(ctx context.Context, in *SandboxPath) (*huma.StreamResponse, error) {
	return download(ctx, "application/octet-stream", func(who cove.Principal, out io.Writer) error {
		return s.Work.Send(ctx, who, in.Sandbox, out)
	})
}

type pushInput struct {
	SandboxPath
	Body api.PushRequest
}

type pullInput struct {
	SandboxPath
	Body api.PullRequest
}

// openPull is POST /sandboxes/{sandbox}/pull.
func (s workRoutes) openPull(ctx context.Context, in *pullInput) (*answer[api.OpenedPull], error) {
	q := in.Body
	done, err := s.Work.Pull(ctx, exchangeOf(ctx).who, in.Sandbox,
		forge.Pull{Title: q.Title, Head: q.Branch, Base: q.Base, Body: q.Body, Draft: q.Draft})
	return &answer[api.OpenedPull]{api.OpenedPull{URL: done.URL, Number: done.Number}}, err
}

// pushWork is POST /sandboxes/{sandbox}/push.
func (s workRoutes) pushWork(ctx context.Context, in *pushInput) (*answer[api.PushedWork], error) {
	done, err := s.Work.Push(ctx, exchangeOf(ctx).who, in.Sandbox, work.Push(in.Body))
	return &answer[api.PushedWork]{api.PushedWork(done)}, err
}
