package agent

import (
	"context"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/interact"
	"github.com/cove-sandbox/cove/internal/cli/session"
)

// inDevContainer makes the sandbox of a task by the dev container of its directory, if there is one and the user
// agrees. The task then works in that sandbox, which goes as one that is made for it.
func inDevContainer(ctx context.Context, sess *session.Session, o *options, req *api.RunRequest) error {
	if req.New == nil || o.bind || sess.Far() {
		if o.dev.Use != "" {
			return cove.Errorf(cove.InvalidArgument, "--devcontainer is about the copy of a directory, on this machine").
				WithHint("leave out --bind and --server")
		}
		return nil
	}
	wanted := *req.New
	wanted.Agent, wanted.AgentTasks = o.Agent, true
	wanted.Repository = &api.RepositoryRequest{Source: req.Directory, Uncommitted: true, Ignored: req.Ignored}
	o.dev.Quiet = o.quiet || sess.JSON
	found, err := o.dev.Bring(ctx, sess, &wanted)
	if err != nil || found == nil {
		return err
	}
	s, err := interact.CreateSandbox(ctx, sess, wanted)
	if err != nil {
		return err
	}
	o.made = true
	req.New, req.Directory, req.Ignored, req.Sandbox = nil, "", nil, s.ID
	return found.Begin(ctx, sess, s, false)
}
