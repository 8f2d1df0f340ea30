// Package run owns the commands about executions: run, ps, logs, kill and runtimes.
package run

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// Commands returns the commands of this room.
func Commands(sess *session.Session) []*cobra.Command {
	all := ui.InGroup(ui.GroupStart, runCommand(sess))
	all = append(all, ui.InGroup(ui.GroupExecutions, psCommand(sess), logsCommand(sess), killCommand(sess))...)
	return append(all, ui.InGroup(ui.GroupMachine, runtimesCommand(sess))...)
}

func killCommand(sess *session.Session) *cobra.Command {
	c := &cobra.Command{
		Use:     "kill ID...",
		Short:   "End running executions",
		Long:    "End running executions at once, whichever process of Cove on this machine runs them.",
		Example: "  cove kill $(cove ps -q)",
		RunE:    func(cmd *cobra.Command, args []string) error { return kill(cmd.Context(), sess, args) },
	}
	sess.AddJSON(c.Flags(), "print one JSON object")
	return c
}

func kill(ctx context.Context, sess *session.Session, ids []string) error {
	ids, err := session.ExecutionIDs(ctx, sess, ids...)
	if err != nil {
		return err
	}
	peers, err := sess.Peers(ctx)
	if err != nil {
		return err
	}
	defer session.CloseAll(peers)
	return sess.Each("killed", ids, func(id string) error {
		return session.AskRunner(peers, id, func(c *client.Client) error {
			_, err := c.Kill(ctx, id)
			return err
		})
	})
}

func runtimesCommand(sess *session.Session) *cobra.Command {
	return sess.ShowingList(&cobra.Command{
		Use: "runtimes", Short: "List the languages, their versions and default limits", Example: "  cove runtimes",
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		all, err := session.OfBackend(cmd, sess, (*client.Client).Runtimes)
		return ui.Listing("runtimes", all, []string{"RUNTIME", "VERSION", "LIMITS"}, func(r api.Runtime) []string {
			version := r.Version
			if !r.Available {
				version = "missing: " + r.Missing
			}
			version, _, _ = strings.Cut(strings.TrimSpace(version), "\n")
			return []string{r.Name, version, defaultsText(r)}
		}), err
	})
}

func defaultsText(r api.Runtime) string {
	return fmt.Sprintf("%s, %d pids, %g CPU, %s disk, %s",
		ui.SizeText(r.Limits.MemoryMB<<20), r.Limits.PIDs, r.Limits.CPUs,
		ui.SizeText(r.Limits.DiskMB<<20), ui.TimeText(apispec.Duration(api.Seconds(r.Timeout))))
}
