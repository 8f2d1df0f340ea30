package embedded

import (
	"context"
	"fmt"
	"time"

	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/daemon"
)

// Restore implements server.Daemon.
func (Daemon) Restore(ctx context.Context, sess *session.Session, file string) (ui.Result, error) {
	ctx, interrupts := ui.CoverSignals(ctx)
	defer interrupts.Stop()
	cfg, err := sess.Config()
	if err != nil {
		return ui.Result{}, err
	}
	about, err := daemon.Restore(ctx, cfg, file)
	return ui.Result{Value: about, Text: fmt.Sprintf("%s is restored as of %s\n", cfg.Home,
		about.Made.Local().Format(time.DateTime))}, interrupts.Explain(err)
}
