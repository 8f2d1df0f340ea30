package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/cove-sandbox/cove/api"
)

// Agents lists the coding agents.
func (c *Client) Agents(ctx context.Context) ([]api.Agent, error) {
	l, err := ask[api.AgentList](ctx, c, http.MethodGet, at("/agents"), nil)
	return l.Agents, err
}

// InstallAgent installs a version of an agent, the pinned one if empty. progress receives the steps, and may be nil.
func (c *Client) InstallAgent(ctx context.Context, agent, version string,
	progress func(api.Progress)) (api.Agent, error) {
	var a api.Agent
	err := c.stepByStep(ctx, agentPath(agent, "install"), api.AgentInstall{Version: version}, progress,
		api.EventInstalled, &a)
	return a, err
}

// RemoveAgent removes an unused version of an agent, or all unused versions if empty.
func (c *Client) RemoveAgent(ctx context.Context, agent, version string) (removed []string, err error) {
	q := query{}
	q.set("version", version)
	r, err := ask[api.AgentRemoval](ctx, c, http.MethodDelete, agentPath(agent, "versions").with(q), nil)
	return r.Removed, err
}

// CheckAgent checks an agent's requirements.
func (c *Client) CheckAgent(ctx context.Context, agent string) (api.AgentReport, error) {
	return ask[api.AgentReport](ctx, c, http.MethodGet, agentPath(agent, "doctor"), nil)
}

func agentPath(agent, action string) endpoint {
	return at("/agents/" + url.PathEscape(agent) + "/" + action)
}
