package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func agentsCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:   "agents",
		Short: "See, install and check coding agents",
		Long: `See, install and check the coding agents that can work in sandboxes. Each is
installed once, by npm in a sandbox that reaches npm's registry and nothing else,
below agents in --home; sandboxes are shown it read-only. No key of yours is
where an agent runs: see docs/agents.md.`,
		Example: "  cove agents list\n  cove agents install claude\n  cove agents doctor",
	}, agentsList(sess), agentsInstall(sess), agentsRemove(sess), agentsDoctor(sess))
}

func agentsList(sess *session.Session) *cobra.Command {
	return sess.ShowingList(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the agents, and which version of each is installed",
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		all, err := session.OfBackend(cmd, sess, (*client.Client).Agents)
		headings := []string{"NAME", "INSTALLED", "SIZE", "MODELS OF", "WHAT"}
		return ui.Listing("agents", all, headings, func(one api.Agent) []string {
			size := "-"
			if one.Size > 0 {
				size = ui.SizeText(one.Size)
			}
			return []string{one.Name, installedText(one), size, cmp.Or(one.Provider, "-"), one.Title}
		}), err
	})
}

func installedText(one api.Agent) string {
	switch {
	case one.Installed != "" && one.Pinned != "" && one.Installed != one.Pinned:
		return one.Installed + " (of " + one.Pinned + ")"
	case one.Installed != "":
		return one.Installed
	case one.Ready:
		return "comes along"
	}
	return "no"
}

func agentsInstall(sess *session.Session) *cobra.Command {
	c := &cobra.Command{
		Use:   "install AGENT[@VERSION]...",
		Short: "Install agents, or other versions of them",
		Long: `Install agents, in the versions that this Cove is made for, or those that are
written. What is installed once is not fetched again, and works without a network;
runs use the version that was installed last. A version that was installed before
and removed has to be what it was: its lockfile is kept.`,
		Example:           "  cove agents install claude codex\n  cove agents install claude@2.1.197",
		Args:              ui.Arguments("AGENT..."),
		ValidArgsFunction: completeAgents(sess),
		RunE: func(cmd *cobra.Command, args []string) error {
			return sess.WithBackend(cmd, func(ctx context.Context, c *client.Client) error {
				done := api.AgentList{Agents: []api.Agent{}}
				for _, arg := range args {
					name, version, _ := strings.Cut(arg, "@")
					shown := sess.NewSteps()
					one, err := c.InstallAgent(ctx, name, version, shown.Take)
					shown.End(err)
					if err != nil {
						return err
					}
					done.Agents = append(done.Agents, one)
					if err := sess.PrintText(strings.TrimSuffix(name+"@"+one.Installed, "@") + "\n"); err != nil {
						return err
					}
				}
				return sess.Show(ui.Result{Value: done}, nil)
			})
		},
	}
	sess.AddJSON(c.Flags(), "print one JSON object")
	return c
}

func agentsRemove(sess *session.Session) *cobra.Command {
	whole := false
	c := &cobra.Command{
		Use:     "remove AGENT[@VERSION]...",
		Aliases: []string{"rm", "delete"},
		Short:   "Remove installed versions of agents",
		Long: `Remove the version of an agent that is written or, without one, those that runs do
not use any more; --all removes that one, too. What a sandbox has stays.`,
		Example:           "  cove agents remove claude\n  cove agents remove claude@2.1.197",
		Args:              ui.Arguments("AGENT..."),
		ValidArgsFunction: completeAgents(sess),
	}
	c.Flags().BoolVar(&whole, "all", false, "without VERSION: the version that runs use, too")
	return sess.Showing(c, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		remove := func(c *client.Client, ctx context.Context) (removed []string, err error) {
			for _, arg := range args {
				name, version, _ := strings.Cut(arg, "@")
				versions, err := removeAgent(ctx, c, name, version, whole)
				for _, v := range versions {
					removed = append(removed, name+"@"+v)
				}
				if err != nil {
					return removed, err
				}
			}
			return removed, nil
		}
		removed, err := session.OfBackend(cmd, sess, remove)
		return ui.Names("removed", removed, strings.Clone), err
	})
}

// removeAgent removes a version of an agent, or without a version all that are not in use. With whole it removes the
// version that runs use, too.
func removeAgent(ctx context.Context, c *client.Client, name, version string, whole bool) ([]string, error) {
	removed, err := c.RemoveAgent(ctx, name, version)
	if err != nil || version != "" || !whole {
		return removed, err
	}
	all, err := c.Agents(ctx)
	if err != nil {
		return removed, err
	}
	i := slices.IndexFunc(all, func(one api.Agent) bool { return one.Name == name })
	if i < 0 || all[i].Installed == "" {
		return removed, nil
	}
	last, err := c.RemoveAgent(ctx, name, all[i].Installed)
	return append(removed, last...), err
}

func agentsDoctor(sess *session.Session) *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor [AGENT...]",
		Short: "Try what agents need, and say how to get what is missing",
		Long: `Try what agents need: that each is installed, that its program runs in a sandbox,
that policy lets it reach its models, and that their credential can be read, which
is never shown. Without AGENT, of all that are installed. The exit code is 1 when
something is missing.`,
		Example:           "  cove agents doctor\n  cove agents doctor claude --json",
		ValidArgsFunction: completeAgents(sess),
		RunE: func(cmd *cobra.Command, args []string) error {
			return sess.WithBackend(cmd, func(ctx context.Context, c *client.Client) error {
				names := args
				if len(names) == 0 {
					all, err := c.Agents(ctx)
					if err != nil {
						return err
					}
					for _, one := range all {
						if one.Ready {
							names = append(names, one.Name)
						}
					}
				}
				if len(names) == 0 {
					return cove.Errorf(cove.NotFound, "no agent is installed").
						WithHint("install one: %s", sess.Command("agents", "install", "claude"))
				}
				reports := []api.AgentReport{}
				for _, name := range names {
					r, err := c.CheckAgent(ctx, name)
					if err != nil {
						return err
					}
					if !r.Healthy {
						sess.Exit = ui.ExitUnhealthy
					}
					reports = append(reports, r)
					if err := sess.PrintText(reportText(r)); err != nil {
						return err
					}
				}
				return sess.Show(ui.Result{Value: map[string][]api.AgentReport{"agents": reports}}, nil)
			})
		},
	}
	sess.AddJSON(c.Flags(), "print one JSON object")
	return c
}

func reportText(r api.AgentReport) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", ui.Printable(r.Title))
	for _, check := range r.Checks {
		status := "ok"
		if !check.OK {
			status = "fail"
		}
		fmt.Fprintf(&b, "  %-4s  %-10s  %s\n", status, check.Name, ui.Printable(check.Found))
		if check.Fix != "" {
			fmt.Fprintf(&b, "                    %s\n", ui.Printable(check.Fix))
		}
	}
	return b.String()
}

func completeAgents(sess *session.Session) cobra.CompletionFunc {
	return ui.CompleteEach(func(ctx context.Context) (names []string) {
		for _, one := range session.OfRunning(ctx, sess, (*client.Client).Agents) {
			names = append(names, one.Name)
		}
		return names
	})
}
