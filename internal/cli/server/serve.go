package server

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/session"
)

func serveCommand(sess *session.Session, d Daemon) *cobra.Command {
	var o ServeOptions
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the HTTP API",
		Long: `Serve the HTTP API on the configured address and on a unix socket, which
"cove run" and the other commands then use. The first Ctrl-C or SIGTERM lets
executions end within shutdown_grace, the second ends at once.`,
		Example: "  cove serve\n  cove serve --listen 127.0.0.1:9000\n  cove serve --config /etc/cove.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			sess.Settings.Serving = cmd.Flags().Changed("listen")
			return d.Serve(cmd.Context(), sess, o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.LogFile, "log-file", "", "log to `FILE`, which begins anew when it is large")
	f.BoolVar(&o.Background, "background", false, "a command has started it: it takes their keys, and ends when idle")
	f.DurationVar(&o.Idle, "idle", idleTime, "`TIME` after which one in the background ends when nothing runs")
	for _, hidden := range []string{"log-file", "background", "idle"} {
		f.Lookup(hidden).Hidden = true
	}
	c.Flags().StringVar(&sess.Settings.Listen, "listen", "",
		"`HOST:PORT` of the HTTP API; empty serves the unix socket only")
	return session.OfDaemon(sess, c)
}

// idleTime is how long a server in the background stays when nothing runs.
const idleTime = 10 * time.Minute
