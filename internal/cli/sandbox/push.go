package sandbox

import (
	"cmp"
	"context"
	"fmt"

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
elsewhere --yes has to be there, or --ask: then it waits until somebody allows it
with "cove approve" or by the API, for as long as what a policy asks about does.
Nobody answering is a denial. What is not committed stays.`,
		Example: "  cove push brave-otter\n  cove push brave-otter --ask\n  cove push brave-otter --branch fix-login --yes",
	}
	p.AddTo(sess, c)
	c.Flags().StringVar(&req.Branch, "branch", "", "`BRANCH` of the remote, instead of the sandbox's own")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&req.Ask, "ask", false, "wait until somebody allows it: cove approve")
	c.MarkFlagsMutuallyExclusive("yes", "ask")
	return sess.Showing(c, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		done, err := push(cmd.Context(), sess, p, req, yes)
		return ui.Result{Value: done, Text: done.Branch + "\n"}, err
	})
}

// push shows what would be pushed, asks, and pushes exactly that.
func push(ctx context.Context, sess *session.Session, p flags.Target, req api.PushRequest, yes bool) (api.PushedWork, error) {
	b, err := sess.Server(ctx)
	if err != nil {
		return api.PushedWork{}, err
	}
	defer b.Close()
	s, err := p.Find(ctx, b.Client)
	if err != nil {
		return api.PushedWork{}, err
	}
	if req.Ask {
		sess.Say.Line("waiting until somebody allows the push: %s", sess.Command("approve"))
	} else if !yes {
		if !ui.IsTerminal(sess.In) || !ui.IsTerminal(sess.Err) {
			return api.PushedWork{}, cove.Errorf(cove.InvalidArgument, "nobody can be asked whether to push the work of %s", s.Name).WithHint("look at it with %q, and add --yes; --ask waits for somebody else", sess.Command("log", s.Name))
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
		if err := sess.Confirm(ui.Printable(fmt.Sprintf("push it to %s of %s? [y/N] ", branch, cmp.Or(w.Remote, "its remote"))), "y", "yes"); err != nil {
			return api.PushedWork{}, err
		}
	}
	interrupts := ui.WatchSignals(sess.Out)
	defer interrupts.Stop()
	ctx, cancel := interrupts.Cover(ctx)
	defer cancel()
	done, err := b.Client.PushWork(ctx, s.ID, req)
	if err != nil {
		return done, interrupts.Explain(err)
	}
	sess.Say.Line("pushed %s to %s of %s", shortID(done.Commit), done.Branch, done.Remote)
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
