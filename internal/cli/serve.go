package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/daemon"
)

func (a *app) serveCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the HTTP API",
		Long: `Serve the HTTP API on the configured address and on a unix socket, which
"cove run" and the other commands then use. The first Ctrl-C or SIGTERM lets
executions end within shutdown_grace, the second ends at once.`,
		Example: "  cove serve\n  cove serve --listen 127.0.0.1:9000\n  cove serve --config /etc/cove.yaml",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.settings.serving = cmd.Flags().Changed("listen")
			return a.serve(cmd.Context())
		},
	}
	c.Flags().StringVar(&a.logFile, "log-file", "", "log to `FILE`, which begins anew when it is large")
	c.Flags().Lookup("log-file").Hidden = true
	c.Flags().StringVar(&a.settings.listen, "listen", "", "`HOST:PORT` of the HTTP API; empty serves the unix socket only")
	return c
}

func (a *app) serve(ctx context.Context) error {
	interrupts := watchSignals()
	defer interrupts.stop()
	ctx, cancel := interrupts.cover(ctx)
	defer cancel()
	cfg, err := a.loadConfig()
	if err != nil {
		return err
	}
	if a.logFile != "" {
		l, err := openServerLog(a.logFile, maxServerLog)
		if err != nil {
			return err
		}
		defer l.Close()
		if err := l.redirect(); err != nil {
			return err
		}
		a.logTo = l
	}
	log := a.logger(cfg)
	for _, w := range cfg.Warnings() {
		log.Warn(w)
	}
	d, err := daemon.New(ctx, daemon.Options{Config: cfg, Log: log})
	if err != nil {
		return err
	}
	if a.logFile != "" {
		go whileThere(ctx, cfg.Home, cancel)
	}
	err = d.Serve(ctx)
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer done()
	if cerr := d.Close(closing); err == nil {
		err = cerr
	}
	return err
}

// homePoll is how often a server in the background looks for its home.
const homePoll = 2 * time.Second

// whileThere calls end when a directory has gone: nobody can find a server in
// the background whose home was removed.
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

// logger is the server's log, on standard error.
func (a *app) logger(cfg *config.Config) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Log.Level)); err != nil {
		level = slog.LevelInfo
	}
	return a.loggerAt(cfg, level)
}

// loggerAt is a logger, and where the standard library's own messages go: what
// strangers do to net/http, which is worth a word when somebody looks for it.
func (a *app) loggerAt(cfg *config.Config, level slog.Level) *slog.Logger {
	var to io.Writer = a.Err
	if a.logTo != nil {
		to = a.logTo
	}
	l := slog.New(handler(to, cfg.Log.Format, level))
	log.SetFlags(0)
	log.SetOutput(slog.NewLogLogger(l.Handler(), slog.LevelDebug).Writer())
	return l
}

func handler(w io.Writer, format string, level slog.Level) slog.Handler {
	o := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.NewJSONHandler(w, o)
	}
	return slog.NewTextHandler(w, o)
}
