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
	return ask[api.ImportedWork](ctx, c, http.MethodPost, sandboxPath(sandbox).below("/import"), nil)
}

// WorkOptions select and format a sandbox's work.
type WorkOptions struct {
	Stat   bool     // of differences: files with line counts
	Names  bool     // of differences: file names only
	Binary bool     // of differences: with the contents of binary files
	Short  bool     // of commits: one line each
	Paths  []string // of the repository; nil: all
}

// DiffWork writes a sandbox's changes. The text is the sandbox's: a terminal would obey its control sequences.
func (c *Client) DiffWork(ctx context.Context, sandbox string, o WorkOptions, out io.Writer) error {
	q := o.query()
	q.flag("stat", o.Stat)
	q.flag("names", o.Names)
	q.flag("binary", o.Binary)
	return c.copy(ctx, sandboxPath(sandbox).below("/diff").with(q), out)
}

// LogWork writes a sandbox's commits, newest first; see DiffWork.
func (c *Client) LogWork(ctx context.Context, sandbox string, o WorkOptions, out io.Writer) error {
	q := o.query()
	q.flag("short", o.Short)
	return c.copy(ctx, sandboxPath(sandbox).below("/log").with(q), out)
}

// WorkChanges returns a sandbox's changes; with patches, each file has its patch.
func (c *Client) WorkChanges(ctx context.Context, sandbox string, paths []string,
	patches bool) (api.WorkChanges, error) {
	q := WorkOptions{Paths: paths}.query()
	q.flag("patch", patches)
	return ask[api.WorkChanges](ctx, c, http.MethodGet, sandboxPath(sandbox).below("/changes").with(q), nil)
}

// HeldWork counts the work of a sandbox that was neither pushed nor applied.
func (c *Client) HeldWork(ctx context.Context, sandbox string) (api.HeldWork, error) {
	return ask[api.HeldWork](ctx, c, http.MethodGet, sandboxPath(sandbox).below("/held"), nil)
}

// WorkCommits returns a sandbox's commits, newest first.
func (c *Client) WorkCommits(ctx context.Context, sandbox string, paths []string) (api.WorkCommits, error) {
	to := sandboxPath(sandbox).below("/commits").with(WorkOptions{Paths: paths}.query())
	return ask[api.WorkCommits](ctx, c, http.MethodGet, to, nil)
}

func (o WorkOptions) query() query {
	q := query{}
	for _, p := range o.Paths {
		url.Values(q).Add("path", p)
	}
	return q
}

// copy copies an answer to out as it comes.
func (c *Client) copy(ctx context.Context, from endpoint, out io.Writer) error {
	resp, err := c.send(ctx, http.MethodGet, from, "", nil)
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
	return ask[api.AppliedWork](ctx, c, http.MethodPost, sandboxPath(sandbox).below("/apply"), req)
}

// SendWork writes what a machine needs to apply a sandbox's changes to a directory of its own.
func (c *Client) SendWork(ctx context.Context, sandbox string, out io.Writer) error {
	return c.copy(ctx, sandboxPath(sandbox).below("/work"), out)
}

// OpenPull opens a pull request for pushed work.
func (c *Client) OpenPull(ctx context.Context, sandbox string, req api.PullRequest) (api.OpenedPull, error) {
	return ask[api.OpenedPull](ctx, c, http.MethodPost, sandboxPath(sandbox).below("/pull"), req)
}

// PushWork pushes a sandbox's commits.
func (c *Client) PushWork(ctx context.Context, sandbox string, req api.PushRequest) (api.PushedWork, error) {
	return ask[api.PushedWork](ctx, c, http.MethodPost, sandboxPath(sandbox).below("/push"), req)
}
