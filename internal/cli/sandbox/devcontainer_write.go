package sandbox

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/devcontainers"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func devWrite(sess *session.Session) *cobra.Command {
	var at folder
	var dev devcontainers.Options
	var spec flags.Spec
	force := false
	c := &cobra.Command{
		Use:   "write",
		Short: "Write a dev container that others start, for the gateway",
		Long: `Write a devcontainer.json below Cove's home, by which the reference command line of
dev containers, or an editor, starts the dev container of a directory with Docker as
far from this machine as it can be: without a network of its own, with few
capabilities, Cove's filter of system calls, no new privileges and limits. It is made
of what Cove understands of the repository's file; what would take that away is left
out, and said. What programs of yours execute or obey in the directory, such as
.devcontainer and .git/hooks, is read-only in the container.

Its programs reach what "cove gateway attach" lets them: the first command waits for
the gateway, and then trusts its authority. Docker builds the image, with a network
that is not under the policy; "cove devcontainer build" and "cove image save" build it
under one.`,
		Example: `  cove devcontainer write
  cove devcontainer write --image debian:12 --memory 2G
  cove gateway & sudo cove gateway attach --label cove.devcontainer=RANDOM --preset npm &
  devcontainer up --workspace-folder . --config PATH   # it prints both lines, with RANDOM and PATH`,
	}
	f := c.Flags()
	at.add(f)
	f.StringVar(&spec.Image, "image", "", "`IMAGE` of a directory without a dev container")
	spec.AddLimits(f)
	f.BoolVar(&spec.Debuggers, "debuggers", false,
		"let programs trace others of the container, as gdb, strace and delve do")
	dev.Add(f)
	f.MarkHidden("no-devcontainer")
	f.BoolVar(&force, "force", false, "write over files that are there")
	f.SortFlags = false
	return sess.Showing(c, func(cmd *cobra.Command, _ []string) (r ui.Result, err error) {
		spec.Given = cmd.Flags().Changed
		limits, _, err := spec.Limits()
		if err != nil {
			return r, err
		}
		top, err := repositoryOf(at.dir)
		if err != nil {
			return r, err
		}
		w, err := dev.Write(cmd.Context(), sess, top, spec.Image, limits, spec.Debuggers)
		if err != nil {
			return r, err
		}
		names := slices.Sorted(maps.Keys(w.Files))
		if err := os.MkdirAll(w.Dir, 0o700); err != nil {
			return r, err
		}
		if err := writeFiles(w.Dir, w.Files, names, force); err != nil {
			return r, err
		}
		for i, name := range names {
			names[i] = filepath.Join(w.Dir, name)
		}
		sess.Say.Lines(w.Notes...)
		sess.SayFacts(ui.Facts{
			{"gateway", sess.Command("gateway")},
			{"attach", "sudo " + sess.Command("gateway", "attach", "--label", w.Label)},
			{"start", fmt.Sprintf("devcontainer up --workspace-folder %s --config %s", ui.ShellWord(top),
				ui.ShellWord(filepath.Join(w.Dir, "devcontainer.json")))},
		})
		return ui.Names("written", names, func(name string) string { return name }), nil
	})
}
