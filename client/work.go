package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// ImportWork imports a sandbox's work in its repository.
func (c *Client) ImportWork(ctx context.Context, sandbox string) (api.ImportedWork, error) {
	var done api.ImportedWork
	path, err := sandboxPath(sandbox)
	if err != nil {
		return done, err
	}
	err = c.call(ctx, http.MethodPost, path+"/import", nil, &done)
	return done, err
}

// WorkOptions select and format a sandbox's work.
type WorkOptions struct {
	Stat  bool     // of differences: files with line counts
	Names bool     // of differences: file names only
	Short bool     // of commits: one line each
	Paths []string // of the repository; nil: all
}

// DiffWork writes a sandbox's changes. The text is the sandbox's: a terminal would obey its control sequences.
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

// LogWork writes a sandbox's commits, newest first; see DiffWork.
func (c *Client) LogWork(ctx context.Context, sandbox string, o WorkOptions, out io.Writer) error {
	q := o.query()
	if o.Short {
		q.set("short", "true")
	}
	return c.text(ctx, sandbox, "/log", q, out)
}

// WorkChanges returns a sandbox's changes; with patches, each file has its patch.
func (c *Client) WorkChanges(ctx context.Context, sandbox string, paths []string,
	patches bool) (api.WorkChanges, error) {
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

// WorkCommits returns a sandbox's commits, newest first.
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

// text copies a text answer.
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
			return err // an error of out itself
		}
		if ctx.Err() != nil {
			return cove.Errorf(cove.Canceled, "the request was given up: %w", context.Cause(ctx))
		}
		return cove.Errorf(cove.Unavailable, "the answer broke off: %w", err).WithHint("look at the server's log")
	}
	return nil
}

// brokenOffReader remembers the error of reading.
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

// ApplyWork applies a sandbox's changes to a directory of the server's machine.
func (c *Client) ApplyWork(ctx context.Context, sandbox string, req api.ApplyRequest) (api.AppliedWork, error) {
	var done api.AppliedWork
	path, err := sandboxPath(sandbox)
	if err != nil {
		return done, err
	}
	err = c.call(ctx, http.MethodPost, path+"/apply", req, &done)
	return done, err
}

// OpenPull opens a pull request for pushed work.
func (c *Client) OpenPull(ctx context.Context, sandbox string, req api.PullRequest) (api.OpenedPull, error) {
	var done api.OpenedPull
	path, err := sandboxPath(sandbox)
	if err != nil {
		return done, err
	}
	err = c.call(ctx, http.MethodPost, path+"/pull", req, &done)
	return done, err
}

// PushWork pushes a sandbox's commits.
func (c *Client) PushWork(ctx context.Context, sandbox string, req api.PushRequest) (api.PushedWork, error) {
	var done api.PushedWork
	path, err := sandboxPath(sandbox)
	if err != nil {
		return done, err
	}
	err = c.call(ctx, http.MethodPost, path+"/push", req, &done)
	return done, err
}
