package httpapi

import (
	"context"
	"net/http"
	"path"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/profile"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// Sandboxes manages long-lived sandboxes; sandbox.Sandboxes is one.
type Sandboxes interface {
	Create(ctx context.Context, who cove.Principal, r sandbox.Request, progress func(workspace.Step)) (sandbox.View, error)
	List(ctx context.Context, who cove.Principal) (sandbox.Listing, error)
	Find(ctx context.Context, who cove.Principal, ref string) (sandbox.View, error)
	Start(ctx context.Context, who cove.Principal, ref string) (sandbox.View, error)
	Stop(ctx context.Context, who cove.Principal, ref string) (sandbox.View, error)
	Pause(ctx context.Context, who cove.Principal, ref string) (sandbox.View, error)
	Resume(ctx context.Context, who cove.Principal, ref string) (sandbox.View, error)
	Rename(ctx context.Context, who cove.Principal, ref, name string) (sandbox.View, error)
	Destroy(ctx context.Context, who cove.Principal, ref string, keepWork bool) error
	Extend(ctx context.Context, who cove.Principal, ref string, change store.NetworkChange,
		documents []*policy.Document) (cut int, err error)
	Certificate(ctx context.Context, who cove.Principal, ref string) ([]byte, error)
}

// sandboxErrors are the errors of routes on detached sandboxes.
var sandboxErrors = append([]cove.Code{cove.NotFound, cove.Conflict}, storeErrors...)

// addLastingRoutes adds the routes of detached sandboxes.
func (s *Server) addLastingRoutes() {
	route(s, huma.Operation{OperationID: "create-sandbox", Method: http.MethodPost, Path: "/sandboxes",
		Tags:    []string{"sandboxes"},
		Summary: "Make a long-lived sandbox",
		Description: "Server-sent events: progress carries a Progress; created a Sandbox; error an Error; created or error " +
			"is the last. What fails, and what the caller leaves before it is made, leaves nothing behind. " +
			"Lines that begin with a colon are heartbeats.",
		Responses: s.creationResponses(),
	}, append([]cove.Code{cove.Unsupported, cove.TooLarge}, sandboxErrors...), s.createSandbox)

	route(s, huma.Operation{OperationID: "list-sandboxes", Method: http.MethodGet, Path: "/sandboxes",
		Tags:        []string{"sandboxes"},
		Summary:     "List the long-lived sandboxes, newest first",
		Description: "The caller's own; all of them for the machine's owner.",
	}, storeErrors, s.listSandboxes)

	route(s, huma.Operation{OperationID: "get-sandbox", Method: http.MethodGet, Path: "/sandboxes/{sandbox}",
		Tags:    []string{"sandboxes"},
		Summary: "Get a long-lived sandbox",
	}, sandboxErrors, s.getSandbox)

	route(s, huma.Operation{OperationID: "change-sandbox", Method: http.MethodPatch, Path: "/sandboxes/{sandbox}",
		Tags:    []string{"sandboxes"},
		Summary: "Rename a long-lived sandbox",
	}, sandboxErrors, s.changeSandbox)

	route(s, huma.Operation{OperationID: "destroy-sandbox", Method: http.MethodDelete, Path: "/sandboxes/{sandbox}",
		Tags: []string{"sandboxes"}, DefaultStatus: http.StatusNoContent,
		Summary: "Destroy a long-lived sandbox",
		Description: "With all that is in it, unless keep_work is given. The machine's owner may also name an orphan by " +
			"its id.",
	}, sandboxErrors, s.destroySandbox)

	for _, o := range []struct {
		name, summary, description string
		does                       func(s Sandboxes, ctx context.Context, who cove.Principal,
			ref string) (sandbox.View, error)
	}{
		{"start", "Start a sandbox that is stopped", "Its workspace and home are as they were.", Sandboxes.Start},
		{"stop", "Stop a sandbox", "Programs are asked to end, and after a moment killed. " +
			"Its workspace and home stay; the rest of its files go.", Sandboxes.Stop},
		{"pause", "Freeze a sandbox", "Nothing in it runs, and its memory is kept.", Sandboxes.Pause},
		{"resume", "Let a sandbox that is paused go on", "", Sandboxes.Resume},
	} {
		route(s, huma.Operation{OperationID: o.name + "-sandbox", Method: http.MethodPost,
			Path: "/sandboxes/{sandbox}/" + o.name, Tags: []string{"sandboxes"},
			Summary: o.summary, Description: o.description,
		}, append([]cove.Code{cove.Unsupported}, sandboxErrors...),
			func(ctx context.Context, in *sandboxInput) (*answer[api.Sandbox], error) {
				v, err := o.does(s.Sandboxes, ctx, exchangeOf(ctx).who, in.Sandbox)
				return answerSandbox(ctx, v, err)
			})
	}

	route(s, huma.Operation{OperationID: "change-sandbox-network", Method: http.MethodPost,
		Path: "/sandboxes/{sandbox}/network", Tags: []string{"sandboxes"},
		Summary:     "Add to what a long-lived sandbox may reach",
		Description: "At once, and each time that it is started; connections that are no longer allowed are cut.",
	}, sandboxErrors, s.changeSandboxNetwork)

	route(s, huma.Operation{OperationID: "get-sandbox-authority", Method: http.MethodGet, Path: "/sandboxes/{sandbox}/ca",
		Tags:        []string{"sandboxes"},
		Summary:     "Get the certificate of the authority that a sandbox trusts",
		Description: "Made for it alone; the key stays with the server.",
	}, sandboxErrors, s.sandboxAuthority)

	s.addProcessRoutes()
}

type createInput struct{ Body api.SandboxRequest }

// createSandbox is POST /sandboxes.
func (s *Server) createSandbox(ctx context.Context, in *createInput) (*huma.StreamResponse, error) {
	ex := exchangeOf(ctx)
	r, err := s.sandboxRequest(ctx, ex.who, in.Body)
	if err == nil && s.Agents != nil && r.Agent != "" {
		err = s.Agents.EquipSandbox(ex.who, &r)
	}
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) { s.create(ctx, ex, r) }}, nil
}

// create makes a sandbox and writes how that goes.
func (s *Server) create(ctx context.Context, ex *exchange, r sandbox.Request) {
	s.stepByStep(ctx, ex, api.EventCreated, func(ctx context.Context, progress func(workspace.Step)) (any, error) {
		v, err := s.Sandboxes.Create(ctx, ex.who, r, progress)
		if err != nil {
			return nil, err
		}
		return sandboxOf(ex.who, v), nil
	})
}

// stepByStep does something that takes a while and writes its steps as events, and its result as the last one of a
// name. What fails before the first step is answered with a status.
func (s *Server) stepByStep(ctx context.Context, ex *exchange, last string,
	do func(context.Context, func(workspace.Step)) (any, error)) {
	events := &eventStream{w: ex.w, clock: s.Clock}
	defer events.stop()
	began := s.Clock.Monotonic()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	made, err := do(ctx, func(step workspace.Step) {
		if !events.begun() {
			events.open(s.Heartbeat)
		}
		if !events.put("0", api.EventProgress, api.Progress{Step: step.Text, Done: step.Done, Note: step.Note,
			Elapsed: s.Clock.Since(began).Seconds()}) {
			cancel() // the caller has gone
		}
	})
	switch {
	case err != nil && !events.begun():
		s.writeError(ex, err)
	case err != nil:
		ex.failure = err
		events.last(api.EventError, body(ex, err))
	default:
		if !events.begun() {
			events.open(s.Heartbeat)
		}
		events.last(last, made)
	}
}

// last writes the last event of a stream.
func (e *eventStream) last(name string, v any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.event("0", name, v)
	e.send()
	e.ended = true
}

// sandboxRequest turns a wire request into a request of the sandbox package. It checks the form, and the rules that
// depend on the caller.
func (s *Server) sandboxRequest(ctx context.Context, who cove.Principal,
	q api.SandboxRequest) (r sandbox.Request, err error) {
	if err := checkTokens(q.Mounts); err != nil {
		return r, err
	}
	if q.Bind != "" && q.Repository != nil {
		return r, cove.Errorf(cove.InvalidArgument, "bind and repository exclude each other").
			WithHint("leave one of them out")
	}
	r = sandbox.Request{Name: q.Name}
	if r.Files, err = files(q.Files); err != nil {
		return r, err
	}
	spec, err := sandboxSpec(q)
	if err != nil {
		return r, err
	}
	if r.Spec, err = withProfile(s, q.Profile, spec, applyWithToken); err != nil {
		return r, err
	}
	r.Limits.Timeout = 0 // a profile's is that of its executions and runs
	if err := s.judge(ctx, who, &r.Spec, "bind"); err != nil {
		return r, err
	}
	if g := q.Repository; g != nil {
		if g.Worktree && !who.IsOwner() {
			return r, cove.Errorf(cove.Forbidden, "a worktree is for the machine's owner, who can edit it").
				WithHint("leave repository.worktree out")
		}
		r.Repository = &workspace.Repository{Source: g.Source, Branch: g.Branch, From: g.From, Sparse: g.Sparse,
			Depth: g.Depth, Worktree: g.Worktree, Uncommitted: g.Uncommitted}
	}
	return r, nil
}

// checkTokens refuses mounts where profiles put tokens.
func checkTokens(mounts []api.Mount) error {
	for _, m := range mounts {
		if path.Dir(path.Clean(m.Target)) == cove.Tokens {
			return cove.Errorf(cove.InvalidArgument,
				"mounts: %s is for tokens, which a profile alone puts into sandboxes", cove.Tokens).
				WithHint("name a profile with a token_file, or attach it elsewhere")
		}
	}
	return nil
}

// sandboxSpec returns the settings of a detached sandbox from a request.
func sandboxSpec(q api.SandboxRequest) (cove.Spec, error) {
	spec := apispec.Spec(q.Spec)
	spec.Network, spec.Git = apispec.Network(q.Network), apispec.Identity(q.Git)
	spec.Agent, spec.Bind, spec.AllowPR, spec.SSHAgent = q.Agent, q.Bind, q.AllowPR, q.SSHAgent
	if dir := path.Clean(q.WorkDir); strings.HasPrefix(q.WorkDir, "/") && dir != cove.Workspace &&
		!strings.HasPrefix(dir, cove.Workspace+"/") {
		return spec, cove.Errorf(cove.InvalidArgument, "work_dir: %.200q is not in %s", q.WorkDir, cove.Workspace)
	}
	spec.WorkDir = strings.TrimPrefix(path.Clean("/"+strings.TrimPrefix(q.WorkDir, cove.Workspace)), "/")
	return spec, nil
}

// applyWithToken is profile.Apply for a sandbox in which agents may work.
func applyWithToken(p api.Profile, spec cove.Spec) (cove.Spec, error) {
	spec, err := profile.Apply(p, spec)
	return profile.WithToken(p, spec), err
}

type listSandboxesInput struct {
	Label []string `query:"label,explode" maxItems:"64" doc:"Only with this label, KEY=VALUE; of several, with all"`
}

// listSandboxes is GET /sandboxes.
func (s *Server) listSandboxes(ctx context.Context, in *listSandboxesInput) (*answer[api.SandboxList], error) {
	labels, err := cove.ParseLabels(in.Label)
	if err != nil {
		return nil, err
	}
	who := exchangeOf(ctx).who
	all, err := s.Sandboxes.List(ctx, who)
	list := api.SandboxList{Sandboxes: []api.Sandbox{}}
	for _, v := range all.Sandboxes {
		if cove.HasLabels(v.Spec.Labels, labels) {
			list.Sandboxes = append(list.Sandboxes, sandboxOf(who, v))
		}
	}
	if len(labels) == 0 { // which orphans do not have
		list.Orphans = all.Orphans
	}
	return &answer[api.SandboxList]{list}, err
}

// answerSandbox answers with a sandbox, or an error.
func answerSandbox(ctx context.Context, v sandbox.View, err error) (*answer[api.Sandbox], error) {
	if err != nil {
		return nil, err
	}
	return &answer[api.Sandbox]{sandboxOf(exchangeOf(ctx).who, v)}, nil
}

type sandboxInput struct {
	Sandbox string `path:"sandbox" maxLength:"128" doc:"Its name, its id, or the beginning of either that no other has" example:"brave-otter"`
}

// getSandbox is GET /sandboxes/{sandbox}.
func (s *Server) getSandbox(ctx context.Context, in *sandboxInput) (*answer[api.Sandbox], error) {
	v, err := s.Sandboxes.Find(ctx, exchangeOf(ctx).who, in.Sandbox)
	return answerSandbox(ctx, v, err)
}

type changeInput struct {
	Sandbox string `path:"sandbox" maxLength:"128" doc:"Its name, its id, or the beginning of either that no other has" example:"brave-otter"`
	Body    api.SandboxChange
}

// changeSandbox is PATCH /sandboxes/{sandbox}.
func (s *Server) changeSandbox(ctx context.Context, in *changeInput) (*answer[api.Sandbox], error) {
	if in.Body.Name == "" {
		v, err := s.Sandboxes.Find(ctx, exchangeOf(ctx).who, in.Sandbox)
		return answerSandbox(ctx, v, err)
	}
	v, err := s.Sandboxes.Rename(ctx, exchangeOf(ctx).who, in.Sandbox, in.Body.Name)
	return answerSandbox(ctx, v, err)
}

type destroyInput struct {
	Sandbox  string `path:"sandbox" maxLength:"128" doc:"Its name, its id, or the beginning of either that no other has" example:"brave-otter"`
	KeepWork bool   `query:"keep_work" doc:"Leave the checkout where it is"`
}

// destroySandbox is DELETE /sandboxes/{sandbox}.
func (s *Server) destroySandbox(ctx context.Context, in *destroyInput) (*struct{}, error) {
	return nil, s.Sandboxes.Destroy(ctx, exchangeOf(ctx).who, in.Sandbox, in.KeepWork)
}

type sandboxNetworkInput struct {
	Sandbox string `path:"sandbox" maxLength:"128" doc:"Its name, its id, or the beginning of either that no other has" example:"brave-otter"`
	Body    api.NetworkChange
}

// changeSandboxNetwork is POST /sandboxes/{sandbox}/network.
func (s *Server) changeSandboxNetwork(ctx context.Context,
	in *sandboxNetworkInput) (*answer[api.NetworkChanged], error) {
	docs, err := policy.Documents(apispec.Change(in.Body))
	if err != nil {
		return nil, err
	}
	ex := exchangeOf(ctx)
	if err := s.mayOpen(ctx, ex.who, docs); err != nil {
		return nil, err
	}
	cut, err := s.Sandboxes.Extend(ctx, ex.who, in.Sandbox, store.NetworkChange(in.Body), docs)
	return &answer[api.NetworkChanged]{api.NetworkChanged{Cut: cut}}, err
}

// sandboxAuthority is GET /sandboxes/{sandbox}/ca.
func (s *Server) sandboxAuthority(ctx context.Context, in *sandboxInput) (*answer[api.Authority], error) {
	certificate, err := s.Sandboxes.Certificate(ctx, exchangeOf(ctx).who, in.Sandbox)
	return &answer[api.Authority]{api.Authority{Certificate: string(certificate)}}, err
}

// creationResponses documents the stream.
func (s *Server) creationResponses() map[string]*huma.Response {
	return s.stepResponses(api.EventCreated, typeOf[api.Sandbox]())
}

// stepResponses documents a stream of steps and the event that ends it.
func (s *Server) stepResponses(last string, result reflect.Type) map[string]*huma.Response {
	schemas := s.api.OpenAPI().Components.Schemas
	data := &huma.Schema{Title: "Data of an event", OneOf: []*huma.Schema{
		schemas.Schema(typeOf[api.Progress](), true, ""), schemas.Schema(result, true, ""),
		schemas.Schema(typeOf[api.Error](), true, "")}}
	return eventResponses(nil, "Always 0: the stream cannot be taken up again", data, api.EventProgress, last,
		api.EventError)
}
