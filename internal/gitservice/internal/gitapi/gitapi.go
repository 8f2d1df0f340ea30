// Package gitapi owns the git API (invariant G4): the HTTP service on the host that git inside a sandbox, whose
// repository is not inside, asks to run commands.
//
// It serves one sandbox, on the listener that is that sandbox's. A request is accepted once, if it is signed with the
// sandbox's key and its time is now (signature.go). What it asks for is judged by package command, and run by a
// [command.Runner], whose output is streamed back in frames (package wire).
package gitapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/gitservice/internal/command"
	"github.com/cove-sandbox/cove/internal/gitservice/internal/wire"
)

// Bounds of one sandbox's API.
const (
	maxConnections = 64
	maxRunning     = 8 // commands at a time
	maxEditing     = 8 // texts that are sent back at a time
	maxHeader      = 16 << 10
	readTimeout    = 30 * time.Second // for a whole request
	perSecond      = 50
	burst          = 200
)

// Options configure an API.
type Options struct {
	Key    []byte // wire.KeySize bytes
	Runner command.Runner
	Clock  clock.Clock
	Log    *slog.Logger
	Audit  func(Event) // called for every request, once it has ended
}

// Event describes the outcome of a request.
type Event struct {
	At       time.Time
	Args     []string // as asked for; nil when the request was not accepted
	Dir      string
	Verb     string // of a command that was allowed
	Effect   command.Effect
	Exit     int // of one that ran
	Code     cove.Code
	Reason   string // why it was refused or failed
	Duration time.Duration
}

// Server is the API of one sandbox.
type Server struct {
	o       Options
	guard   *guard
	running chan struct{}
	editing chan struct{}
	edits   edits
}

// New makes one.
func New(o Options) (*Server, error) {
	if len(o.Key) != wire.KeySize {
		return nil, cove.Errorf(cove.Internal, "the key of a git API has %d bytes, want %d", len(o.Key), wire.KeySize)
	}
	return &Server{
		o: o, guard: newGuard(o.Key, o.Clock), running: make(chan struct{}, maxRunning),
		editing: make(chan struct{}, maxEditing),
		edits:   edits{waiting: map[string]chan wire.Edited{}},
	}, nil
}

// Serve serves until ctx ends, and then waits for what runs. It closes ln.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &http.Server{
		Handler: s, ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, MaxHeaderBytes: maxHeader,
		DisableGeneralOptionsHandler: true,
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		ErrorLog:                     slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { h.Close() })
	defer stop()
	err := h.Serve(netutil.LimitListener(ln, maxConnections))
	for range maxRunning { // each is free again when nothing runs
		s.running <- struct{}{}
	}
	if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	began, event := s.o.Clock.Monotonic(), Event{At: s.o.Clock.Now()}
	err := s.serve(w, r, &event)
	if err != nil {
		refuse(w, err)
		event.Code, event.Reason = cove.ErrorCode(err), err.Error()
	}
	if s.o.Audit != nil && (err != nil || event.Args != nil) {
		event.Duration = s.o.Clock.Since(began)
		s.o.Audit(event)
	}
}

// statuses maps codes to the HTTP statuses of refusals before an answer begins.
var statuses = map[cove.Code]int{
	cove.InvalidArgument: http.StatusBadRequest, cove.Unauthenticated: http.StatusUnauthorized,
	cove.NotFound: http.StatusNotFound,
	cove.TooLarge: http.StatusRequestEntityTooLarge, cove.Overloaded: http.StatusTooManyRequests,
}

func refuse(w http.ResponseWriter, err error) {
	status, ok := statuses[cove.ErrorCode(err)]
	if !ok {
		status = http.StatusInternalServerError
	}
	http.Error(w, err.Error(), status)
}

// serve answers one request. An error is one before anything was answered.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, event *Event) error {
	slots := s.running
	switch r.RequestURI {
	case wire.CommandPath:
	case wire.EditedPath:
		slots = s.editing
	default:
		return cove.Errorf(cove.NotFound, "there is nothing here")
	}
	if r.Method != http.MethodPost {
		return cove.Errorf(cove.InvalidArgument, "only POST is answered here")
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	default:
		return cove.Errorf(cove.Overloaded, "too many git commands at a time: more than %d", cap(slots))
	}
	body, err := s.guard.accept(w, r)
	if err != nil {
		return err
	}
	if r.RequestURI == wire.EditedPath {
		var e wire.Edited
		if err := decode(body, &e); err != nil {
			return err
		}
		return s.edits.deliver(e)
	}
	var asked wire.Request
	if err := decode(body, &asked); err != nil {
		return err
	}
	if len(asked.Stdin) > wire.MaxInput {
		return cove.Errorf(cove.TooLarge, "more than %d MiB of input for git", wire.MaxInput>>20)
	}
	event.Args, event.Dir = append([]string{}, asked.Args...), asked.Dir
	s.command(w, r, asked, event)
	return nil
}

func decode(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, err = d.Token(); err == io.EOF {
			return nil
		}
		err = errors.New("there is more than one value")
	}
	return cove.Errorf(cove.InvalidArgument, "the request cannot be read: %w", err)
}

// command judges a command and runs it.
func (s *Server) command(w http.ResponseWriter, r *http.Request, asked wire.Request, event *Event) {
	http.NewResponseController(w).SetReadDeadline(time.Time{}) // it may take long
	out := &frames{w: w, flush: http.NewResponseController(w).Flush}
	exit, err := s.run(r.Context(), asked, out, event)
	if err != nil {
		event.Code, event.Reason = cove.ErrorCode(err), err.Error()
		exit = 128
		if event.Code == cove.InvalidArgument {
			exit = 129
		}
		out.stderr("fatal: " + err.Error() + "\n")
	}
	event.Exit = exit
	out.json(wire.FrameExit, wire.Exit{Code: exit})
}

func (s *Server) run(ctx context.Context, asked wire.Request, out *frames, event *Event) (exit int, err error) {
	where, err := s.o.Runner.Context(ctx)
	if err != nil {
		return 0, err
	}
	where.Dir = asked.Dir
	c, err := command.Parse(asked.Args, where)
	if err != nil {
		return 0, err
	}
	event.Verb, event.Effect = c.Verb, c.Effect
	env, err := environment(asked)
	if err != nil {
		return 0, err
	}
	run := command.Run{Command: c, Settings: settings(asked), Env: env, Stdout: out.stream(wire.FrameStdout),
		Stderr: out.stream(wire.FrameStderr)}
	if c.Input != "" {
		run.Stdin = asked.Stdin
	}
	if asked.Speaks {
		run.Args = withProgress(run.Command)
	}
	if asked.Edits {
		run.Edit = func(ctx context.Context, name string, text []byte) ([]byte, error) {
			return s.edits.ask(ctx, out, name, text)
		}
	}
	return s.o.Runner.Run(ctx, run)
}

// frames writes the frames of one answer.
type frames struct {
	mu    sync.Mutex
	w     io.Writer
	flush func() error
}

func (f *frames) write(t wire.FrameType, p []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := wire.WriteFrame(f.w, t, p); err != nil {
		return err
	}
	return f.flush()
}

func (f *frames) json(t wire.FrameType, v any) error {
	p, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return f.write(t, p)
}

func (f *frames) stderr(s string) { f.write(wire.FrameStderr, []byte(s)) }

type stream struct {
	f *frames
	t wire.FrameType
}

func (f *frames) stream(t wire.FrameType) io.Writer { return stream{f, t} }

func (s stream) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		part := p[:min(len(p), 64<<10)]
		if err := s.f.write(s.t, part); err != nil {
			return n, err
		}
		n, p = n+len(part), p[len(part):]
	}
	return n, nil
}

// edits holds the texts that are being edited, by their ids.
type edits struct {
	mu      sync.Mutex
	serial  int
	waiting map[string]chan wire.Edited
}

// ask sends a text to be edited and waits for it.
func (e *edits) ask(ctx context.Context, out *frames, name string, text []byte) ([]byte, error) {
	if len(text) > wire.MaxText {
		return nil, cove.Errorf(cove.TooLarge, "a text of more than %d KiB cannot be edited", wire.MaxText>>10)
	}
	e.mu.Lock()
	e.serial++
	id := strconv.Itoa(e.serial)
	answer := make(chan wire.Edited, 1)
	e.waiting[id] = answer
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		delete(e.waiting, id)
		e.mu.Unlock()
	}()
	if err := out.json(wire.FrameEdit, wire.Edit{ID: id, Name: name, Text: text}); err != nil {
		return nil, err
	}
	select {
	case a := <-answer:
		if !a.OK {
			return nil, cove.Errorf(cove.Canceled, "the editor ended with an error")
		}
		return a.Text, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (e *edits) deliver(a wire.Edited) error {
	if len(a.Text) > wire.MaxText {
		return cove.Errorf(cove.TooLarge, "the text has more than %d KiB", wire.MaxText>>10)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	answer := e.waiting[a.ID]
	delete(e.waiting, a.ID)
	if answer == nil {
		return cove.Errorf(cove.NotFound, "no command waits for this text")
	}
	answer <- a
	return nil
}
