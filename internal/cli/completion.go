package cli

import (
	_ "embed"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/session"
)

// fallback stands before the completion of bash, which needs functions of a package that not every machine has.
//
//go:embed completion.bash
var fallback string

// addCompletion adds "cove completion", which writes to the output that the root command has by now.
func addCompletion(sess *session.Session, root *cobra.Command) {
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
