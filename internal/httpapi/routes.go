package httpapi

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// answer is an output that is nothing but a body.
type answer[T any] struct{ Body T }

var (
	executeErrors = []cove.Code{cove.NotFound, cove.TooLarge, cove.Unsupported, cove.StorageFull, cove.Canceled,
		cove.ModelUnreachable}
	storeErrors = []cove.Code{cove.StorageFull, cove.Canceled}
)

// addRoutes adds everything that this server does.
func (s *Server) addRoutes() {
	if s.Clients != nil {
		s.addGatewayRoutes()
	} else {
		s.addSandboxRoutes()
		s.addProfileRoutes()
		if s.Sandboxes != nil {
			s.addLastingRoutes()
		}
		if s.Repositories != nil {
			s.addRepositoryRoutes()
		}
		if s.Work != nil {
			s.addWorkRoutes()
		}
		if s.Runs != nil {
			s.addRunRoutes()
		}
		if s.Agents != nil {
			s.addAgentRoutes()
		}
	}
	s.addAuditRoutes()
	s.addAskRoutes()
	s.addDecisionRoutes()
	s.addMetrics()
	s.addDocs()
}

// addSandboxRoutes is the table of contents of the API.
func (s *Server) addSandboxRoutes() {
	route(s, huma.Operation{OperationID: "execute", Method: http.MethodPost, Path: "/execute", Tags: []string{"run"},
		Summary: "Run a snippet and wait for its end",
		Description: "The program's own failure is not an error: its exit code is in the answer. When the caller goes " +
			"away, the execution is killed.",
	}, executeErrors, s.execute)

	route(s, huma.Operation{OperationID: "execute-stream", Method: http.MethodPost, Path: "/execute/stream",
		Tags:    []string{"run"},
		Summary: "Run a snippet and follow its output",
		Description: "Server-sent events: stdout and stderr carry an OutputEvent, holds a HoldList whenever what waits for " +
			"an answer has changed, done an Execution without its output, error an Error; done or error is the last. " +
			"Lines that begin with a colon are heartbeats. What fails before the execution has begun is answered with a " +
			"status, not with an event.",
		Responses: s.streamResponses(),
	}, executeErrors, s.stream)

	route(s, huma.Operation{OperationID: "send-stdin", Method: http.MethodPost, Path: "/executions/{id}/stdin",
		Tags: []string{"run"}, DefaultStatus: http.StatusNoContent,
		Summary: "Send standard input to a running execution",
		Description: "For executions that were started with stdin_stream, once, by the same caller. The body is passed on " +
			"as it comes; its end is the end of the input.",
		RequestBody: &huma.RequestBody{Required: true,
			Content: map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString,
				Format: "binary"}}}},
	}, []cove.Code{cove.NotFound, cove.Conflict, cove.Canceled}, s.sendInput)

	route(s, huma.Operation{OperationID: "list-executions", Method: http.MethodGet, Path: "/executions",
		Tags:    []string{"history"},
		Summary: "List executions, newest first", Description: "The caller's own; all of them for the machine's owner.",
	}, storeErrors, s.list)

	route(s, huma.Operation{OperationID: "get-execution", Method: http.MethodGet, Path: "/executions/{id}",
		Tags:    []string{"history"},
		Summary: "Get an execution with its output",
	}, append([]cove.Code{cove.NotFound}, storeErrors...), s.get)

	route(s, huma.Operation{OperationID: "follow-execution", Method: http.MethodGet, Path: "/executions/{id}/stream",
		Tags:    []string{"run"},
		Summary: "Follow the output of an execution",
		Description: "The events of POST /execute/stream from the beginning, or after Last-Event-ID: first what is there, " +
			"standard output before error output, then what comes. " +
			"Following neither slows an execution nor ends it. One that has ended is answered from its record, in which text " +
			"that is not UTF-8 is replaced.",
		Responses: s.streamResponses(),
	}, append([]cove.Code{cove.NotFound, cove.Conflict}, storeErrors...), s.attach)

	route(s, huma.Operation{OperationID: "kill-execution", Method: http.MethodDelete, Path: "/executions/{id}",
		Tags:    []string{"run"},
		Summary: "Kill a running execution", Description: "The record stays, with the status killed.",
	}, append([]cove.Code{cove.NotFound, cove.Conflict}, storeErrors...), s.kill)

	route(s, huma.Operation{OperationID: "change-network", Method: http.MethodPost, Path: "/executions/{id}/network",
		Tags:        []string{"run"},
		Summary:     "Add to what a running execution may reach",
		Description: "At once; connections that are no longer allowed are cut.",
	}, append([]cove.Code{cove.NotFound, cove.Conflict}, storeErrors...), s.changeNetwork)

	route(s, huma.Operation{OperationID: "get-authority", Method: http.MethodGet, Path: "/executions/{id}/ca",
		Tags:        []string{"run"},
		Summary:     "Get the certificate of the authority that a running execution trusts",
		Description: "Made for it alone; the key stays with the server.",
	}, append([]cove.Code{cove.NotFound, cove.Conflict}, storeErrors...), s.authority)

	route(s, huma.Operation{OperationID: "list-runtimes", Method: http.MethodGet, Path: "/runtimes",
		Tags:    []string{"server"},
		Summary: "List the languages and whether they can be run",
	}, []cove.Code{cove.Unsupported, cove.Canceled}, s.runtimes)

	route(s, huma.Operation{OperationID: "health", Method: http.MethodGet, Path: "/health", Tags: []string{"server"},
		Security:    []map[string][]string{{}},
		Summary:     "Whether the server can run anything",
		Description: "Callers without a key learn the status only. 503 when no engine works.",
		Responses: map[string]*huma.Response{"503": {Description: "No engine works", Content: map[string]*huma.MediaType{
			"application/json": {Schema: huma.SchemaFromType(s.api.OpenAPI().Components.Schemas, typeOf[api.Health]())}}}},
	}, nil, s.health)
}

func (s *Server) addAuditRoutes() {
	route(s, huma.Operation{OperationID: "list-audit", Method: http.MethodGet, Path: "/audit", Tags: []string{"history"},
		Summary: "Read the audit log, newest first",
		Description: "Who did what to which object, with which verdict and why: what the caller did, without hashes; all " +
			"of it for the machine's owner. Only ever added to, until its retention is over.",
	}, storeErrors, s.auditLog)

	route(s, huma.Operation{OperationID: "verify-audit", Method: http.MethodGet, Path: "/audit/verify",
		Tags:    []string{"history"},
		Summary: "Check that the audit log is as it was written",
		Description: "For the machine's owner. Walks the chain of hashes from the oldest record to the newest. A log that " +
			"has been changed is an answer, not an error.",
	}, storeErrors, s.verifyAudit)
}

func (s *Server) addAskRoutes() {
	route(s, huma.Operation{OperationID: "list-holds", Method: http.MethodGet, Path: "/network/holds",
		Tags:    []string{"network"},
		Summary: "List what waits for an answer",
		Description: "Requests that a policy asks about, of the caller's executions and sandboxes, the oldest first; of " +
			"all of this server, or of all clients of this gateway, for the machine's owner.",
	}, nil, s.holds)

	route(s, huma.Operation{OperationID: "answer-hold", Method: http.MethodPost, Path: "/network/holds/{id}",
		Tags: []string{"network"}, DefaultStatus: http.StatusNoContent,
		Summary:     "Answer what waits",
		Description: "At once. Private addresses and services of the machine are approved by its owner.",
	}, append([]cove.Code{cove.NotFound, cove.TooLarge}, storeErrors...), s.answerHold)

	route(s, huma.Operation{OperationID: "list-approvals", Method: http.MethodGet, Path: "/network/approvals",
		Tags:        []string{"network"},
		Summary:     "List the approvals that are remembered for policies, newest first",
		Description: "Those that the caller has given; all of them for the machine's owner.",
	}, storeErrors, s.approvals)

	route(s, huma.Operation{OperationID: "revoke-approval", Method: http.MethodDelete, Path: "/network/approvals/{id}",
		Tags: []string{"network"}, DefaultStatus: http.StatusNoContent,
		Summary:     "Forget an approval",
		Description: "What it is about is asked about again, in running executions too; requests that are under way go on.",
	}, append([]cove.Code{cove.NotFound}, storeErrors...), s.revoke)
}

func (s *Server) addDecisionRoutes() {
	route(s, huma.Operation{OperationID: "list-decisions", Method: http.MethodGet, Path: "/network/decisions",
		Tags:    []string{"network"},
		Summary: "List what became of attempts to leave sandboxes, newest first",
		Description: "Requests, connections and questions for names, allowed and denied, of the caller's executions and " +
			"sandboxes, in every process of Cove that shares the database; of all of them for the machine's owner.",
	}, storeErrors, s.decisions)

	route(s, huma.Operation{OperationID: "follow-decisions", Method: http.MethodGet, Path: "/network/decisions/stream",
		Tags:    []string{"network"},
		Summary: "Follow what becomes of attempts to leave sandboxes",
		Description: "Those that GET /network/decisions lists. Server-sent events: decision carries a Decision; error an " +
			"Error, and is the last. Lines that begin with a colon are heartbeats. It goes on until the caller leaves.",
		Responses: s.decisionResponses(),
	}, storeErrors, s.decisionStream)
}
