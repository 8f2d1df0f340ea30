package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/interact"
	"github.com/cove-sandbox/cove/internal/cli/report"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func diffCommand(sess *session.Session) *cobra.Command {
	var p flags.Target
	var o client.WorkOptions
	var patches bool
	c := &cobra.Command{
		Use:   "diff",
		Short: "Show what a sandbox has changed",
		Long: `Show what a sandbox has changed since it began, what is not committed included.
Git runs inside and sends; what comes is checked, and git on this machine shows
it without running anything of it. Into a file or a pipe it is a patch that git can
apply, with the contents of binary files; at a terminal, characters that a terminal
would obey are spelled out. With --json it is the list of files, and with --patch
the patch of each.`,
		Example: `  cove diff
  cove diff brave-otter --stat
  cove diff brave-otter --json --patch
  cove diff brave-otter -- docs README.md
  cove diff brave-otter >work.patch`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if patches && !sess.JSON {
				return ui.UsageError(cmd, "--patch is for --json: without it the output is a patch anyway")
			}
			return p.With(cmd, sess, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
				if !sess.JSON {
					o.Binary = !ui.IsTerminal(sess.Out)
					return showWork(ctx, sess, s.ID, o, c.DiffWork)
				}
				done, err := c.WorkChanges(ctx, s.ID, o.Paths, patches)
				return sess.Show(ui.Result{Value: done}, err)
			})
		},
	}
	addRest(sess, c, &p, "PATH", &o.Paths)
	c.Flags().BoolVar(&o.Stat, "stat", false, "which files, and how many lines")
	c.Flags().BoolVar(&o.Names, "name-only", false, "which files")
	sess.AddJSON(c.Flags(), "print one JSON object")
	c.Flags().BoolVar(&patches, "patch", false, "with --json: the patch of each file, too")
	c.MarkFlagsMutuallyExclusive("stat", "name-only", "json")
	return c
}

// addRest gives a command SANDBOX, and after "--" the rest of its arguments, each of which name calls.
func addRest(sess *session.Session, c *cobra.Command, p *flags.Target, name string, rest *[]string) {
	p.AddTo(sess, c)
	c.Use += " [-- " + name + "...]"
	c.Args = func(cmd *cobra.Command, args []string) error {
		if n := cmd.ArgsLenAtDash(); n >= 0 {
			args, *rest = args[:n], args[n:]
		}
		return p.Take(cmd, args)
	}
}

func logCommand(sess *session.Session) *cobra.Command {
	var p flags.Target
	var o client.WorkOptions
	c := &cobra.Command{
		Use:   "log",
		Short: "Show what a sandbox has committed",
		Long: `Show what a sandbox has committed since it began, newest first; see "cove diff"
for what is not committed.`,
		Example: "  cove log\n  cove log brave-otter --oneline",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.With(cmd, sess, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
				if !sess.JSON {
					return showWork(ctx, sess, s.ID, o, c.LogWork)
				}
				done, err := c.WorkCommits(ctx, s.ID, o.Paths)
				return sess.Show(ui.Result{Value: done}, err)
			})
		},
	}
	addRest(sess, c, &p, "PATH", &o.Paths)
	c.Flags().BoolVar(&o.Short, "oneline", false, "one line for each commit")
	sess.AddJSON(c.Flags(), "print one JSON object")
	c.MarkFlagsMutuallyExclusive("oneline", "json")
	return c
}

// showWork prints what git shows of a sandbox's work: as it is, or so that a terminal obeys nothing in it.
func showWork(ctx context.Context, sess *session.Session, id string, o client.WorkOptions,
	show func(context.Context, string, client.WorkOptions, io.Writer) error) error {
	if !ui.IsTerminal(sess.Out) {
		return show(ctx, id, o, sess.Out)
	}
	w := &report.PatchWriter{To: sess.Out, Color: ui.Colorful(sess.Out, sess.Getenv)}
	if err := show(ctx, id, o, w); err != nil {
		return err
	}
	return w.Close()
}

func applyCommand(sess *session.Session) *cobra.Command {
	var p flags.Target
	var req api.ApplyRequest
	var asks bool
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

After SANDBOX, or after "--", come the paths to take: those alone are changed. With -p
it asks, file by file, and change by change within a file, as "git add -p" does. What
was taken is in the audit log.

With --3way files that you have changed as well are merged, from what the sandbox
found. Lines that both have changed are left with both sides between markers, and
what cannot be merged is left as it is; each is told, and the command fails.`,
		Example: `  cove apply brave-otter
  cove apply brave-otter docs README.md
  cove apply brave-otter --to ../repo -p
  cove apply brave-otter --3way
  cove apply --last --allow-restricted`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asks && interact.AskTerminal(sess) == nil {
				return ui.UsageError(cmd, "--patch asks, and there is no terminal to ask at: name the paths")
			}
			return p.With(cmd, sess, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
				var err error
				if req.Directory, err = checkoutOf(sess, req.Directory, s); err != nil {
					return err
				}
				if asks {
					all, err := c.WorkChanges(ctx, s.ID, req.Paths, true)
					if err != nil {
						return err
					}
					if len(all.Changes) > 0 {
						sess.Say.Lines(report.Unread(all.Changes)...)
						req.Paths = nil
						if req.Choice, _ = interact.Choose(sess, all.Changes); len(req.Choice) == 0 {
							sess.Say.Line("nothing is chosen")
							return nil
						}
					}
				}
				done, err := interact.ApplyWork(ctx, sess, c, s.ID, req)
				if err != nil {
					return err
				}
				if err := sess.Show(applied(done, req.Directory), nil); err != nil {
					return err
				}
				if n := len(done.Conflicts); n > 0 {
					return cove.Errorf(cove.Conflict, "%d of the files are changed on both sides, and were not merged", n).
						WithHint("look for <<<<<<< in files with markers; what the sandbox has of the others is in %q",
							sess.Command("diff", s.Name))
				}
				if r := s.Repository; branchOutside(r) && !sess.JSON {
					sess.Say.Line("what it has committed is on the branch %s of %s, too", r.Branch, r.Source)
				}
				return nil
			})
		},
	}
	addRest(sess, c, &p, "PATH", &req.Paths)
	c.Use = "apply [SANDBOX [PATH...]] [-- PATH...]"
	take := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		switch n := cmd.ArgsLenAtDash(); {
		case asks && sess.JSON:
			return ui.UsageError(cmd, "--patch asks, and --json is for programs: name the paths")
		case n < 0 && !p.Last && len(args) > 1:
			req.Paths = args[1:]
			return p.Take(cmd, args[:1])
		}
		return take(cmd, args)
	}
	c.Flags().BoolVarP(&asks, "patch", "p", false, "ask which files to take, and which changes of a file")
	c.Flags().StringVar(&req.Directory, "to", "", "`DIR`: the checkout to change, instead of this directory's")
	c.Flags().BoolVar(&req.Merge, "3way", false, "merge files that are not as the sandbox found them")
	c.Flags().BoolVar(&req.Restricted, "allow-restricted", false, "files that decide what others run, too")
	sess.AddJSON(c.Flags(), "print one JSON object")
	return c
}

// branchOutside reports whether a sandbox's branch is in a repository of this machine's.
func branchOutside(r *api.SandboxRepository) bool {
	return r != nil && r.Worktree && filepath.IsAbs(r.Source)
}

// checkoutOf returns the top of the checkout to change: the named one, or else the one around the current directory.
// It refuses a sandbox's own checkout.
func checkoutOf(sess *session.Session, dir string, s api.Sandbox) (string, error) {
	dir = cmp.Or(dir, ".")
	abs, err := flags.RealPath(dir)
	if err != nil {
		return "", err
	}
	if sess.Far() {
		// A folder without a repository that was sent is one that can be changed.
		if of := s.Repository; of != nil && flags.LocalFolder(of.Source) == abs {
			return abs, nil
		}
	} else if flags.Within(abs, s.Directory) {
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

func applied(done api.AppliedWork, dir string) ui.Result {
	r := ui.Result{Value: done}
	for _, c := range done.Changes {
		r.Text += fmt.Sprintf("%-8s %s\n", c.Change, ui.Printable(c.Path))
	}
	if len(done.Changes)+len(done.Conflicts) == 0 {
		r.Notes = []string{"the sandbox has changed nothing"}
	} else if len(done.Changes) > 0 {
		r.Notes = report.AppliedNotes(done.Changes, dir)
	}
	return r
}
