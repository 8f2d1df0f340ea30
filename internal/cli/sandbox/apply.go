package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/report"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func applyCommand(sess *session.Session) *cobra.Command {
	var p flags.Target
	var req api.ApplyRequest
	var asJSON bool
	c := &cobra.Command{
		Use:   "apply",
		Short: "Change a checkout of yours as a sandbox has changed its own",
		Long: `Change the files of a checkout of yours as a sandbox has changed its own, what is
not committed included: all of it, or nothing. The checkout is the one that this
directory is in, or --to; nothing is committed or staged.

It is refused where a file is not as the sandbox found it, and where an entry
leaves the checkout, goes through a symbolic link, or is git's own. Files that
decide what others run, such as those of CI and hooks, are refused unless
--allow-restricted is there: look at them first.

With --3way files that you have changed as well are merged, from what the sandbox
found. Lines that both have changed are left with both sides between markers, and
what cannot be merged is left as it is; each is told, and the command fails.`,
		Example: `  cove apply brave-otter
  cove apply brave-otter --to ../repo -- docs
  cove apply brave-otter --3way
  cove apply --last --allow-restricted`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.With(cmd, sess, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
				var err error
				if req.Directory, err = checkoutOf(req.Directory, s); err != nil {
					return err
				}
				done, err := c.ApplyWork(ctx, s.ID, req)
				if err != nil {
					return err
				}
				if asJSON {
					err = sess.PrintJSON(done)
				} else {
					err = sayApplied(sess, done, req.Directory)
				}
				if err != nil {
					return err
				}
				if n := len(done.Conflicts); n > 0 {
					return cove.Errorf(cove.Conflict, "%d of the files are changed on both sides, and were not merged", n).
						WithHint("look for <<<<<<< in files with markers; what the sandbox has of the others is in %q",
							sess.Command("diff", s.Name))
				}
				if asJSON {
					return nil
				}
				if r := s.Repository; branchOutside(r) {
					sess.Say.Line("what it has committed is on the branch %s of %s, too", r.Branch, r.Source)
				}
				return nil
			})
		},
	}
	addPaths(sess, c, &p, &req.Paths)
	c.Flags().StringVar(&req.Directory, "to", "", "`DIR`: the checkout to change, instead of this directory's")
	c.Flags().BoolVar(&req.Merge, "3way", false, "merge files that are not as the sandbox found them")
	c.Flags().BoolVar(&req.Restricted, "allow-restricted", false, "files that decide what others run, too")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// branchOutside reports whether a sandbox's branch is in a repository of this machine's.
func branchOutside(r *api.SandboxRepository) bool {
	return r != nil && r.Worktree && filepath.IsAbs(r.Source)
}

// checkoutOf returns the top of the checkout to change: the named one, or else the one around the current directory.
// It refuses a sandbox's own checkout.
func checkoutOf(dir string, s api.Sandbox) (string, error) {
	dir = cmp.Or(dir, ".")
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", cove.Errorf(cove.InvalidArgument, "%s: %w", dir, ui.Cause(err))
	}
	if flags.Within(abs, s.Directory) {
		return "", cove.Errorf(cove.InvalidArgument, "this directory is the sandbox's own checkout").
			WithHint("say which one to change with --to DIR")
	}
	top := flags.RepositoryTop(abs)
	if top == "" || !flags.Exists(filepath.Join(top, ".git")) {
		return "", cove.Errorf(cove.InvalidArgument, "%s is in no checkout of a repository", dir).
			WithHint("say which one to change with --to DIR")
	}
	return top, nil
}

func sayApplied(sess *session.Session, done api.AppliedWork, dir string) error {
	for _, c := range done.Changes {
		if err := sess.Print(fmt.Sprintf("%-8s %s\n", c.Change, ui.Printable(c.Path))); err != nil {
			return err
		}
	}
	if len(done.Changes)+len(done.Conflicts) == 0 {
		sess.Say.Line("the sandbox has changed nothing")
	} else if len(done.Changes) > 0 {
		sess.Say.Line("%s", report.AppliedText(len(done.Changes), dir))
	}
	return nil
}
