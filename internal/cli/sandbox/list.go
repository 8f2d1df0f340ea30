package sandbox

import (
	"fmt"
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
	var all, quiet bool
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List sandboxes",
		Long: `List the sandboxes that last, whether they run or not, the one that was used
last first. With --all also those that are being made or removed.`,
		Example: "  cove list\n  cove list --json\n  cove destroy $(cove list -q)",
		Args:    ui.Exactly(),
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "those that are being made or removed, too")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print names only")
	return sess.Showing(c, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		l, err := session.OfServer(cmd, sess, (*client.Client).Sandboxes)
		if !all {
			l.Sandboxes = slices.DeleteFunc(l.Sandboxes, func(s api.Sandbox) bool { return s.State == statePreparing || s.State == stateDestroying })
		}
		slices.SortStableFunc(l.Sandboxes, func(a, b api.Sandbox) int { return b.LastUsedAt.Compare(a.LastUsedAt) })
		return listed(l, quiet), err
	})
}

func listed(l api.SandboxList, quiet bool) ui.Result {
	listing := ui.Listing[api.Sandbox]{Headings: []string{"NAME", "STATE", "REPOSITORY", "BRANCH", "NETWORK", "USED"}, Row: func(s api.Sandbox) []string {
		branch := ""
		if s.Repository != nil {
			branch = s.Repository.Branch
		}
		return []string{s.Name, s.State, flags.RepositoryText(s), branch, s.Network, ui.Ago(time.Since(s.LastUsedAt))}
	}}
	if quiet {
		r := listing.Names(l.Sandboxes, func(s api.Sandbox) string { return s.Name })
		r.Value = l
		return r
	}
	r := listing.Result(l.Sandboxes)
	r.Value = l
	for _, s := range l.Sandboxes {
		if s.Error != "" {
			r.Notes = append(r.Notes, s.Name+": "+s.Error)
		}
	}
	switch len(l.Orphans) {
	case 0:
	case 1:
		r.Notes = append(r.Notes, fmt.Sprintf("the workspace %s belongs to no sandbox; \"cove destroy %[1]s\" removes it", l.Orphans[0]))
	default:
		r.Notes = append(r.Notes, fmt.Sprintf("%d workspaces belong to no sandbox: %s; \"cove destroy --orphans\" removes them", len(l.Orphans), strings.Join(l.Orphans, ", ")))
	}
	return r
}
