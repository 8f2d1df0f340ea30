package session

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/version"
)

// Do uses a connection until its context ends.
type Do = func(context.Context, *client.Client) error

// Ask asks a server one thing, as (*client.Client).Agents does.
type Ask[T any] = func(*client.Client, context.Context) (T, error)

// Connect finds the backend: the server that was named, else the one of this machine when it answers, else a daemon in
// this process, which is warm when something is about to run.
func (sess *Session) Connect(ctx context.Context, warm bool) (*Backend, error) {
	address, err := Settle(ctx, sess, warm)
	if err != nil {
		return nil, err
	}
	return Use(ctx, sess, address, warm)
}

// Settle decides which process carries out the command, and returns the address of the server that does; it is empty
// for a daemon in this process. Where this program has no daemon, the server's program takes its place, so a command
// that reads its input before it connects calls Settle first, and Use afterwards.
func Settle(ctx context.Context, sess *Session, warm bool) (address string, err error) {
	if address, err = sess.Running(ctx); err != nil {
		return "", err
	}
	s := situation{named: sess.ServerAddress() != "", answers: address != "", linked: sess.Daemon != nil}
	if warm && s.answers && !s.named {
		if s.differs, err = differs(ctx, sess, address); err != nil {
			return "", err
		}
	}
	if s.place() == byServer {
		return address, nil
	}
	if sess.settled != nil {
		sess.settled.Close()
	}
	if s.place() == byProgram {
		return "", handOver(sess.Args)
	}
	return "", nil
}

// Use connects to what Settle has decided on.
func Use(ctx context.Context, sess *Session, address string, warm bool) (*Backend, error) {
	if b := sess.settled; b != nil && b.address == address {
		sess.settled = nil
		return b, nil
	}
	if address != "" {
		return sess.Dial(address)
	}
	return embed(ctx, sess, warm)
}

// differs reports whether the server of this machine has other settings than this command. It serves what its own
// settings allow, so a command that brings others has a daemon of its own.
func differs(ctx context.Context, sess *Session, address string) (bool, error) {
	cfg, err := sess.Config()
	if err != nil || len(cfg.Chosen()) == 0 {
		return false, err
	}
	if sess.settled, err = sess.Dial(address); err != nil {
		return false, err
	}
	typed, inherited, err := differing(ctx, sess, sess.settled.Client)
	return len(typed)+len(inherited) > 0, err
}

// Running returns the address of the server that was named, else of the one of this machine when it answers, else
// nothing.
func (sess *Session) Running(ctx context.Context) (address string, err error) {
	if address := sess.ServerAddress(); address != "" {
		return address, nil
	}
	if err := Here(); err != nil {
		return "", err
	}
	cfg, err := sess.Config()
	if err != nil || !Answers(ctx, cfg.Socket()) {
		return "", err
	}
	return "unix:" + cfg.Socket(), nil
}

// Far reports whether the server that was named is taken for that of another machine: it has none of the directories
// here.
func (sess *Session) Far() bool {
	address := sess.ServerAddress()
	return address != "" && (Here() != nil || !strings.HasPrefix(address, "unix:"))
}

// Server finds the server that keeps sandboxes: the one that was named, else
// the one of this machine, which is started if it does not answer.
func (sess *Session) Server(ctx context.Context) (*Backend, error) {
	address, err := sess.Running(ctx)
	if err != nil {
		return nil, err
	}
	if address == "" {
		return started(ctx, sess)
	}
	b, err := sess.Dial(address)
	if err != nil {
		return nil, err
	}
	h, err := b.Client.Health(ctx)
	switch {
	case cove.Away(err) && sess.ServerAddress() == "": // it has ended since it answered
		b.Close()
		return started(ctx, sess)
	case err != nil:
		return b, nil // the command itself says what is wrong
	}
	sess.checkVersion(h)
	if sess.ServerAddress() != "" {
		return b, nil
	}
	anew, err := reconcile(ctx, sess, b.Client, h)
	if err != nil || anew != "" {
		b.Close()
		if err != nil {
			return nil, err
		}
		return sess.Dial(anew)
	}
	handKeys(ctx, sess, b.Client, h.Reads)
	return b, nil
}

// started starts a server of this machine, unless one answers, and returns it.
func started(ctx context.Context, sess *Session) (*Backend, error) {
	address, err := sess.StartServer(ctx)
	if err != nil {
		return nil, err
	}
	return sess.Dial(address)
}

// WithServer calls do with a client of the server that manages sandboxes. A signal cancels do's context.
func (sess *Session) WithServer(cmd *cobra.Command, do Do) error {
	return sess.with(cmd.Context(), sess.Server, do)
}

// WithBackend calls do with a client of the server of Connect, or of a daemon in this process. A signal cancels do's
// context.
func (sess *Session) WithBackend(cmd *cobra.Command, do Do) error {
	return sess.with(cmd.Context(), func(ctx context.Context) (*Backend, error) { return sess.Connect(ctx, false) }, do)
}

func (sess *Session) with(ctx context.Context, connect func(context.Context) (*Backend, error), do Do) error {
	ctx, interrupts := ui.CoverSignals(ctx, sess.Out)
	defer interrupts.Stop()
	b, err := connect(ctx)
	if err != nil {
		return interrupts.Explain(err)
	}
	err = interrupts.Explain(do(ctx, b.Client))
	return cmp.Or(err, b.Close())
}

// OfServer returns the answer of the server that keeps sandboxes. One that was about to end when it was found, and has
// not been reached, is followed by the next.
func OfServer[T any](cmd *cobra.Command, sess *Session, ask Ask[T]) (answer T, err error) {
	if err = sess.WithServer(cmd, keep(ask, &answer)); unreached(err) && sess.ServerAddress() == "" {
		err = sess.WithServer(cmd, keep(ask, &answer))
	}
	return answer, err
}

// unreached reports whether err is of a request that was never sent, because no server listens.
func unreached(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
}

// keep returns the use of a connection that asks once and stores the answer.
func keep[T any](ask Ask[T], answer *T) Do {
	return func(ctx context.Context, c *client.Client) (err error) {
		*answer, err = ask(c, ctx)
		return err
	}
}

// OfBackend returns the answer of the server of Connect, or of a daemon in this process.
func OfBackend[T any](cmd *cobra.Command, sess *Session, ask Ask[T]) (answer T, err error) {
	err = sess.WithBackend(cmd, keep(ask, &answer))
	return answer, err
}

// OfRunning returns the answer of a running server, or nothing. It waits only as long as completion may take.
func OfRunning[T any](ctx context.Context, sess *Session, ask Ask[T]) (answer T) {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	address, err := sess.Running(ctx)
	if err != nil || address == "" {
		return answer
	}
	answer, _ = OfAddress(ctx, sess, address, ask)
	return answer
}

// OfAddress returns the answer of the server at an address.
func OfAddress[T any](ctx context.Context, sess *Session, address string, ask Ask[T]) (answer T, err error) {
	b, err := sess.Dial(address)
	if err != nil {
		return answer, err
	}
	defer b.Close()
	return ask(b.Client, ctx)
}

// KillTimeout is how long ending an execution may take before the connection is dropped instead, which ends it too.
const KillTimeout = 10 * time.Second

// Kill ends an execution after a signal; a server that does not end it is left. One that has ended already is no error.
func Kill(ctx context.Context, c *client.Client, in *ui.Interrupts, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), KillTimeout)
	defer cancel()
	if _, err := c.Kill(ctx, id); err != nil && cove.ErrorCode(err) != cove.Conflict {
		in.GiveUp()
	}
}

// checkVersion warns when a server is of another version than this command.
func (sess *Session) checkVersion(h api.Health) {
	switch {
	case h.Version == "" || h.Version == version.Version:
	case sess.ServerAddress() != "":
		sess.Say.Line("the server is of version %s, this command of %s", h.Version, version.Version)
	default:
		sess.Say.Line("the server is of version %s, this command of %s: \"cove server stop\" ends it, "+
			"and the next command starts one of its own; sandboxes stay", h.Version, version.Version)
	}
}
