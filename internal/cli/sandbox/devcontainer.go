package sandbox

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/devcontainers"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func devcontainerCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:   "devcontainer",
		Short: "Work in a repository's dev container",
		Long: `Work in a sandbox that is made by a repository's devcontainer.json, one for each
directory, as the reference command line of dev containers does; or see what a
sandbox takes of the file. "cove new" uses it, too, once you have agreed to its
content.`,
	}, devUp(sess), devExec(sess), devStop(sess), devDown(sess), devBuild(sess), devExplain(sess),
		devWrite(sess), devTemplates(sess))
}

func devExplain(sess *session.Session) *cobra.Command {
	var o devcontainers.Options
	dir := ""
	c := &cobra.Command{
		Use:   "explain [DIR]",
		Short: "Show every effective value of a dev container, and whence it is",
		Long: `Show what a sandbox takes of the devcontainer.json of the repository in DIR, or in
this directory: each value with the line of the file that says it, and what is left
out, with the reason. Nothing is made.

The file is the repository's, and so it is not trusted: limits that are lower than
yours are taken, and what would weaken a sandbox is left out.`,
		Example: `  cove devcontainer explain
  cove devcontainer explain ../shop --json
  cove devcontainer explain --devcontainer=go`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return ui.UsageError(cmd, "%q is one argument too many", args[1])
			}
			dir = strings.Join(args, "")
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			top, err := repositoryOf(dir)
			if err != nil {
				return err
			}
			found, err := o.Explain(cmd.Context(), sess, top)
			if err != nil {
				return err
			}
			if sess.JSON {
				return sess.PrintJSON(found.Effective)
			}
			return sess.Print(found.Text())
		},
	}
	o.Add(c.Flags())
	c.Flags().MarkHidden("no-devcontainer")
	sess.AddJSON(c.Flags(), "print one JSON object")
	return c
}
