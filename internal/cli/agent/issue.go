package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/interact"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// workflow is an issue that an agent works on from beginning to end, as "cove start ISSUE [--repo REPO]" has it.
type workflow struct {
	options

	issue              string // as it was named
	repo, branch, from string
}

func (w *workflow) add(f *pflag.FlagSet) {
	f.StringVar(&w.repo, "repo", "", "have an agent work on an issue of `REPO`: OWNER/REPO, an address, or a directory\n"+
		"(default: the checkout that the current directory is in)")
	f.StringVar(&w.Agent, "agent", "", "`NAME` of the agent (default: the profile's, else the first that has a key)")
	f.StringVar(&w.promptFile, "prompt-file", "", "read the issue from `FILE`, or from standard input if it is \"-\"")
	f.StringVar(&w.from, "from", "", "`BRANCH`, tag or commit to begin at (default: the default branch)")
	f.StringVar(&w.branch, "branch", "", "`BRANCH` to work on and push (default: named after the issue)")
	f.StringVar(&w.model, "model", "", "`MODEL` of the provider")
	f.IntVar(&w.turns, "max-turns", 0, "end it after `COUNT` answers of the model")
	f.StringVar(&w.instructions, "instructions", "", "`TEXT` that the agent is told beside the issue")
	w.tools.add(f)
	f.StringVar(&w.Timeout, "timeout", "", "wall `TIME` of the agent, like 1h")
	w.AddSandbox(f)
	f.BoolVar(&w.keep, "keep", false, "keep the sandbox, whatever becomes of it")
	f.BoolVarP(&w.quiet, "quiet", "q", false, "print the answer only")
	f.BoolVarP(&w.verbose, "verbose", "v", false,
		"show all that tools answer, and what the agent writes to its standard error")
}

const workflowHelp = `With --repo, or of an issue in a checkout, it starts the work on the issue instead, and
sees it through: a sandbox with a checkout of REPO on a branch named after ISSUE, in
which an agent works, as "cove claude" shows it. What the agent leaves uncommitted is
committed, and the branch is pushed from the sandbox, as its policy lets it: that
branch, without force, and no files that decide what others run. Then the sandbox is
destroyed. If a step fails, a sandbox with work in it stays, and is named.

ISSUE is the number of an issue on GitHub, OWNER/REPO#NUMBER, a URL, or a name. Its
text is read from --prompt-file, or with "gh", GitHub's own command. Several issues
can be worked on at once. Without --repo the repository is the one that the current
directory is in, and its issues those of its remote "origin"; a name is then an issue's
if an option says so, such as --prompt-file, and a number always is.`

// StartsWorkflow makes "cove start", which is there, take issues, too.
func StartsWorkflow(sess *session.Session, c *cobra.Command) *cobra.Command {
	w := &workflow{}
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	w.add(own)
	c.Flags().AddFlagSet(own)
	sess.AddProfile(c, &w.Profile)
	c.RegisterFlagCompletionFunc("permission-mode", completeModes(sess, func() string { return w.Agent }))
	c.Use += " | ISSUE [--repo REPO]"
	c.Long += "\n\n" + workflowHelp
	c.Example += `
  cove start 42
  cove start 42 --repo owner/repo --profile careful
  cove start LOGIN-7 --repo https://git.example/team/app.git --agent claude --prompt-file login.md`
	args, run := c.Args, c.RunE
	c.Args = func(cmd *cobra.Command, given []string) error {
		about := "" // an option that is about an issue
		own.VisitAll(func(f *pflag.Flag) {
			if cmd.Flags().Changed(f.Name) && about == "" {
				about = f.Name
			}
		})
		if w.repo == "" && (about != "" || len(given) == 1 && isIssue(given[0])) {
			w.repo = flags.RepositoryTop(flags.CurrentDirectory())
		}
		switch {
		case w.repo != "":
			w.Given = cmd.Flags().Changed
			return w.arguments(cmd, given)
		case about != "":
			return ui.UsageError(cmd, "--%s is about an issue, and goes with --repo", about)
		}
		return args(cmd, given)
	}
	c.RunE = func(cmd *cobra.Command, given []string) error {
		if w.repo != "" {
			return workOn(cmd.Context(), sess, w)
		}
		return run(cmd, given)
	}
	return c
}

func (w *workflow) arguments(cmd *cobra.Command, given []string) error {
	switch {
	case len(given) == 0:
		return ui.UsageError(cmd, "ISSUE is missing: a number, or a name for the branch")
	case len(given) > 1:
		return ui.UsageError(cmd, "%q is one argument too many", given[1])
	case cmd.Flags().Changed("last"):
		return ui.UsageError(cmd, "--last is about a sandbox, and --repo about an issue")
	}
	w.issue = given[0]
	return w.check(cmd)
}

func workOn(ctx context.Context, sess *session.Session, w *workflow) error {
	source, err := flags.RepositorySource(w.repo, false)
	if err != nil {
		return err
	}
	sess.Say.Lines(flags.LikeDirectory(w.repo))
	project := w.repo           // whose issues they are
	if filepath.IsAbs(source) { // else the address is what is pushed to
		if project, err = session.Origin(ctx, source); err != nil {
			return err
		}
	}
	if w.Agent == "" {
		if w.Agent, err = chooseAgent(ctx, sess, w.Profile); err != nil {
			return err
		}
	}
	said, err := readIssue(ctx, sess, w, project)
	if err != nil {
		return err
	}
	ignored := w.Ignored
	req, err := runRequest(ctx, sess, &w.options, strings.TrimRight(said.text, "\n")+"\n\n---\n\n"+workflowRules+"\n")
	if err != nil {
		return err
	}
	req.Directory, req.Ignored, req.New.WorkDir = "", nil, ""
	if filepath.IsAbs(source) {
		req.New.Git = flags.GitIdentity(sess.Getenv, source)
		if ignored, err = interact.Ignored(ctx, sess, req.New.Profile, source, ignored); err != nil {
			return err
		}
	}
	req.New.Repository = &api.RepositoryRequest{
		Source: source, Branch: cmp.Or(w.branch, branchOf(w.issue, said.title)), From: w.from,
		Ignored: ignored,
	}
	return giveTask(ctx, sess, &w.options, req, func(t *task, ctx context.Context, done work) error {
		done.directory = "" // no checkout of this machine's is concerned
		return t.deliver(ctx, done, commitMessage(w.issue, said.title))
	})
}

// workflowRules tell the agent how it works; not every agent can be told anything beside its task.
const workflowRules = "This is an issue of the repository in the current directory. " +
	"You work on it on a branch of its own, and there is no user to ask. Commit what belongs together as you go. " +
	"When you have ended, what is not committed is committed for you, and the branch is pushed: do not push yourself."

type issueText struct{ title, text string }

// readIssue reads the text of an issue; project is the repository of an issue that is a number.
func readIssue(ctx context.Context, sess *session.Session, w *workflow, project string) (issueText, error) {
	if w.promptFile != "" {
		text, err := readPrompt(sess, &w.options)
		return issueText{titleOf(text), text}, err
	}
	args, err := issueArgs(w.issue, project)
	if err != nil {
		return issueText{}, err
	}
	gh, err := exec.LookPath("gh")
	if err != nil {
		return issueText{}, cove.Errorf(cove.InvalidArgument, "cannot read the issue %.80q: gh is not installed", w.issue).
			WithHint("put it into a file: --prompt-file FILE")
	}
	c := exec.CommandContext(ctx, gh, args...)
	c.Dir = "/" // not in a repository whose configuration it would read
	c.Stderr = sess.Err
	out, err := c.Output()
	if err != nil {
		return issueText{}, cove.Errorf(cove.Unavailable, "gh cannot read the issue %.80q: %w", w.issue, err).
			WithHint("see \"gh auth status\", or put it into a file: --prompt-file FILE")
	}
	var answer struct{ Title, Body, URL string }
	if err := json.Unmarshal(out, &answer); err != nil || answer.Title == "" {
		return issueText{}, cove.Errorf(cove.Unavailable, "gh returned no issue for %.80q", w.issue).
			WithHint("put it into a file: --prompt-file FILE")
	}
	text := "# " + answer.Title + "\n\n" + strings.TrimSpace(answer.Body) + "\n"
	if answer.URL != "" {
		text += "\n(" + answer.URL + ")\n"
	}
	return issueText{answer.Title, text}, flags.CheckText("the issue", text)
}

// Ways to name an issue of a forge.
var (
	issueNumber = pattern.New(`^#?([0-9]+)$`)
	issueOfRepo = pattern.New(`^([A-Za-z0-9-]+/[A-Za-z0-9._-]+)#([0-9]+)$`)
)

// isIssue reports whether a text names an issue rather than a sandbox.
func isIssue(text string) bool {
	return issueNumber.MatchString(text) || issueOfRepo.MatchString(text) || strings.HasPrefix(text, "https://")
}

// issueArgs returns the arguments with which gh prints an issue.
func issueArgs(issue, repo string) ([]string, error) {
	const fields = "title,body,url"
	if strings.HasPrefix(issue, "https://") {
		return []string{"issue", "view", issue, "--json", fields}, nil
	}
	number := ""
	if m := issueOfRepo.FindStringSubmatch(issue); m != nil {
		repo, number = m[1], m[2]
	} else if m := issueNumber.FindStringSubmatch(issue); m != nil {
		number = m[1]
	} else {
		return nil, cove.Errorf(cove.InvalidArgument, "%.80q is not an issue that gh can read", issue).
			WithHint("give a number, or say what is to be done with --prompt-file FILE")
	}
	if strings.HasPrefix(repo, "https://") {
		host, path, err := flags.PlaceOf(repo)
		if err != nil {
			return nil, err
		}
		repo = host + "/" + path
	} else if !flags.IsOwnerRepo(repo) {
		return nil, cove.Errorf(cove.InvalidArgument,
			"the repository %.200q does not tell which project the issue %s belongs to", repo, number).
			WithHint("name it as OWNER/REPO#%s, or say what is to be done with --prompt-file FILE", number)
	}
	return []string{"issue", "view", number, "--repo", repo, "--json", fields}, nil
}

// titleOf is the first line of a text that says something.
func titleOf(text string) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(strings.TrimLeft(line, "# \t")); line != "" {
			return line
		}
	}
	return ""
}

const maxBranch = 60

// branchOf names a branch after an issue: issue-42-make-the-login-work, login-7-make-the-login-work.
func branchOf(issue, title string) string {
	if _, number, ok := strings.Cut(issue, "#"); ok {
		issue = number
	}
	issue = strings.TrimRight(issue, "/")
	issue = slug(issue[strings.LastIndexByte(issue, '/')+1:])
	if issueNumber.MatchString(issue) {
		issue = "issue-" + issue
	}
	name := strings.Trim(issue+"-"+slug(title), "-")
	if len(name) > maxBranch {
		cut := name[:maxBranch+1]
		if i := strings.LastIndexByte(cut, '-'); i > len(issue) {
			cut = cut[:i]
		}
		name = strings.TrimRight(cut[:min(len(cut), maxBranch)], "-")
	}
	return cmp.Or(name, "issue")
}

var notInSlug = pattern.New(`[^a-z0-9]+`)

func slug(text string) string {
	return strings.Trim(notInSlug.Regexp().ReplaceAllString(strings.ToLower(text), "-"), "-")
}

// commitMessage is that of what an agent leaves uncommitted.
func commitMessage(issue, title string) string {
	title = cmp.Or(strings.Join(strings.Fields(title), " "), "Work on "+issue)
	if m := issueNumber.FindStringSubmatch(issue); m != nil {
		return title + "\n\nFor #" + m[1] + "."
	}
	return title + "\n\nFor " + issue + "."
}

// commitRest is a shell script that commits what is not committed, with the name that git is configured for.
const commitRest = `git add --all || exit 1
if git diff --cached --quiet; then exit 0; fi
if git config user.name >/dev/null && git config user.email >/dev/null; then exec git commit -q -m "$1"; fi
exec git -c user.name=Cove -c user.email=cove@localhost commit -q -m "$1"`

// deliver commits what is left, and pushes the branch. What does not come that far stays in the sandbox.
func (t *task) deliver(ctx context.Context, w work, message string) error {
	if w.changed == 0 {
		return t.unchanged(ctx, w)
	}
	t.keepOnSignal(w)
	if !w.succeeded {
		t.sayKept(w)
		return nil
	}
	err := t.commitAndPush(ctx, w, message)
	if err != nil {
		t.sayKept(w)
		return err
	}
	return release(ctx, t, w)
}

func (t *task) commitAndPush(ctx context.Context, w work, message string) error {
	s, err := t.client.Sandbox(ctx, w.sandbox)
	if err != nil {
		return err
	}
	if s.Repository == nil || s.Repository.Remote == "" {
		return cove.Errorf(cove.InvalidArgument, "the repository has no remote that the branch could be pushed to").
			WithHint("fetch it: git fetch cove::%s", w.name)
	}
	if err := t.gitInside(ctx, w, "committing", commitRest, message); err != nil {
		return err
	}
	err = t.gitInside(ctx, w, "pushing", `exec git push origin "HEAD:refs/heads/$1"`, s.Repository.Branch)
	if err != nil {
		return err
	}
	t.tell("pushed %s to %s", s.Repository.Branch, s.Repository.Remote)
	return nil
}

// gitInside runs a script with git in the sandbox. What it says is shown when it fails.
func (t *task) gitInside(ctx context.Context, w work, doing, script string, args ...string) error {
	var said bytes.Buffer
	req := api.ExecRequest{Args: append([]string{"sh", "-c", script, "sh"}, args...), Git: true}
	done, err := t.client.Exec(ctx, w.sandbox, req, client.Stream{Stdout: &said, Stderr: &said})
	if err != nil {
		return err
	}
	if done.ExitCode == 0 {
		return nil
	}
	v := newView(t.screen.Stderr, t.columns)
	v.color = t.Say.Color
	v.folded(strings.Trim(plainLines(said.String()), "\n"), "  ✗ ", ui.Red)
	return cove.Errorf(cove.Forbidden, "%s has failed: git has ended with %d", doing, done.ExitCode).
		WithHint("put it right inside (%s), or push from this machine: %s",
			t.Command("attach", w.name), t.Command("push", w.name))
}
