package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/devcontainers"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

type destroyOptions struct {
	all, orphans bool
	keepWork     bool
	yes          bool
	last         bool
	deleteBranch string // "", "yes" or "force"
}

// chosen are the sandboxes to destroy; one without a name is a workspace that belongs to none.
func (o destroyOptions) chosen(l api.SandboxList, args []string) ([]api.Sandbox, error) {
	if o.all {
		return l.Sandboxes, nil
	}
	var chosen []api.Sandbox
	if o.orphans {
		for _, id := range l.Orphans {
			chosen = append(chosen, api.Sandbox{ID: id})
		}
		return chosen, nil
	}
	if len(args) == 0 {
		s, err := flags.Target{Last: o.last}.Among(l.Sandboxes, flags.CurrentDirectory())
		return []api.Sandbox{s}, err
	}
	for _, arg := range args {
		s, err := api.Sandbox{ID: arg}, error(nil)
		if !slices.Contains(l.Orphans, arg) {
			if s, err = flags.Named(l.Sandboxes, arg); err != nil {
				return nil, err
			}
		}
		if !slices.ContainsFunc(chosen, func(c api.Sandbox) bool { return c.ID == s.ID }) {
			chosen = append(chosen, s)
		}
	}
	return chosen, nil
}

func destroyCommand(sess *session.Session) *cobra.Command {
	var o destroyOptions
	c := &cobra.Command{
		Use:   "destroy [SANDBOX]...",
		Short: "Remove sandboxes and the work in them",
		Long: `Remove sandboxes: everything that runs in them, their checkouts and their homes.
With --keep-work the checkouts stay, as directories of yours: without set-user-ID bits
and capabilities, and with new settings and no hooks in each .git. What else in them
may run on this machine is named. Work that was kept so by an earlier attempt is not
removed by a later one without it. At a terminal it
asks before; elsewhere --yes has to be there. --all removes every sandbox, and
asks twice at a terminal, whatever --yes says. The id of a workspace that belongs
to no sandbox ("cove list" names them) removes that; --orphans all of them.

--delete-branch removes the sandbox's branch from the repository of this machine that
it was made of, too. It is refused, and nothing is removed, where the branch has
commits that no other branch, tag or remote has (--delete-branch=force insists), or
is checked out elsewhere.

` + flags.TargetHelp,
		Example: `  cove destroy brave-otter
  cove destroy --last --keep-work
  cove destroy brave-otter --delete-branch
  cove destroy --yes $(cove list -q)`,
		ValidArgsFunction: flags.CompleteSandboxes(sess),
		Args: func(cmd *cobra.Command, args []string) error {
			said := 0
			for _, b := range []bool{len(args) > 0, o.all, o.last, o.orphans} {
				if b {
					said++
				}
			}
			switch {
			case said > 1:
				return ui.UsageError(cmd, "SANDBOX, --last, --orphans and --all exclude each other")
			case !slices.Contains([]string{"", "yes", "force"}, o.deleteBranch):
				return ui.UsageError(cmd, "--delete-branch has no value, or \"force\"")
			case o.deleteBranch != "" && (o.keepWork || o.orphans):
				return ui.UsageError(cmd, "--delete-branch excludes --keep-work and --orphans")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return destroy(sess, cmd, o, args) },
	}
	f := c.Flags()
	f.BoolVar(&o.keepWork, "keep-work", false, "leave the checkout where it is")
	f.StringVar(&o.deleteBranch, "delete-branch", "",
		"remove its branch from the repository that it was made of; with =`force` also commits that nothing else has")
	f.Lookup("delete-branch").NoOptDefVal = "yes"
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&o.last, "last", false, "the sandbox that was used last")
	f.BoolVar(&o.all, "all", false, "every sandbox: the number of them is typed twice")
	f.BoolVar(&o.orphans, "orphans", false, "workspaces that belong to no sandbox")
	sess.AddJSON(f, "print one JSON object")
	return c
}

type destroyed struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	Kept string `json:"kept,omitempty"` // directory
	// Branch was removed from the repository of this machine.
	Branch string     `json:"branch,omitempty"`
	Made   []api.Made `json:"made_in_mounts,omitempty"`
}

// branches returns the branches to remove, by sandbox, before anything is removed.
func (o destroyOptions) branches(ctx context.Context, doomed []api.Sandbox) (map[string]*session.Branch, error) {
	all := map[string]*session.Branch{}
	if o.deleteBranch == "" {
		return all, nil
	}
	for _, s := range doomed {
		if s.Repository == nil || !filepath.IsAbs(s.Repository.Source) {
			return nil, cove.Errorf(cove.InvalidArgument, "the sandbox %s was made of no repository of this machine",
				cmp.Or(s.Name, s.ID)).WithHint("leave out --delete-branch")
		}
		b, err := session.RemovableBranch(ctx, s.Repository.Source, s.Repository.Branch, s.Directory,
			o.deleteBranch == "force")
		if err != nil {
			return nil, err
		}
		all[s.ID] = b
	}
	return all, nil
}

func destroy(sess *session.Session, cmd *cobra.Command, o destroyOptions, args []string) error {
	ctx := cmd.Context()
	b, err := sess.Server(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	l, err := b.Client.Sandboxes(ctx)
	if err != nil {
		return err
	}
	doomed, err := o.chosen(l, args)
	if err != nil {
		return err
	}
	doomed = withWithin(l.Sandboxes, doomed)
	flags.SayOwners(sess, doomed...)
	branches, err := o.branches(ctx, doomed)
	if err != nil {
		return err
	}
	if len(doomed) > 0 {
		if err := confirmDestroy(sess, o, doomed); err != nil {
			return err
		}
	}
	ctx, interrupts := ui.CoverSignals(ctx, sess.Out) // only now: who is asked is ended by a signal at once
	defer interrupts.Stop()
	done := []destroyed{}
	var failed error
	for _, s := range doomed {
		said, err := devcontainers.Remove(ctx, sess, b.Client, s.ID, o.keepWork)
		if err != nil {
			if failed != nil {
				sess.Say.Fail(failed)
			}
			if failed = err; ctx.Err() != nil {
				break
			}
			continue
		}
		sayMade(sess, said.Made)
		d := destroyed{ID: s.ID, Name: s.Name, Made: said.Made}
		if o.keepWork {
			d.Kept = s.Directory
		}
		if b := branches[s.ID]; b != nil {
			if err := b.Remove(ctx); err != nil {
				failed = err
			} else {
				d.Branch = b.Name()
			}
		}
		done = append(done, d)
		if err := sess.PrintText(cmp.Or(s.Name, s.ID) + "\n"); err != nil {
			return err
		}
		if d.Kept != "" && !sess.JSON {
			sess.Say.Line("the work is kept in %s, with new settings and no hooks in its .git", d.Kept)
		}
		if d.Branch != "" && !sess.JSON {
			sess.Say.Line("the branch %s is removed from %s", d.Branch, s.Repository.Source)
		}
	}
	if err := sess.Show(ui.Result{Value: map[string][]destroyed{"destroyed": done}}, nil); err != nil {
		return err
	}
	return interrupts.Explain(failed)
}

// withWithin are sandboxes with those that are within them and go with them, which come first. It is pure.
func withWithin(all, chosen []api.Sandbox) []api.Sandbox {
	has := func(list []api.Sandbox, id string) bool {
		return slices.ContainsFunc(list, func(s api.Sandbox) bool { return s.ID == id })
	}
	var inside, rest []api.Sandbox
	for _, s := range all {
		if s.Within != "" && (has(chosen, s.ID) || has(chosen, s.Within)) {
			inside = append(inside, s)
		}
	}
	for _, s := range chosen {
		if !has(inside, s.ID) {
			rest = append(rest, s)
		}
	}
	return append(inside, rest...)
}

// confirmDestroy asks the user. Errors: InvalidArgument without a terminal, Canceled when the answer is no.
func confirmDestroy(sess *session.Session, o destroyOptions, doomed []api.Sandbox) error {
	atTerminal := ui.IsTerminal(sess.In) && ui.IsTerminal(sess.Err)
	switch {
	case o.all && !atTerminal:
		return cove.Errorf(cove.InvalidArgument, "--all is confirmed at a terminal, and this is no terminal").
			WithHint("name the sandboxes: cove destroy --yes $(cove list -q)")
	case !o.all && o.yes:
		return nil
	case !atTerminal:
		return cove.Errorf(cove.InvalidArgument, "cannot ask whether to destroy the work in %s: this is no terminal",
			destroyNames(doomed)).
			WithHint("add --yes, or --keep-work --yes to keep it")
	}
	work := "with the work in it"
	if len(doomed) > 1 {
		work = "with the work in them"
	}
	if o.keepWork {
		work = "and keep the work"
	}
	if !o.all {
		return sess.Confirm(fmt.Sprintf("destroy %s, %s? [y/N] ", destroyNames(doomed), work), "y", "yes")
	}
	count := strconv.Itoa(len(doomed))
	question := fmt.Sprintf("destroy every sandbox, %s, %s? type how many they are (%s) to go on: ",
		destroyNames(doomed), work, count)
	if err := sess.Confirm(question, count); err != nil {
		return err
	}
	return sess.Confirm("type it again: ", count)
}

func destroyNames(doomed []api.Sandbox) string {
	var list []api.Sandbox
	for _, s := range doomed {
		s.Name = cmp.Or(s.Name, s.ID)
		list = append(list, s)
	}
	return ui.Printable(flags.Names(list))
}
