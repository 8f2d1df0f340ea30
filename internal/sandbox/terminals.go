package sandbox

import (
	"context"
	"errors"
	"path"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/pattern"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/terminal"
)

// TerminalRequest describes a terminal to look at.
type TerminalRequest struct {
	// ID is one that is there; empty is the oldest that runs, or where there is none a new one.
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

// OpenTerminal attaches the caller to a terminal of a running sandbox. Errors: NotFound, Conflict when the sandbox does
// not run, Overloaded, InvalidArgument, RuntimeMissing.
func (ps *Processes) OpenTerminal(ctx context.Context, who cove.Principal, ref string,
	q TerminalRequest) (*terminals.Viewer, error) {
	if err := checkCommand(q.Args, q.Env); err != nil {
		return nil, err
	}
	in, err := ps.Enter(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	t, err := in.terminals.Find(q.ID)
	others := in.Within != "" && q.ID == "" // the present terminals may belong to other checkouts
	if q.New || others || q.ID == "" && cove.ErrorCode(err) == cove.NotFound {
		t, err = ps.startTerminal(ctx, who, in, q)
	}
	if err != nil {
		return nil, err
	}
	return t.Attach(q.Size, q.History)
}

// Terminals lists the terminals of a running sandbox, the oldest first. Errors: NotFound, Conflict when it does not
// run.
func (ps *Processes) Terminals(ctx context.Context, who cove.Principal, ref string) ([]terminals.Info, error) {
	in, err := ps.inside(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	return infosOf(in.terminals), nil
}

// TerminalText returns the screen and the scrollback of a terminal as plain text; without an id, of the oldest that
// runs, else of the newest that has ended. Errors: NotFound, Conflict when the sandbox does not run.
func (ps *Processes) TerminalText(ctx context.Context, who cove.Principal, ref, id string) (string, error) {
	in, err := ps.inside(ctx, who, ref)
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
func (ps *Processes) KillTerminal(ctx context.Context, who cove.Principal, ref, id string) error {
	in, err := ps.inside(ctx, who, ref)
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
	ps.auditProcess(ctx, who, "kill", in.Sandbox, t.Args(), err)
	return err
}

// startTerminal starts a program in a new terminal. It is among what the caller has at once until the program ends,
// whether a viewer looks at it or not.
func (ps *Processes) startTerminal(ctx context.Context, who cove.Principal, in Inside,
	q TerminalRequest) (*terminals.Terminal, error) {
	release, err := ps.o.Places.Hold(ctx, who, false)
	if err != nil {
		return nil, err
	}
	t, err := ps.startHeld(ctx, who, in, q, release)
	if err != nil {
		release()
	}
	return t, err
}

// startHeld starts a program in a new terminal, at whose end release gives its place back.
func (ps *Processes) startHeld(ctx context.Context, who cove.Principal, in Inside, q TerminalRequest,
	release func()) (*terminals.Terminal, error) {
	spec := guest.ProcessSpec{Dir: in.place(q.Dir)}
	env := in.environment(q.Env, "TERM="+termOf(q.Term))
	if q.TrueColor {
		env = append(env, "COLORTERM=truecolor")
	}
	var t *terminals.Terminal
	err := errNoProgram
	programs := programsOf(q, in.Spec)
	for i, args := range programs {
		spec.Args = args
		spec.Env = rootfs.LastWins(append(promptOf(args, in.Sandbox.Name), env...))
		if err := ps.noteProcess(ctx, who, "terminal", in.Sandbox, args); err != nil {
			return nil, err
		}
		t, err = in.terminals.Start(ctx, spec, q.Size, release)
		if failure := new(guest.Failure); i == len(programs)-1 || !errors.As(err, &failure) ||
			failure.Kind != guest.FailNotFound {
			break
		}
	}
	if err != nil {
		err = startFailure(spec, err)
		ps.auditProcess(ctx, who, "terminal", in.Sandbox, spec.Args, err)
	}
	return t, err
}

var errNoProgram = errors.New("no program")

// programsOf returns the candidates for the program of a new terminal, the best first.
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

// promptOf returns the variable with a shell's prompt, which names the sandbox. An image's own configuration of the
// shell wins.
func promptOf(args []string, name string) []string {
	switch {
	case path.Base(args[0]) == "bash":
		return []string{`PS1=\u@\h:\w\$ `}
	case path.Base(args[0]) == "sh": // not every one expands the above
		return []string{"PS1=" + name + "$ "}
	}
	return nil
}

// terms are the terminal types that a program inside may see. Any other is reported as the first: its sequences are
// those that pass.
var terms = pattern.New(
	`^(xterm-256color|xterm|xterm-color|screen|screen-256color|tmux|tmux-256color|vt100|vt220|linux|rxvt|rxvt-unicode-256color|ansi|dumb)$`)

func termOf(asked string) string {
	if terms.MatchString(asked) {
		return asked
	}
	return "xterm-256color"
}
