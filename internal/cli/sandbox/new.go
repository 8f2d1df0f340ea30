package sandbox

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/interact"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	git "github.com/cove-sandbox/cove/internal/git/policy"
)

func newCommand(sess *session.Session) *cobra.Command {
	var o newOptions
	c := &cobra.Command{
		Use:   "new [REPO [BRANCH [FROM]]]",
		Short: "Make a sandbox to work in, with a checkout of a repository",
		Long: `Make a long-lived sandbox, with a checkout of a repository at /workspace, on a
branch of its own. REPO is OWNER/REPO of GitHub, an HTTPS address, or a directory
of this machine, such as "."; BRANCH is made up when it is left out, and FROM is
where it begins: BRANCH where the repository has it, else the default branch, or
what a directory has checked out: a branch, or a commit without one.
Without arguments, at a terminal, it asks.

The sandbox has a repository of its own, which borrows objects from Cove's store
("cove repo list"): nothing in it reaches the repository it was made from, other
sandboxes, or this machine. There is no credential in it. What it may reach, and
what it may push, is in its policy; without --network, --allow, --preset,
--policy or --model-provider it reaches the remote of its repository, and nothing else.

A directory of this machine is sent to a server of another one (--server), where it
becomes a repository of the sandbox's own; "cove apply" changes it as the sandbox has.

With --if-exists return, a sandbox of that --name that exists is the one: it is
started if it does not run, and what else the command says is not applied to it.

A directory with a devcontainer.json can have its image, environment, limits and
commands in the sandbox. At a terminal it is shown and you are asked, once for its
content; --devcontainer agrees, --no-devcontainer leaves it alone. Its image is built
when it has a Dockerfile and the image is missing.

At a terminal it attaches to the sandbox when it is ready (--no-attach does not).
Else it prints the sandbox's name. "cove diff", "cove apply" and "git fetch
cove::NAME" bring the work back.`,
		Example: `  cove new owner/repo
  cove new . fix-login main --no-attach
  cove new https://git.example/owner/repo.git --allow git.example --memory 4G
  cove new owner/big --sparse docs --sparse src/api --depth 1
  cove new . --save-as careful --network limited --cpus 2
  cove new ../other --saved careful
  cove new . --preset npm --preset pypi
  cove new --empty --copy notes.md:notes.md
  cove new . --name dev --if-exists return`,
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
			case o.saved != "" && o.last:
				return ui.UsageError(cmd, "--saved and --last exclude each other")
			case o.dev.Use != "" && o.dev.Skip:
				return ui.UsageError(cmd, "--devcontainer and --no-devcontainer exclude each other")
			case sess.JSON && o.ide != "":
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
	o.add(sess, c.Flags())
	sess.AddProfile(c, &o.Profile)
	c.RegisterFlagCompletionFunc("saved", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		names, _ := savedNames(sess) // completion cannot show an error
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	return c
}

func create(sess *session.Session, cmd *cobra.Command, o *newOptions) error {
	if err := formerPresets(sess, o); err != nil {
		return err
	}
	if err := applySaved(sess, cmd, o); err != nil {
		return err
	}
	if o.Source == "" && !o.Empty && o.Bind == "" {
		if sess.JSON || !ui.IsTerminal(sess.In) || !ui.IsTerminal(sess.Err) {
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
	if err := flags.CheckNear(sess, req.Bind); err != nil {
		return err
	}
	sess.Say.Lines(flags.LikeDirectory(o.Source))
	req.Profile, err = sess.ResolveProfile(o.Profile)
	if err != nil {
		return err
	}
	if r := req.Repository; r != nil {
		if r.Ignored, err = interact.Ignored(cmd.Context(), sess, req.Profile, r.Source, r.Ignored); err != nil {
			return err
		}
	}
	if o.Agent != "" || o.AgentConfig != "" || req.Profile != "" {
		req.AgentConfig, err = interact.BringConfig(cmd.Context(), sess, interact.Config{Agent: o.Agent,
			Profile: req.Profile, Flag: o.AgentConfig, Ask: interact.AskTerminal(sess) != nil && !sess.JSON, Quiet: sess.JSON})
		if err != nil {
			return err
		}
	}
	if o.saveAs != "" {
		if err := saveFlags(sess, cmd, o, o.saveAs); err != nil {
			return err
		}
	}
	if err := trustIDE(sess, o.ide); err != nil {
		return err
	}
	dev, err := o.dev.Bring(cmd.Context(), sess, &req)
	if err != nil {
		return err
	}
	s, err := interact.CreateSandbox(cmd.Context(), sess, req)
	if err != nil {
		return err
	}
	attach := !sess.JSON && !o.noAttach && o.ide == "" && ui.IsTerminal(sess.In) && ui.IsTerminal(sess.Out)
	if dev != nil {
		if err := dev.Begin(cmd.Context(), sess, s, attach); err != nil {
			return err
		}
	}
	if err := saveLast(sess, cmd, o); err != nil {
		sess.Say.Fail(err) // the sandbox is there
	}
	if sess.JSON {
		return sess.PrintJSON(s)
	}
	sayReady(sess, s)
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

func sayReady(sess *session.Session, s api.Sandbox) {
	sess.Say.Line("the sandbox %s is ready", s.Name)
	var rows ui.Facts
	r := s.Repository
	if r != nil {
		rows.Add("branch", r.Branch+", from "+cmp.Or(r.From, shortID(r.Base), "nothing"))
	}
	rows = append(rows, [2]string{"network", s.Network}) // though it is empty
	rows.Add("attach", sess.Command("attach", s.Name))
	if r != nil {
		if r.Worktree {
			rows.Add("files", s.Directory+" (the sandbox writes there: run no build in it)")
		}
		review := sess.Command("diff", s.Name)
		if _, err := exec.LookPath(gitHelper); err == nil && !sess.Far() {
			review += ", or: git fetch cove::" + s.Name
		}
		rows.Add("review", review)
		back := sess.Command("apply", s.Name)
		if branchOutside(r) {
			back += ", or in " + r.Source + ": git merge " + r.Branch
		}
		rows.Add("bring back", back)
	}
	if r != nil && r.Remote != "" && git.GuardedBranch(r.Branch) {
		rows.Add("pushes", "to "+r.Branch+" are asked about, since others have them at once: "+sess.Command("approve"))
	}
	rows.Add("end", sess.Command("stop", s.Name)+", "+sess.Command("destroy", s.Name))
	sess.SayFacts(rows)
}

// completeRepository completes REPO with directories, and the repositories of sandboxes that are there.
func completeRepository(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}

func askNew(ctx context.Context, sess *session.Session, o *flags.NewSandbox) error {
	known := knownRepositories(ctx, sess)
	if len(known) > 0 {
		o.Source = known[0]
	}
	o.Source = cmp.Or(o.Source, ".")
	checkSource := func(s string) error {
		_, err := flags.RepositorySource(s, o.Uncommitted)
		return err
	}
	questions := []ui.Question{
		{
			Name:        "Repository",
			About:       "OWNER/REPO, an HTTPS address, or a directory",
			Value:       &o.Source,
			Suggestions: known,
			Check:       checkSource,
		},
		{Name: "Branch", About: "of the sandbox's own; empty: made up", Value: &o.Branch},
		{Name: "From", About: "branch, tag or commit where it begins; empty: the default branch", Value: &o.From},
	}
	network := o.Policy.Network
	if network == "" && !o.Policy.Given() {
		network = string(cove.NetworkNone)
	}
	preset := network
	if network != "" {
		questions = append(questions, ui.Question{Name: "Network", Value: &network, Choices: []ui.Choice{
			{Value: string(cove.NetworkNone), About: "none"},
			{Value: string(cove.NetworkLimited), About: "limited: what rules allow, and the repository"},
			{Value: string(cove.NetworkOpen), About: "open: everything but private addresses"},
		}})
	}
	questions = append(questions,
		ui.Question{Name: "Agent", About: "program of its terminal; empty: a shell", Value: &o.Agent})
	if err := sess.Ask(ctx, questions...); err != nil {
		if cove.ErrorCode(err) == cove.Canceled {
			return cove.Errorf(cove.Canceled, "nothing was made")
		}
		return err
	}
	if network != preset {
		o.Policy.Network = network
	}
	return nil
}

// knownRepositories lists repositories to suggest at the terminal: the repository around this directory, those of
// sandboxes, the last used first, and those in the store. A server that does not answer knows none.
func knownRepositories(ctx context.Context, sess *session.Session) []string {
	var known []string
	if top := flags.RepositoryTop(flags.CurrentDirectory()); top != "" {
		known = append(known, top)
	}
	for _, s := range flags.AnsweredSandboxes(ctx, sess) {
		if s.Repository != nil && !slices.Contains(known, s.Repository.Source) {
			known = append(known, s.Repository.Source)
		}
	}
	for _, r := range session.OfRunning(ctx, sess, (*client.Client).Repositories) {
		if source := strings.TrimSuffix(r.Source, "/.git"); !slices.Contains(known, source) {
			known = append(known, source)
		}
	}
	return known
}

// trustIDE warns once before a program here opens files that a sandbox writes. At a terminal the user agrees.
func trustIDE(sess *session.Session, program string) error {
	if program == "" {
		return nil
	}
	if _, err := exec.LookPath(program); err != nil {
		return cove.Errorf(cove.NotFound, "--ide: there is no program %.80q here", program).
			WithHint("name one that is in PATH, such as code, zed, idea or vim")
	}
	told, err := sess.InHome("ide-warning-seen")
	if err != nil {
		return err
	}
	if _, err := os.Stat(told); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	sess.Say.Line("the checkout of a sandbox is written by the programs in it. " +
		"A program that runs what it finds there (tasks, hooks of git, extensions, build files) runs it as you, " +
		"outside the sandbox. Open it in the program's restricted mode, and build in the sandbox.")
	if ui.IsTerminal(sess.In) && ui.IsTerminal(sess.Err) {
		if err := sess.Confirm("go on? [y/N] ", "y", "yes"); err != nil {
			return err
		}
	}
	if err := session.Keep(told, nil); err != nil {
		return cove.Errorf(cove.StorageFull, "cannot use %s: %w", filepath.Dir(told), err)
	}
	return nil
}

// openIDE opens a directory with a program, which may take the terminal. Git has no hooks and no monitor there.
func openIDE(sess *session.Session, program, dir string) error {
	c := exec.Command(program, dir)
	c.Stdin, c.Stdout, c.Stderr = sess.In, sess.Out, sess.Err
	c.Env = append(os.Environ(), "GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=core.hooksPath", "GIT_CONFIG_VALUE_0=/dev/null",
		"GIT_CONFIG_KEY_1=core.fsmonitor", "GIT_CONFIG_VALUE_1=false")
	if err := c.Run(); err != nil {
		return cove.Errorf(cove.Unavailable, "%s cannot open %s: %w", program, dir, err)
	}
	return nil
}
