package apispec

import (
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/store"
)

// Execution returns the wire form of a record.
func Execution(e store.Execution) api.Execution {
	events := make([]api.SecurityEvent, len(e.Events))
	for i, ev := range e.Events {
		events[i] = api.SecurityEvent{Rule: ev.Rule, Severity: string(ev.Severity), Line: ev.Line, Detail: ev.Detail,
			Remedy: ev.Remedy, Paths: ev.Paths}
	}
	limits, timeout := InForce(e.Spec.Limits)
	return api.Execution{
		ID: string(e.ID), Language: e.Language, Engine: e.Engine, Status: api.Status(e.Status), Output: e.Output,
		Stderr:   e.Stderr,
		ExitCode: e.ExitCode, Duration: e.Duration.Seconds(), LimitHit: string(e.Limit), Truncated: e.Truncated,
		OutputGone: string(e.OutputGone),
		Limits:     limits, Timeout: timeout,
		Usage: api.ResourceUsage{
			CPUTimeMS: float64(e.Usage.CPUTime.Microseconds()) / 1000, MemoryPeakMB: float64(e.Usage.MemoryPeak) / (1 << 20),
			PIDsUsed: e.Usage.PIDsPeak, BytesWritten: e.Usage.BytesWritten, DiskUsed: e.Usage.DiskUsed,
		},
		Models: Models(e.Models), SecurityEvents: events, Labels: e.Spec.Labels,
		CreatedAt: e.CreatedAt, FinishedAt: e.FinishedAt, Error: e.Error,
	}
}

// Models returns the wire form of the use of models.
func Models(all []model.ProviderUsage) (shown []api.ModelUsage) {
	for _, u := range all {
		shown = append(shown, api.ModelUsage{
			Provider: u.Provider, Requests: u.Requests, InputTokens: u.Input, OutputTokens: u.Output,
			CacheReadTokens: u.CacheRead, CacheWriteTokens: u.CacheWrite, Cost: u.Cost, Estimated: u.Estimated,
		})
	}
	return shown
}
