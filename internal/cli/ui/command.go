package ui

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
)

// Groups of commands, as "cove help" shows them.
const (
	GroupWork       = "work"
	GroupAgent      = "agent"
	GroupRun        = "run"
	GroupExecutions = "see"
	GroupNetwork    = "net"
	GroupMachine    = "host"
)

// AddGroups gives the root command its groups.
func AddGroups(root *cobra.Command) {
	root.AddGroup(&cobra.Group{ID: GroupWork, Title: "Sandboxes to work in:"},
		&cobra.Group{ID: GroupAgent, Title: "Agents:"},
		&cobra.Group{ID: GroupRun, Title: "Run code:"}, &cobra.Group{ID: GroupExecutions, Title: "Executions:"},
		&cobra.Group{ID: GroupNetwork, Title: "Network:"}, &cobra.Group{ID: GroupMachine, Title: "This machine:"})
}

// InGroup puts commands into a group, and returns them.
func InGroup(group string, commands ...*cobra.Command) []*cobra.Command {
	for _, c := range commands {
		c.GroupID = group
	}
	return commands
}

// Group makes a command that only has commands below it.
func Group(c *cobra.Command, below ...*cobra.Command) *cobra.Command {
	c.Args = UnknownCommand
	c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	c.AddCommand(below...)
	return c
}

// UnknownCommand refuses an unknown command, and suggests the command that was probably meant.
func UnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	err := cove.Errorf(cove.InvalidArgument, "%q is not a command of %s", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return err.WithHint("did you mean %q?", cmd.CommandPath()+" "+near[0])
	}
	return err.WithHint("see %q", cmd.CommandPath()+" --help")
}

// CompleteFirst completes the first argument with names; what follows a tab in one describes it.
func CompleteFirst(names func(context.Context) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteEach completes every argument with the names that are not there yet.
func CompleteEach(names func(context.Context) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return slices.DeleteFunc(names(cmd.Context()), func(s string) bool {
			name, _, _ := strings.Cut(s, "\t")
			return slices.Contains(args, name)
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// UsageError is for a command line that cannot be understood.
func UsageError(cmd *cobra.Command, format string, args ...any) error {
	return cove.Errorf(cove.InvalidArgument, format, args...).WithHint("see %q", cmd.CommandPath()+" --help")
}

// Exactly takes arguments by name: "ID", "REFERENCE".
func Exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return UsageError(cmd, "%s is missing", strings.Join(names[len(args):], " "))
		case len(args) > len(names):
			return UsageError(cmd, "%q is one argument too many", args[len(names)])
		}
		return nil
	}
}
