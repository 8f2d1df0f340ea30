// Package interact owns what goes on at the user's terminal beside a program in a sandbox: the sandbox's own terminal
// on it, questions of a policy, and the steps in which a sandbox is made.
package interact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/terminal"
)

// DefaultDetachKeys are typed to leave a terminal, as in Docker.
const DefaultDetachKeys = "ctrl-p,ctrl-q"

// TerminalHelp is part of the help of the commands that attach.
const TerminalHelp = `The program has a terminal of its own, in the sandbox: it goes on when the
connection is lost, when this command ends, and when the server does. Attaching
shows the screen as it is. ctrl-p ctrl-q detaches (--detach-keys); every other
key is the program's, ctrl-c too. A connection that is lost is made again.

A program's output cannot harm the terminal: control sequences that are not known
to be harmless are dropped, such as writing to the clipboard or pictures.`

// AttachTerminal shows a terminal on this one until its program ends or the user detaches.
func AttachTerminal(sess *session.Session, cmd *cobra.Command, p flags.Target, keys string,
	o client.TerminalOptions) error {
	_, err := ShowTerminal(sess, cmd, p, keys, o)
	return err
}

// ShowTerminal does so, and reports whether the program has ended.
func ShowTerminal(sess *session.Session, cmd *cobra.Command, p flags.Target, keys string,
	o client.TerminalOptions) (ended bool, err error) {
	detach, err := parseKeys(keys)
	if err != nil {
		return false, err
	}
	if !ui.IsTerminal(sess.In) || !ui.IsTerminal(sess.Out) {
		return false, cove.Errorf(cove.InvalidArgument, "standard input and output are not a terminal").
			WithHint("run one command with %q", "cove exec SANDBOX -- COMMAND")
	}
	b, err := sess.Server(cmd.Context())
	if err != nil {
		return false, err
	}
	defer func() { b.Close() }()
	s, err := p.Find(cmd.Context(), b.Client)
	if err != nil {
		return false, err
	}
	flags.SayOwners(sess, s)
	t := &console{Session: sess, backend: b, sandbox: s, options: o, detach: keyWatch{keys: detach}, from: b.Client}
	code, err := t.run(cmd.Context())
	b = t.backend
	sess.Exit = code
	return err == nil && !t.left, err
}

// Link is a terminal in a sandbox of this process's own; client.Terminal is one of a server's.
type Link interface {
	ID() string
	Next() ([]byte, error) // io.EOF: its program has ended
	Write([]byte) (int, error)
	Resize(rows, columns int) error
	ExitCode() int
	Close() error
}

// ShowLink shows a terminal on this one until its program ends, and returns its exit code.
func ShowLink(ctx context.Context, sess *session.Session, open func(rows, columns int) (Link, error)) (int, error) {
	return (&console{Session: sess, local: open}).run(ctx)
}

// console is this terminal while it shows another.
type console struct {
	*session.Session
	backend *session.Backend
	from    *client.Client
	local   func(rows, columns int) (Link, error) // in the place of from
	sandbox api.Sandbox
	options client.TerminalOptions
	detach  keyWatch
	state   *term.State // of this terminal, before
	left    bool        // the user has detached

	mu       sync.Mutex
	attached Link // nil while the connection is lost
}

func (t *console) run(ctx context.Context) (code int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.options.Rows, t.options.Columns = t.size()
	t.options.Term = t.Getenv("TERM")
	t.options.TrueColor = t.Getenv("COLORTERM") == "truecolor" || t.Getenv("COLORTERM") == "24bit"
	t.options.History = true
	if t.attached, err = t.link(ctx); err != nil {
		return 0, err
	}
	t.options = client.TerminalOptions{ID: t.attached.ID(), Term: t.options.Term, TrueColor: t.options.TrueColor}
	if t.state, err = term.MakeRaw(int(t.In.Fd())); err != nil {
		t.attached.Close()
		return 0, cove.Errorf(cove.Internal, "cannot take over the terminal: %w", err)
	}
	// Whatever happens, the terminal is given back.
	restore := sync.OnceFunc(t.restore)
	defer restore()
	t.prepare()

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)
	defer signal.Stop(signals)
	var beside sync.WaitGroup
	defer beside.Wait()
	watchSize(ctx, t.size, signals, &beside)
	signals <- sizeChanged // it may have changed before
	beside.Go(func() { t.hear(ctx, signals, cancel) })
	in, err := ui.NewCancelReader(ctx, t.In)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	beside.Go(func() { t.keyboard(ctx, in, cancel) })
	context.AfterFunc(ctx, func() {
		if now := t.now(); now != nil {
			now.Close()
		}
	})
	code, err = t.show(ctx)
	cancel(nil)
	beside.Wait()
	restore()
	return t.conclude(ctx, code, err)
}

// link attaches to the terminal.
func (t *console) link(ctx context.Context) (Link, error) {
	if t.local != nil {
		return t.local(t.options.Rows, t.options.Columns)
	}
	l, err := t.from.AttachTerminal(ctx, t.sandbox.ID, t.options)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// conclude prints how the terminal was left, and returns the program's exit code.
func (t *console) conclude(ctx context.Context, code int, err error) (int, error) {
	cause := context.Cause(ctx)
	ended, interrupted := errors.AsType[*ui.Interrupted](cause)
	switch {
	case err == nil:
		return code, nil
	case errors.Is(cause, errDetached):
		t.left = true
		t.Say.Line("detached from terminal %s of %s, which goes on; %q is back",
			t.options.ID, t.sandbox.Name, t.Command("attach", t.sandbox.Name))
		return 0, nil
	case interrupted:
		return 0, ended
	}
	return 0, err
}

func (t *console) size() (rows, columns int) {
	columns, rows, err := term.GetSize(int(t.Out.Fd()))
	if err != nil {
		return terminal.DefaultSize.Rows, terminal.DefaultSize.Columns
	}
	return rows, columns
}

// prepare moves what is on the screen out of sight, and keeps the title.
func (t *console) prepare() {
	rows, _ := t.size()
	fmt.Fprintf(t.Out, "\x1b[22;2t\x1b[%d;1H%s\x1b[H", rows, strings.Repeat("\n", rows))
}

func (t *console) restore() {
	rows, columns := t.size()
	t.Out.Write(terminal.Restore(terminal.Size{Rows: rows, Columns: columns}))
	io.WriteString(t.Out, "\x1b[23;2t\r\n")
	// Reports of the mouse that came meanwhile are not for the shell.
	ui.DropInput(t.In)
	term.Restore(int(t.In.Fd()), t.state)
}

// now is the connection, if there is one.
func (t *console) now() Link {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.attached
}

// show writes what is shown until the program ends. A connection that is lost is made again.
func (t *console) show(ctx context.Context) (code int, err error) {
	defer t.restoreAfterPanic()
	for {
		now := t.now()
		for err == nil {
			var p []byte
			if p, err = now.Next(); err == nil {
				_, err = t.Out.Write(p)
			}
		}
		now.Close()
		switch {
		case err == io.EOF:
			return now.ExitCode(), nil
		case ctx.Err() != nil || t.local != nil || !cove.Away(err):
			return 0, err
		}
		if err = t.again(ctx, err); err != nil {
			return 0, err
		}
	}
}

// restoreAfterPanic gives the terminal back before a panic is printed.
func (t *console) restoreAfterPanic() {
	if p := recover(); p != nil {
		t.restore()
		panic(p)
	}
}

// again connects again, as soon as there is a server.
func (t *console) again(ctx context.Context, why error) error {
	t.mu.Lock()
	t.attached = nil
	t.mu.Unlock()
	t.tell("the connection is lost, and the program goes on: trying again (ctrl-c gives up)")
	shutDown := cove.ErrorCode(why) == cove.Shutdown // a user stopped it, and does not want it back at once
	began := time.Now()
	for wait := session.SoonestRetry; ; wait = min(2*wait, session.LatestRetry) {
		// A server of this machine that has died is started again.
		if !shutDown && t.ServerAddress() == "" && time.Since(began) > session.LatestRetry {
			if b, err := t.Server(ctx); err == nil {
				t.backend.Close()
				t.backend, t.from = b, b.Client
			}
		}
		t.options.Rows, t.options.Columns = t.size()
		now, err := t.from.AttachTerminal(ctx, t.sandbox.ID, t.options)
		if err == nil {
			t.mu.Lock()
			t.attached = now
			t.mu.Unlock()
			return nil
		}
		switch code := cove.ErrorCode(err); {
		case ctx.Err() != nil:
			return err
		case code == cove.NotFound:
			return cove.Errorf(cove.NotFound, "the program has ended while the connection was lost, or the sandbox has gone").
				WithHint("\"cove list\" shows the sandboxes")
		case !cove.Away(err) && code != cove.Overloaded &&
			!(code == cove.Conflict && time.Since(began) < session.StartTimeout):
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tell prints a message on the screen, which is drawn again afterwards.
func (t *console) tell(text string) {
	rows, columns := t.size()
	if len(text) > columns {
		text = text[:columns]
	}
	fmt.Fprintf(t.Out, "\x1b7\x1b[r\x1b[%d;1H\x1b[0;7m%s\x1b[0m\x1b[K\x1b8", rows, text)
}

func (t *console) hear(ctx context.Context, signals <-chan os.Signal, cancel context.CancelCauseFunc) {
	defer t.restoreAfterPanic()
	for {
		select {
		case s := <-signals:
			switch s {
			case sizeChanged:
				if now := t.now(); now != nil {
					now.Resize(t.size()) // a connection that is lost shows in show
				}
			case continued: // another program used the terminal meanwhile
				term.MakeRaw(int(t.In.Fd()))
				if now := t.now(); now != nil {
					rows, columns := t.size()
					now.Resize(rows, max(1, columns-1)) // so that it is drawn again
					now.Resize(rows, columns)
				}
			default:
				cancel(&ui.Interrupted{Signal: s.(syscall.Signal)})
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// keyboard passes on what is typed, until ctx ends.
func (t *console) keyboard(ctx context.Context, in io.Reader, cancel context.CancelCauseFunc) {
	defer t.restoreAfterPanic()
	buf := make([]byte, 32<<10)
	for {
		n, err := in.Read(buf)
		if ctx.Err() != nil {
			return
		}
		if err != nil || n == 0 { // this terminal has gone
			cancel(&ui.Interrupted{Signal: syscall.SIGHUP})
			return
		}
		typed, left := t.detach.feed(buf[:n])
		now := t.now()
		switch {
		case left, now == nil && bytes.IndexByte(typed, 3) >= 0:
			if now != nil && len(typed) > 0 {
				now.Write(typed)
			}
			cancel(errDetached)
			return
		case now != nil && len(typed) > 0:
			now.Write(typed) // a connection that is lost shows in show
		}
	}
}

var errDetached = errors.New("detached")

func AddDetachKeys(f *pflag.FlagSet, keys *string) {
	f.StringVar(keys, "detach-keys", DefaultDetachKeys,
		"`KEYS` that detach, such as ctrl-p,ctrl-q or ctrl-]; \"\" is none")
}

type keyWatch struct {
	keys []byte
	seen int // how many of them were typed last, and are held back
}

// feed takes typed input. It returns the input to pass on, and reports whether the keys were in it.
func (w *keyWatch) feed(p []byte) (pass []byte, found bool) {
	if len(w.keys) == 0 {
		return p, false
	}
	for _, c := range p {
		if c == w.keys[w.seen] {
			if w.seen++; w.seen == len(w.keys) {
				w.seen = 0
				return pass, true
			}
			continue
		}
		// Of what was held back, a part may begin the keys anew.
		held := append(slices.Clone(w.keys[:w.seen]), c)
		w.seen = 0
		for len(held) > 0 && !bytes.HasPrefix(w.keys, held) {
			pass = append(pass, held[0])
			held = held[1:]
		}
		w.seen = len(held)
	}
	return pass, false
}

// parseKeys reads keys such as "ctrl-p,ctrl-q" or "ctrl-],q".
func parseKeys(s string) ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	var keys []byte
	for _, k := range strings.Split(s, ",") {
		c, ctrl := strings.CutPrefix(strings.ToLower(k), "ctrl-")
		switch {
		case ctrl && len(c) == 1 && (c[0] >= 'a' && c[0] <= 'z' || strings.Contains(`@[\]^_`, c)):
			keys = append(keys, strings.ToUpper(c)[0]&0x1f)
		case !ctrl && len(k) == 1 && k[0] > ' ' && k[0] < 0x7f:
			keys = append(keys, k[0])
		default:
			return nil, cove.Errorf(cove.InvalidArgument, "--detach-keys: %q is not a key", k).
				WithHint("write keys such as ctrl-p,ctrl-q")
		}
	}
	return keys, nil
}

// CreateSandbox asks for a sandbox and shows its steps. A signal takes back what was made.
func CreateSandbox(ctx context.Context, sess *session.Session, req api.SandboxRequest) (api.Sandbox, error) {
	ctx, interrupts := ui.CoverSignals(ctx, sess.Out, sess.Err)
	defer interrupts.Stop()
	b, err := sess.Server(ctx)
	if err != nil {
		return api.Sandbox{}, interrupts.Explain(err)
	}
	defer b.Close()
	shown, left, asked := sess.NewSteps(), &LeftOut{}, req.Repository
	take := func(p api.Progress) {
		left.Look(ctx, asked) // once it is begun
		shown.Take(p)
	}
	var s api.Sandbox
	req.Repository, err = SendFolder(ctx, sess, b.Client, asked, func(r *api.RepositoryRequest) error {
		req.Repository = r
		return b.Client.CheckSandbox(ctx, req)
	}, take)
	if err == nil {
		s, err = b.Client.CreateSandbox(ctx, req, take)
	}
	if err != nil {
		shown.Fail()
		if interrupts.First() != 0 {
			sess.Say.Line("what was made of the sandbox is taken back")
		}
		return s, interrupts.Explain(err)
	}
	shown.Finish()
	if !sess.JSON {
		sess.Say.Lines(left.Lines(s.Repository)...)
	}
	SayExposed(sess, s.Exposes)
	return s, nil
}

// SayExposed warns that real tokens are in a sandbox, even with --quiet.
func SayExposed(sess *session.Session, variables []string) {
	if len(variables) > 0 {
		sess.Say.Line("the real token of %s is in the sandbox, because its profile says so: "+
			"its programs can read it, and send it wherever its network leads", strings.Join(variables, " and "))
	}
}
