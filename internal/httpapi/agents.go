package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// agentRoutes serve the coding agents of this machine.
type agentRoutes struct{ *edge }

// agentErrors are the errors of routes on installed agents.
var agentErrors = append([]cove.Code{cove.NotFound, cove.Conflict, cove.RuntimeMissing, cove.Unsupported},
	storeErrors...)

// add adds the routes of coding agents.
func (s agentRoutes) add() {
	route(s, huma.Operation{OperationID: "list-agents", Method: http.MethodGet, Path: "/agents", Tags: []string{"agents"},
		Summary:     "List the coding agents",
		Description: "Those that Cove knows and those of its configuration, with the versions that are installed.",
	}, storeErrors, s.listAgents)

	route(s, huma.Operation{OperationID: "install-agent", Method: http.MethodPost, Path: "/agents/{agent}/install",
		Tags:    []string{"agents"},
		Summary: "Install an agent, or another version of it",
		Description: "Server-sent events: progress carries a Progress; installed an Agent; error " +
			"an Error; installed or error is the last. Lines that begin with a colon are heartbeats.",
		Responses: s.stepResponses(api.EventInstalled, typeOf[api.Agent]()),
	}, agentErrors, s.installAgent)

	route(s, huma.Operation{OperationID: "remove-agent", Method: http.MethodDelete, Path: "/agents/{agent}/versions",
		Tags:    []string{"agents"},
		Summary: "Remove installed versions of an agent",
		Description: "Versions that sandboxes have stay; without a version, so does the one that " +
			"runs use.",
	}, agentErrors, s.removeAgent)

	route(s, huma.Operation{OperationID: "check-agent", Method: http.MethodGet, Path: "/agents/{agent}/doctor",
		Tags:        []string{"agents"},
		Summary:     "Try what an agent needs",
		Description: "Its program runs in a sandbox, and its credential is read.",
	}, agentErrors, s.checkAgent)
}

// listAgents is GET /agents.
func (s agentRoutes) listAgents(ctx context.Context, _ *struct{}) (*answer[api.AgentList], error) {
	all, err := s.Agents.Agents(ctx)
	list := make([]api.Agent, len(all))
	for i, a := range all {
		list[i] = api.Agent(a)
	}
	return &answer[api.AgentList]{api.AgentList{Agents: list}}, err
}

type installInput struct {
	AgentPath
	Body api.AgentInstall
}

// installAgent is POST /agents/{agent}/install.
func (s agentRoutes) installAgent(ctx context.Context, in *installInput) (*huma.StreamResponse, error) {
	ex := exchangeOf(ctx)
	return &huma.StreamResponse{Body: func(huma.Context) {
		s.stepByStep(ctx, ex, api.EventInstalled, func(ctx context.Context, progress func(workspace.Step)) (any, error) {
			installed, err := s.Agents.InstallAgent(ctx, in.Agent, in.Body.Version, progress)
			return api.Agent(installed), err
		})
	}}, nil
}

type removeAgentInput struct {
	AgentPath
	Version string `query:"version" maxLength:"64" doc:"All that are not in use when absent"`
}

// removeAgent is DELETE /agents/{agent}/versions.
func (s agentRoutes) removeAgent(ctx context.Context, in *removeAgentInput) (*answer[api.AgentRemoval], error) {
	removed, err := s.Agents.RemoveAgent(ctx, in.Agent, in.Version)
	if removed == nil {
		removed = []string{}
	}
	return &answer[api.AgentRemoval]{api.AgentRemoval{Removed: removed}}, err
}

// checkAgent is GET /agents/{agent}/doctor.
func (s agentRoutes) checkAgent(ctx context.Context, in *AgentPath) (*answer[api.AgentReport], error) {
	r, err := s.Agents.CheckAgent(ctx, in.Agent)
	report := api.AgentReport{Agent: r.Agent, Title: r.Title, Healthy: r.Healthy,
		Checks: make([]api.AgentCheck, len(r.Checks))}
	for i, c := range r.Checks {
		report.Checks[i] = api.AgentCheck(c)
	}
	return &answer[api.AgentReport]{report}, err
}
