package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/devcontainers"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/report"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// request asks the server for the sandbox of an id, or to change it.
type request = func(c *client.Client, ctx context.Context, id string) (api.Sandbox, error)

// sandboxCommand makes a command that prints one sandbox, as do returns it.
func sandboxCommand(sess *session.Session, c *cobra.Command, do request, text func(api.Sandbox) string) *cobra.Command {
	var p flags.Target
	p.AddTo(sess, c)
	return sess.Showing(c, func(cmd *cobra.Command, _ []string) (r ui.Result, err error) {
		err = p.With(cmd, sess, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
			s, err := do(c, ctx, s.ID)
			r = ui.Result{Value: s, Text: text(s)}
			return err
		})
		return r, err
	})
}

// changeCommand makes a command that changes one sandbox and prints its name.
func changeCommand(sess *session.Session, name, short, long string, change request) *cobra.Command {
	c := &cobra.Command{Use: name, Short: short, Long: long, Example: "  cove " + name + " brave-otter"}
	return sandboxCommand(sess, c, change, func(s api.Sandbox) string {
		sayMade(sess, s.Made)
		return s.Name + "\n"
	})
}

func sayMade(sess *session.Session, made []api.Made) {
	for _, note := range report.MadeNotes(made) {
		sess.Say.Line("%s", note)
	}
}

// StartCommand returns "cove start", which the agents' room extends.
func StartCommand(sess *session.Session) *cobra.Command {
	start := func(c *client.Client, ctx context.Context, id string) (api.Sandbox, error) {
		s, err := c.StartSandbox(ctx, id)
		if err == nil {
			err = devcontainers.Again(ctx, sess, c, s)
		}
		return s, err
	}
	return changeCommand(sess, "start", "Start a sandbox that does not run, or work on an issue",
		`Start a sandbox that was stopped, or that has failed. What it is made of is put
right first: its network, its mounts, what a crash has left. The commands of its dev
container that run at each start follow.`, start)
}

// pausingCommands stop, pause and resume a sandbox.
func pausingCommands(sess *session.Session) []*cobra.Command {
	return []*cobra.Command{
		changeCommand(sess, "stop", "Stop a sandbox, and keep the work in it",
			`End everything that runs in a sandbox. Its checkout and its home stay, and
"cove start" begins with them.`, (*client.Client).StopSandbox),
		changeCommand(sess, "pause", "Hold everything that runs in a sandbox",
			"Hold everything that runs in a sandbox where it is, in memory, until \"cove resume\".",
			(*client.Client).PauseSandbox),
		changeCommand(sess, "resume", "Let a sandbox that was paused go on",
			"Let everything go on in a sandbox that was paused.", (*client.Client).ResumeSandbox),
	}
}

func renameCommand(sess *session.Session) *cobra.Command {
	name := ""
	rename := func(c *client.Client, ctx context.Context, id string) (api.Sandbox, error) {
		return c.RenameSandbox(ctx, id, name)
	}
	c := changeCommand(sess, "rename", "Give a sandbox another name",
		"Give a sandbox another name; its branch keeps its own.", rename)
	c.Use += " NAME"
	c.Example += " login-page"
	target := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return ui.UsageError(cmd, "NAME is missing")
		}
		name = args[len(args)-1]
		return target(cmd, args[:len(args)-1])
	}
	return c
}

func limitsCommand(sess *session.Session) *cobra.Command {
	var size string
	var disk int64
	resize := func(c *client.Client, ctx context.Context, id string) (api.Sandbox, error) {
		return c.ResizeSandbox(ctx, id, disk>>20)
	}
	c := changeCommand(sess, "limits", "Change the size of a sandbox's disk",
		`Change the size of a sandbox's disk, which holds its workspace and home together.
It grows while the sandbox runs. It becomes smaller while the sandbox is
stopped, and only if what it holds fits.`, resize)
	c.Example += " --disk 8G"
	c.Flags().StringVar(&size, "disk", "", "`SIZE` of workspace and home together, like 8G")
	target := c.Args
	c.Args = func(cmd *cobra.Command, args []string) (err error) {
		if size == "" {
			return ui.UsageError(cmd, "--disk SIZE is missing")
		}
		if disk, err = ui.ParseSize(size, 1<<20); err != nil {
			return ui.UsageError(cmd, "--disk: %v", err)
		}
		return target(cmd, args)
	}
	return c
}

func listCommand(sess *session.Session) *cobra.Command {
	all := false
	var labels []string
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List sandboxes",
		Long: `List the long-lived sandboxes, whether they run or not, the one that was used
last first. With --all also those that are being made or removed.`,
		Example: "  cove list\n  cove list --json\n  cove destroy $(cove list -q)",
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "those that are being made or removed, too")
	c.Flags().StringArrayVar(&labels, "label", nil, "with the label `KEY=VALUE` only (repeatable: with all)")
	return sess.ShowingList(c, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		wanted, err := cove.ParseLabels(labels)
		if err != nil {
			return ui.Result{}, err
		}
		l, err := session.OfServer(cmd, sess, func(c *client.Client, ctx context.Context) (api.SandboxList, error) {
			return c.LabeledSandboxes(ctx, wanted)
		})
		if !all {
			passing := func(s api.Sandbox) bool { return s.State == "preparing" || s.State == "destroying" }
			l.Sandboxes = slices.DeleteFunc(l.Sandboxes, passing)
		}
		slices.SortStableFunc(l.Sandboxes, func(a, b api.Sandbox) int { return b.LastUsedAt.Compare(a.LastUsedAt) })
		return listed(l), err
	})
}

func listed(l api.SandboxList) ui.Result {
	headings := []string{"NAME", "STATE", "REPOSITORY", "BRANCH", "NETWORK", "USED"}
	r := ui.Listing("", l.Sandboxes, headings, func(s api.Sandbox) []string {
		branch := ""
		if s.Repository != nil {
			branch = s.Repository.Branch
		}
		return []string{s.Name, s.State, flags.RepositoryText(s), branch, s.Network, ui.Ago(time.Since(s.LastUsedAt))}
	})
	r.Value = l
	for _, s := range l.Sandboxes {
		if s.Error != "" {
			r.Notes = append(r.Notes, s.Name+": "+s.Error)
		}
	}
	switch n := len(l.Orphans); {
	case n == 1:
		r.Notes = append(r.Notes,
			fmt.Sprintf("the workspace %s belongs to no sandbox; \"cove destroy %[1]s\" removes it", l.Orphans[0]))
	case n > 1:
		r.Notes = append(r.Notes, fmt.Sprintf("%d workspaces belong to no sandbox: %s; "+
			"\"cove destroy --orphans\" removes them", n, strings.Join(l.Orphans, ", ")))
	}
	return r
}

func infoCommand(sess *session.Session) *cobra.Command {
	return sandboxCommand(sess, &cobra.Command{
		Use:     "info",
		Short:   "Show everything about a sandbox",
		Long:    "Show everything about a sandbox.",
		Example: "  cove info\n  cove info brave-otter --json",
	}, (*client.Client).Sandbox, func(s api.Sandbox) string { return sandboxFacts(s, time.Now()).Text() })
}

func volumeText(v api.Volume) string {
	switch {
	case !v.Memory:
		return ""
	case v.SizeMB == 0:
		return "in memory"
	}
	return fmt.Sprintf("in memory, %d MiB", v.SizeMB)
}

func sandboxFacts(s api.Sandbox, now time.Time) ui.Facts {
	var rows ui.Facts
	when := func(t time.Time) string { return t.Local().Format(time.DateTime) + " (" + ui.Ago(now.Sub(t)) + ")" }
	rows.Add("name", s.Name)
	rows.Add("id", s.ID)
	rows.Add("state", s.State)
	rows.Add("within", s.Within)
	rows.Add("error", s.Error)
	if r := s.Repository; r != nil {
		rows.Add("repository", r.Source)
		rows.Add("branch", r.Branch)
		rows.Add("from", strings.TrimSpace(r.From+" "+ui.Brackets(shortID(r.Base))))
		rows.Add("pushes to", cmp.Or(r.Remote, "nowhere: it has no remote"))
		if r.Worktree {
			rows.Add("git", "outside: a worktree of a repository on this machine")
		}
	}
	if s.Directory != "" {
		rows.Add("checkout", s.Directory+" (the sandbox writes there: run no git, editor or build in it)")
	}
	rows.Add("runs in", s.WorkDir)
	rows.Add("network", s.Network)
	for _, of := range s.Services {
		rows.Add("service", strings.TrimSpace(of.Name+": "+of.Image+", "+of.State+" "+ui.Brackets(of.Sandbox)+" "+of.Error))
	}
	rows.Add("service of", s.ServiceOf)
	if s.AllowPR {
		rows.Add("GitHub", "pull requests may be opened and commented on")
	}
	if s.SSHAgent {
		rows.Add("SSH agent", "signs for the sandbox")
	}
	for _, m := range s.Mounts {
		mode := ""
		if m.ReadOnly {
			mode = " (read-only)"
		}
		rows.Add("mount", m.Source+" at "+m.Target+mode)
	}
	for _, v := range s.Volumes {
		rows.Add("volume", strings.TrimSpace(v.Target+" "+ui.Brackets(volumeText(v))))
	}
	for _, key := range slices.Sorted(maps.Keys(s.Labels)) {
		rows.Add("label", key+"="+s.Labels[key])
	}
	rows.Add("agent", s.Agent)
	if c := s.AgentConfig; c != nil {
		rows.Add("its config", strings.Join(c.Brought, ", "))
		rows.Add("left out", strings.Join(c.LeftOut, ", "))
	}
	rows.Add("profile", s.Profile)
	rows.Add("image", s.Image)
	rows.Add("engine", s.Engine)
	rows.Add("isolation", s.Isolation)
	switch {
	case s.Root && s.User != "":
		rows.Add("root", "programs may become root inside")
	case s.Root:
		rows.Add("root", "programs are root inside")
	}
	rows.Add("user", s.User)
	if s.Debuggers {
		rows.Add("debuggers", "programs trace others of it")
	}
	rows.Add("limits", limitsText(s.Limits))
	for _, t := range s.Terminals {
		rows.Add("terminal", t.ID+": "+strings.Join(t.Args, " ")+attachedText(t.Attached))
	}
	rows.Add("disk used", diskText(s))
	rows.Add("created", when(s.CreatedAt)+" by "+s.CreatedBy)
	rows.Add("last used", when(s.LastUsedAt))
	return rows
}

// diskText tells how much of its disk a sandbox uses, and what holds it to that.
func diskText(s api.Sandbox) string {
	used := ui.SizeText(s.DiskUsed)
	switch {
	case s.Within != "":
		return used
	case s.DiskBound == "image":
		return used + " of " + ui.SizeText(s.Limits.DiskMB<<20)
	case s.DiskBound == "watched":
		return used + " of " + ui.SizeText(s.Limits.DiskMB<<20) + ", watched: beyond it the sandbox is paused"
	}
	return used + ", without a limit: it was made by an earlier version"
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

func shortID(id string) string { return id[:min(len(id), 12)] }
