package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/coder/websocket"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// Exec runs a command in a running sandbox and passes on its output as it comes. A failing command is a result. The end
// of ctx ends the command, unless it is detached. It ignores s.Holds.
func (c *Client) Exec(ctx context.Context, sandbox string, req api.ExecRequest, s Stream) (api.ExecResult, error) {
	req.StdinStream = s.Stdin != nil
	return run[api.ExecResult](ctx, c, sandboxPath(sandbox).below("/exec"), req, s,
		"look at the server's log; a detached command goes on")
}

// SignalExec sends a signal, such as "INT", to a command of Exec.
func (c *Client) SignalExec(ctx context.Context, sandbox, id, signal string) error {
	parsed, err := cove.ParseExecutionID(id)
	if err != nil {
		return err
	}
	to := sandboxPath(sandbox).below("/exec/" + string(parsed) + "/signal")
	return c.call(ctx, http.MethodPost, to, api.SignalRequest{Signal: signal}, nil)
}

// Terminals returns the terminals of a running sandbox, oldest first.
func (c *Client) Terminals(ctx context.Context, sandbox string) ([]api.Terminal, error) {
	l, err := ask[api.TerminalList](ctx, c, http.MethodGet, sandboxPath(sandbox).below("/terminals"), nil)
	return l.Terminals, err
}

// KillTerminal ends the program of a terminal.
func (c *Client) KillTerminal(ctx context.Context, sandbox, terminal string) error {
	return c.call(ctx, http.MethodDelete, terminalPath(sandbox, terminal), nil, nil)
}

// TerminalText returns a terminal's screen and history, as plain text. Without an id it chooses the oldest running
// terminal, else the newest ended one.
func (c *Client) TerminalText(ctx context.Context, sandbox, terminal string) (string, error) {
	terminal = cmp.Or(terminal, "-")
	resp, err := c.send(ctx, http.MethodGet, terminalPath(sandbox, terminal).below("/text"), "", nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return "", cove.Errorf(cove.Unavailable, "the answer broke off: %w", err)
	}
	return string(b), nil
}

func terminalPath(sandbox, terminal string) endpoint {
	return sandboxPath(sandbox).below("/terminals").item(terminal, "the id of a terminal")
}

// TerminalOptions select the terminal to attach to, and describe the caller's.
type TerminalOptions struct {
	// ID is an existing terminal; empty means the oldest running one, or a new one if there is none.
	ID string
	// New requests a new terminal for the program Args, or the sandbox's shell.
	New     bool
	Args    []string
	Env     map[string]string
	WorkDir string

	Rows, Columns int    // of the caller's terminal
	Term          string // its type; empty: xterm-256color
	TrueColor     bool   // it supports 24-bit colors
	History       bool   // begin with the scrollback
}

func (o TerminalOptions) query() query {
	q := query{}
	q.set("id", o.ID)
	q.flag("new", o.New)
	q.flag("truecolor", o.TrueColor)
	q.flag("history", o.History)
	q["arg"] = o.Args
	for k, v := range o.Env {
		q["env"] = append(q["env"], k+"="+v)
	}
	q.set("work_dir", o.WorkDir)
	q.set("rows", strconv.Itoa(o.Rows))
	q.set("columns", strconv.Itoa(o.Columns))
	q.set("term", o.Term)
	return q
}

// Terminal is an attached terminal. Its methods may be called concurrently, except that Next is for one goroutine.
type Terminal struct {
	conn   *websocket.Conn
	ctx    context.Context // of the connection
	cancel context.CancelFunc
	id     string

	mu   sync.Mutex
	exit int
}

// maxTerminalMessage bounds a message of the server, in bytes.
const maxTerminalMessage = 1 << 20

// AttachTerminal attaches to a terminal of a running sandbox. Detaching does not end its program. ctx bounds the
// attaching only. The caller must call Close.
func (c *Client) AttachTerminal(ctx context.Context, sandbox string, o TerminalOptions) (*Terminal, error) {
	conn, err := dialSocket(ctx, c, sandboxPath(sandbox).below("/terminal").with(o.query()))
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(maxTerminalMessage)
	t := &Terminal{conn: conn}
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { conn.CloseNow() })
	kind, p, err := conn.Read(t.ctx)
	var m api.TerminalMessage
	if err == nil && (kind != websocket.MessageText || json.Unmarshal(p, &m) != nil) {
		err = cove.Errorf(cove.Unavailable, "the answer is not what a Cove server sends").WithHint(
			"check that the address is a Cove server's")
	}
	if !stop() || err != nil {
		t.Close()
		return nil, unreachable(ctx, err)
	}
	if m.Type != api.TerminalAttached {
		t.Close()
		if m.Error != nil {
			return nil, remoteError(*m.Error, http.StatusInternalServerError)
		}
		return nil, cove.Errorf(cove.Unavailable, "the server begins with %.20q",
			m.Type).WithHint("use a server and a command line of the same version")
	}
	t.id = m.Terminal
	return t, nil
}

// ID returns the terminal's id, to attach again.
func (t *Terminal) ID() string { return t.id }

// Next waits for further output. It returns io.EOF when the program has ended. An error with the code Unavailable is a
// lost connection, while the program goes on; every other error is final.
func (t *Terminal) Next() ([]byte, error) {
	for {
		kind, p, err := t.conn.Read(t.ctx)
		if err != nil {
			return nil, lost(err)
		}
		if kind == websocket.MessageBinary {
			return p, nil
		}
		var m api.TerminalMessage
		if err := json.Unmarshal(p, &m); err != nil {
			return nil, malformed("terminal", err)
		}
		switch {
		case m.Type == api.TerminalExit && m.ExitCode != nil:
			t.mu.Lock()
			t.exit = *m.ExitCode
			t.mu.Unlock()
			return nil, io.EOF
		case m.Type == api.TerminalError && m.Error != nil:
			return nil, remoteError(*m.Error, http.StatusInternalServerError)
		}
	}
}

func lost(err error) error {
	if closed, ok := errors.AsType[websocket.CloseError](err); ok && closed.Code == websocket.StatusPolicyViolation {
		return cove.Errorf(cove.Forbidden, "the server ended the connection: %s", closed.Reason)
	}
	// Not wrapped: io.EOF would mean the program's end.
	return cove.Errorf(cove.Unavailable, "the connection to the server is lost: %v",
		err).WithHint("the program goes on: attach again")
}

// ExitCode returns the program's exit code, after Next has returned io.EOF: 128+N for signal N.
func (t *Terminal) ExitCode() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.exit
}

// maxTyped bounds one message of input, in bytes.
const maxTyped = 32 << 10

// Write sends input to the program.
func (t *Terminal) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		k := min(len(p)-n, maxTyped)
		if err := t.conn.Write(t.ctx, websocket.MessageBinary, p[n:n+k]); err != nil {
			return n, lost(err)
		}
		n += k
	}
	return len(p), nil
}

// Resize reports a new size of the caller's terminal.
func (t *Terminal) Resize(rows, columns int) error {
	return t.say(api.TerminalMessage{Type: api.TerminalResize, Rows: rows, Columns: columns})
}

// Colors reports the colors of the caller's terminal, as in "rgb:0000/0000/0000", for programs that ask.
func (t *Terminal) Colors(foreground, background string) error {
	return t.say(api.TerminalMessage{Type: api.TerminalColors, Foreground: foreground, Background: background})
}

func (t *Terminal) say(m api.TerminalMessage) error {
	p, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := t.conn.Write(t.ctx, websocket.MessageText, p); err != nil {
		return lost(err)
	}
	return nil
}

// Close detaches. The program goes on.
func (t *Terminal) Close() error {
	t.cancel()
	return t.conn.CloseNow()
}
