package server

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func serverStop(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use:   "stop",
		Short: "Stop the server of this machine",
		Long: `Stop the server of this machine. Executions end within shutdown_grace.
Sandboxes stay as they are: what runs in them goes on, and the next server takes
them over. While there is none, nothing leaves them.`,
		Example: "  cove server stop",
		Args:    ui.Exactly(),
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		done, err := stopServer(cmd.Context(), sess)
		return ui.Result{Value: done, Text: done.text()}, err
	})
}

// stopped is the output of "cove server stop --json".
type stopped struct {
	Stopped   bool `json:"stopped"`
	PID       int  `json:"pid,omitempty"`
	Sandboxes int  `json:"sandboxes"`
}

func (s stopped) text() string {
	switch {
	case !s.Stopped:
		return "no server answers\n"
	case s.Sandboxes == 0:
		return "the server has stopped\n"
	case s.Sandboxes == 1:
		return "the server has stopped; 1 sandbox stays, and the next server takes it over\n"
	}
	return fmt.Sprintf("the server has stopped; %d sandboxes stay, and the next server takes them over\n", s.Sandboxes)
}

func stopServer(ctx context.Context, sess *session.Session) (result stopped, err error) {
	ctx, interrupts := ui.CoverSignals(ctx)
	defer interrupts.Stop()
	if sess.ServerAddress() != "" {
		return result, elsewhere("stopped")
	}
	cfg, err := sess.Config()
	if err != nil {
		return result, err
	}
	p, pid, err := listener(cfg.Socket())
	if err != nil {
		return result, err
	}
	if pid != 0 {
		defer p.Close()
		if result.Sandboxes, err = sandboxesOf(ctx, sess, cfg.Socket()); err != nil {
			return result, err
		}
		if err := p.Terminate(); err != nil {
			return result, err
		}
		p.Wait(ctx)
		if ctx.Err() != nil {
			return result, interrupts.Explain(cove.Errorf(cove.Canceled, "the server is told to stop, and has not ended yet"))
		}
		result.Stopped, result.PID = true, pid
	}
	return result, nil
}

// listener returns the process that listens on a unix socket of this machine, and its id. The id is 0 without one.
func listener(path string) (session.Process, int, error) {
	pid, err := listenerPID(path)
	if pid == 0 || err != nil {
		return session.Process{}, 0, err
	}
	p, err := session.WatchProcess(pid)
	if err != nil {
		return p, 0, err
	}
	// it has ended meanwhile, and the number may be another's
	if again, err := listenerPID(path); again != pid || err != nil {
		p.Close()
		return session.Process{}, 0, err
	}
	return p, pid, nil
}

func listenerPID(path string) (int, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return 0, nil
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var failed error
	ask := func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }
	if err := raw.Control(ask); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, failed
	}
	if peer.Pid == 0 {
		return 0, cove.Errorf(cove.Unsupported, "the server at %s runs where its process has no number here", path).
			WithHint("stop it there: it is in another container")
	}
	return int(peer.Pid), nil
}
