package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// sandboxRoutes serve detached sandboxes.
type sandboxRoutes struct{ *edge }

// sandboxErrors are the errors of routes on detached sandboxes.
var sandboxErrors = append([]cove.Code{cove.NotFound, cove.Conflict}, storeErrors...)

// add adds the routes of detached sandboxes.
func (s sandboxRoutes) add() {
	route(s, huma.Operation{OperationID: "create-sandbox", Method: http.MethodPost, Path: "/sandboxes",
		Tags:    []string{"sandboxes"},
		Summary: "Make a long-lived sandbox",
		Description: "Server-sent events: progress carries a Progress; created a Sandbox; error an Error; created or error " +
			"is the last. What fails, and what the caller leaves before it is made, leaves nothing behind. " +
			"With if_exists: return, an existing sandbox of the name is the answer, once it runs; of concurrent requests one " +
			"makes it, and all have it. " +
			"Lines that begin with a colon are heartbeats.",
		Responses: s.creationResponses(),
	}, append([]cove.Code{cove.Unsupported, cove.TooLarge}, sandboxErrors...), s.createSandbox)

	route(s, huma.Operation{OperationID: "check-sandbox", Method: http.MethodPost, Path: "/sandboxes/check",
		Tags: []string{"sandboxes"}, DefaultStatus: http.StatusNoContent,
		Summary: "Ask whether a sandbox could be made",
		Description: "Takes the body of POST /sandboxes, and refuses what that would refuse before anything is fetched or " +
			"made: an agent, provider, credential or profile that is not there, a key that is missing, limits and networks " +
			"that cannot be. The repository and the image are not looked at, and an upload need not be there. Nothing is made.",
	}, append([]cove.Code{cove.Unsupported, cove.TooLarge, cove.RuntimeMissing}, sandboxErrors...), s.checkSandbox)

	route(s, huma.Operation{OperationID: "list-sandboxes", Method: http.MethodGet, Path: "/sandboxes",
		Tags:        []string{"sandboxes"},
		Summary:     "List the long-lived sandboxes, newest first",
		Description: "The caller's own; all of them for the machine's owner.",
	}, storeErrors, s.listSandboxes)

	route(s, huma.Operation{OperationID: "get-sandbox", Method: http.MethodGet, Path: "/sandboxes/{sandbox}",
		Tags:        []string{"sandboxes"},
		Summary:     "Get a long-lived sandbox",
		Description: "By its name or id, with the terminals of one that runs and the disk that it uses.",
	}, sandboxErrors, s.getSandbox)

	route(s, huma.Operation{OperationID: "change-sandbox", Method: http.MethodPatch, Path: "/sandboxes/{sandbox}",
		Tags:    []string{"sandboxes"},
		Summary: "Rename a long-lived sandbox, or change the size of its disk",
		Description: "By its name or id, in every state. What the body leaves out stays as it is. A disk grows while its " +
			"sandbox runs, and becomes smaller while it is stopped, if what it holds fits.",
	}, sandboxErrors, s.changeSandbox)

	route(s, huma.Operation{OperationID: "destroy-sandbox", Method: http.MethodDelete, Path: "/sandboxes/{sandbox}",
		Tags:    []string{"sandboxes"},
		Summary: "Destroy a long-lived sandbox",
		Description: "With all that is in it, unless keep_work is given. Work that an earlier attempt has kept stays: " +
			"without keep_work that is a conflict. The machine's owner may also name an orphan by its id. The id of a " +
			"sandbox of the caller's that is destroyed already is answered with 204 again; a name is not, since another " +
			"sandbox may have it next. The answer has a body where something came into being in its writable mounts that " +
			"decides what programs of their owner run, and no stop has told it.",
		Responses: map[string]*huma.Response{"204": {Description: "No Content"}},
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
		{"resume", "Let a sandbox that is paused go on", "Its programs run on where they were.", Sandboxes.Resume},
	} {
		route(s, huma.Operation{OperationID: o.name + "-sandbox", Method: http.MethodPost,
			Path: "/sandboxes/{sandbox}/" + o.name, Tags: []string{"sandboxes"},
			Summary: o.summary, Description: o.description,
		}, append([]cove.Code{cove.Unsupported}, sandboxErrors...),
			func(ctx context.Context, in *SandboxPath) (*answer[api.Sandbox], error) {
				v, err := o.does(s.Sandboxes, ctx, exchangeOf(ctx).who, in.Sandbox)
				return answerSandbox(ctx, v, err)
			})
	}

	route(s, huma.Operation{OperationID: "commit-sandbox", Method: http.MethodPost, Path: "/sandboxes/{sandbox}/commit",
		Tags:    []string{"sandboxes"},
		Summary: "Make an image of what a sandbox has changed",
		Description: "Its image with one more layer, in the machine's store. It is for sandboxes with root inside over an " +
			"image of the store. A sandbox that runs is frozen while its files are copied. Its workspace, its home, what is " +
			"mounted in it and temporary files are no part of the image. An image that has the name keeps its digest alone.",
	}, append([]cove.Code{cove.Unsupported, cove.TooLarge, cove.ImageMissing}, sandboxErrors...), s.commitSandbox)

	route(s, huma.Operation{OperationID: "change-sandbox-network", Method: http.MethodPost,
		Path: "/sandboxes/{sandbox}/network", Tags: []string{"sandboxes"},
		Summary:     "Change what a long-lived sandbox may reach",
		Description: "At once, and each time that it is started; connections that are no longer allowed are cut.",
	}, sandboxErrors, s.changeSandboxNetwork)

	route(s, huma.Operation{OperationID: "get-sandbox-network", Method: http.MethodGet,
		Path: "/sandboxes/{sandbox}/network", Tags: []string{"sandboxes"},
		Summary:     "Get what a long-lived sandbox may reach",
		Description: "With what was changed since it was made; for the machine's owner also with all layers of its policy.",
	}, sandboxErrors, s.sandboxNetwork)

	route(s, huma.Operation{OperationID: "get-sandbox-authority", Method: http.MethodGet, Path: "/sandboxes/{sandbox}/ca",
		Tags:        []string{"sandboxes"},
		Summary:     "Get the certificate of the authority that a sandbox trusts",
		Description: "Made for it alone; the key stays with the server.",
	}, sandboxErrors, s.sandboxAuthority)
}

type createInput struct{ Body api.SandboxRequest }

// createSandbox is POST /sandboxes.
func (s sandboxRoutes) createSandbox(ctx context.Context, in *createInput) (*huma.StreamResponse, error) {
	ex := exchangeOf(ctx)
	r, err := s.equipped(ctx, ex, in.Body)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) { s.create(ctx, ex, r) }}, nil
}

// checkSandbox is POST /sandboxes/check.
func (s sandboxRoutes) checkSandbox(ctx context.Context, in *createInput) (*struct{}, error) {
	ex := exchangeOf(ctx)
	r, err := s.equipped(ctx, ex, in.Body)
	if err == nil {
		err = s.Sandboxes.Check(ctx, ex.who, r)
	}
	return nil, err
}

// equipped turns a wire request into one of the sandbox package, with what its agent needs.
func (s sandboxRoutes) equipped(ctx context.Context, ex *exchange, q api.SandboxRequest) (sandbox.Request, error) {
	r, err := s.sandboxRequest(ctx, ex.who, q)
	r.Tasks = q.AgentTasks
	if err == nil && q.AgentConfig != nil && r.Agent == "" {
		err = cove.Errorf(cove.InvalidArgument, "agent_config is about the agent of a sandbox, and it has none").
			WithHint("name the agent")
	}
	if err == nil && r.Agent != "" {
		err = ex.caller().Need(access.Agents)
	}
	provider := ""
	if err == nil && r.Agent != "" {
		provider, err = withProfile(s.edge, r.Profile, "", func(p api.Profile, _ string) (string, error) {
			return p.Provider, nil
		})
	}
	if err == nil && r.Agent != "" {
		r.Network, err = s.modelsOf(ctx, ex.who, r.Agent, provider, r.Network)
	}
	if err == nil && s.Agents != nil && r.Agent != "" {
		err = s.Agents.EquipSandbox(ex.who, &r)
	}
	return r, err
}

// create makes a sandbox and writes how that goes.
func (s sandboxRoutes) create(ctx context.Context, ex *exchange, r sandbox.Request) {
	s.stepByStep(ctx, ex, api.EventCreated, func(ctx context.Context, progress func(workspace.Step)) (any, error) {
		v, err := s.Sandboxes.Create(ctx, ex.who, r, progress)
		if err != nil {
			return nil, err
		}
		return sandboxOf(ex.who, v), nil
	})
}

type listSandboxesInput struct {
	Label []string `query:"label,explode" maxItems:"64" doc:"Only with this label, KEY=VALUE; of several, with all"`
}

// listSandboxes is GET /sandboxes.
func (s sandboxRoutes) listSandboxes(ctx context.Context, in *listSandboxesInput) (*answer[api.SandboxList], error) {
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

// getSandbox is GET /sandboxes/{sandbox}.
func (s sandboxRoutes) getSandbox(ctx context.Context, in *SandboxPath) (*answer[api.Sandbox], error) {
	v, err := s.Sandboxes.Find(ctx, exchangeOf(ctx).who, in.Sandbox)
	return answerSandbox(ctx, v, err)
}

type changeInput struct {
	SandboxPath
	Body api.SandboxChange
}

// changeSandbox is PATCH /sandboxes/{sandbox}.
func (s sandboxRoutes) changeSandbox(ctx context.Context, in *changeInput) (*answer[api.Sandbox], error) {
	v, err := s.Sandboxes.Change(ctx, exchangeOf(ctx).who, in.Sandbox,
		sandbox.Change{Name: in.Body.Name, Disk: in.Body.DiskMB << 20})
	return answerSandbox(ctx, v, err)
}

type commitInput struct {
	SandboxPath
	Body api.CommitRequest
}

// commitSandbox is POST /sandboxes/{sandbox}/commit.
func (s sandboxRoutes) commitSandbox(ctx context.Context, in *commitInput) (*answer[api.CommittedImage], error) {
	made, err := s.Images.Commit(ctx, exchangeOf(ctx).who, in.Sandbox, in.Body)
	return &answer[api.CommittedImage]{made}, err
}

type destroyInput struct {
	SandboxPath
	KeepWork bool `query:"keep_work" doc:"Leave the checkout where it is"`
}

type destroyAnswer struct {
	Status int
	Body   api.Destroyed
}

// destroySandbox is DELETE /sandboxes/{sandbox}.
func (s sandboxRoutes) destroySandbox(ctx context.Context, in *destroyInput) (*destroyAnswer, error) {
	made, err := s.Sandboxes.Destroy(ctx, exchangeOf(ctx).who, in.Sandbox, in.KeepWork)
	if len(made) == 0 {
		return &destroyAnswer{Status: http.StatusNoContent}, err
	}
	return &destroyAnswer{http.StatusOK, api.Destroyed{Made: apispec.Made(made)}}, err
}

type sandboxNetworkInput struct {
	SandboxPath
	Body api.SandboxNetworkChange
}

// sandboxNetwork is GET /sandboxes/{sandbox}/network.
func (s sandboxRoutes) sandboxNetwork(ctx context.Context, in *SandboxPath) (*answer[api.SandboxNetwork], error) {
	who := exchangeOf(ctx).who
	v, n, err := s.Sandboxes.NetworkOf(ctx, who, in.Sandbox)
	if err != nil {
		return nil, err
	}
	shown := api.SandboxNetwork{Mode: string(n.Mode), Repository: n.Remote, Credentials: n.Credentials,
		Providers: n.Providers}
	if n.Budget != (cove.Budget{}) {
		shown.Budget = new(api.ModelBudget(n.Budget))
	}
	for _, c := range v.Spec.Changes {
		shown.Changes = append(shown.Changes, api.NetworkChange{Allow: c.Allow, Deny: c.Deny,
			Presets: c.Presets, PassThrough: c.PassThrough})
	}
	for _, d := range n.Policy {
		if !who.IsOwner() {
			break // profiles are the owner's
		}
		text, err := d.YAML()
		if err != nil {
			return nil, err
		}
		shown.Policies = append(shown.Policies, api.PolicyText{Source: d.Source, Text: string(text)})
	}
	return &answer[api.SandboxNetwork]{shown}, nil
}

// changeSandboxNetwork is POST /sandboxes/{sandbox}/network.
func (s sandboxRoutes) changeSandboxNetwork(ctx context.Context,
	in *sandboxNetworkInput) (*answer[api.NetworkChanged], error) {
	change := apispec.Change(in.Body.NetworkChange)
	change.Mode = cove.NetworkMode(in.Body.Mode)
	docs, err := policy.Changes(change.Network())
	if err != nil {
		return nil, err
	}
	ex := exchangeOf(ctx)
	if err := s.mayOpen(ctx, ex.who, docs); err != nil {
		return nil, err
	}
	cut, err := s.Sandboxes.ChangeNetwork(ctx, ex.who, in.Sandbox, change, in.Body.Reset)
	return &answer[api.NetworkChanged]{api.NetworkChanged{Cut: cut}}, err
}

// sandboxAuthority is GET /sandboxes/{sandbox}/ca.
func (s sandboxRoutes) sandboxAuthority(ctx context.Context, in *SandboxPath) (*answer[api.Authority], error) {
	certificate, err := s.Sandboxes.Certificate(ctx, exchangeOf(ctx).who, in.Sandbox)
	return &answer[api.Authority]{api.Authority{Certificate: string(certificate)}}, err
}

// creationResponses documents the stream.
func (s sandboxRoutes) creationResponses() map[string]*huma.Response {
	return s.stepResponses(api.EventCreated, typeOf[api.Sandbox]())
}
