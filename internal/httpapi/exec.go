package httpapi

import (
	"context"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/sandbox"
)

// processRoutes serve commands in detached sandboxes.
type processRoutes struct{ *edge }

// processErrors are the errors of routes that start a process in a sandbox.
var processErrors = append([]cove.Code{cove.Overloaded, cove.TooLarge, cove.RuntimeMissing}, sandboxErrors...)

// add adds the routes of processes in detached sandboxes.
func (s processRoutes) add() {
	route(s, huma.Operation{OperationID: "exec", Method: http.MethodPost, Path: "/sandboxes/{sandbox}/exec",
		Tags:    []string{"sandboxes"},
		Summary: "Run a command in a sandbox that runs, and follow its output",
		Description: "Server-sent events: stdout and stderr carry an OutputEvent, done an ExecResult, error an Error; done " +
			"or error is the last. Lines that begin with a colon are heartbeats. " +
			"A command that fails is not an error. When the caller goes away, it is killed with its process group, unless it " +
			"is detached. Standard input follows at POST /executions/{id}/stdin when it is asked for.",
		Responses: s.execResponses(),
	}, processErrors, s.exec)

	route(s, huma.Operation{OperationID: "signal-exec", Method: http.MethodPost,
		Path: "/sandboxes/{sandbox}/exec/{id}/signal", Tags: []string{"sandboxes"}, DefaultStatus: http.StatusNoContent,
		Summary: "Send a signal to a command", Description: "To its process group.",
	}, sandboxErrors, s.signalExec)
}

type execInput struct {
	SandboxPath
	Body api.ExecRequest
}

// exec is POST /sandboxes/{sandbox}/exec.
func (s processRoutes) exec(ctx context.Context, in *execInput) (*huma.StreamResponse, error) {
	q := in.Body
	if q.StdinStream && q.Stdin != "" {
		return nil, cove.Errorf(cove.InvalidArgument, "stdin and stdin_stream exclude each other").
			WithHint("send the input one way")
	}
	if q.Timeout < 0 || apispec.Duration(q.Timeout) > maxExecTimeout {
		return nil, cove.Errorf(cove.InvalidArgument, "timeout: %g seconds are not possible", q.Timeout).
			WithHint("leave it out for none")
	}
	return &huma.StreamResponse{Body: func(huma.Context) { s.runCommand(ctx, exchangeOf(ctx), in) }}, nil
}

// maxExecTimeout is the longest time of a command that has one.
const maxExecTimeout = 365 * 24 * time.Hour

// runCommand runs a command and writes its events. Until it has begun, a
// failure is answered with a status; afterwards with an event.
func (s processRoutes) runCommand(ctx context.Context, ex *exchange, in *execInput) {
	events := newEventWriter(ex, s.Clock)
	defer events.stop()
	q := sandbox.CommandRequest{
		Args: in.Body.Args, Env: in.Body.Env, Dir: in.Body.WorkDir,
		Timeout: apispec.Duration(in.Body.Timeout), Detach: in.Body.Detach, Git: in.Body.Git,
	}
	var input *inputPipe
	switch {
	case in.Body.StdinStream:
		input = newInputPipe(ex.who)
		q.Stdin = input
		defer input.end()
	case in.Body.Stdin != "":
		q.Stdin = strings.NewReader(in.Body.Stdin)
	}
	result, err := s.Processes.Command(ctx, ex.who, in.Sandbox, q, func(id cove.ExecutionID) {
		if input != nil {
			s.inputs.add(id, input) // before the client learns the id
		}
		events.begin(id, s.Heartbeat)
	}, events)
	if input != nil {
		s.inputs.remove(input)
	}
	if err != nil {
		breakOff(ex, events, err)
		return
	}
	events.finish(api.EventDone, api.ExecResult{ID: string(result.ID), ExitCode: result.ExitCode,
		Duration: result.Duration.Seconds(), LimitHit: string(result.Limit)})
}

type signalInput struct {
	SandboxPath
	ID   string `path:"id" doc:"Of the command" example:"ex_0123456789abcdefghjkmnpqrs"`
	Body api.SignalRequest
}

var signals = map[string]syscall.Signal{"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT,
	"KILL": syscall.SIGKILL, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
	"TERM": syscall.SIGTERM, "CONT": syscall.SIGCONT, "STOP": syscall.SIGSTOP, "TSTP": syscall.SIGTSTP,
	"WINCH": syscall.SIGWINCH}

// signalExec is POST /sandboxes/{sandbox}/exec/{id}/signal.
func (s processRoutes) signalExec(ctx context.Context, in *signalInput) (*struct{}, error) {
	id, err := cove.ParseExecutionID(in.ID)
	if err != nil {
		return nil, cove.Errorf(cove.NotFound, "%.64q is not the id of a command", in.ID)
	}
	signal, ok := signals[strings.TrimPrefix(in.Body.Signal, "SIG")]
	if !ok {
		return nil, cove.Errorf(cove.InvalidArgument, "%.20q is not a signal that can be sent", in.Body.Signal).
			WithHint("send INT, TERM or KILL")
	}
	return nil, s.Processes.SignalCommand(ctx, exchangeOf(ctx).who, in.Sandbox, id, signal)
}

// execResponses documents the stream.
func (s processRoutes) execResponses() map[string]*huma.Response {
	schemas := s.api.OpenAPI().Components.Schemas
	data := &huma.Schema{Title: "Data of an event", OneOf: []*huma.Schema{
		schemas.Schema(typeOf[api.OutputEvent](), true, ""), schemas.Schema(typeOf[api.ExecResult](), true, ""),
		schemas.Schema(typeOf[api.Error](), true, "")}}
	headers := map[string]*huma.Param{api.ExecutionIDHeader: {Description: "The command's id, before its first event",
		Schema: &huma.Schema{Type: huma.TypeString}}}
	return eventResponses(headers,
		"How much of stdout and of stderr has come, in bytes; the stream cannot be taken up again", data,
		api.EventStdout, api.EventStderr, api.EventDone, api.EventError)
}
