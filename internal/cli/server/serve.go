package server

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/daemon"
)

func serveCommand(sess *session.Session) *cobra.Command {
	logFile := ""
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the HTTP API",
		Long: `Serve the HTTP API on the configured address and on a unix socket, which
"cove run" and the other commands then use. The first Ctrl-C or SIGTERM lets
executions end within shutdown_grace, the second ends at once.`,
		Example: "  cove serve\n  cove serve --listen 127.0.0.1:9000\n  cove serve --config /etc/cove.yaml",
		Args:    ui.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			sess.Settings.Serving = cmd.Flags().Changed("listen")
			return serve(cmd.Context(), sess, logFile)
		},
	}
	c.Flags().StringVar(&logFile, "log-file", "", "log to `FILE`, which begins anew when it is large")
	c.Flags().Lookup("log-file").Hidden = true
	c.Flags().StringVar(&sess.Settings.Listen, "listen", "",
		"`HOST:PORT` of the HTTP API; empty serves the unix socket only")
	return c
}

func serve(ctx context.Context, sess *session.Session, logFile string) error {
	ctx, interrupts := ui.CoverSignals(ctx)
	defer interrupts.Stop()
	cfg, err := sess.Config()
	if err != nil {
		return err
	}
	if logFile != "" {
		l, err := session.OpenServerLog(logFile, session.MaxServerLog)
		if err != nil {
			return err
		}
		defer l.Close()
		if err := l.Redirect(); err != nil {
			return err
		}
		sess.LogTo = l
	}
	log := sess.Logger(cfg)
	for _, w := range cfg.Warnings() {
		log.Warn(w)
	}
	d, err := daemon.New(ctx, daemon.Options{Config: cfg, Log: log})
	if err != nil {
		return err
	}
	if logFile != "" {
		go whileThere(ctx, cfg.Home, interrupts.GiveUp)
	}
	err = d.Serve(ctx)
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), session.CloseTimeout)
	defer done()
	return cmp.Or(err, d.Close(closing))
}

// homePoll is how often a server in the background looks for its home.
const homePoll = 2 * time.Second

// whileThere calls end when a directory has gone. No command finds a server in the background whose home was removed.
func whileThere(ctx context.Context, home string, end func()) {
	for {
		if _, err := os.Stat(home); errors.Is(err, fs.ErrNotExist) {
			end()
			return
		}
		select {
		case <-time.After(homePoll):
		case <-ctx.Done():
			return
		}
	}
}
