package ui

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
)

// Groups of commands, as "cove help" shows them.
const (
	GroupStart      = "start"
	GroupWork       = "work"
	GroupAgent      = "agent"
	GroupExecutions = "see"
	GroupNetwork    = "net"
	GroupMachine    = "host"
)

// unsorted has help show commands in the order in which they are added, and not by the alphabet.
var unsorted = sync.OnceFunc(func() { cobra.EnableCommandSorting = false })

// AddGroups gives the root command its groups.
func AddGroups(root *cobra.Command) {
	unsorted()
	root.AddGroup(&cobra.Group{ID: GroupStart, Title: "To begin with:"},
		&cobra.Group{ID: GroupWork, Title: "Sandboxes to work in:"},
		&cobra.Group{ID: GroupAgent, Title: "Agents:"}, &cobra.Group{ID: GroupExecutions, Title: "Executions:"},
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
	var words []string
	named := map[string]string{} // by each word
	for _, c := range cmd.Commands() {
		for _, word := range append([]string{c.Name()}, c.Aliases...) {
			if c.IsAvailableCommand() {
				words, named[word] = append(words, word), c.Name()
			}
		}
	}
	err := NoCommand(cmd, args[0])
	if near := Nearest(strings.ToLower(args[0]), words); near != "" {
		return err.WithHint("did you mean %q?", cmd.CommandPath()+" "+named[near])
	}
	return err.WithHint("see %q", cmd.CommandPath()+" --help")
}

// NoCommand is the error for a word that is no command below cmd.
func NoCommand(cmd *cobra.Command, word string) *cove.Error {
	return cove.Errorf(cove.InvalidArgument, "%q is not a command of %s", word, cmd.CommandPath())
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

// CheckArguments holds c and the commands below it to their usage lines: "list" takes no argument, "show RUN" one,
// "rm RUN..." one or more. A command with a check of its own keeps it, and one with optional arguments has none.
func CheckArguments(c *cobra.Command) {
	_, usage, _ := strings.Cut(c.Use, " ")
	if c.Args == nil && !strings.Contains(usage, "[") {
		c.Args = Arguments(strings.Fields(usage)...)
	}
	for _, below := range c.Commands() {
		CheckArguments(below)
	}
}

// Arguments takes arguments by name: "ID", "REFERENCE". Of "NAME..." it takes one or more.
func Arguments(names ...string) cobra.PositionalArgs {
	several := strings.HasSuffix(strings.Join(names, " "), "...")
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return UsageError(cmd, "%s is missing", strings.TrimSuffix(strings.Join(names[len(args):], " "), "..."))
		case len(args) > len(names) && !several:
			return UsageError(cmd, "%q is one argument too many", args[len(names)])
		}
		return nil
	}
}
