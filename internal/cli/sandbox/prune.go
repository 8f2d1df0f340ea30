package sandbox

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/devcontainers"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// unused is a sandbox that was not used for a while, and what becomes of it.
type unused struct {
	api.Sandbox
	Work   string `json:"work"`   // what would be lost with it; empty is nothing
	Remove bool   `json:"remove"` // whether it is one to remove
}

func pruneCommand(sess *session.Session) *cobra.Command {
	var period string
	var work, dry, yes bool
	c := &cobra.Command{
		Use:   "prune",
		Short: "Remove sandboxes that are not used any more",
		Long: `Remove the sandboxes that were not used for a week, or another time, and that
hold no work: what was changed or committed in their checkouts, on any branch or in
the last stash, was pushed or applied, or programs make it again, such as
__pycache__. Those that hold work are listed; they are removed as well with
--with-work. A sandbox with a terminal, and one that was not used for a shorter
time, stays.

At a terminal it asks before; elsewhere --yes or --dry-run has to be there.`,
		Example: "  cove prune --dry-run\n  cove prune --unused 1d --yes",
	}
	f := c.Flags()
	f.StringVar(&period, "unused", "7d", "those that were not used for `TIME`, like 12h or 30d")
	f.BoolVar(&work, "with-work", false, "those that hold work, too: it is lost")
	f.BoolVar(&dry, "dry-run", false, "list them, and remove none")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask")
	return sess.Showing(c, func(cmd *cobra.Command, _ []string) (r ui.Result, err error) {
		age, ok := ui.ParsePeriod(period)
		if !ok {
			return r, cove.Errorf(cove.InvalidArgument, "--unused %q is no time", period).WithHint("write it like 12h or 30d")
		}
		since := time.Now().Add(-age)
		b, err := sess.Server(cmd.Context())
		if err != nil {
			return r, err
		}
		defer b.Close()
		all, err := findUnused(cmd.Context(), b.Client, since, work)
		if err == nil && len(all) == 0 {
			text := "every sandbox was used within " + period + "; --unused TIME is another time\n"
			return ui.Result{Value: map[string][]unused{"sandboxes": {}}, Text: text}, nil
		}
		if err != nil || dry {
			return pruned(all, dry), err
		}
		doomed := slices.DeleteFunc(slices.Clone(all), func(u unused) bool { return !u.Remove })
		if err := confirmPrune(sess, doomed, yes); err != nil {
			return r, err
		}
		ctx, interrupts := ui.CoverSignals(cmd.Context(), sess.Out)
		defer interrupts.Stop()
		for i := range all {
			if err := all[i].prune(ctx, sess, b.Client); err != nil {
				return r, interrupts.Explain(err)
			}
			sayMade(sess, all[i].Made)
		}
		return pruned(all, false), nil
	})
}

// findUnused looks into the sandboxes that were last used before since.
func findUnused(ctx context.Context, c *client.Client, since time.Time, work bool) (all []unused, err error) {
	l, err := c.Sandboxes(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(l.Sandboxes, func(a, b api.Sandbox) int { return a.LastUsedAt.Compare(b.LastUsedAt) })
	for _, s := range l.Sandboxes {
		if !idleSince(s, l.Sandboxes, since) {
			continue
		}
		u := unused{Sandbox: s}
		if u.Sandbox, err = c.Sandbox(ctx, s.ID); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(u.Terminals, func(t api.Terminal) bool { return t.ExitCode == nil }) {
			continue
		}
		u.Work = workOf(ctx, c, u.Sandbox)
		u.Remove = work || u.Work == ""
		all = append(all, u)
	}
	return all, nil
}

// prune removes one that is to be removed, unless it was used since it was looked at.
func (u *unused) prune(ctx context.Context, sess *session.Session, c *client.Client) error {
	if !u.Remove {
		return nil
	}
	now, err := c.Sandbox(ctx, u.ID)
	switch {
	case cove.ErrorCode(err) == cove.NotFound:
		return nil // another has removed it
	case err != nil:
		return err
	case now.LastUsedAt.After(u.LastUsedAt):
		u.LastUsedAt, u.Remove = now.LastUsedAt, false
		return nil
	}
	said, err := devcontainers.Remove(ctx, sess, c, u.ID, false)
	u.Made = said.Made
	return err
}

// idleSince reports whether s and what is within it were last used before a time. It is pure.
func idleSince(s api.Sandbox, all []api.Sandbox, since time.Time) bool {
	if s.State == "preparing" || s.State == "destroying" || s.LastUsedAt.After(since) {
		return false
	}
	return !slices.ContainsFunc(all, func(other api.Sandbox) bool {
		return other.Within == s.ID && other.LastUsedAt.After(since)
	})
}

// workOf says in words what a sandbox holds that is nowhere else; what cannot be found out is work.
func workOf(ctx context.Context, c *client.Client, s api.Sandbox) string {
	if s.Repository == nil {
		if s.DiskUsed == 0 {
			return ""
		}
		return ui.SizeText(s.DiskUsed) + " of files"
	}
	held, err := c.HeldWork(ctx, s.ID)
	if err != nil {
		return "not known: " + cove.ErrorMessage(err)
	}
	var parts []string
	if held.Commits > 0 {
		parts = append(parts, ui.Counted(held.Commits, "commit", "commits"))
	}
	if held.Files > 0 {
		parts = append(parts, ui.Counted(held.Files, "changed file", "changed files"))
	}
	return strings.Join(parts, ", ")
}

// confirmPrune asks the user. Errors: InvalidArgument without a terminal, Canceled when the answer is no.
func confirmPrune(sess *session.Session, doomed []unused, yes bool) error {
	if len(doomed) == 0 || yes {
		return nil
	}
	var all []api.Sandbox
	for _, u := range doomed {
		all = append(all, u.Sandbox)
	}
	if !ui.IsTerminal(sess.In) || !ui.IsTerminal(sess.Err) {
		return cove.Errorf(cove.InvalidArgument, "cannot ask whether to remove %s: this is no terminal", destroyNames(all)).
			WithHint("add --yes, or --dry-run to see them")
	}
	return sess.Confirm("remove "+destroyNames(all)+"? [y/N] ", "y", "yes")
}

func pruned(all []unused, dry bool) ui.Result {
	headings := []string{"NAME", "STATE", "USED", "SIZE", "WORK", "REMOVED"}
	r := ui.Listing("sandboxes", all, headings, func(u unused) []string {
		removed := map[bool]string{true: "yes", false: "no"}[u.Remove]
		if dry && u.Remove {
			removed = "would be"
		}
		return []string{u.Name, u.State, ui.Ago(time.Since(u.LastUsedAt)), ui.SizeText(u.DiskUsed), u.Work, removed}
	})
	if slices.ContainsFunc(all, func(u unused) bool { return u.Work != "" && !u.Remove }) {
		r.Notes = append(r.Notes, "those with work stay: \"cove diff SANDBOX\" shows it, and --with-work removes them, too")
	}
	return r
}
