// Package embedded carries out, with the daemon in this process, the commands that no server does. The command line is
// the same in every program; only the one with the daemon links this package.
package embedded

import (
	"context"
	"iter"
	"slices"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/driver"
	"github.com/cove-sandbox/cove/internal/cli/agent"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/daemon"
)

// Daemon implements cli.Daemon.
type Daemon struct{}

// Open implements session.Daemon.
func (Daemon) Open(ctx context.Context, sess *session.Session, warm bool) (*session.Backend, error) {
	cfg, err := sess.Config()
	if err != nil {
		return nil, err
	}
	sess.Warn(cfg)
	d, err := daemon.New(ctx, daemon.Options{Config: cfg, Log: sess.QuietLogger(cfg), Warm: warm})
	if err != nil {
		return nil, err
	}
	closing := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), session.CloseTimeout)
		defer cancel()
		return d.Close(ctx)
	}
	c, err := d.Client()
	if err != nil {
		closing()
		return nil, err
	}
	return &session.Backend{Client: c, Close: func() error { c.Close(); return closing() }}, nil
}

// Profiles implements session.Daemon.
func (Daemon) Profiles(sess *session.Session) ([]api.Profile, error) {
	cfg, err := sess.Config()
	if err != nil {
		return nil, err
	}
	return daemon.Profiles(cfg)
}

// ImageNames implements session.Daemon.
func (Daemon) ImageNames(ctx context.Context, sess *session.Session) (all []string) {
	store, err := openImages(sess)
	if err != nil {
		return nil
	}
	images, _ := store.List(ctx) // completion cannot show an error
	for _, i := range images {
		all = append(all, i.Names...)
	}
	slices.Sort(all)
	return all
}

// Work implements agent.Daemon.
func (Daemon) Work(ctx context.Context, prompt string, t agent.BareTask) iter.Seq2[api.Message, error] {
	return func(yield func(api.Message, error) bool) {
		config := driver.Config{Agent: t.Agent, Declared: t.Declared}
		config.New.Env = t.Env
		d, err := driver.Local(config)
		if err != nil {
			yield(api.Message{}, err)
			return
		}
		defer d.Close()
		d.Run(ctx, prompt, driver.Options{Directory: t.Directory, Bind: true, Model: t.Model, Instructions: t.Instructions,
			MaxTurns: t.MaxTurns, AgentOptions: t.Options, Timeout: t.Timeout, Schema: t.Schema, Resume: t.Resume,
			Interrupt: t.Interrupt, Log: t.Log})(yield)
	}
}

// Restore implements server.Daemon.
func (Daemon) Restore(ctx context.Context, sess *session.Session, file string) (ui.Result, error) {
	ctx, interrupts := ui.CoverSignals(ctx)
	defer interrupts.Stop()
	cfg, err := sess.Config()
	if err != nil {
		return ui.Result{}, err
	}
	about, err := daemon.Restore(ctx, cfg, file)
	return ui.Result{Value: about, Text: "restored: " + cfg.Home + "\n"}, interrupts.Explain(err)
}
