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
		Long: `Sandboxes that last belong to a server. When none answers, the commands that
need one start it in the background: "cove serve" in a session of its own, which
listens on its unix socket only unless the configuration says where else. Its
log is logs/server.log in --home.

Sandboxes outlive it: what runs in them goes on, and the next server takes them
over.`,
		Example: "  cove server status\n  cove server logs -f\n  cove server stop",
	}, serverStatus(sess), serverStart(sess), serverStop(sess), serverLogs(sess))
}

func serverStatus(sess *session.Session) *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:     "status",
		Short:   "Say whether a server answers, and what it does",
		Long:    "Say whether a server answers, and what it does. The exit code is 0 when one does, and 3 when none does.",
		Example: "  cove server status\n  cove server status --json",
		Args:    ui.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := findServer(cmd.Context(), sess)
			if err != nil {
				return err
			}
			if !s.Running {
				sess.Exit = ui.ExitNoServer
			}
			return showServer(sess, s, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func serverStart(sess *session.Session) *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:     "start",
		Short:   "Start a server in the background, if none answers",
		Example: "  cove server start",
		Args:    ui.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			interrupts := ui.WatchSignals()
			defer interrupts.Stop()
			ctx, cancel := interrupts.Cover(cmd.Context())
			defer cancel()
			if sess.ServerAddress() != "" {
				return elsewhere("started")
			}
			cfg, err := sess.Config()
			if err != nil {
				return err
			}
			if !session.Answers(ctx, cfg.Socket()) {
				if err := sess.StartServer(ctx, cfg); err != nil {
					return interrupts.Explain(err)
				}
			}
			s, err := findServer(ctx, sess)
			if err != nil {
				return err
			}
			return showServer(sess, s, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}
