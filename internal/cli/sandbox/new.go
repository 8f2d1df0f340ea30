package sandbox

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/interact"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func newCommand(sess *session.Session) *cobra.Command {
	var o newOptions
	c := &cobra.Command{
		Use:   "new [REPO [BRANCH [FROM]]]",
		Short: "Make a sandbox to work in, with a checkout of a repository",
		Long: `Make a long-lived sandbox, with a checkout of a repository at /workspace, on a
branch of its own. REPO is OWNER/REPO of GitHub, an HTTPS address, or a directory
of this machine, such as "."; BRANCH is made up when it is left out, and FROM is
where it begins: the default branch, or BRANCH where the repository has it.
Without arguments, at a terminal, it asks.

The sandbox has a repository of its own, which borrows objects from Cove's store
("cove repo list"): nothing in it reaches the repository it was made from, other
sandboxes, or this machine. There is no credential in it. What it may reach, and
what it may push, is in its policy; without --network, --allow, --policy or
--model-provider it reaches the remote of its repository, and nothing else.

At a terminal it attaches to the sandbox when it is ready (--no-attach does not).
Else it prints the sandbox's name. "cove diff", "cove apply" and "git fetch
cove::NAME" bring the work back.`,
		Example: `  cove new owner/repo
  cove new . fix-login main --no-attach
  cove new https://git.example/owner/repo.git --allow git.example --memory 4G
  cove new owner/big --sparse docs --sparse src/api --depth 1
  cove new . --save-as careful --network limited --cpus 2
  cove new ../other --preset careful
  cove new --empty --copy notes.md:notes.md`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 3 {
				return ui.UsageError(cmd, "%q is one argument too many", args[3])
			}
			for i, to := range []*string{&o.Source, &o.Branch, &o.From} {
				if i < len(args) {
					*to = args[i]
				}
			}
			switch {
			case (o.Empty || o.Bind != "") && len(args) > 0:
				return ui.UsageError(cmd, "--empty and --bind are without a repository, and %q names one", args[0])
			case o.preset != "" && o.last:
				return ui.UsageError(cmd, "--preset and --last exclude each other")
			case o.json && o.ide != "":
				return ui.UsageError(cmd, "--json and --ide exclude each other")
			}
			return nil
		},
		ValidArgsFunction: completeRepository,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Given = cmd.Flags().Changed
			return create(sess, cmd, &o)
		},
	}
	o.add(c.Flags())
	sess.AddProfile(c, &o.Profile)
	c.RegisterFlagCompletionFunc("preset", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		names, _ := presetNames(sess) // completion cannot show an error
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	return c
}

func create(sess *session.Session, cmd *cobra.Command, o *newOptions) error {
	if err := applyPreset(sess, cmd, o); err != nil {
		return err
	}
	if o.Source == "" && !o.Empty && o.Bind == "" {
		if o.json || !ui.IsTerminal(sess.In) || !ui.IsTerminal(sess.Err) {
			return ui.UsageError(cmd, "REPO is missing: OWNER/REPO, an address, or a directory; --empty is without one")
		}
		if err := askNew(cmd.Context(), sess, &o.NewSandbox); err != nil {
			return err
		}
	}
	req, err := o.Request(sess.Getenv)
	if err != nil {
		return err
	}
	req.Profile, err = sess.ResolveProfile(o.Profile)
	if err != nil {
		return err
	}
	if o.saveAs != "" {
		if err := savePreset(sess, cmd, o, o.saveAs); err != nil {
			return err
		}
	}
	if err := trustIDE(sess, o.ide); err != nil {
		return err
	}
	s, err := interact.CreateSandbox(cmd.Context(), sess, req)
	if err != nil {
		if o.json && cove.ErrorCode(err) != cove.Canceled {
			sess.PrintJSON(api.Error{Error: err.Error(), Code: string(cove.ErrorCode(err)), Hint: cove.ErrorHint(err)})
		}
		return err
	}
	if err := saveLast(sess, cmd, o); err != nil {
		sess.Say.Fail(err) // the sandbox is there
	}
	if o.json {
		return sess.PrintJSON(s)
	}
	sayReady(sess, s)
	attach := !o.noAttach && o.ide == "" && ui.IsTerminal(sess.In) && ui.IsTerminal(sess.Out)
	if !attach {
		if err := sess.Print(s.Name + "\n"); err != nil {
			return err
		}
	}
	if o.ide != "" {
		return openIDE(sess, o.ide, s.Directory)
	}
	if attach {
		return interact.AttachTerminal(sess, cmd, flags.Target{Name: s.ID}, interact.DefaultDetachKeys,
			client.TerminalOptions{})
	}
	return nil
}

// sayReady prints the new sandbox and the commands to use it with.
func sayReady(sess *session.Session, s api.Sandbox) {
	sess.Say.Line("the sandbox %s is ready", s.Name)
	rows := [][2]string{}
	if r := s.Repository; r != nil {
		rows = append(rows, [2]string{"branch", r.Branch + ", from " + cmp.Or(r.From, shortID(r.Base))})
	}
	rows = append(rows, [2]string{"network", s.Network}, [2]string{"attach", sess.Command("attach", s.Name)})
	if r := s.Repository; r != nil {
		if r.Worktree {
			rows = append(rows, [2]string{"edit", s.Directory})
		}
		rows = append(rows, [2]string{"review", sess.Command("diff", s.Name) + ", or: git fetch cove::" + s.Name},
			[2]string{"bring back", sess.Command("apply", s.Name)})
		if branchOutside(r) {
			rows[len(rows)-1][1] += ", or in " + r.Source + ": git merge " + r.Branch
		}
	}
	rows = append(rows, [2]string{"end", sess.Command("stop", s.Name) + ", " + sess.Command("destroy", s.Name)})
	sess.SayFacts(rows)
}

// completeRepository completes REPO with directories, and the repositories of sandboxes that are there.
func completeRepository(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}
