package apispec

import (
	"slices"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/store"
)

// Run returns the wire form of a record.
func Run(r store.Run) api.Run {
	run := api.Run{
		ID: string(r.ID), Agent: r.Agent, Interactive: r.Interactive, Version: r.Version, Model: r.Model, Profile: r.Profile,
		Prompt: r.Prompt, Status: string(r.Status), ExitCode: r.ExitCode, LimitHit: string(r.Limit), Result: r.Result,
		Session: r.Session, Usage: r.Usage, Sandbox: r.Sandbox, SandboxName: r.SandboxName,
		Directory: r.Directory, Bind: r.Bind,
		Exposes: r.Exposes, Recordings: r.Recordings, Changes: Changes(r.Changes), Made: Made(r.Made), CreatedBy: r.CreatedBy,
		StartedAt: r.StartedAt, EndedAt: r.EndedAt, Cut: r.Cut, OutputGone: string(r.OutputGone),
		Unrecorded: r.Unrecorded,
	}
	run.Limits, run.Timeout = InForce(r.Spec.Limits)
	if f := r.Error; f != nil {
		run.Error = &api.Error{Error: f.Error, Code: f.Code, Hint: f.Hint}
	}
	return run
}

// Runs returns the wire form of a page.
func Runs(page store.RunPage) api.RunList {
	list := api.RunList{Runs: make([]api.Run, len(page.Runs)), Next: page.Next}
	for i, r := range page.Runs {
		list.Runs[i] = Run(r)
	}
	return list
}

// Changes returns the wire form of changed files, never nil.
func Changes(all []store.FileChange) []api.WorkChange {
	out := make([]api.WorkChange, len(all))
	for i, c := range all {
		out[i] = api.WorkChange(c)
	}
	return out
}

// Made returns the wire form of what was made in mounts; nil if nothing was.
func Made(all []hostpath.Made) (shown []api.Made) {
	for _, m := range all {
		shown = append(shown, api.Made{Paths: slices.Concat([]string{}, m.Paths()), Detail: m.Text()})
	}
	return shown
}

// AuditRecord returns the wire form of a record of the audit log.
func AuditRecord(r store.Record) api.AuditRecord { return api.AuditRecord(r) }
