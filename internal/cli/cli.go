// Package cli owns Cove's command line: commands, flags, what they print, and exit codes.
//
// Every command that touches an execution talks through package client, to a server when one answers and else to a
// daemon inside this process, so that there is one code path (ARCHITECTURE.md, "The way of one request"). The tree of
// commands is the same in both programs: cove, which has no daemon and is put aside where one is needed, and
// cove-server, which then takes its place.
package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/agent"
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

// HandOverAtOnce puts the program with the daemon in the place of this process where that is sure to come.
func HandOverAtOnce(args []string) { session.HandOverAtOnce(args) }

// Daemon carries out what the rooms leave to the program with the daemon.
type Daemon interface {
	session.Daemon
	agent.Daemon
	network.Daemon
	server.Daemon
}

// Main runs one command line and returns the process's exit code. d is nil in a program without a daemon.
func Main(ctx context.Context, args []string, s Streams, d Daemon) int {
	session.CollectLate()
	// A closed pipe on standard output is an error to handle, so that what runs in this process is still cleaned up.
	signal.Ignore(syscall.SIGPIPE)
	sess := session.New(s, os.Getenv)
	sess.Args = args
	if d != nil {
		sess.Daemon = d
	}
	root := rootCommand(sess, d)
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	addCompletion(sess, root, args)
	err := session.CheckCaller(sess)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
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

// room is a part of the command line.
type room struct {
	words    string // with which its commands begin
	commands func(*session.Session, Daemon) []*cobra.Command
}

var rooms = []room{
	{"run ps logs kill runtimes", func(sess *session.Session, _ Daemon) []*cobra.Command { return run.Commands(sess) }},
	{"new list ls info attach shell exec diff log apply push pr stop pause resume rename limits destroy sandbox prune " +
		"saved preset devcontainer profile repo setup git-remote forward",
		func(sess *session.Session, _ Daemon) []*cobra.Command { return sandbox.Commands(sess) }},
	{"claude codex gemini opencode worker agent generate runs agents start",
		func(sess *session.Session, d Daemon) []*cobra.Command {
			start := ui.InGroup(ui.GroupWork, agent.StartsWorkflow(sess, sandbox.StartCommand(sess)))
			return append(start, agent.Commands(sess, d)...)
		}},
	{"policy approve approvals network credentials ca gateway",
		func(sess *session.Session, d Daemon) []*cobra.Command { return network.Commands(sess, d) }},
	{"audit status doctor doctor-probe serve server backup restore pool keys config models image version",
		func(sess *session.Session, d Daemon) []*cobra.Command { return server.Commands(sess, d) }},
}

// entered returns the room that a command line leads into by its first word, else all: to make the commands of all
// rooms takes longer than most commands.
func entered(args []string) []room {
	for i, r := range rooms {
		if len(args) > 0 && slices.Contains(strings.Fields(r.words), args[0]) {
			return rooms[i : i+1]
		}
	}
	return rooms
}

// rootCommand returns "cove" with the commands of the rooms that the session's command line may lead into.
func rootCommand(sess *session.Session, d Daemon) *cobra.Command {
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
	for _, r := range entered(sess.Args) {
		root.AddCommand(r.commands(sess, d)...)
	}
	root.AddCommand(&cobra.Command{Use: "exit-codes", Short: "What exit codes mean", Long: ui.ExitCodesHelp})
	ui.CheckArguments(root)
	return root
}
