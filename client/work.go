package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// ImportWork takes over what a sandbox has done in its repository.
func (c *Client) ImportWork(ctx context.Context, sandbox string) (api.ImportedWork, error) {
	var done api.ImportedWork
	path, err := sandboxPath(sandbox)
	if err != nil {
		return done, err
	}
	err = c.call(ctx, http.MethodPost, path+"/import", nil, &done)
	return done, err
}

// WorkOptions say what is shown of a sandbox's work.
type WorkOptions struct {
	Stat  bool     // of differences: which files, and how many lines
	Names bool     // of differences: which files
	Short bool     // of commits: one line each
	Paths []string // of the repository; nil is all
}

// DiffWork writes what a sandbox has changed. What is written is the sandbox's:
// a terminal may obey what is in it.
func (c *Client) DiffWork(ctx context.Context, sandbox string, o WorkOptions, out io.Writer) error {
	q := o.query()
	if o.Stat {
		q.set("stat", "true")
	}
	if o.Names {
		q.set("names", "true")
	}
	return c.text(ctx, sandbox, "/diff", q, out)
}

// LogWork writes what a sandbox has committed, newest first; see DiffWork.
func (c *Client) LogWork(ctx context.Context, sandbox string, o WorkOptions, out io.Writer) error {
	q := o.query()
	if o.Short {
		q.set("short", "true")
	}
	return c.text(ctx, sandbox, "/log", q, out)
}

// WorkChanges lists what a sandbox has changed; patches says whether with the
// patch of each file.
func (c *Client) WorkChanges(ctx context.Context, sandbox string, paths []string, patches bool) (api.WorkChanges, error) {
	q := WorkOptions{Paths: paths}.query()
	if patches {
		q.set("patch", "true")
	}
	var done api.WorkChanges
	path, err := sandboxPath(sandbox)
	if err != nil {
		return done, err
	}
	err = c.call(ctx, http.MethodGet, q.of(path+"/changes"), nil, &done)
	return done, err
}

// WorkCommits lists what a sandbox has committed, newest first.
func (c *Client) WorkCommits(ctx context.Context, sandbox string, paths []string) (api.WorkCommits, error) {
	var done api.WorkCommits
	path, err := sandboxPath(sandbox)
	if err != nil {
		return done, err
	}
	err = c.call(ctx, http.MethodGet, WorkOptions{Paths: paths}.query().of(path+"/commits"), nil, &done)
	return done, err
}

func (o WorkOptions) query() query {
	q := query{}
	for _, p := range o.Paths {
		url.Values(q).Add("path", p)
	}
	return q
}

// text copies an answer that is text.
func (c *Client) text(ctx context.Context, sandbox, action string, q query, out io.Writer) error {
	path, err := sandboxPath(sandbox)
	if err != nil {
		return err
	}
	return c.copy(ctx, q.of(path+action), out)
}

// copy copies an answer to out as it comes.
func (c *Client) copy(ctx context.Context, path string, out io.Writer) error {
	resp, err := c.send(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body := &brokenOffReader{r: resp.Body}
	if _, err := io.Copy(out, body); err != nil {
		if body.err == nil {
			return err // out's own
		}
		if ctx.Err() != nil {
			return cove.Errorf(cove.Canceled, "the request was given up: %w", context.Cause(ctx))
		}
		return cove.Errorf(cove.Unavailable, "the answer broke off: %w", err).WithHint("look at the server's log")
	}
	return nil
}

// brokenOffReader remembers how reading failed.
type brokenOffReader struct {
	r   io.Reader
	err error
}

func (b *brokenOffReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

// ApplyWork changes a directory of the server's machine as a sandbox has changed
// its checkout.
func (c *Client) ApplyWork(ctx context.Context, sandbox string, req api.ApplyRequest) (api.AppliedWork, error) {
	var done api.AppliedWork
	path, err := sandboxPath(sandbox)
	if err != nil {
		return done, err
	}
	err = c.call(ctx, http.MethodPost, path+"/apply", req, &done)
	return done, err
}

// OpenPull opens a pull request for what was pushed.
func (c *Client) OpenPull(ctx context.Context, sandbox string, req api.PullRequest) (api.OpenedPull, error) {
	var done api.OpenedPull
	path, err := sandboxPath(sandbox)
	if err != nil {
		return done, err
	}
	err = c.call(ctx, http.MethodPost, path+"/pull", req, &done)
	return done, err
}

// PushWork pushes what a sandbox has committed.
func (c *Client) PushWork(ctx context.Context, sandbox string, req api.PushRequest) (api.PushedWork, error) {
	var done api.PushedWork
	path, err := sandboxPath(sandbox)
	if err != nil {
		return done, err
	}
	err = c.call(ctx, http.MethodPost, path+"/push", req, &done)
	return done, err
}
