package client

import (
	"context"
	"net/http"

	"github.com/cove-sandbox/cove/api"
)

// The methods in this file are for detached sandboxes. A sandbox is named by its name, its id, or a unique prefix of
// either.

// CreateSandbox makes a detached sandbox. progress receives the steps, and may be nil. If ctx ends before it is made,
// nothing is left.
func (c *Client) CreateSandbox(ctx context.Context, req api.SandboxRequest,
	progress func(api.Progress)) (api.Sandbox, error) {
	var made api.Sandbox
	err := c.stepByStep(ctx, at("/sandboxes"), req, progress, api.EventCreated, &made)
	return made, err
}

// CheckSandbox returns the error that CreateSandbox would return before anything is fetched or made. The repository and
// the image are not looked at, and an upload need not be there.
func (c *Client) CheckSandbox(ctx context.Context, req api.SandboxRequest) error {
	return c.call(ctx, http.MethodPost, at("/sandboxes/check"), req, nil)
}

// Sandboxes returns the caller's sandboxes, newest first, and orphans.
func (c *Client) Sandboxes(ctx context.Context) (api.SandboxList, error) {
	return c.LabeledSandboxes(ctx, nil)
}

// LabeledSandboxes returns the caller's sandboxes that have all of some labels, newest first.
func (c *Client) LabeledSandboxes(ctx context.Context, labels map[string]string) (api.SandboxList, error) {
	q := query{}
	q.labels(labels)
	return ask[api.SandboxList](ctx, c, http.MethodGet, at("/sandboxes").with(q), nil)
}

// Sandbox returns a sandbox.
func (c *Client) Sandbox(ctx context.Context, sandbox string) (api.Sandbox, error) {
	return c.sandbox(ctx, http.MethodGet, sandbox, "", nil)
}

// StartSandbox starts a stopped sandbox.
func (c *Client) StartSandbox(ctx context.Context, sandbox string) (api.Sandbox, error) {
	return c.sandbox(ctx, http.MethodPost, sandbox, "/start", nil)
}

// StopSandbox stops a sandbox; its workspace and home stay.
func (c *Client) StopSandbox(ctx context.Context, sandbox string) (api.Sandbox, error) {
	return c.sandbox(ctx, http.MethodPost, sandbox, "/stop", nil)
}

// PauseSandbox freezes a sandbox.
func (c *Client) PauseSandbox(ctx context.Context, sandbox string) (api.Sandbox, error) {
	return c.sandbox(ctx, http.MethodPost, sandbox, "/pause", nil)
}

// ResumeSandbox continues a paused sandbox.
func (c *Client) ResumeSandbox(ctx context.Context, sandbox string) (api.Sandbox, error) {
	return c.sandbox(ctx, http.MethodPost, sandbox, "/resume", nil)
}

// CommitSandbox makes an image of what a sandbox has changed of its own. If ctx ends before, nothing is left.
func (c *Client) CommitSandbox(ctx context.Context, sandbox string, req api.CommitRequest) (api.CommittedImage, error) {
	return ask[api.CommittedImage](ctx, c, http.MethodPost, sandboxPath(sandbox).below("/commit"), req)
}

// RenameSandbox renames a sandbox.
func (c *Client) RenameSandbox(ctx context.Context, sandbox, name string) (api.Sandbox, error) {
	return c.sandbox(ctx, http.MethodPatch, sandbox, "", api.SandboxChange{Name: name})
}

// ResizeSandbox changes the size of a sandbox's disk, in MiB.
func (c *Client) ResizeSandbox(ctx context.Context, sandbox string, diskMB int64) (api.Sandbox, error) {
	return c.sandbox(ctx, http.MethodPatch, sandbox, "", api.SandboxChange{DiskMB: diskMB})
}

// DestroySandbox removes a sandbox, or an orphan by its id; with keepWork its checkout stays in place. It returns what
// the sandbox has made in writable mounts.
func (c *Client) DestroySandbox(ctx context.Context, sandbox string, keepWork bool) (said api.Destroyed, err error) {
	q := query{}
	q.flag("keep_work", keepWork)
	resp, err := c.send(ctx, http.MethodDelete, sandboxPath(sandbox).with(q), "", nil)
	if err != nil {
		return said, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		err = decode(resp.Body, &said)
	}
	return said, err
}

// SandboxNetwork returns what a sandbox may reach.
func (c *Client) SandboxNetwork(ctx context.Context, sandbox string) (api.SandboxNetwork, error) {
	return ask[api.SandboxNetwork](ctx, c, http.MethodGet, sandboxPath(sandbox).below("/network"), nil)
}

// ChangeSandboxNetwork changes a sandbox's network permission, at once and for later starts.
func (c *Client) ChangeSandboxNetwork(ctx context.Context, sandbox string,
	change api.SandboxNetworkChange) (api.NetworkChanged, error) {
	return ask[api.NetworkChanged](ctx, c, http.MethodPost, sandboxPath(sandbox).below("/network"), change)
}

// SandboxAuthority returns the certificate authority that a sandbox trusts.
func (c *Client) SandboxAuthority(ctx context.Context, sandbox string) (api.Authority, error) {
	return ask[api.Authority](ctx, c, http.MethodGet, sandboxPath(sandbox).below("/ca"), nil)
}

func (c *Client) sandbox(ctx context.Context, method, sandbox, action string, body any) (api.Sandbox, error) {
	return ask[api.Sandbox](ctx, c, method, sandboxPath(sandbox).below(action), body)
}

// sandboxPath returns a sandbox's path, and refuses names that would change the path.
func sandboxPath(sandbox string) endpoint {
	return at("/sandboxes").item(sandbox, "the name of a sandbox")
}
