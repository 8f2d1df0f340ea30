package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/report"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func pushCommand(sess *session.Session) *cobra.Command {
	var p flags.Target
	var req api.PushRequest
	yes := false
	c := &cobra.Command{
		Use:   "push",
		Short: "Push what a sandbox has committed, from this machine",
		Long: `Push what a sandbox has committed to its repository's remote, with the credentials
of this machine, without force. At a terminal it shows the commits and asks;
elsewhere it needs --yes or --ask. With --ask it waits until the push is allowed
with "cove approve" or by the API, as long as a request that a policy asks about.
A push without an answer is denied. What is not committed stays.`,
		Example: `  cove push brave-otter
  cove push brave-otter --ask
  cove push brave-otter --branch fix-login --yes`,
	}
	p.AddTo(sess, c)
	c.Flags().StringVar(&req.Branch, "branch", "", "`BRANCH` of the remote, instead of the sandbox's own")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&req.Ask, "ask", false, "wait until it is allowed with cove approve")
	c.MarkFlagsMutuallyExclusive("yes", "ask")
	return sess.Showing(c, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		done, err := push(cmd.Context(), sess, p, req, yes)
		return ui.Result{Value: done, Text: done.Branch + "\n"}, err
	})
}

// push shows what would be pushed, asks, and pushes exactly that.
func push(ctx context.Context, sess *session.Session, p flags.Target, req api.PushRequest,
	yes bool) (api.PushedWork, error) {
	b, s, err := p.Open(ctx, sess)
	if err != nil {
		return api.PushedWork{}, err
	}
	defer b.Close()
	if err := pushable(sess, s); err != nil {
		return api.PushedWork{}, err
	}
	if req.Ask {
		sess.Say.Line("waiting until the push is allowed: %s", sess.Command("approve"))
	} else if !yes {
		if !ui.IsTerminal(sess.In) || !ui.IsTerminal(sess.Err) {
			return api.PushedWork{}, cove.Errorf(cove.InvalidArgument,
				"cannot ask whether to push the work of %s: this is no terminal", s.Name).
				WithHint("look at it with %q, and add --yes; --ask waits for \"cove approve\"", sess.Command("log", s.Name))
		}
		w, err := b.Client.ImportWork(ctx, s.ID)
		if err != nil {
			return api.PushedWork{}, err
		}
		req.Commit = headOf(w)
		shown := &report.PatchWriter{To: sess.Err}
		if err := b.Client.LogWork(ctx, s.ID, client.WorkOptions{Short: true}, shown); err != nil {
			return api.PushedWork{}, err
		}
		if err := b.Client.DiffWork(ctx, s.ID, client.WorkOptions{Stat: true}, shown); err != nil {
			return api.PushedWork{}, err
		}
		branch := cmp.Or(req.Branch, w.Branch)
		question := fmt.Sprintf("push it to %s of %s? [y/N] ", branch, cmp.Or(w.Remote, "its remote"))
		if err := sess.Confirm(question, "y", "yes"); err != nil {
			return api.PushedWork{}, err
		}
	}
	ctx, interrupts := ui.CoverSignals(ctx, sess.Out)
	defer interrupts.Stop()
	done, err := b.Client.PushWork(ctx, s.ID, req)
	if err != nil {
		return done, interrupts.Explain(err)
	}
	sess.Say.Line("pushed %s to %s of %s", shortID(done.Commit), done.Branch, done.Remote)
	return done, nil
}

// pushable refuses a sandbox whose repository has no remote.
func pushable(sess *session.Session, s api.Sandbox) error {
	hint := "bring its work back with " + strconv.Quote(sess.Command("apply", s.Name))
	switch {
	case s.Repository == nil:
		return cove.Errorf(cove.Conflict, "the sandbox %s has no repository, and nowhere to push to", s.Name).
			WithHint("look at its files with %q", sess.Command("attach", s.Name))
	case s.Repository.Remote != "":
		return nil
	case flags.LocalFolder(s.Repository.Source) != "":
		hint += ", and push from " + flags.LocalFolder(s.Repository.Source)
	}
	return cove.Errorf(cove.Conflict, "the sandbox %s has no remote to push to: when it was made, "+
		"%s had no origin with an address", s.Name, s.Repository.Source).WithHint("%s", hint)
}

func headOf(w api.ImportedWork) string {
	for _, r := range w.Refs {
		if r.Name == "HEAD" {
			return r.ID
		}
	}
	return ""
}

func prCommand(sess *session.Session) *cobra.Command {
	var p flags.Target
	var q api.PullRequest
	var yes, ask bool
	c := &cobra.Command{
		Use:   "pr",
		Short: "Push what a sandbox has committed, and open a pull request",
		Long: `Push what a sandbox has committed, as "cove push" does, and open a pull request
with "gh", GitHub's own command, as the user who is logged in there. Without gh it is
opened by GitHub's API, or that of a GitHub Enterprise server that the
configuration names, with the credential that pushes have. For other servers the
address is printed where one can be opened in a browser.`,
		Example: "  cove pr brave-otter --title 'Say who is logged in'\n  cove pr --last --draft",
	}
	p.AddTo(sess, c)
	c.Flags().StringVar(&q.Title, "title", "", "`TITLE` (default: the first line of the only commit, or the branch)")
	ui.OldLetter(c.Flags(), "t", "title")
	c.Flags().StringVarP(&q.Body, "body", "b", "", "`TEXT` of its description (default: the commits)")
	c.Flags().StringVar(&q.Base, "base", "", "`BRANCH` to merge into (default: the one the sandbox began at)")
	c.Flags().BoolVar(&q.Draft, "draft", false, "as a draft")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&ask, "ask", false, "wait until it is allowed with cove approve")
	c.MarkFlagsMutuallyExclusive("yes", "ask")
	return sess.Showing(c, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		done, err := createPullRequest(cmd.Context(), sess, p, q, yes, ask)
		return ui.Result{Value: done, Text: done.text}, err
	})
}

// pulled is the result of "cove pr".
type pulled struct {
	api.PushedWork
	URL    string `json:"url,omitempty"`    // of the pull request, or of the page that opens one
	Opened bool   `json:"opened"`           // otherwise a user opens it
	Number int    `json:"number,omitempty"` // where the server says it
	text   string
}

// fill sets the title and body that the flags left out. The words of commits are the sandbox's.
func fill(q *api.PullRequest, s api.Sandbox, done api.PushedWork, log string) {
	q.Branch = done.Branch
	var subjects []string
	for line := range strings.Lines(log) {
		_, subject, _ := strings.Cut(strings.TrimSpace(line), " ")
		subjects = append(subjects, ui.Printable(subject))
	}
	if q.Title == "" {
		q.Title = done.Branch
		if len(subjects) == 1 {
			q.Title = subjects[0]
		}
	}
	if q.Body == "" && len(subjects) > 1 {
		q.Body = "- " + strings.Join(subjects, "\n- ") + "\n"
	}
	if q.Base == "" && s.Repository.From != s.Repository.Branch && !isCommit(s.Repository.From) {
		q.Base = s.Repository.From
	}
}

func createPullRequest(ctx context.Context, sess *session.Session, p flags.Target, q api.PullRequest,
	yes, ask bool) (made pulled, err error) {
	b, s, err := p.Open(ctx, sess)
	if err != nil {
		return made, err
	}
	defer b.Close()
	if err := pushable(sess, s); err != nil {
		return made, err
	}
	var log bytes.Buffer
	if err := b.Client.LogWork(ctx, s.ID, client.WorkOptions{Short: true}, &log); err != nil {
		return made, err
	}
	made.PushedWork, err = push(ctx, sess, flags.Target{Name: s.ID}, api.PushRequest{Ask: ask}, yes)
	if err != nil {
		return made, err
	}
	fill(&q, s, made.PushedWork, log.String())
	host, repository, err := flags.PlaceOf(made.Remote)
	if err != nil {
		return made, err
	}
	gh, err := exec.LookPath("gh")
	if err != nil {
		made.URL = fmt.Sprintf("https://%s/%s/compare/%s...%s?expand=1", host, repository, pathOf(q.Base),
			pathOf(made.Branch))
		return openPull(ctx, sess, b.Client, s.ID, q, made)
	}
	args := []string{"pr", "create", "--repo", host + "/" + repository, "--head", made.Branch, "--title", q.Title,
		"--body", q.Body}
	if q.Base != "" {
		args = append(args, "--base", q.Base)
	}
	if q.Draft {
		args = append(args, "--draft")
	}
	c := exec.CommandContext(ctx, gh, args...)
	c.Dir = "/" // not in a repository whose configuration it would read
	c.Stdin, c.Stdout, c.Stderr = sess.In, sess.Out, sess.Err
	var said bytes.Buffer
	if sess.JSON { // gh prints the address
		c.Stdout = &said
	}
	if err := c.Run(); err != nil {
		return made, cove.Errorf(cove.Unavailable, "gh has not opened the pull request: %w", err).
			WithHint("the branch %s is pushed; see \"gh auth status\"", made.Branch)
	}
	made.Opened, made.URL = true, ui.Printable(strings.TrimSpace(said.String()))
	return made, nil
}

// openPull asks the server to open a pull request. Where the server cannot, a user opens it on a page.
func openPull(ctx context.Context, sess *session.Session, c *client.Client, id string, q api.PullRequest,
	made pulled) (pulled, error) {
	made.text = made.URL + "\n"
	if q.Base == "" {
		sess.Say.Line("the pull request is not opened: its base branch is unknown. Name it with --base, or open it here:")
		return made, nil
	}
	opened, err := c.OpenPull(ctx, id, q)
	switch cove.ErrorCode(err) {
	case "":
		sess.Say.Line("opened pull request %d", opened.Number)
		made.Opened, made.Number, made.URL = true, opened.Number, ui.Printable(opened.URL)
		made.text = made.URL + "\n"
	case cove.Unsupported:
		sess.Say.Line("%s; open it here:", err)
	default:
		return made, err
	}
	return made, nil
}

// isCommit reports whether what a sandbox began at is no branch.
func isCommit(from string) bool {
	return len(from) >= 40 && strings.Trim(from, "0123456789abcdef") == ""
}

func pathOf(branch string) string {
	if branch == "" {
		return "HEAD"
	}
	return (&url.URL{Path: branch}).EscapedPath()
}
