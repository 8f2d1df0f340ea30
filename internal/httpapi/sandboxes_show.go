package httpapi

import (
	"cmp"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
)

// sandboxOf returns the wire form of a sandbox for a caller.
func sandboxOf(who cove.Principal, v sandbox.View) api.Sandbox {
	spec, shown := v.Spec, apispec.SpecOf(v.Spec.Spec)
	s := api.Sandbox{
		ID: string(v.ID), Name: v.Name, State: string(v.State), Error: v.Reason,
		Engine: spec.Engine, Isolation: shown.Isolation, Image: cmp.Or(spec.Image, "host"), Profile: spec.Profile,
		Agent:     spec.Agent,
		Directory: spec.Directory, WorkDir: spec.WorkDir, Within: string(v.Within),
		Network: string(cmp.Or(spec.Mode, cove.NetworkNone)), AllowPR: spec.AllowPR, Root: shown.Root,
		Debuggers: shown.Debuggers, SSHAgent: spec.SSHAgent != "",
		Limits: *shown.Limits, Mounts: shown.Mounts, Volumes: apispec.VolumesOf(spec.Volumes),
		Exposes:  sandbox.Exposed(spec.Mounts),
		Labels:   spec.Labels,
		DiskUsed: v.Disk.Bytes, DiskBound: string(v.Disk.Kind),
		CreatedBy: v.Owner.String(), OfAnother: v.Owner != who, CreatedAt: v.CreatedAt, LastUsedAt: v.LastUsedAt,
	}
	if spec.User.IsOfImage() {
		s.User = spec.User.Name
	}
	if !who.IsOwner() {
		s.Directory = "" // the places on the host are the owner's
	}
	if len(spec.Brought)+len(spec.LeftOut) > 0 {
		s.AgentConfig = &api.AgentConfigShown{Brought: slices.Concat([]string{}, spec.Brought), LeftOut: spec.LeftOut}
	}
	for _, of := range v.Services {
		s.Services = append(s.Services, api.Service{Name: of.Spec.Service.Name, Sandbox: of.Name, ID: string(of.ID),
			Image: of.Spec.Image, State: string(of.State), Error: of.Reason})
	}
	s.ServiceOf = string(spec.Group)
	s.Made = apispec.Made(v.Made)
	if r := spec.Repository; r != nil {
		s.Repository = &api.SandboxRepository{
			Source: r.Source, Remote: r.Remote, Branch: r.Branch, From: r.From, Base: r.Base, Worktree: r.Worktree,
		}
	}
	if v.Terminals != nil {
		s.Terminals = terminalsOf(v.Terminals)
	}
	return s
}

// terminalsOf returns the wire form of terminals, never nil.
func terminalsOf(all []terminals.Info) []api.Terminal {
	shown := make([]api.Terminal, len(all))
	for i, t := range all {
		shown[i] = api.Terminal{
			ID: t.ID, Args: t.Args, Title: t.Title, Attached: t.Attached, Rows: t.Size.Rows, Columns: t.Size.Columns,
			CreatedAt: t.Created.UTC(), ExitCode: t.Exit,
		}
	}
	return shown
}
