package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func serverLogs(sess *session.Session) *cobra.Command {
	follow, lines := false, 0
	c := &cobra.Command{
		Use:     "logs",
		Short:   "Print the log of the server in the background",
		Example: "  cove server logs -n 20\n  cove server logs -f",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lines < 0 {
				return ui.UsageError(cmd, "--limit %d: it must not be negative", lines)
			}
			ctx, interrupts := ui.CoverSignals(cmd.Context(), sess.Out)
			defer interrupts.Stop()
			if err := session.Here(); err != nil {
				return err
			}
			cfg, err := sess.Config()
			if err != nil {
				return err
			}
			return interrupts.Explain(printLog(ctx, sess, session.ServerLogPath(cfg), lines, follow))
		},
	}
	c.Flags().IntVarP(&lines, "limit", "n", 100, "the last `COUNT` lines")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on as it grows")
	ui.OldNames(c.Flags(), map[string]string{"lines": "limit"})
	return c
}

const logPoll = 200 * time.Millisecond

// printLog prints the last lines of a log, and with follow what comes, also
// when the log begins anew.
func printLog(ctx context.Context, sess *session.Session, path string, lines int, follow bool) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return cove.Errorf(cove.NotFound, "there is no log at %s", path).
			WithHint("a server in the background has one; \"cove serve\" prints it")
	}
	if err != nil {
		return err
	}
	defer func() { f.Close() }()
	data, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	if err := sess.Print(string(lastLines(data, lines))); err != nil || !follow {
		return err
	}
	out := sess.NewScreen()
	defer out.Restore()
	for {
		select {
		case <-time.After(logPoll):
		case <-ctx.Done():
			return cove.Errorf(cove.Canceled, "it was ended")
		}
		if _, err := io.Copy(out.Stdout, f); err != nil {
			return err
		}
		now, err := os.Open(path)
		if err != nil {
			continue // it is being replaced
		}
		if same(f, now) {
			now.Close()
			continue
		}
		if _, err := io.Copy(out.Stdout, f); err != nil { // what came last
			now.Close()
			return err
		}
		f.Close()
		f = now
	}
}

func same(a, b *os.File) bool {
	ia, err := a.Stat()
	if err != nil {
		return false
	}
	ib, err := b.Stat()
	return err == nil && os.SameFile(ia, ib)
}

func lastLines(data []byte, n int) []byte {
	lines := slices.Collect(bytes.Lines(data))
	return bytes.Join(lines[max(0, len(lines)-n):], nil)
}
