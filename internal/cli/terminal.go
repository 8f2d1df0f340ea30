package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/terminal"
)

// defaultDetachKeys are typed to leave a terminal, as in Docker.
const defaultDetachKeys = "ctrl-p,ctrl-q"

// terminalHelp is what the help of the commands says that attach.
const terminalHelp = `The program has a terminal of its own, in the sandbox: it goes on when the
connection is lost, when this command ends, and when the server does. Whoever
attaches sees the screen as it is. ctrl-p ctrl-q detaches (--detach-keys); every
other key is the program's, ctrl-c too. A connection that is lost is made again.

What a program prints cannot harm the terminal: what is not known to be harmless
does not arrive, such as writing to the clipboard or pictures.`

func (a *app) attachCommand() *cobra.Command {
	var p pick
	var keys, id, kill string
	var list, asJSON bool
	c := &cobra.Command{
		Use:   "attach [SANDBOX]",
		Short: "Look at a sandbox's terminal, and type",
		Long: `Look at the terminal of a sandbox that runs: at the oldest, whose program is its
agent or a shell. Where there is none, it is started.

` + terminalHelp + "\n\n" + pickHelp,
		Example: `  cove attach
  cove attach brave-otter --terminal t2
  cove attach brave-otter --list
  cove attach --last --detach-keys ctrl-]`,
		ValidArgsFunction: a.completeSandbox,
		Args:              p.of,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case list:
				return a.listTerminals(cmd, p, asJSON)
			case asJSON:
				return usageError(cmd, "--json goes with --list")
			case kill != "":
				return a.withServer(cmd, func(ctx context.Context, c *client.Client) error {
					s, err := p.find(ctx, c)
					if err != nil {
						return err
					}
					return c.KillTerminal(ctx, s.ID, kill)
				})
			}
			return a.attachTerminal(cmd, p, keys, client.TerminalOptions{ID: id})
		},
	}
	p.add(c.Flags())
	addDetachKeys(c.Flags(), &keys)
	c.Flags().StringVarP(&id, "terminal", "t", "", "`ID` of the terminal")
	c.Flags().BoolVar(&list, "list", false, "list the sandbox's terminals instead")
	c.Flags().StringVar(&kill, "kill", "", "end the program of the terminal `ID` instead")
	c.Flags().BoolVar(&asJSON, "json", false, "with --list, print one JSON object")
	return c
}

func (a *app) shellCommand() *cobra.Command {
	var p pick
	var keys, dir string
	var env []string
	c := &cobra.Command{
		Use:   "shell [SANDBOX] [-- ARG...]",
		Short: "Start a shell in a sandbox",
		Long: `Start a login shell in a new terminal of a sandbox that runs: bash, or sh where
that is not there, with the arguments after --.

` + terminalHelp + "\n\n" + pickHelp,
		Example: `  cove shell
  cove shell brave-otter
  cove shell brave-otter --wd src -- -x`,
		ValidArgsFunction: a.completeSandbox,
		Args: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); n >= 0 {
				args = args[:n]
			}
			return p.of(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o := client.TerminalOptions{New: true, WorkDir: dir}
			if n := cmd.ArgsLenAtDash(); n >= 0 && len(args) > n {
				// Which shell there is only the sandbox knows.
				o.Args = append([]string{"sh", "-c", `if command -v bash >/dev/null; then exec bash -l "$@"; fi; exec sh -l "$@"`, "sh"}, args[n:]...)
			}
			var err error
			if o.Env, err = environment(env, a.getenv); err != nil {
				return err
			}
			return a.attachTerminal(cmd, p, keys, o)
		},
	}
	p.add(c.Flags())
	addDetachKeys(c.Flags(), &keys)
	c.Flags().StringVar(&dir, "wd", "", "`DIR` where it begins: relative to the workspace, or absolute")
	c.Flags().StringArrayVarP(&env, "env", "e", nil, "set `NAME=VALUE` inside, or NAME to this shell's value (repeatable)")
	return c
}

func addDetachKeys(f *pflag.FlagSet, keys *string) {
	f.StringVar(keys, "detach-keys", defaultDetachKeys, "`KEYS` that detach, such as ctrl-p,ctrl-q or ctrl-]; \"\" is none")
}

// listTerminals prints the terminals of a sandbox.
func (a *app) listTerminals(cmd *cobra.Command, p pick, asJSON bool) error {
	return a.withServer(cmd, func(ctx context.Context, c *client.Client) error {
		s, err := p.find(ctx, c)
		if err != nil {
			return err
		}
		all, err := c.Terminals(ctx, s.ID)
		if err != nil {
			return err
		}
		if asJSON {
			return a.printJSON(api.TerminalList{Terminals: all})
		}
		var rows [][]string
		for _, t := range all {
			state := "runs"
			if t.ExitCode != nil {
				state = fmt.Sprintf("ended (%d)", *t.ExitCode)
			}
			rows = append(rows, []string{t.ID, state, fmt.Sprintf("%dx%d", t.Columns, t.Rows), fmt.Sprint(t.Attached), ago(time.Since(t.CreatedAt)), printable(strings.Join(t.Args, " "))})
		}
		return a.print(table([]string{"TERMINAL", "STATE", "SIZE", "ATTACHED", "STARTED", "PROGRAM"}, rows))
	})
}

// attachTerminal shows a terminal on this one until its program ends or
// somebody detaches.
func (a *app) attachTerminal(cmd *cobra.Command, p pick, keys string, o client.TerminalOptions) error {
	_, err := a.showTerminal(cmd, p, keys, o)
	return err
}

// showTerminal does so, and reports whether the program has ended.
func (a *app) showTerminal(cmd *cobra.Command, p pick, keys string, o client.TerminalOptions) (ended bool, err error) {
	detach, err := parseKeys(keys)
	if err != nil {
		return false, err
	}
	if !isTerminal(a.In) || !isTerminal(a.Out) {
		return false, cove.Errorf(cove.InvalidArgument, "standard input and output are not a terminal").WithHint("run one command with %q", "cove exec SANDBOX -- COMMAND")
	}
	b, err := a.lasting(cmd.Context())
	if err != nil {
		return false, err
	}
	defer func() { b.close() }()
	s, err := p.find(cmd.Context(), b.client)
	if err != nil {
		return false, err
	}
	t := &console{app: a, backend: b, sandbox: s, options: o, detach: keyWatch{keys: detach}, from: b.client}
	code, err := t.run(cmd.Context())
	b = t.backend
	a.exit = code
	return err == nil && !t.left, err
}

// console is this terminal while it shows another.
type console struct {
	*app
	backend *backend
	from    *client.Client
	sandbox api.Sandbox
	options client.TerminalOptions
	detach  keyWatch
	state   *term.State // of this terminal, before
	left    bool        // somebody has detached

	mu       sync.Mutex
	attached *client.Terminal // nil while the connection is lost
}

// errDetached ends a console whose program goes on.
var errDetached = errors.New("detached")

// run shows the terminal. It returns the exit code of the program.
func (t *console) run(ctx context.Context) (code int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.options.Rows, t.options.Columns = t.size()
	t.options.Term = t.getenv("TERM")
	t.options.TrueColor = t.getenv("COLORTERM") == "truecolor" || t.getenv("COLORTERM") == "24bit"
	t.options.History = true
	if t.attached, err = t.from.AttachTerminal(ctx, t.sandbox.ID, t.options); err != nil {
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
	signal.Notify(signals, syscall.SIGWINCH, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGCONT)
	defer signal.Stop(signals)
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { t.hear(ctx, signals, cancel) })
	wake, woken, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer wake.Close()
	beside.Go(func() { t.keyboard(ctx, wake, cancel) })
	stop := context.AfterFunc(ctx, func() {
		woken.Close()
		if now := t.now(); now != nil {
			now.Close()
		}
	})
	code, err = t.show(ctx)
	cancel(nil)
	if stop() { // it has not begun
		woken.Close()
	}
	beside.Wait()
	restore()
	return t.conclude(ctx, code, err)
}

// conclude says what became of it.
func (t *console) conclude(ctx context.Context, code int, err error) (int, error) {
	cause := context.Cause(ctx)
	var ended *interrupted
	switch {
	case err == nil:
		return code, nil
	case errors.Is(cause, errDetached):
		t.left = true
		t.say.line("detached from terminal %s of %s, which goes on; %q is back", t.options.ID, t.sandbox.Name, t.command("attach", t.sandbox.Name))
		return 0, nil
	case errors.As(cause, &ended):
		return 0, ended
	}
	return 0, err
}

// size is that of this terminal.
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

// restore gives the terminal back as it was.
func (t *console) restore() {
	rows, columns := t.size()
	t.Out.Write(terminal.Restore(terminal.Size{Rows: rows, Columns: columns}))
	io.WriteString(t.Out, "\x1b[23;2t\r\n")
	// What the mouse has said meanwhile is not for the shell.
	unix.IoctlSetInt(int(t.In.Fd()), unix.TCFLSH, unix.TCIFLUSH)
	term.Restore(int(t.In.Fd()), t.state)
}

// now is the connection, if there is one.
func (t *console) now() *client.Terminal {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.attached
}

// show writes what is shown until the program ends. A connection that is lost is
// made again.
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
		case ctx.Err() != nil || cove.ErrorCode(err) != cove.Unavailable:
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
	shutDown := strings.Contains(why.Error(), "shuts down") // by somebody, who does not want it back at once
	began := time.Now()
	for wait := soonest; ; wait = min(2*wait, latest) {
		// A server of this machine that has died is started again.
		if !shutDown && t.serverAddress() == "" && time.Since(began) > latest {
			if b, err := t.lasting(ctx); err == nil {
				t.backend.close()
				t.backend, t.from = b, b.client
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
			return cove.Errorf(cove.NotFound, "the program has ended while the connection was lost, or the sandbox has gone").WithHint("\"cove list\" shows the sandboxes")
		case code != cove.Unavailable && code != cove.Overloaded && !(code == cove.Conflict && time.Since(began) < startTimeout):
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tell says something on the screen, which is drawn again afterwards.
func (t *console) tell(text string) {
	rows, columns := t.size()
	if len(text) > columns {
		text = text[:columns]
	}
	fmt.Fprintf(t.Out, "\x1b7\x1b[r\x1b[%d;1H\x1b[0;7m%s\x1b[0m\x1b[K\x1b8", rows, text)
}

// hear takes signals.
func (t *console) hear(ctx context.Context, signals <-chan os.Signal, cancel context.CancelCauseFunc) {
	defer t.restoreAfterPanic()
	for {
		select {
		case s := <-signals:
			switch s {
			case syscall.SIGWINCH:
				if now := t.now(); now != nil {
					now.Resize(t.size()) // a connection that is lost shows in show
				}
			case syscall.SIGCONT: // whoever stopped this process has had the terminal
				term.MakeRaw(int(t.In.Fd()))
				if now := t.now(); now != nil {
					rows, columns := t.size()
					now.Resize(rows, max(1, columns-1)) // so that it is drawn again
					now.Resize(rows, columns)
				}
			default:
				cancel(&interrupted{signal: s.(syscall.Signal)})
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// keyboard passes on what is typed, until wake is closed at its other end.
func (t *console) keyboard(ctx context.Context, wake *os.File, cancel context.CancelCauseFunc) {
	defer t.restoreAfterPanic()
	buf := make([]byte, 32<<10)
	for ctx.Err() == nil {
		ready := []unix.PollFd{{Fd: int32(t.In.Fd()), Events: unix.POLLIN}, {Fd: int32(wake.Fd()), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); err != nil && !errors.Is(err, unix.EINTR) {
			cancel(err)
			return
		}
		if ready[1].Revents != 0 {
			return
		}
		if ready[0].Revents == 0 {
			continue
		}
		n, err := t.In.Read(buf)
		if err != nil || n == 0 { // this terminal has gone
			cancel(&interrupted{signal: syscall.SIGHUP})
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

// keyWatch looks for the keys that detach.
type keyWatch struct {
	keys []byte
	seen int // how many of them were typed last, and are held back
}

// feed takes what was typed, and returns what is to be passed on, and whether
// the keys were among it.
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
			return nil, cove.Errorf(cove.InvalidArgument, "--detach-keys: %q is not a key", k).WithHint("write keys such as ctrl-p,ctrl-q")
		}
	}
	return keys, nil
}

// sandboxLogs prints what a terminal of a sandbox shows and has shown.
func (a *app) sandboxLogs(cmd *cobra.Command, p pick, id string) error {
	return a.withServer(cmd, func(ctx context.Context, c *client.Client) error {
		s, err := p.find(ctx, c)
		if err != nil {
			return err
		}
		text, err := c.TerminalText(ctx, s.ID, id)
		if err != nil {
			return err
		}
		return a.print(text)
	})
}

// followInterval is how often it is looked what a terminal shows now.
const followInterval = 300 * time.Millisecond

// followTerminal prints what a terminal shows as it comes, line by line, until
// its program has ended.
func (a *app) followTerminal(cmd *cobra.Command, p pick, id string) error {
	return a.withServer(cmd, func(ctx context.Context, c *client.Client) error {
		s, err := p.find(ctx, c)
		if err != nil {
			return err
		}
		var shown []string
		for {
			all, err := c.Terminals(ctx, s.ID)
			if err != nil {
				return err
			}
			runs := func(t api.Terminal) bool { return t.ExitCode == nil && (id == "" || t.ID == id) }
			i := slices.IndexFunc(all, runs)
			if i >= 0 {
				id = all[i].ID // and no other from now on
			}
			text, err := c.TerminalText(ctx, s.ID, id)
			if err != nil {
				return err
			}
			lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
			if i >= 0 || lines[0] == "" && len(lines) == 1 {
				lines = lines[:len(lines)-1] // the last one is still being written
			}
			for _, line := range unseen(shown, lines) {
				if err := a.print(line + "\n"); err != nil {
					return err
				}
			}
			if i < 0 {
				return nil
			}
			shown = lines
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(followInterval):
			}
		}
	})
}

// unseen are the lines of a terminal that have come since it was looked at: those
// after what is still there, of which the oldest may have been forgotten; or from
// the first one that was written over.
func unseen(shown, now []string) []string {
	for gone := range shown {
		rest := shown[gone:]
		if len(rest) <= len(now) && slices.Equal(rest, now[:len(rest)]) {
			return now[len(rest):]
		}
		if gone == 0 && len(now) > 0 && shown[0] == now[0] {
			break // nothing is forgotten
		}
	}
	same := 0
	for same < min(len(shown), len(now)) && shown[same] == now[same] {
		same++
	}
	return now[same:]
}

// execOptions are the flags of "cove exec".
type execOptions struct {
	pick
	command                    []string
	tty, input, detach, asJSON bool
	dir, keys                  string
	env                        []string
	timeout                    time.Duration
}

func (a *app) execCommand() *cobra.Command {
	var o execOptions
	c := &cobra.Command{
		Use:   "exec [SANDBOX] [flags] -- COMMAND [ARG...]",
		Short: "Run a command in a sandbox",
		Long: `Run a command in a sandbox that runs, print what it prints as it comes, and exit
with its exit code. Standard input that is piped is the command's; with -i one
that is a terminal is, too. ctrl-c is passed on; a second one leaves, which ends
the command. With --detach it goes on, and nobody sees what it prints.

With -t the command has a terminal, as "cove shell" has. There is no shell
between, unless it is the command. Exit codes beside the command's: 124 out of
time, 125 Cove itself failed, 127 the program is missing, 128+N ended by signal N.

` + pickHelp,
		Example: `  cove exec brave-otter -- make test
  cove exec -- git status
  tar c data | cove exec brave-otter -- tar x
  cove exec -t brave-otter -- vim README.md
  cove exec brave-otter --json -- sh -c 'echo out; echo err >&2; exit 3'`,
		ValidArgsFunction: a.completeSandbox,
		Args: func(cmd *cobra.Command, args []string) error {
			name := args
			if n := cmd.ArgsLenAtDash(); n >= 0 {
				name, o.command = args[:n], args[n:]
			} else if len(args) > 0 {
				name, o.command = args[:1], args[1:]
			}
			if len(o.command) == 0 {
				return cove.Errorf(cove.InvalidArgument, "COMMAND is missing").WithHint("write %q", "cove exec SANDBOX -- COMMAND")
			}
			return o.of(cmd, name)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			env, err := environment(o.env, a.getenv)
			if err != nil {
				return err
			}
			if !o.tty {
				return a.exec(cmd, &o, env)
			}
			if o.asJSON || o.detach || o.timeout != 0 {
				return usageError(cmd, "-t goes with neither --json, --detach nor --timeout")
			}
			return a.attachTerminal(cmd, o.pick, o.keys, client.TerminalOptions{New: true, Args: o.command, Env: env, WorkDir: o.dir})
		},
	}
	f := c.Flags()
	f.SetInterspersed(true)
	o.add(f)
	f.BoolVarP(&o.tty, "tty", "t", false, "give the command a terminal")
	f.BoolVarP(&o.input, "interactive", "i", false, "pass standard input on, though it is a terminal")
	f.BoolVarP(&o.detach, "detach", "d", false, "let the command go on, and do not wait for it")
	f.StringVar(&o.dir, "wd", "", "`DIR` where it begins: relative to the workspace, or absolute")
	f.StringArrayVarP(&o.env, "env", "e", nil, "set `NAME=VALUE` inside, or NAME to this shell's value (repeatable)")
	f.DurationVar(&o.timeout, "timeout", 0, "end the command after this `DURATION`")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON object, with the output in it")
	addDetachKeys(f, &o.keys)
	return c
}

// maxCollected is how much of each stream --json prints, in bytes.
const maxCollected = 16 << 20

// collected is what --json prints of a command.
type collected struct {
	api.ExecResult
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Truncated bool   `json:"truncated,omitempty"`
}

// exec runs a command without a terminal.
func (a *app) exec(cmd *cobra.Command, o *execOptions, env map[string]string) error {
	interrupts := watchSignals(a.Out, a.Err)
	defer interrupts.stop()
	ctx, cancel := interrupts.cover(cmd.Context())
	defer cancel()
	b, err := a.lasting(ctx)
	if err != nil {
		return interrupts.explain(err)
	}
	defer b.close()
	s, err := o.find(ctx, b.client)
	if err != nil {
		return interrupts.explain(err)
	}
	req := api.ExecRequest{Args: o.command, WorkDir: o.dir, Timeout: o.timeout.Seconds(), Detach: o.detach}
	if len(env) > 0 {
		req.Env = maps.Clone(env)
	}
	out := a.newScreen()
	stream := client.Stream{Stdout: out.stdout, Stderr: out.stderr}
	if o.input || !isTerminal(a.In) && !isNull(a.In) {
		stream.Stdin = a.In
	}
	var stdout, stderr bounded
	if o.asJSON {
		stream.Stdout, stream.Stderr = &stdout, &stderr
	}
	stream.Started = func(id string) {
		if o.detach {
			cancel()
			return
		}
		interrupts.onSignal(func() { a.passOn(s.ID, id, b.client, interrupts) })
	}
	result, err := b.client.Exec(ctx, s.ID, req, stream)
	interrupts.settle()
	if !o.asJSON {
		out.restore()
	}
	if o.detach && interrupts.first() == 0 && cove.ErrorCode(err) == cove.Canceled {
		return nil
	}
	if err != nil {
		return interrupts.explain(err)
	}
	if o.asJSON {
		if err := a.printJSON(collected{ExecResult: result, Stdout: stdout.String(), Stderr: stderr.String(), Truncated: stdout.over || stderr.over}); err != nil {
			return err
		}
	}
	a.exit = result.ExitCode & 0xff
	if result.LimitHit == string(cove.LimitTimeout) {
		a.say.line("stopped: it ran longer than %v", o.timeout)
		a.exit = exitTimeout
	}
	return nil
}

// passOn sends the signal that came to a command. One that cannot be sent ends
// the command by leaving it.
func (a *app) passOn(sandbox, id string, c *client.Client, in *interrupts) {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	name := map[syscall.Signal]string{syscall.SIGINT: "INT", syscall.SIGHUP: "HUP", syscall.SIGTERM: "TERM", syscall.SIGPIPE: "TERM"}[in.first()]
	if err := c.SignalExec(ctx, sandbox, id, cmp.Or(name, "TERM")); err != nil && cove.ErrorCode(err) != cove.NotFound {
		in.giveUp()
	}
}

// bounded keeps the beginning of what is written.
type bounded struct {
	bytes.Buffer
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), maxCollected-b.Len())
	b.over = b.over || n < len(p)
	b.Buffer.Write(p[:n])
	return len(p), nil
}
