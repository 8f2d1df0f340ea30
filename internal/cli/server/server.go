package server

import (
	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func serverCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:   "server",
		Short: "See and stop the server in the background",
		Long: `Long-lived sandboxes belong to a server. When none answers, the commands that
need one start it in the background: "cove serve" in a session of its own, which
listens on its unix socket only unless the configuration says where else. Its
log is logs/server.log in --home.

Sandboxes outlive it: what runs in them goes on, and the next server takes them
over.`,
		Example: "  cove server status\n  cove server logs -f\n  cove server stop",
	}, serverStatus(sess), serverStart(sess), serverStop(sess), serverLogs(sess))
}

func serverStatus(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use:     "status",
		Short:   "Say whether a server answers, and what it does",
		Long:    "Say whether a server answers, and what it does. The exit code is 0 when one does, and 3 when none does.",
		Example: "  cove server status\n  cove server status --json",
		Args:    ui.Exactly(),
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
		Use:     "start",
		Short:   "Start a server in the background, if none answers",
		Example: "  cove server start",
		Args:    ui.Exactly(),
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		ctx, interrupts := ui.CoverSignals(cmd.Context())
		defer interrupts.Stop()
		if sess.ServerAddress() != "" {
			return ui.Result{}, elsewhere("started")
		}
		cfg, err := sess.Config()
		if err != nil {
			return ui.Result{}, err
		}
		if !session.Answers(ctx, cfg.Socket()) {
			if err := sess.StartServer(ctx, cfg); err != nil {
				return ui.Result{}, interrupts.Explain(err)
			}
		}
		s, err := findServer(ctx, sess)
		return ui.Result{Value: s, Text: s.text()}, err
	})
}
