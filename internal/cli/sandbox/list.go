package sandbox

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
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// States of a sandbox that pass by themselves.
const (
	statePreparing  = "preparing"
	stateRunning    = "running"
	statePaused     = "paused"
	stateDestroying = "destroying"
)

func listCommand(sess *session.Session) *cobra.Command {
	var all, quiet, asJSON bool
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List sandboxes",
		Long: `List the sandboxes that last, whether they run or not, the one that was used
last first. With --all also those that are being made or removed.`,
		Example: "  cove list\n  cove list --json\n  cove destroy $(cove list -q)",
		Args:    ui.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return sess.WithServer(cmd, func(ctx context.Context, c *client.Client) error {
				l, err := c.Sandboxes(ctx)
				if err != nil {
					return err
				}
				if !all {
					l.Sandboxes = slices.DeleteFunc(l.Sandboxes, func(s api.Sandbox) bool { return s.State == statePreparing || s.State == stateDestroying })
				}
				slices.SortStableFunc(l.Sandboxes, func(a, b api.Sandbox) int { return b.LastUsedAt.Compare(a.LastUsedAt) })
				return showSandboxes(sess, l, quiet, asJSON)
			})
		},
	}
	f := c.Flags()
	f.BoolVarP(&all, "all", "a", false, "those that are being made or removed, too")
	f.BoolVarP(&quiet, "quiet", "q", false, "print names only")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func showSandboxes(sess *session.Session, l api.SandboxList, quiet, asJSON bool) error {
	if asJSON {
		return sess.PrintJSON(l)
	}
	if quiet {
		for _, s := range l.Sandboxes {
			if err := sess.Print(s.Name + "\n"); err != nil {
				return err
			}
		}
		return nil
	}
	var rows [][]string
	for _, s := range l.Sandboxes {
		branch := ""
		if s.Repository != nil {
			branch = s.Repository.Branch
		}
		rows = append(rows, []string{s.Name, s.State, flags.RepositoryText(s), branch, s.Network, ui.Ago(time.Since(s.LastUsedAt))})
	}
	if err := sess.Print(ui.Table([]string{"NAME", "STATE", "REPOSITORY", "BRANCH", "NETWORK", "USED"}, rows)); err != nil {
		return err
	}
	for _, s := range l.Sandboxes {
		if s.Error != "" {
			sess.Say.Line("%s: %s", s.Name, s.Error)
		}
	}
	switch len(l.Orphans) {
	case 0:
	case 1:
		sess.Say.Line("the workspace %s belongs to no sandbox; \"cove destroy %s\" removes it", l.Orphans[0], l.Orphans[0])
	default:
		sess.Say.Line("%d workspaces belong to no sandbox: %s; \"cove destroy --orphans\" removes them", len(l.Orphans), strings.Join(l.Orphans, ", "))
	}
	return nil
}
