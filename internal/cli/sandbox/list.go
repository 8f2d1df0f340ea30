package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
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
	var labels []string
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List sandboxes",
		Long: `List the long-lived sandboxes, whether they run or not, the one that was used
last first. With --all also those that are being made or removed.`,
		Example: "  cove list\n  cove list --json\n  cove destroy $(cove list -q)",
		Args:    ui.Exactly(),
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "those that are being made or removed, too")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print names only")
	c.Flags().StringArrayVar(&labels, "label", nil, "with the label `KEY=VALUE` only (repeatable: with all)")
	return sess.Showing(c, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		wanted, err := cove.ParseLabels(labels)
		if err != nil {
			return ui.Result{}, err
		}
		l, err := session.OfServer(cmd, sess, func(c *client.Client, ctx context.Context) (api.SandboxList, error) {
			return c.LabeledSandboxes(ctx, wanted)
		})
		if !all {
			l.Sandboxes = slices.DeleteFunc(l.Sandboxes,
				func(s api.Sandbox) bool { return s.State == statePreparing || s.State == stateDestroying })
		}
		slices.SortStableFunc(l.Sandboxes, func(a, b api.Sandbox) int { return b.LastUsedAt.Compare(a.LastUsedAt) })
		return listed(l, quiet), err
	})
}

func listed(l api.SandboxList, quiet bool) ui.Result {
	listing := ui.Listing[api.Sandbox]{
		Headings: []string{"NAME", "STATE", "REPOSITORY", "BRANCH", "NETWORK", "USED"},
		Row: func(s api.Sandbox) []string {
			branch := ""
			if s.Repository != nil {
				branch = s.Repository.Branch
			}
			return []string{s.Name, s.State, flags.RepositoryText(s), branch, s.Network, ui.Ago(time.Since(s.LastUsedAt))}
		},
	}
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
		r.Notes = append(r.Notes,
			fmt.Sprintf("the workspace %s belongs to no sandbox; \"cove destroy %[1]s\" removes it", l.Orphans[0]))
	default:
		r.Notes = append(r.Notes,
			fmt.Sprintf("%d workspaces belong to no sandbox: %s; \"cove destroy --orphans\" removes them",
				len(l.Orphans), strings.Join(l.Orphans, ", ")))
	}
	return r
}

func infoCommand(sess *session.Session) *cobra.Command {
	return sandboxCommand(sess, &cobra.Command{
		Use:     "info",
		Short:   "Show everything about a sandbox",
		Long:    "Show everything about a sandbox.",
		Example: "  cove info\n  cove info brave-otter --json",
	}, (*client.Client).Sandbox, func(s api.Sandbox) string { return ui.Facts(sandboxFacts(s, time.Now())) })
}

// sandboxFacts are the lines of "cove info".
func sandboxFacts(s api.Sandbox, now time.Time) [][2]string {
	var rows [][2]string
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, [2]string{name, value})
		}
	}
	when := func(t time.Time) string { return t.Local().Format(time.DateTime) + " (" + ui.Ago(now.Sub(t)) + ")" }
	add("name", s.Name)
	add("id", s.ID)
	add("state", s.State)
	add("within", s.Within)
	add("error", s.Error)
	if r := s.Repository; r != nil {
		add("repository", r.Source)
		add("branch", r.Branch)
		add("from", strings.TrimSpace(r.From+" "+ui.Brackets(shortID(r.Base))))
		add("pushes to", cmp.Or(r.Remote, "nowhere: it has no remote"))
		if r.Worktree {
			add("git", "outside: a worktree of a repository on this machine")
		}
	}
	add("checkout", s.Directory)
	add("runs in", s.WorkDir)
	add("network", s.Network)
	if s.AllowPR {
		add("GitHub", "pull requests may be opened and commented on")
	}
	if s.SSHAgent {
		add("SSH agent", "signs for the sandbox")
	}
	for _, m := range s.Mounts {
		mode := ""
		if m.ReadOnly {
			mode = " (read-only)"
		}
		add("mount", m.Source+" at "+m.Target+mode)
	}
	add("agent", s.Agent)
	add("profile", s.Profile)
	add("image", s.Image)
	add("engine", s.Engine)
	add("isolation", s.Isolation)
	add("limits", limitsText(s.Limits))
	for _, t := range s.Terminals {
		add("terminal", t.ID+": "+strings.Join(t.Args, " ")+attachedText(t.Attached))
	}
	add("disk used", ui.SizeText(s.DiskUsed))
	add("created", when(s.CreatedAt)+" by "+s.CreatedBy)
	add("last used", when(s.LastUsedAt))
	return rows
}

func attachedText(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return ", one attached"
	}
	return fmt.Sprintf(", %d attached", n)
}

func limitsText(l api.Limits) string {
	var parts []string
	if l.MemoryMB > 0 {
		parts = append(parts, ui.SizeText(l.MemoryMB<<20)+" memory")
	}
	if l.CPUs > 0 {
		parts = append(parts, strconv.FormatFloat(l.CPUs, 'f', -1, 64)+" CPUs")
	}
	if l.PIDs > 0 {
		parts = append(parts, strconv.FormatInt(l.PIDs, 10)+" processes")
	}
	if l.DiskMB > 0 {
		parts = append(parts, ui.SizeText(l.DiskMB<<20)+" disk")
	}
	return strings.Join(parts, ", ")
}

// shortID is enough of a commit's id for people.
func shortID(id string) string { return id[:min(len(id), 12)] }
