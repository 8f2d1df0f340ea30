package cli

import (
	_ "embed"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
)

// fallback stands before the completion of bash, which needs functions of a package that not every machine has.
//
//go:embed completion.bash
var fallback string

// addCompletion adds "cove completion", which writes to the output that the root command has by now, and what a shell
// offers where it asks for that: the other commands are not slower for it.
func addCompletion(sess *session.Session, root *cobra.Command, args []string) {
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		flags.Complete(sess, root)
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		for _, shell := range c.Commands() {
			if shell.CommandPath() != "cove completion bash" {
				continue
			}
			shell.Long = `Generate the autocompletion script for the bash shell. The package
bash-completion need not be installed. In the current shell:

	source <(cove completion bash)

For every new session, as root: cove completion bash > /etc/bash_completion.d/cove
where that package is, else the line above in ~/.bashrc.`
			generate := shell.RunE
			shell.RunE = func(cmd *cobra.Command, args []string) error {
				if err := sess.Print(fallback); err != nil {
					return err
				}
				return generate(cmd, args)
			}
		}
	}
}
