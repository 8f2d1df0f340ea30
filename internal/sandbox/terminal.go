package sandbox

import (
	"context"
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/terminal"
)

// TerminalRequest is a terminal to look at.
type TerminalRequest struct {
	// ID is one that is there; empty is the oldest that runs, or where there is
	// none a new one.
	ID string
	// New asks for a new one. Args is its program; empty is the sandbox's shell.
	New  bool
	Args []string
	Env  map[string]string
	Dir  string // relative to where processes begin, or absolute

	Size      terminal.Size
	Term      string // what the caller's terminal is; empty is xterm-256color
	TrueColor bool   // it has 24-bit colors
	History   bool   // show what has left the screen, to scroll back to
}

// OpenTerminal lets the caller look at a terminal of a sandbox that runs, and
// type. Errors: NotFound, Conflict when the sandbox does not run, Overloaded,
// InvalidArgument, RuntimeMissing.
func (m *Manager) OpenTerminal(ctx context.Context, who cove.Principal, ref string, q TerminalRequest) (*terminals.Viewer, error) {
	if err := checkCommand(q.Args, q.Env); err != nil {
		return nil, err
	}
	in, err := m.EnterSandbox(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	t, err := in.terminals.Find(q.ID)
	others := in.Spec.Within != "" && q.ID == "" // those that there are may be anybody's
	if q.New || others || q.ID == "" && cove.ErrorCode(err) == cove.NotFound {
		t, err = m.startTerminal(ctx, who, in, q)
	}
	if err != nil {
		return nil, err
	}
	return t.Attach(q.Size, q.History)
}

// Terminals lists the terminals of a sandbox that runs, the oldest first.
// Errors: NotFound, Conflict when it does not run.
func (m *Manager) Terminals(ctx context.Context, who cove.Principal, ref string) ([]api.Terminal, error) {
	in, err := m.inside(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	return terminalsShown(in.terminals), nil
}

// terminalsShown are a sandbox's terminals as the API shows them.
func terminalsShown(ttys *terminals.Set) []api.Terminal {
	all := []api.Terminal{}
	for _, t := range ttys.List() {
		i := t.Info()
		all = append(all, api.Terminal{
			ID: i.ID, Args: i.Args, Title: i.Title, Attached: i.Attached, Rows: i.Size.Rows, Columns: i.Size.Columns,
			CreatedAt: i.Created.UTC(), ExitCode: i.Exit,
		})
	}
	return all
}

// TerminalText is what a terminal shows and has shown, as plain text; of no id
// the oldest that runs, else the newest that has ended. Errors: NotFound,
// Conflict when the sandbox does not run.
func (m *Manager) TerminalText(ctx context.Context, who cove.Principal, ref, id string) (string, error) {
	in, err := m.inside(ctx, who, ref)
	if err != nil {
		return "", err
	}
	t, err := in.terminals.Find(id)
	if all := in.terminals.List(); err != nil && id == "" && len(all) > 0 {
		t, err = all[len(all)-1], nil
	}
	if err != nil {
		return "", err
	}
	return t.Text(), nil
}

// KillTerminal ends the program of a terminal. Errors: NotFound, Conflict.
func (m *Manager) KillTerminal(ctx context.Context, who cove.Principal, ref, id string) error {
	in, err := m.inside(ctx, who, ref)
	if err != nil {
		return err
	}
	t, err := in.terminals.Find(id)
	if err != nil {
		return err
	}
	if t.Ended() {
		return cove.Errorf(cove.Conflict, "the program of terminal %s has ended already", t.ID())
	}
	err = t.Kill(ctx)
	m.auditProcess(ctx, who, "kill", in.Sandbox, t.Args(), err)
	return err
}

// startTerminal starts a program in a new terminal.
func (m *Manager) startTerminal(ctx context.Context, who cove.Principal, in Inside, q TerminalRequest) (*terminals.Terminal, error) {
	spec := guest.ProcessSpec{Dir: in.place(q.Dir), Env: in.environment(q.Env, "TERM="+termOf(q.Term))}
	if q.TrueColor {
		spec.Env = lastWins(append(spec.Env, "COLORTERM=truecolor"))
	}
	var t *terminals.Terminal
	err := errNoProgram
	programs := programsOf(q, in.Spec)
	for i, args := range programs {
		spec.Args = args
		t, err = in.terminals.Start(ctx, spec, q.Size)
		if failure := new(guest.Failure); i == len(programs)-1 || !errors.As(err, &failure) || failure.Kind != guest.FailNotFound {
			break
		}
	}
	if err != nil {
		err = startFailure(spec, err)
	}
	m.auditProcess(ctx, who, "terminal", in.Sandbox, spec.Args, err)
	return t, err
}

var errNoProgram = errors.New("no program")

// programsOf are the programs that a new terminal may have, the best first.
func programsOf(q TerminalRequest, spec store.SandboxSpec) [][]string {
	switch {
	case len(q.Args) > 0:
		return [][]string{q.Args}
	case !q.New && len(spec.Screen) > 0:
		return [][]string{spec.Screen}
	case !q.New && spec.Agent != "":
		return [][]string{{spec.Agent}}
	}
	return [][]string{{"bash", "-l"}, {"sh", "-l"}}
}

// terms are the terminals that a program inside may be told of. Whatever else
// somebody has is told to be like the first: what passes is what it understands.
var terms = regexp.MustCompile(`^(xterm-256color|xterm|xterm-color|screen|screen-256color|tmux|tmux-256color|vt100|vt220|linux|rxvt|rxvt-unicode-256color|ansi|dumb)$`)

func termOf(asked string) string {
	if terms.MatchString(asked) {
		return asked
	}
	return "xterm-256color"
}

// environment is that of a process that asks for more; what comes later wins.
func (in Inside) environment(asked map[string]string, more ...string) []string {
	env := append(slices.Clone(in.Env), more...)
	return lastWins(appendVariables(env, asked))
}

// place is where a process begins.
func (in Inside) place(asked string) string {
	switch {
	case asked == "":
		return in.Dir
	case path.IsAbs(asked):
		return asked
	}
	return path.Join(in.Dir, asked)
}

// checkCommand refuses a malformed command.
func checkCommand(args []string, env map[string]string) error {
	size := 0
	for _, a := range args {
		if size += len(a) + 1; strings.IndexByte(a, 0) >= 0 {
			return cove.Errorf(cove.InvalidArgument, "an argument has a NUL byte")
		}
	}
	if size > MaxArgs {
		return cove.Errorf(cove.TooLarge, "the arguments have %d bytes, at most %d are allowed", size, MaxArgs)
	}
	return runtime.CheckEnv(env)
}

// startFailure says why a program could not be started.
func startFailure(spec guest.ProcessSpec, err error) error {
	var failure *guest.Failure
	if !errors.As(err, &failure) {
		return err
	}
	program := ""
	if len(spec.Args) > 0 {
		program = spec.Args[0]
	}
	switch failure.Kind {
	case guest.FailNotFound:
		return cove.Errorf(cove.RuntimeMissing, "cannot start %.200q in %.200q: %w", program, spec.Dir, failure).WithHint("it, or the directory, is not in the sandbox")
	case guest.FailPermission, guest.FailInvalid:
		return cove.Errorf(cove.InvalidArgument, "cannot start %.200q in %.200q: %w", program, spec.Dir, failure)
	case guest.FailNoProcess, guest.FailState:
		return cove.Errorf(cove.Overloaded, "the sandbox has as many processes as it may have").WithHint("end some, or make one with a higher limit (--pids)")
	}
	return cove.Errorf(cove.Internal, "cannot start %.200q: %w", program, failure)
}

// auditProcess records that a process was started or ended in a sandbox. Its
// arguments stay out of the record: they may have secrets.
func (m *Manager) auditProcess(ctx context.Context, who cove.Principal, action string, record store.Sandbox, args []string, err error) {
	r := store.Record{Action: "sandbox-" + action, Object: string(record.ID), Verdict: "ok", Detail: record.Name}
	if len(args) > 0 {
		r.Detail += ": " + args[0]
	}
	if err != nil {
		r.Verdict = "error"
		r.Detail += ": " + err.Error()
	}
	m.audit(ctx, who, r)
}
