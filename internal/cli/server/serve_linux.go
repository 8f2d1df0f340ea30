package server

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/daemon"
)

func serveCommand(sess *session.Session) *cobra.Command {
	var o serveOptions
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the HTTP API",
		Long: `Serve the HTTP API on the configured address and on a unix socket, which
"cove run" and the other commands then use. The first Ctrl-C or SIGTERM lets
executions end within shutdown_grace, the second ends at once.`,
		Example: "  cove serve\n  cove serve --listen 127.0.0.1:9000\n  cove serve --config /etc/cove.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			sess.Settings.Serving = cmd.Flags().Changed("listen")
			return serve(cmd.Context(), sess, o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.logFile, "log-file", "", "log to `FILE`, which begins anew when it is large")
	f.BoolVar(&o.background, "background", false, "a command has started it: it takes their keys, and ends when idle")
	f.DurationVar(&o.idle, "idle", idleTime, "`TIME` after which one in the background ends when nothing runs")
	for _, hidden := range []string{"log-file", "background", "idle"} {
		f.Lookup(hidden).Hidden = true
	}
	c.Flags().StringVar(&sess.Settings.Listen, "listen", "",
		"`HOST:PORT` of the HTTP API; empty serves the unix socket only")
	return c
}

// idleTime is how long a server in the background stays when nothing runs.
const idleTime = 10 * time.Minute

type serveOptions struct {
	logFile    string
	background bool
	idle       time.Duration
}

func serve(ctx context.Context, sess *session.Session, o serveOptions) error {
	ctx, interrupts := ui.CoverSignals(ctx)
	defer interrupts.Stop()
	cfg, err := sess.Config()
	if err != nil {
		return err
	}
	if !o.background {
		if err := takeOver(ctx, sess); err != nil {
			return interrupts.Explain(err)
		}
	}
	if o.logFile != "" {
		l, err := session.OpenServerLog(o.logFile, session.MaxServerLog)
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
	daemon.KeepMemory()
	d, err := daemon.New(ctx, daemon.Options{Config: cfg, Log: log, Background: o.background})
	if err != nil {
		return err
	}
	if o.background {
		go whileNeeded(ctx, d, cfg.Home, o.idle, interrupts.GiveUp)
	}
	err = d.Serve(ctx)
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), session.CloseTimeout)
	defer done()
	return cmp.Or(err, d.Close(closing))
}

// takeOver stops the server that a command has started in the background, if there is one: sandboxes stay, and this
// server takes them over. Errors: Conflict where the server is not of that kind.
func takeOver(ctx context.Context, sess *session.Session) error {
	cfg, err := sess.Config()
	if err != nil || !session.Answers(ctx, cfg.Socket()) {
		return err
	}
	h, err := session.OfAddress(ctx, sess, "unix:"+cfg.Socket(), (*client.Client).Health)
	if err != nil {
		return err
	}
	theirs, err := session.OfAddress(ctx, sess, "unix:"+cfg.Socket(),
		func(c *client.Client, ctx context.Context) (map[string]string, error) {
			return client.AsOwner(c).SettingDigests(ctx)
		})
	if err != nil || !h.Background || theirs["home"] != cfg.Digests()["home"] {
		return cove.Errorf(cove.Conflict, "another server (process %d) listens at %s", h.PID, cfg.Socket()).
			WithHint("stop it: cove server stop; or give this one a home of its own with COVE_HOME and COVE_RUN_DIR")
	}
	if _, err := session.StopServer(ctx, sess); err != nil {
		return err
	}
	sess.Say.Line("took over from the server in the background (process %d); sandboxes stay", h.PID)
	return nil
}

const (
	homePoll = 2 * time.Second
	busyPoll = 30 * time.Second
)

// whileNeeded calls end when the home of a server has gone, where no command finds it, or when nothing has run in it
// for as long as idle.
func whileNeeded(ctx context.Context, d *daemon.Daemon, home string, idle time.Duration, end func()) {
	last, asked := time.Now(), time.Time{}
	for {
		if _, err := os.Stat(home); errors.Is(err, fs.ErrNotExist) {
			end()
			return
		}
		if time.Since(asked) >= min(busyPoll, idle) {
			if asked = time.Now(); d.Busy(ctx) {
				last = asked
			}
			if time.Since(last) >= idle {
				end()
				return
			}
		}
		select {
		case <-time.After(min(homePoll, idle)):
		case <-ctx.Done():
			return
		}
	}
}
