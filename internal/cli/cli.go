// Package cli owns Cove's command line: commands, flags, what they print, and
// exit codes.
//
// Every command that touches an execution talks through package client, to a
// server when one answers and else to a daemon inside this process, so that
// there is one code path (ARCHITECTURE.md, "The way of one request").
package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
)

// Streams are the process's own.
type Streams struct {
	In       *os.File
	Out, Err *os.File
}

// app is what the commands share.
type app struct {
	Streams
	say    *speaker
	getenv func(string) string

	server   string    // --server
	settings settings  // --config and the like
	logFile  string    // --log-file of serve
	logTo    io.Writer // of the log, when it is not standard error
	exit     int       // of a command that did its work but has a verdict to give
}

// Main runs one command line and returns the process's exit code.
func Main(ctx context.Context, args []string, s Streams) int {
	// A closed pipe on standard output is an error to handle, so that what
	// runs in this process is still cleaned up.
	signal.Ignore(syscall.SIGPIPE)
	a := &app{Streams: s, getenv: os.Getenv}
	a.say = &speaker{w: s.Err, color: colorful(s.Err, a.getenv)}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return a.exit
	case errors.Is(err, syscall.EPIPE):
		return exitSignal(syscall.SIGPIPE) // like every program in a pipe, without a word
	}
	a.say.fail(err)
	return exitCode(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "cove",
		Short: "Run untrusted code in sandboxes",
		Long: `Cove runs untrusted code in sandboxes on this machine: own namespaces, no
network, no capabilities, kernel-enforced limits. Nothing has to run
beforehand; "cove serve" offers the same over HTTP.`,
		Example: `  cove run python -c 'print(6 * 7)'
  cove run node script.js -- first second
  echo data | cove run bash -c 'wc -c'
  cove doctor`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version:       versionLine(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError(cmd, "%w", err)
	})
	root.CompletionOptions.HiddenDefaultCmd = false
	f := root.PersistentFlags()
	f.StringVar(&a.settings.path, "config", "", "configuration `FILE` (or COVE_CONFIG)")
	f.StringArrayVar(&a.settings.set, "set", nil, "set one setting of the configuration: `NAME=VALUE` (repeatable)")
	f.StringVar(&a.settings.home, "home", "", "`DIR` of state: database, images (or COVE_HOME)")
	f.StringVar(&a.settings.runDir, "run-dir", "", "`DIR` of sockets and locks (or COVE_RUN_DIR)")
	f.StringVar(&a.server, "server", "", "talk to this server: `ADDRESS` http://host:port or unix:/path (or COVE_SERVER; its key in COVE_API_KEY)")
	root.AddGroup(&cobra.Group{ID: "work", Title: "Sandboxes to work in:"}, &cobra.Group{ID: "agent", Title: "Agents:"}, &cobra.Group{ID: "run", Title: "Run code:"}, &cobra.Group{ID: "see", Title: "Executions:"},
		&cobra.Group{ID: "net", Title: "Network:"}, &cobra.Group{ID: "host", Title: "This machine:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("work", a.newCommand(), a.listCommand(), a.infoCommand(), a.attachCommand(), a.shellCommand(), a.execCommand(),
		a.startCommand(), a.stopCommand(), a.pauseCommand(), a.resumeCommand(), a.renameCommand(), a.destroyCommand(),
		a.diffCommand(), a.logCommand(), a.applyCommand(), a.pushCommand(), a.prCommand(), a.presetCommand(), a.profileCommand(), a.repoCommand())
	add("agent", append(a.agentCommands(), a.runsCommand(), a.agentsCommand())...)
	add("run", a.runCommand(), a.serveCommand(), a.serverCommand())
	add("see", a.psCommand(), a.logsCommand(), a.killCommand(), a.auditCommand())
	add("net", a.policyCommand(), a.approveCommand(), a.approvalsCommand(), a.networkCommand(), a.caCommand(), a.gatewayCommand())
	add("host", a.runtimesCommand(), a.imageCommand(), a.doctorCommand(), a.configCommand(), a.devCommand())
	root.AddCommand(a.versionCommand(), a.setupCommand(), a.gitRemoteCommand(), a.doctorProbeCommand())
	return root
}

// group makes a command that only has commands below it.
func group(c *cobra.Command, below ...*cobra.Command) *cobra.Command {
	c.Args = unknownCommand
	c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	c.AddCommand(below...)
	return c
}

// unknownCommand refuses what is no command and names what was probably meant.
func unknownCommand(cmd *cobra.Command, args []string) error {
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

// usageError is for a command line that cannot be understood.
func usageError(cmd *cobra.Command, format string, args ...any) error {
	return cove.Errorf(cove.InvalidArgument, format, args...).WithHint("see %q", cmd.CommandPath()+" --help")
}

// exactly takes arguments by name: "ID", "REFERENCE".
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usageError(cmd, "%s is missing", strings.Join(names[len(args):], " "))
		case len(args) > len(names):
			return usageError(cmd, "%q is one argument too many", args[len(names)])
		}
		return nil
	}
}

// print writes to standard output and keeps the error, so that a closed pipe
// or a full disk shows.
func (a *app) print(text string) error {
	_, err := io.WriteString(a.Out, text)
	return err
}
