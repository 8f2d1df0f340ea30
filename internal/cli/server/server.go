package server

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/version"
)

func serverCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:   "server",
		Short: "See and stop the server in the background",
		Long: `Long-lived sandboxes belong to a server. When none answers, the commands that
need one start it in the background: "cove serve" in a session of its own, which
listens on its unix socket only unless the configuration says where else. Its
log is logs/server.log in --home. It takes the keys that each command's shell
exports, and ends when nothing has run in it for 10 minutes. "cove serve" takes
over from it.

Sandboxes outlive it: what runs in them goes on, and the next server takes them
over.

The server of another machine is used over ssh: --server ssh://[USER@]HOST[:PORT]
or COVE_SERVER. Cove has to be installed there. Keys and everything else come from
~/.ssh/config and ssh-agent; there the server takes you for the user that ssh
logs in, and one is started if none answers.`,
		Example: "  cove server status\n  cove server logs -f\n  cove server stop",
	}, serverStatus(sess), serverStart(sess), serverStop(sess), serverLogs(sess), serverConnect(sess))
}

func serverStatus(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use:     "status",
		Short:   "Say whether a server answers, and what it does",
		Long:    "Say whether a server answers, and what it does. The exit code is 0 when one does, and 3 when none does.",
		Example: "  cove server status\n  cove server status --json",
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		s, err := findServer(cmd.Context(), sess)
		if err == nil && !s.Running {
			sess.Exit = ui.ExitNoServer
		}
		return ui.Result{Value: s, Text: s.text()}, err
	})
}

func serverStart(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use: "start", Short: "Start a server in the background, if none answers", Example: "  cove server start",
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		ctx, interrupts := ui.CoverSignals(cmd.Context())
		defer interrupts.Stop()
		if sess.ServerAddress() != "" {
			return ui.Result{}, elsewhere("started")
		}
		address, err := sess.Running(ctx)
		if err == nil && address == "" {
			_, err = sess.StartServer(ctx)
		}
		if err != nil {
			return ui.Result{}, interrupts.Explain(err)
		}
		s, err := findServer(ctx, sess)
		if cove.Away(err) || err == nil && !s.Running { // the one that answered was ending
			if _, err = sess.StartServer(ctx); err == nil {
				s, err = findServer(ctx, sess)
			}
		}
		return ui.Result{Value: s, Text: s.text()}, err
	})
}

type serverState struct {
	Running    bool       `json:"running"`
	PID        int        `json:"pid,omitempty"`
	Version    string     `json:"version,omitempty"`
	Command    string     `json:"command_version"` // of this program
	Since      *time.Time `json:"since,omitempty"`
	Status     string     `json:"status,omitempty"`
	Background bool       `json:"background,omitempty"` // a command has started it
	Addresses  []string   `json:"addresses,omitempty"`
	Sandboxes  int        `json:"sandboxes"`
	Executions int        `json:"executions"`
	Queued     int        `json:"queued"`
	Log        string     `json:"log,omitempty"`
}

func findServer(ctx context.Context, sess *session.Session) (serverState, error) {
	s := serverState{Command: version.Version}
	address := sess.ServerAddress()
	if address == "" {
		if err := session.Here(); err != nil {
			return s, err
		}
		cfg, err := sess.Config()
		if err != nil {
			return s, err
		}
		s.Log, address = session.ServerLogPath(cfg), "unix:"+cfg.Socket()
		if _, err := os.Stat(s.Log); err != nil {
			s.Log = "" // it never was in the background
		}
		if !session.Answers(ctx, cfg.Socket()) {
			return s, nil
		}
	}
	b, err := sess.Dial(address)
	if err != nil {
		return s, err
	}
	defer b.Close()
	h, err := b.Client.Health(ctx)
	if err != nil {
		return s, err
	}
	s.Running, s.PID, s.Version, s.Since, s.Status = true, h.PID, h.Version, h.Since, h.Status
	s.Addresses = append([]string{address}, h.Listens...)
	s.Executions, s.Queued, s.Background = h.Active, h.Queued, h.Background
	s.Sandboxes, err = countSandboxes(b.Client, ctx)
	return s, err
}

func (s serverState) text() string {
	if !s.Running {
		return "no server answers; commands that need one start it\n"
	}
	var rows ui.Facts
	rows.Add("running", "process "+strconv.Itoa(s.PID))
	if s.Background {
		rows.Add("started", "by a command; it ends when nothing has run in it for a while")
	}
	shown := s.Version
	if s.Version != s.Command {
		shown += " (this command: " + s.Command + ")"
	}
	rows.Add("version", shown)
	if s.Since != nil {
		rows.Add("since", s.Since.Local().Format(time.DateTime)+" ("+ui.Ago(time.Since(*s.Since))+")")
	}
	if s.Status != "ok" {
		rows.Add("status", s.Status+": \"cove doctor\" says why")
	}
	rows.Add("address", strings.Join(s.Addresses, ", "))
	rows.Add("sandboxes", strconv.Itoa(s.Sandboxes))
	rows.Add("executions", strconv.Itoa(s.Executions))
	rows.Add("log", s.Log)
	return rows.Text()
}

// countSandboxes counts those of a server; an older one has none.
func countSandboxes(c *client.Client, ctx context.Context) (int, error) {
	l, err := c.Sandboxes(ctx)
	if code := cove.ErrorCode(err); code == cove.NotFound || code == cove.Unsupported {
		return 0, nil
	}
	return len(l.Sandboxes), err
}

func serverStop(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use:   "stop",
		Short: "Stop the server of this machine",
		Long: `Stop the server of this machine. Executions end within shutdown_grace.
Sandboxes stay as they are: what runs in them goes on, and the next server takes
them over. While there is none, nothing leaves them.`,
		Example: "  cove server stop",
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		done, err := stopServer(cmd.Context(), sess)
		return ui.Result{Value: done, Text: done.text()}, err
	})
}

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
	}
	return "the server has stopped; " + ui.Counted(s.Sandboxes, "sandbox stays, and the next server takes it over",
		"sandboxes stay, and the next server takes them over") + "\n"
}

func stopServer(ctx context.Context, sess *session.Session) (result stopped, err error) {
	ctx, interrupts := ui.CoverSignals(ctx)
	defer interrupts.Stop()
	if sess.ServerAddress() != "" {
		return result, elsewhere("stopped")
	}
	if err := session.Here(); err != nil {
		return result, err
	}
	cfg, err := session.Places(sess)
	if err != nil {
		return result, err
	}
	if result.Sandboxes, err = session.OfAddress(ctx, sess, "unix:"+cfg.Socket(), countSandboxes); err != nil {
		result.Sandboxes = 0 // it does not answer, or there is none
	}
	result.PID, err = session.StopServer(ctx, sess)
	if err != nil {
		return result, interrupts.Explain(err)
	}
	result.Stopped = result.PID != 0
	return result, nil
}
