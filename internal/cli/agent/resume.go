package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/git/folder"
)

const (
	// mostSearched is among how many runs of an agent --resume looks for a conversation.
	mostSearched = 1000
	// mostOffered is how many conversations of other directories an error lists.
	mostOffered = 4
)

// conversations are the runs of an agent that decide what --resume without a run takes.
type conversations struct {
	last    *api.Run // the newest run in the directory, and why it cannot go on, if it cannot
	why     string
	next    *api.Run  // the newest run in the directory that can go on
	offered []api.Run // runs elsewhere that can go on, newest first
}

// conversationsOf sorts the runs of an agent, newest first, by the sandboxes that are there. It is pure.
func conversationsOf(runs []api.Run, there []api.Sandbox, dir string) (c conversations) {
	offered := map[string]bool{} // by sandbox
	for i := range runs {
		r := &runs[i]
		if r.Interactive {
			continue
		}
		sandbox := sandboxOf(*r, there)
		why := whyNotResumed(*r, sandbox)
		if r.Directory == dir || sandbox != nil && sandbox.Repository != nil && sandbox.Repository.Source == dir {
			if c.last == nil {
				c.last, c.why = r, why
			}
			if why == "" && c.next == nil {
				c.next = r
			}
		} else if why == "" && !offered[r.Sandbox] {
			offered[r.Sandbox] = true
			c.offered = append(c.offered, *r)
		}
	}
	return c
}

// sandboxOf returns the sandbox of a run, or nil when it is gone.
func sandboxOf(r api.Run, there []api.Sandbox) *api.Sandbox {
	if i := slices.IndexFunc(there, func(s api.Sandbox) bool { return s.ID == r.Sandbox }); i >= 0 {
		return &there[i]
	}
	return nil
}

// whyNotResumed returns why a run cannot go on in its sandbox, which is nil when it is gone; empty if it can.
func whyNotResumed(r api.Run, sandbox *api.Sandbox) string {
	switch {
	case r.Status == api.RunRunning:
		return "it has not ended"
	case sandbox == nil:
		return "its sandbox is gone"
	case r.Session == "":
		return "it has given its conversation no name"
	case sandbox.State != string(cove.StateRunning) && sandbox.State != string(cove.StateStopped):
		return "its sandbox " + sandbox.Name + " is " + sandbox.State
	}
	return ""
}

// lastConversation returns the newest run of an agent in a directory that can go on, and a message about a newer one
// that cannot. Errors: NotFound, with the runs of other directories that can.
func lastConversation(ctx context.Context, c *client.Client, far bool, agent, dir string) (next api.Run, skipped string,
	err error) {
	runs, err := session.UpTo(mostSearched, func(cursor string, n int) ([]api.Run, string, error) {
		l, err := c.Runs(ctx, client.RunQuery{Agent: agent, Before: cursor, Limit: n})
		return l.Runs, l.Next, err
	})
	if err != nil {
		return next, "", err
	}
	there, err := c.Sandboxes(ctx)
	if err != nil {
		return next, "", err
	}
	name := dir
	if far {
		name = folder.Name(dir)
	}
	all := conversationsOf(runs, there.Sandboxes, name)
	if all.next == nil {
		return next, "", all.none(agent, dir)
	}
	if all.next != all.last {
		skipped = fmt.Sprintf("the last run here, %s, cannot go on: %s", all.last.ID, all.why)
	}
	next = *all.next
	next.Directory = dir
	return next, skipped, nil
}

// none returns the error for a directory in which no run can go on.
func (c conversations) none(agent, dir string) error {
	err := cove.Errorf(cove.NotFound, "%s has done nothing in %s yet", agent, dir)
	if c.last != nil {
		err = cove.Errorf(cove.NotFound, "no conversation of %s in %s can go on; its last run, %s: %s",
			agent, dir, c.last.ID, c.why)
	}
	if len(c.offered) == 0 {
		return err.WithHint("begin a new one, without --resume; --keep keeps its sandbox")
	}
	var parts []string
	for _, r := range c.offered[:min(len(c.offered), mostOffered)] {
		parts = append(parts, fmt.Sprintf("%s (%s, %s)", r.ID, cmp.Or(r.Directory, r.SandboxName),
			ui.Ago(time.Since(r.StartedAt))))
	}
	return err.WithHint("elsewhere these can, with --resume=RUN: %s", strings.Join(parts, ", "))
}
