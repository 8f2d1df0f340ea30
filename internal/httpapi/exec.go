package httpapi

import (
	"context"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
)

// Processes runs commands and terminals in long-lived sandboxes; sandbox.Processes is one.
type Processes interface {
	Command(ctx context.Context, who cove.Principal, ref string, q sandbox.CommandRequest, started func(cove.ExecutionID),
		out process.Output) (sandbox.CommandResult, error)
	SignalCommand(ctx context.Context, who cove.Principal, ref string, id cove.ExecutionID, signal syscall.Signal) error
	OpenTerminal(ctx context.Context, who cove.Principal, ref string, q sandbox.TerminalRequest) (*terminals.Viewer, error)
	Terminals(ctx context.Context, who cove.Principal, ref string) ([]terminals.Info, error)
	TerminalText(ctx context.Context, who cove.Principal, ref, id string) (string, error)
	KillTerminal(ctx context.Context, who cove.Principal, ref, id string) error
}

// processErrors are the errors of routes that start a process in a sandbox.
var processErrors = append([]cove.Code{cove.Overloaded, cove.TooLarge, cove.RuntimeMissing}, sandboxErrors...)

// addProcessRoutes adds the routes of processes in detached sandboxes.
func (s *Server) addProcessRoutes() {
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

	route(s, huma.Operation{OperationID: "attach-terminal", Method: http.MethodGet, Path: "/sandboxes/{sandbox}/terminal",
		Tags:    []string{"sandboxes"},
		Summary: "Look at a terminal, and type",
		Description: "A WebSocket. Binary messages are what the terminal shows, and what is typed; text messages are a " +
			"TerminalMessage each. It begins with the screen as it is. " +
			"The program goes on when the connection ends; who connects again, with the id that the message attached has " +
			"told, sees the screen again. What of the program's output could harm a terminal does not come.",
		Responses: s.terminalResponses(),
	}, append([]cove.Code{cove.Unsupported}, processErrors...), s.attachTerminal)

	route(s, huma.Operation{OperationID: "list-terminals", Method: http.MethodGet, Path: "/sandboxes/{sandbox}/terminals",
		Tags:    []string{"sandboxes"},
		Summary: "List the terminals of a sandbox that runs, the oldest first",
	}, sandboxErrors, s.listTerminals)

	route(s, huma.Operation{OperationID: "get-terminal-text", Method: http.MethodGet,
		Path: "/sandboxes/{sandbox}/terminals/{terminal}/text", Tags: []string{"sandboxes"},
		Summary:     "Get what a terminal shows and has shown, as plain text",
		Description: "The terminal - is the oldest that runs, else the newest that has ended.",
		Responses: map[string]*huma.Response{"200": {Description: "The text",
			Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}}}},
	}, sandboxErrors, s.terminalText)

	route(s, huma.Operation{OperationID: "kill-terminal", Method: http.MethodDelete,
		Path: "/sandboxes/{sandbox}/terminals/{terminal}", Tags: []string{"sandboxes"}, DefaultStatus: http.StatusNoContent,
		Summary:     "End the program of a terminal",
		Description: "It is told that its terminal has gone, and after a second killed.",
	}, sandboxErrors, s.killTerminal)
}

type execInput struct {
	Sandbox string `path:"sandbox" maxLength:"128" doc:"Its name, its id, or the beginning of either that no other has" example:"brave-otter"`
	Body    api.ExecRequest
}

// exec is POST /sandboxes/{sandbox}/exec.
func (s *Server) exec(ctx context.Context, in *execInput) (*huma.StreamResponse, error) {
	q := in.Body
	if q.StdinStream && q.Stdin != "" {
		return nil, cove.Errorf(cove.InvalidArgument, "stdin and stdin_stream exclude each other").
			WithHint("send the input one way")
	}
	if q.Timeout < 0 || q.Timeout > maxExecTimeout.Seconds() {
		return nil, cove.Errorf(cove.InvalidArgument, "timeout: %g seconds are not possible", q.Timeout).
			WithHint("leave it out for none")
	}
	return &huma.StreamResponse{Body: func(huma.Context) { s.runCommand(ctx, exchangeOf(ctx), in) }}, nil
}

// maxExecTimeout is the longest time of a command that has one.
const maxExecTimeout = 365 * 24 * time.Hour

// runCommand runs a command and writes its events. Until it has begun, a
// failure is answered with a status; afterwards with an event.
func (s *Server) runCommand(ctx context.Context, ex *exchange, in *execInput) {
	events := newEventWriter(ex.w, s.Clock)
	defer events.stop()
	q := sandbox.CommandRequest{
		Args: in.Body.Args, Env: in.Body.Env, Dir: in.Body.WorkDir,
		Timeout: time.Duration(in.Body.Timeout * float64(time.Second)), Detach: in.Body.Detach,
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
		s.breakOff(ex, events, err)
		return
	}
	events.finish(api.EventDone, api.ExecResult{ID: string(result.ID), ExitCode: result.ExitCode,
		Duration: result.Duration.Seconds(), LimitHit: string(result.Limit)})
}

type signalInput struct {
	Sandbox string `path:"sandbox" maxLength:"128" doc:"Its name, its id, or the beginning of either that no other has" example:"brave-otter"`
	ID      string `path:"id" doc:"Of the command" example:"ex_0123456789abcdefghjkmnpqrs"`
	Body    api.SignalRequest
}

var signals = map[string]syscall.Signal{"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT,
	"KILL": syscall.SIGKILL, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
	"TERM": syscall.SIGTERM, "CONT": syscall.SIGCONT, "STOP": syscall.SIGSTOP, "TSTP": syscall.SIGTSTP,
	"WINCH": syscall.SIGWINCH}

// signalExec is POST /sandboxes/{sandbox}/exec/{id}/signal.
func (s *Server) signalExec(ctx context.Context, in *signalInput) (*struct{}, error) {
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

type terminalPath struct {
	Sandbox  string `path:"sandbox" maxLength:"128" doc:"Its name, its id, or the beginning of either that no other has" example:"brave-otter"`
	Terminal string `path:"terminal" maxLength:"32" doc:"Its id" example:"t1"`
}

// listTerminals is GET /sandboxes/{sandbox}/terminals.
func (s *Server) listTerminals(ctx context.Context, in *sandboxInput) (*answer[api.TerminalList], error) {
	all, err := s.Processes.Terminals(ctx, exchangeOf(ctx).who, in.Sandbox)
	return &answer[api.TerminalList]{api.TerminalList{Terminals: terminalsOf(all)}}, err
}

// terminalText is GET /sandboxes/{sandbox}/terminals/{terminal}/text.
func (s *Server) terminalText(ctx context.Context, in *terminalPath) (*huma.StreamResponse, error) {
	id := in.Terminal
	if id == "-" {
		id = ""
	}
	text, err := s.Processes.TerminalText(ctx, exchangeOf(ctx).who, in.Sandbox, id)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		c.SetHeader("Content-Type", "text/plain; charset=utf-8")
		io.WriteString(c.BodyWriter(), text)
	}}, nil
}

// killTerminal is DELETE /sandboxes/{sandbox}/terminals/{terminal}.
func (s *Server) killTerminal(ctx context.Context, in *terminalPath) (*struct{}, error) {
	return nil, s.Processes.KillTerminal(ctx, exchangeOf(ctx).who, in.Sandbox, in.Terminal)
}

// execResponses documents the stream.
func (s *Server) execResponses() map[string]*huma.Response {
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
