package run

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
)

// sandboxLogs prints what a terminal of a sandbox shows and has shown.
func sandboxLogs(sess *session.Session, cmd *cobra.Command, p flags.Target, id string) error {
	return p.With(cmd, sess, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
		text, err := c.TerminalText(ctx, s.ID, id)
		if err != nil {
			return err
		}
		return sess.Print(text)
	})
}

// followInterval is how often it is looked what a terminal shows now.
const followInterval = 300 * time.Millisecond

// followTerminal prints what a terminal shows as it comes, line by line, until
// its program has ended.
func followTerminal(sess *session.Session, cmd *cobra.Command, p flags.Target, id string) error {
	return p.With(cmd, sess, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
		var shown []string
		for {
			all, err := c.Terminals(ctx, s.ID)
			if err != nil {
				return err
			}
			runs := func(t api.Terminal) bool { return t.ExitCode == nil && (id == "" || t.ID == id) }
			i := slices.IndexFunc(all, runs)
			if i >= 0 {
				id = all[i].ID // and no other from now on
			}
			text, err := c.TerminalText(ctx, s.ID, id)
			if err != nil {
				return err
			}
			lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
			if i >= 0 || lines[0] == "" && len(lines) == 1 {
				lines = lines[:len(lines)-1] // the last one is still being written
			}
			for _, line := range unseen(shown, lines) {
				if err := sess.Print(line + "\n"); err != nil {
					return err
				}
			}
			if i < 0 {
				return nil
			}
			shown = lines
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(followInterval):
			}
		}
	})
}

// unseen are the lines of a terminal that have come since it was looked at: those
// after what is still there, of which the oldest may have been forgotten; or from
// the first one that was written over.
func unseen(shown, now []string) []string {
	for gone := range shown {
		rest := shown[gone:]
		if len(rest) <= len(now) && slices.Equal(rest, now[:len(rest)]) {
			return now[len(rest):]
		}
		if gone == 0 && len(now) > 0 && shown[0] == now[0] {
			break // nothing is forgotten
		}
	}
	same := 0
	for same < min(len(shown), len(now)) && shown[same] == now[same] {
		same++
	}
	return now[same:]
}
