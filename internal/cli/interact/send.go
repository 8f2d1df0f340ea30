package interact

import (
	"context"
	"io"
	"path/filepath"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/git/folder"
)

// SendFolder sends the directory of this machine that a repository is, if it is one and the server is of another
// machine, and returns the repository for the server's request. check asks the server first whether it takes that
// request, with a repository without an upload in it. The folder does not change.
func SendFolder(ctx context.Context, sess *session.Session, c *client.Client, r *api.RepositoryRequest,
	check func(*api.RepositoryRequest) error, step func(api.Progress)) (*api.RepositoryRequest, error) {
	if r == nil || !sess.Far() || !filepath.IsAbs(r.Source) {
		return r, nil
	}
	if r.Worktree || r.Depth > 0 || len(r.Ignored) > 0 {
		return nil, cove.Errorf(cove.Unsupported, "--worktree, --depth and --with-ignored are not possible for a "+
			"directory of this machine and the server %s", sess.ServerAddress()).
			WithHint("leave them out, or push it and name the repository: OWNER/REPO or an address")
	}
	sent := &api.RepositoryRequest{Source: folder.Name(r.Source), Branch: r.Branch, Sparse: r.Sparse,
		Upload: &api.UploadedFolder{}}
	if err := check(sent); err != nil {
		return nil, err
	}
	tell := func(text string) { step(api.Progress{Step: text}) }
	p, err := folder.NewPack(ctx, r.Source, folder.Wanted{Branch: r.Branch, From: r.From, Uncommitted: r.Uncommitted,
		Tell: tell})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	tell("sending " + r.Source)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from, to := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		to.CloseWithError(p.Write(ctx, to))
	}()
	upload, err := c.Upload(ctx, from)
	cancel()
	from.Close()
	<-written
	if err != nil {
		return nil, err
	}
	sent.Upload = &api.UploadedFolder{ID: upload.ID, Commit: p.Commit, From: p.From, Shallow: p.Shallow, Remote: p.Remote}
	return sent, nil
}

// ApplyWork changes a directory of this machine as a sandbox has changed its own, wherever the server is.
func ApplyWork(ctx context.Context, sess *session.Session, c *client.Client, sandbox string,
	req api.ApplyRequest) (api.AppliedWork, error) {
	if !sess.Far() {
		return c.ApplyWork(ctx, sandbox, req)
	}
	from, to := io.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan error, 1)
	go func() {
		err := c.SendWork(ctx, sandbox, to)
		to.CloseWithError(err)
		sent <- err
	}()
	done, err := session.ApplyHere(ctx, sess, from, req)
	from.Close()
	cancel()
	if why := <-sent; err != nil && why != nil && cove.ErrorCode(why) != cove.Canceled && cove.ErrorCode(why) != "" {
		err = why
	}
	return done, err
}
