package embedded

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/server"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/daemon"
)

// Serve implements server.Daemon.
func (Daemon) Serve(ctx context.Context, sess *session.Session, o server.ServeOptions) error {
	ctx, interrupts := ui.CoverSignals(ctx)
	defer interrupts.Stop()
	cfg, err := sess.Config()
	if err != nil {
		return err
	}
	if !o.Background {
		if err := takeOver(ctx, sess); err != nil {
			return interrupts.Explain(err)
		}
	}
	if o.LogFile != "" {
		l, err := session.OpenServerLog(o.LogFile, session.MaxServerLog)
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
	d, err := daemon.New(ctx, daemon.Options{Config: cfg, Log: log, Background: o.Background})
	if err != nil {
		return err
	}
	if o.Background {
		go whileNeeded(ctx, d, cfg.Home, o.Idle, interrupts.GiveUp)
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
