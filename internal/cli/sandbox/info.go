package sandbox

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

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
