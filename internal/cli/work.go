package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// withWork lets do look at the work of the sandbox that p picks.
func (a *app) withWork(cmd *cobra.Command, p pick, do func(context.Context, *client.Client, api.Sandbox) error) error {
	return a.withServer(cmd, func(ctx context.Context, c *client.Client) error {
		s, err := p.find(ctx, c)
		if err != nil {
			return err
		}
		return do(ctx, c, s)
	})
}

func (a *app) diffCommand() *cobra.Command {
	var p pick
	var o client.WorkOptions
	var asJSON, patches bool
	c := &cobra.Command{
		Use:   "diff [SANDBOX] [-- PATH...]",
		Short: "Show what a sandbox has changed",
		Long: `Show what a sandbox has changed since it began, what is not committed included.
Git runs inside and sends; what comes is checked, and git on this machine shows
it without running anything of it. Into a file it is a patch as it is; at a
terminal, characters that a terminal would obey are spelled out. With --json it
is the list of files, and with --patch the patch of each.

` + pickHelp,
		Example:           "  cove diff\n  cove diff brave-otter --stat\n  cove diff brave-otter --json --patch\n  cove diff brave-otter -- docs README.md\n  cove diff brave-otter >work.patch",
		ValidArgsFunction: a.completeSandbox,
		Args:              func(cmd *cobra.Command, args []string) error { return pathsAfter(cmd, args, &p, &o.Paths) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if patches && !asJSON {
				return usageError(cmd, "--patch is for --json; without, a patch is what there is")
			}
			return a.withWork(cmd, p, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
				if asJSON {
					done, err := c.WorkChanges(ctx, s.ID, o.Paths, patches)
					if err != nil {
						return err
					}
					return a.printJSON(done)
				}
				return a.showWork(func(out io.Writer) error { return c.DiffWork(ctx, s.ID, o, out) })
			})
		},
	}
	p.add(c.Flags())
	c.Flags().BoolVar(&o.Stat, "stat", false, "which files, and how many lines")
	c.Flags().BoolVar(&o.Names, "name-only", false, "which files")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.Flags().BoolVar(&patches, "patch", false, "with --json: the patch of each file, too")
	c.MarkFlagsMutuallyExclusive("stat", "name-only", "json")
	return c
}

// pathsAfter takes SANDBOX, and the paths after "--".
func pathsAfter(cmd *cobra.Command, args []string, p *pick, paths *[]string) error {
	if n := cmd.ArgsLenAtDash(); n >= 0 {
		args, *paths = args[:n], args[n:]
	}
	return p.of(cmd, args)
}

func (a *app) logCommand() *cobra.Command {
	var p pick
	var o client.WorkOptions
	var asJSON bool
	c := &cobra.Command{
		Use:               "log [SANDBOX] [-- PATH...]",
		Short:             "Show what a sandbox has committed",
		Long:              "Show what a sandbox has committed since it began, newest first; see \"cove diff\" for what is not committed.\n\n" + pickHelp,
		Example:           "  cove log\n  cove log brave-otter --oneline",
		ValidArgsFunction: a.completeSandbox,
		Args:              func(cmd *cobra.Command, args []string) error { return pathsAfter(cmd, args, &p, &o.Paths) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withWork(cmd, p, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
				if asJSON {
					done, err := c.WorkCommits(ctx, s.ID, o.Paths)
					if err != nil {
						return err
					}
					return a.printJSON(done)
				}
				return a.showWork(func(out io.Writer) error { return c.LogWork(ctx, s.ID, o, out) })
			})
		},
	}
	p.add(c.Flags())
	c.Flags().BoolVar(&o.Short, "oneline", false, "one line for each commit")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.MarkFlagsMutuallyExclusive("oneline", "json")
	return c
}

// showWork prints what git shows of a sandbox's work: as it is, or so that a
// terminal obeys nothing in it.
func (a *app) showWork(show func(io.Writer) error) error {
	if !isTerminal(a.Out) {
		return show(a.Out)
	}
	w := &patchWriter{to: a.Out, color: colorful(a.Out, a.getenv)}
	if err := show(w); err != nil {
		return err
	}
	return w.end()
}

// patchWriter writes a patch for a terminal, line by line.
type patchWriter struct {
	to    io.Writer
	color bool
	part  []byte // of a line
}

// maxPatchLine is how much of a line is kept until its end comes, in bytes.
const maxPatchLine = 64 << 10

func (w *patchWriter) Write(p []byte) (int, error) {
	w.part = append(w.part, p...)
	for {
		i := bytes.IndexByte(w.part, '\n')
		if i < 0 && len(w.part) < maxPatchLine {
			return len(p), nil
		}
		if i < 0 {
			i = maxPatchLine - 1
		}
		if err := w.line(string(w.part[:i])); err != nil {
			return 0, err
		}
		w.part = w.part[i+1:]
	}
}

func (w *patchWriter) end() error {
	if len(w.part) == 0 {
		return nil
	}
	return w.line(string(w.part))
}

func (w *patchWriter) line(text string) error {
	color := ""
	switch {
	case strings.HasPrefix(text, "diff "), strings.HasPrefix(text, "+++ "), strings.HasPrefix(text, "--- "), strings.HasPrefix(text, "index "):
		color = bold
	case strings.HasPrefix(text, "@@"):
		color = cyan
	case strings.HasPrefix(text, "commit "):
		color = yellow
	case strings.HasPrefix(text, "+"):
		color = green
	case strings.HasPrefix(text, "-"):
		color = red
	}
	cells := strings.Split(text, "\t")
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	text = strings.Join(cells, "\t")
	if color != "" {
		text = paint(w.color, color, text)
	}
	_, err := io.WriteString(w.to, text+"\n")
	return err
}

func (a *app) applyCommand() *cobra.Command {
	var p pick
	var req api.ApplyRequest
	var asJSON bool
	c := &cobra.Command{
		Use:   "apply [SANDBOX] [-- PATH...]",
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
what cannot be merged is left as it is; each is told, and the command fails.

` + pickHelp,
		Example:           "  cove apply brave-otter\n  cove apply brave-otter --to ../repo -- docs\n  cove apply brave-otter --3way\n  cove apply --last --allow-restricted",
		ValidArgsFunction: a.completeSandbox,
		Args:              func(cmd *cobra.Command, args []string) error { return pathsAfter(cmd, args, &p, &req.Paths) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withWork(cmd, p, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
				var err error
				if req.Directory, err = checkoutOf(req.Directory, s); err != nil {
					return err
				}
				done, err := c.ApplyWork(ctx, s.ID, req)
				if err != nil {
					return err
				}
				if asJSON {
					err = a.printJSON(done)
				} else {
					err = a.sayApplied(done, req.Directory)
				}
				if err != nil {
					return err
				}
				if n := len(done.Conflicts); n > 0 {
					return cove.Errorf(cove.Conflict, "%d of the files are changed on both sides, and were not merged", n).WithHint("look for <<<<<<< in files with markers; what the sandbox has of the others is in %q", a.command("diff", s.Name))
				}
				if asJSON {
					return nil
				}
				if r := s.Repository; branchOutside(r) {
					a.say.line("what it has committed is on the branch %s of %s, too", r.Branch, r.Source)
				}
				return nil
			})
		},
	}
	p.add(c.Flags())
	c.Flags().StringVar(&req.Directory, "to", "", "`DIR`: the checkout to change, instead of this directory's")
	c.Flags().BoolVar(&req.Merge, "3way", false, "merge files that are not as the sandbox found them")
	c.Flags().BoolVar(&req.Restricted, "allow-restricted", false, "files that decide what others run, too")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// branchOutside reports whether a sandbox's branch is in a repository of this
// machine's.
func branchOutside(r *api.SandboxRepository) bool {
	return r != nil && r.Worktree && filepath.IsAbs(r.Source)
}

// checkoutOf is the top of the checkout to change: one that is named, else the
// one that the current directory is in. A sandbox's own is none.
func checkoutOf(dir string, s api.Sandbox) (string, error) {
	if dir == "" {
		dir = "."
	}
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", cove.Errorf(cove.InvalidArgument, "%s: %w", dir, cause(err))
	}
	if within(abs, s.Directory) {
		return "", cove.Errorf(cove.InvalidArgument, "this directory is the sandbox's own checkout").WithHint("say which one to change with --to DIR")
	}
	top := repositoryTop(abs)
	if top == "" || !exists(filepath.Join(top, ".git")) {
		return "", cove.Errorf(cove.InvalidArgument, "%s is in no checkout of a repository", dir).WithHint("say which one to change with --to DIR")
	}
	return top, nil
}

func (a *app) sayApplied(done api.AppliedWork, dir string) error {
	for _, c := range done.Changes {
		if err := a.print(fmt.Sprintf("%-8s %s\n", c.Change, printable(c.Path))); err != nil {
			return err
		}
	}
	if len(done.Changes)+len(done.Conflicts) == 0 {
		a.say.line("the sandbox has changed nothing")
	} else if len(done.Changes) > 0 {
		a.say.line("%s", appliedText(len(done.Changes), dir))
	}
	return nil
}

// appliedText says how many files were changed.
func appliedText(n int, dir string) string {
	text, them := fmt.Sprintf("%d files of %s are changed", n, dir), "them"
	if n == 1 {
		text, them = fmt.Sprintf("1 file of %s is changed", dir), "it"
	}
	if repositoryTop(dir) == "" {
		return text
	}
	return text + "; \"git diff\" there shows " + them
}

func (a *app) pushCommand() *cobra.Command {
	var p pick
	var req api.PushRequest
	var yes, asJSON bool
	c := &cobra.Command{
		Use:   "push [SANDBOX]",
		Short: "Push what a sandbox has committed, from this machine",
		Long: `Push what a sandbox has committed to its repository's remote, with the credentials
of this machine, without force. At a terminal it shows the commits and asks;
elsewhere --yes has to be there, or --ask: then it waits until somebody allows it
with "cove approve" or by the API, for as long as what a policy asks about does.
Nobody answering is a denial. What is not committed stays.

` + pickHelp,
		Example:           "  cove push brave-otter\n  cove push brave-otter --ask\n  cove push brave-otter --branch fix-login --yes",
		ValidArgsFunction: a.completeSandbox,
		Args:              p.of,
		RunE: func(cmd *cobra.Command, _ []string) error {
			done, err := a.push(cmd.Context(), p, req, yes)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(done)
			}
			return a.print(done.Branch + "\n")
		},
	}
	p.add(c.Flags())
	c.Flags().StringVar(&req.Branch, "branch", "", "`BRANCH` of the remote, instead of the sandbox's own")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&req.Ask, "ask", false, "wait until somebody allows it: cove approve")
	c.MarkFlagsMutuallyExclusive("yes", "ask")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// push shows what would be pushed, asks, and pushes exactly that.
func (a *app) push(ctx context.Context, p pick, req api.PushRequest, yes bool) (api.PushedWork, error) {
	b, err := a.lasting(ctx)
	if err != nil {
		return api.PushedWork{}, err
	}
	defer b.close()
	s, err := p.find(ctx, b.client)
	if err != nil {
		return api.PushedWork{}, err
	}
	if req.Ask {
		a.say.line("waiting until somebody allows the push: %s", a.command("approve"))
	} else if !yes {
		if !isTerminal(a.In) || !isTerminal(a.Err) {
			return api.PushedWork{}, cove.Errorf(cove.InvalidArgument, "nobody can be asked whether to push the work of %s", s.Name).WithHint("look at it with %q, and add --yes; --ask waits for somebody else", a.command("log", s.Name))
		}
		w, err := b.client.ImportWork(ctx, s.ID)
		if err != nil {
			return api.PushedWork{}, err
		}
		req.Commit = headOf(w)
		shown := &patchWriter{to: a.Err}
		if err := b.client.LogWork(ctx, s.ID, client.WorkOptions{Short: true}, shown); err != nil {
			return api.PushedWork{}, err
		}
		if err := b.client.DiffWork(ctx, s.ID, client.WorkOptions{Stat: true}, shown); err != nil {
			return api.PushedWork{}, err
		}
		branch := orElse(req.Branch, w.Branch)
		if err := a.confirm(printable(fmt.Sprintf("push it to %s of %s? [y/N] ", branch, orElse(w.Remote, "its remote"))), "y", "yes"); err != nil {
			return api.PushedWork{}, err
		}
	}
	interrupts := watchSignals(a.Out)
	defer interrupts.stop()
	ctx, cancel := interrupts.cover(ctx)
	defer cancel()
	done, err := b.client.PushWork(ctx, s.ID, req)
	if err != nil {
		return done, interrupts.explain(err)
	}
	a.say.line("pushed %s to %s of %s", shortID(done.Commit), done.Branch, done.Remote)
	return done, nil
}

func headOf(w api.ImportedWork) string {
	for _, r := range w.Refs {
		if r.Name == "HEAD" {
			return r.ID
		}
	}
	return ""
}

func (a *app) prCommand() *cobra.Command {
	var p pick
	var title, body, base string
	var yes, ask, draft bool
	c := &cobra.Command{
		Use:   "pr [SANDBOX]",
		Short: "Push what a sandbox has committed, and open a pull request",
		Long: `Push what a sandbox has committed, as "cove push" does, and open a pull request
with "gh", GitHub's own command, as whoever is logged in there. Without gh it is
opened by GitHub's API, or that of a GitHub Enterprise server that the
configuration names, with the credential that pushes have. For other servers the
address is printed where one can be opened in a browser.

` + pickHelp,
		Example:           "  cove pr brave-otter --title 'Say who is logged in'\n  cove pr --last --draft",
		ValidArgsFunction: a.completeSandbox,
		Args:              p.of,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.pullRequest(cmd.Context(), p, pullRequest{title: title, body: body, base: base, draft: draft}, yes, ask)
		},
	}
	p.add(c.Flags())
	c.Flags().StringVarP(&title, "title", "t", "", "`TITLE` (default: the first line of the only commit, or the branch)")
	c.Flags().StringVarP(&body, "body", "b", "", "`TEXT` of its description (default: the commits)")
	c.Flags().StringVar(&base, "base", "", "`BRANCH` to merge into (default: the one the sandbox began at)")
	c.Flags().BoolVar(&draft, "draft", false, "as a draft")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&ask, "ask", false, "wait until somebody allows it: cove approve")
	c.MarkFlagsMutuallyExclusive("yes", "ask")
	return c
}

type pullRequest struct {
	title, body, base string
	draft             bool
}

func (a *app) pullRequest(ctx context.Context, p pick, q pullRequest, yes, ask bool) error {
	b, err := a.lasting(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	s, err := p.find(ctx, b.client)
	if err != nil {
		return err
	}
	if s.Repository == nil || s.Repository.Remote == "" {
		return cove.Errorf(cove.InvalidArgument, "the sandbox %s has no remote that could take a pull request", s.Name).WithHint("bring its work back with %q", a.command("apply", s.Name))
	}
	var log bytes.Buffer
	if err := b.client.LogWork(ctx, s.ID, client.WorkOptions{Short: true}, &log); err != nil {
		return err
	}
	done, err := a.push(ctx, pick{name: s.ID}, api.PushRequest{Ask: ask}, yes)
	if err != nil {
		return err
	}
	q.fill(s, done, log.String())
	host, repository, err := placeOf(done.Remote)
	if err != nil {
		return err
	}
	gh, err := exec.LookPath("gh")
	if err != nil {
		return a.openPull(ctx, b.client, s, done, q, fmt.Sprintf("https://%s/%s/compare/%s...%s?expand=1", host, repository, pathOf(q.base), pathOf(done.Branch)))
	}
	args := []string{"pr", "create", "--repo", host + "/" + repository, "--head", done.Branch, "--title", q.title, "--body", q.body}
	if q.base != "" {
		args = append(args, "--base", q.base)
	}
	if q.draft {
		args = append(args, "--draft")
	}
	c := exec.CommandContext(ctx, gh, args...)
	c.Dir = "/" // not in a repository whose configuration it would read
	c.Stdin, c.Stdout, c.Stderr = a.In, a.Out, a.Err
	if err := c.Run(); err != nil {
		return cove.Errorf(cove.Unavailable, "gh has not opened the pull request: %w", err).WithHint("the branch %s is pushed; see \"gh auth status\"", done.Branch)
	}
	return nil
}

// openPull has the server open a pull request, and prints its address; or that
// of a page where a person can, where the server cannot.
func (a *app) openPull(ctx context.Context, c *client.Client, s api.Sandbox, done api.PushedWork, q pullRequest, page string) error {
	if q.base == "" {
		a.say.line("which branch it is for is not known, so it is not opened; say it with --base, or open it here:")
		return a.print(page + "\n")
	}
	opened, err := c.OpenPull(ctx, s.ID, api.PullRequest{Branch: done.Branch, Base: q.base, Title: q.title, Body: q.body, Draft: q.draft})
	switch cove.ErrorCode(err) {
	case "":
		a.say.line("opened pull request %d", opened.Number)
		return a.print(printable(opened.URL) + "\n")
	case cove.Unsupported:
		a.say.line("%s; open it here:", err)
		return a.print(page + "\n")
	}
	return err
}

// fill says what nobody has said. The words of commits are the sandbox's.
func (q *pullRequest) fill(s api.Sandbox, done api.PushedWork, log string) {
	var subjects []string
	for line := range strings.Lines(log) {
		_, subject, _ := strings.Cut(strings.TrimSpace(line), " ")
		subjects = append(subjects, printable(subject))
	}
	if q.title == "" {
		q.title = done.Branch
		if len(subjects) == 1 {
			q.title = subjects[0]
		}
	}
	if q.body == "" && len(subjects) > 1 {
		q.body = "- " + strings.Join(subjects, "\n- ") + "\n"
	}
	if q.base == "" && s.Repository.From != s.Repository.Branch && !isCommit(s.Repository.From) {
		q.base = s.Repository.From
	}
}

// isCommit reports whether what a sandbox began at is no branch.
func isCommit(from string) bool {
	return len(from) >= 40 && strings.Trim(from, "0123456789abcdef") == ""
}

// placeOf is a repository's host, and its path there.
func placeOf(remote string) (host, repository string, err error) {
	u, err := url.Parse(remote)
	if err != nil || u.Host == "" {
		return "", "", cove.Errorf(cove.InvalidArgument, "%.200q is no address that could take a pull request", remote)
	}
	return u.Host, strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git"), nil
}

// pathOf is a branch within an address.
func pathOf(branch string) string {
	if branch == "" {
		return "HEAD"
	}
	return (&url.URL{Path: branch}).EscapedPath()
}

// errNoGitDirectory: git has not said whose helper this is.
var errNoGitDirectory = errors.New("GIT_DIR is not set")

// gitRemoteCommand is git's remote helper for cove::SANDBOX.
func (a *app) gitRemoteCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "git-remote NAME [SANDBOX]",
		Short: "Let git fetch from cove::SANDBOX",
		Long: `Let git fetch from cove::SANDBOX, as the remote helper git-remote-cove: git runs
it, and "cove setup git" puts it where git looks.`,
		Hidden: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usageError(cmd, "git calls it with the name of a remote and a SANDBOX")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.getenv("GIT_DIR") == "" {
				return cove.Errorf(cove.InvalidArgument, "%w", errNoGitDirectory).WithHint("git runs this: git fetch cove::SANDBOX")
			}
			name := strings.TrimPrefix(strings.TrimPrefix(args[len(args)-1], "cove::"), "//")
			return a.withServer(cmd, func(ctx context.Context, c *client.Client) error {
				s, err := pick{name: name}.find(ctx, c)
				if err != nil {
					return err
				}
				return a.serveGit(ctx, func() (api.ImportedWork, error) { return c.ImportWork(ctx, s.ID) })
			})
		},
	}
}

func (a *app) setupCommand() *cobra.Command {
	return group(&cobra.Command{Use: "setup", Short: "Make other programs know of Cove"}, a.setupGit())
}

func (a *app) setupGit() *cobra.Command {
	dir := ""
	c := &cobra.Command{
		Use:   "git",
		Short: "Let git fetch from sandboxes: git fetch cove::SANDBOX",
		Long: `Put git-remote-cove, another name of this program, where git finds it: beside this
program, or in --dir, which should be in PATH. Then git fetches from sandboxes:

  git fetch cove::SANDBOX          # what is checked out there
  git fetch cove::SANDBOX refs/cove/work   # with what is not committed`,
		Example: "  cove setup git\n  cove setup git --dir ~/.local/bin",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			if dir == "" {
				dir = filepath.Dir(self)
			}
			link := filepath.Join(dir, gitHelper)
			if to, err := os.Readlink(link); err == nil && to == self {
				return a.print(link + "\n")
			}
			if err := os.Symlink(self, link); err != nil {
				return cove.Errorf(cove.InvalidArgument, "cannot make %s: %w", link, errors.Unwrap(err)).WithHint("choose a directory in PATH with --dir, or remove what is there")
			}
			if found, err := exec.LookPath(gitHelper); err != nil || !sameFile(found, link) {
				a.say.line("%s is not in PATH yet: git does not find it", dir)
			}
			return a.print(link + "\n")
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "`DIR` to put it in")
	return c
}

func sameFile(a, b string) bool {
	ia, err := os.Stat(a)
	if err != nil {
		return false
	}
	ib, err := os.Stat(b)
	return err == nil && os.SameFile(ia, ib)
}
