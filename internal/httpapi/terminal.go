package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/internal/terminal"
)

// terminalRoutes serve terminals of detached sandboxes.
type terminalRoutes struct{ *edge }

// add adds the routes of terminals.
func (s terminalRoutes) add() {
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
		Tags:        []string{"sandboxes"},
		Summary:     "List the terminals of a sandbox that runs, the oldest first",
		Description: "With the command in each, and whether a client is attached to it.",
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

const (
	// maxTyped is the longest message with keyboard input, in bytes.
	maxTyped = 64 << 10
	// maxShown is the longest message of what a terminal shows, in bytes.
	maxShown = 64 << 10
)

type attachInput struct {
	SandboxPath
	ID        string   `query:"id" maxLength:"32" doc:"Of a terminal; the oldest that runs when absent, or where there is none a new one" example:"t1"`
	New       bool     `query:"new" doc:"A new terminal"`
	Args      []string `query:"arg,explode" doc:"Program and arguments of a new terminal; the sandbox's shell when absent"`
	Env       []string `query:"env,explode" doc:"NAME=VALUE, for a new terminal"`
	WorkDir   string   `query:"work_dir" doc:"Where a new terminal begins: relative to the sandbox's, or absolute"`
	Rows      int      `query:"rows" minimum:"0" maximum:"65535" doc:"Of the caller's terminal"`
	Columns   int      `query:"columns" minimum:"0" maximum:"65535"`
	Term      string   `query:"term" maxLength:"64" doc:"What the caller's terminal is; xterm-256color when absent, or when it is not known"`
	TrueColor bool     `query:"truecolor" doc:"It has 24-bit colors"`
	History   bool     `query:"history" doc:"Begin with what has left the screen"`
}

type terminalPath struct {
	SandboxPath
	Terminal string `path:"terminal" maxLength:"32" doc:"Its id" example:"t1"`
}

// listTerminals is GET /sandboxes/{sandbox}/terminals.
func (s terminalRoutes) listTerminals(ctx context.Context, in *SandboxPath) (*answer[api.TerminalList], error) {
	all, err := s.Processes.Terminals(ctx, exchangeOf(ctx).who, in.Sandbox)
	return &answer[api.TerminalList]{api.TerminalList{Terminals: terminalsOf(all)}}, err
}

// terminalText is GET /sandboxes/{sandbox}/terminals/{terminal}/text.
func (s terminalRoutes) terminalText(ctx context.Context, in *terminalPath) (*huma.StreamResponse, error) {
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
func (s terminalRoutes) killTerminal(ctx context.Context, in *terminalPath) (*struct{}, error) {
	return nil, s.Processes.KillTerminal(ctx, exchangeOf(ctx).who, in.Sandbox, in.Terminal)
}

// attachTerminal is GET /sandboxes/{sandbox}/terminal.
func (s terminalRoutes) attachTerminal(ctx context.Context, in *attachInput) (*huma.StreamResponse, error) {
	ex := exchangeOf(ctx)
	if !strings.EqualFold(ex.r.Header.Get("Upgrade"), "websocket") {
		return nil, cove.Errorf(cove.InvalidArgument, "a terminal is a WebSocket").
			WithHint("use \"cove attach\", or a WebSocket client")
	}
	q := sandbox.TerminalRequest{
		ID: in.ID, New: in.New, Args: in.Args, Env: map[string]string{}, Dir: in.WorkDir,
		Size: terminal.Size{Rows: in.Rows, Columns: in.Columns}, Term: in.Term, TrueColor: in.TrueColor, History: in.History,
	}
	for _, kv := range in.Env {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return nil, cove.Errorf(cove.InvalidArgument, "env: %.100q is not NAME=VALUE", kv)
		}
		q.Env[k] = v
	}
	viewer, err := s.Processes.OpenTerminal(ctx, ex.who, in.Sandbox, q)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) { s.serveTerminal(ctx, ex, viewer) }}, nil
}

// terminalSocket is a WebSocket to which a viewer of a terminal is attached.
type terminalSocket struct {
	conn    *websocket.Conn
	viewer  *terminals.Viewer
	timeout time.Duration // of one message
	waiting atomic.Bool   // what was typed waits for the program, and so do answers to pings
}

// serveTerminal is a terminal from the upgrade to its end.
func (s terminalRoutes) serveTerminal(ctx context.Context, ex *exchange, v *terminals.Viewer) {
	defer v.Close()
	conn, err := websocket.Accept(ex.w, ex.r, nil) // it looks at the origin once more
	if err != nil {
		ex.failure = err // and has answered
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(maxTyped)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the request's ends with the upgrade
	defer cancel()
	t := &terminalSocket{conn: conn, viewer: v, timeout: s.WriteTimeout}
	var beside sync.WaitGroup
	beside.Go(func() {
		defer cancel()
		t.read(ctx)
	})
	beside.Go(func() { t.ping(ctx, s.edge) })
	err = t.send(ctx, api.TerminalMessage{Type: api.TerminalAttached, Terminal: v.ID()})
	if err == nil {
		err = t.show(ctx, s.closing)
	}
	t.end(ctx, ex, err)
	cancel()
	conn.CloseNow()
	beside.Wait()
}

// read reads the client's messages: keyboard input, and changes of its terminal's size.
func (t *terminalSocket) read(ctx context.Context) {
	for {
		kind, p, err := t.conn.Read(ctx)
		if err != nil {
			return
		}
		if kind == websocket.MessageBinary {
			t.waiting.Store(true)
			err = t.viewer.Type(ctx, p)
			t.waiting.Store(false)
		} else {
			err = t.hear(p)
		}
		if err != nil {
			return
		}
	}
}

// hear takes a text message; what it does not know it leaves.
func (t *terminalSocket) hear(p []byte) error {
	var m api.TerminalMessage
	if err := json.Unmarshal(p, &m); err != nil {
		return err
	}
	switch m.Type {
	case api.TerminalResize:
		t.viewer.Resize(terminal.Size{Rows: m.Rows, Columns: m.Columns})
	case api.TerminalColors:
		t.viewer.Colors(m.Foreground, m.Background)
	}
	return nil
}

// ping shows both sides, and everything between, that the other is there.
func (t *terminalSocket) ping(ctx context.Context, s *edge) {
	for {
		select {
		case <-s.Clock.After(s.Heartbeat):
		case <-ctx.Done():
			return
		}
		if t.waiting.Load() {
			continue
		}
		within, cancel := context.WithTimeout(ctx, t.timeout)
		err := t.conn.Ping(within)
		cancel()
		if err != nil && !t.waiting.Load() {
			t.conn.CloseNow()
			return
		}
	}
}

// show sends what the terminal shows. It returns why that has ended; io.EOF when the program has.
func (t *terminalSocket) show(ctx context.Context, closing <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-closing:
			cancel()
		case <-stop:
		}
	}()
	for {
		p, err := t.viewer.Next(ctx)
		for len(p) > 0 && err == nil {
			n := min(len(p), maxShown)
			err = t.write(ctx, websocket.MessageBinary, p[:n])
			p = p[n:]
		}
		if err != nil {
			select {
			case <-closing:
				return cove.Errorf(cove.Shutdown, "the server shuts down; the program goes on")
			default:
				return err
			}
		}
	}
}

// end sends the last message.
func (t *terminalSocket) end(ctx context.Context, ex *exchange, err error) {
	ctx = context.WithoutCancel(ctx)
	status := websocket.StatusNormalClosure
	switch {
	case errors.Is(err, io.EOF):
		t.send(ctx, api.TerminalMessage{Type: api.TerminalExit, ExitCode: new(t.viewer.ExitCode())})
	case cove.ErrorCode(err) == cove.Canceled:
	default:
		ex.failure = err
		e := body(ex, err)
		t.send(ctx, api.TerminalMessage{Type: api.TerminalError, Error: &e})
		if cove.Away(err) {
			status = websocket.StatusServiceRestart
		}
	}
	t.conn.Close(status, "")
}

func (t *terminalSocket) send(ctx context.Context, m api.TerminalMessage) error {
	p, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return t.write(ctx, websocket.MessageText, p)
}

func (t *terminalSocket) write(ctx context.Context, kind websocket.MessageType, p []byte) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	if err := t.conn.Write(ctx, kind, p); err != nil {
		return cove.Errorf(cove.Canceled, "the caller went away: %w", err)
	}
	return nil
}

// terminalResponses documents the upgrade.
func (s terminalRoutes) terminalResponses() map[string]*huma.Response {
	schemas := s.api.OpenAPI().Components.Schemas
	return map[string]*huma.Response{"101": {Description: "The connection is a WebSocket; its text messages are these",
		Content: map[string]*huma.MediaType{
			"application/json": {Schema: schemas.Schema(typeOf[api.TerminalMessage](), true, "")}}}}
}
