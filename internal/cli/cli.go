// Package cli owns Cove's command line: commands, flags, what they print, and exit codes.
//
// Every command that touches an execution talks through package client, to a server when one answers and else to a
// daemon inside this process, so that there is one code path (ARCHITECTURE.md, "The way of one request").
package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/agent"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/network"
	"github.com/cove-sandbox/cove/internal/cli/run"
	"github.com/cove-sandbox/cove/internal/cli/sandbox"
	"github.com/cove-sandbox/cove/internal/cli/server"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// Streams are the process's own.
type Streams = ui.Streams

// HelperArgs are the arguments of this program when git runs it as its remote
// helper; ok is false when it runs under another name.
func HelperArgs(name string, args []string) (all []string, ok bool) {
	return sandbox.HelperArgs(name, args)
}

// Main runs one command line and returns the process's exit code.
func Main(ctx context.Context, args []string, s Streams) int {
	// A closed pipe on standard output is an error to handle, so that what runs in this process is still cleaned up.
	signal.Ignore(syscall.SIGPIPE)
	sess := session.New(s, os.Getenv)
	root := rootCommand(sess)
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	addCompletion(sess, root)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return sess.Exit
	case errors.Is(err, syscall.EPIPE):
		return ui.ExitSignal(syscall.SIGPIPE) // like every program in a pipe, without a word
	}
	if sess.JSON && !sess.Wrote() { // one object alone: that of the error
		sess.PrintJSON(session.ProblemOf(sess, err))
	} else {
		sess.Say.Fail(session.Spoken(sess, err))
	}
	return ui.ExitCode(err)
}

// rootCommand returns "cove" with the commands of all rooms.
func rootCommand(sess *session.Session) *cobra.Command {
	root := &cobra.Command{
		Use:   "cove",
		Short: "Run untrusted code in sandboxes",
		Long: `Cove runs untrusted code in sandboxes on this machine: own namespaces, no
network, no capabilities, kernel-enforced limits. Nothing has to run
beforehand; "cove serve" offers the same over HTTP.`,
		Example: `  cove run python -c 'print(6 * 7)'
  cove run script.js -- first second
  echo data | cove run bash -c 'wc -c'
  cove doctor`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version:       server.VersionLine(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return ui.UsageError(cmd, "%w", err)
	})
	root.CompletionOptions.HiddenDefaultCmd = false
	sess.AddFlags(root.PersistentFlags())
	ui.AddGroups(root)
	ui.ShowFlags(root)
	root.AddCommand(run.Commands(sess)...)
	root.AddCommand(sandbox.Commands(sess)...)
	root.AddCommand(ui.InGroup(ui.GroupWork, agent.StartsWorkflow(sess, sandbox.StartCommand(sess)))...)
	root.AddCommand(agent.Commands(sess)...)
	root.AddCommand(network.Commands(sess)...)
	root.AddCommand(server.Commands(sess)...)
	root.AddCommand(&cobra.Command{Use: "exit-codes", Short: "What exit codes mean", Long: ui.ExitCodesHelp})
	ui.CheckArguments(root)
	flags.Complete(sess, root)
	return root
}
