package apispec

import (
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/egress/decision"
)

// Decision returns the wire form of a decision.
func Decision(d decision.Decision) api.Decision {
	return api.Decision{
		Seq: d.Seq, Time: d.Time, Execution: d.Execution, Sandbox: d.Sandbox, Client: d.Client,
		Entry: api.Entry(d.Entry), Protocol: api.Protocol(d.Protocol), Host: d.Host, Port: d.Port,
		Method: d.Method, Path: d.Path,
		Verdict: api.Verdict(d.Verdict), Stage: api.Stage(d.Stage), Rule: d.Rule, Reason: d.Reason, Remedy: d.Remedy,
		Status: d.Status, Sent: d.Sent, Received: d.Received, Duration: d.Duration, Count: d.Count,
	}
}

// Decisions returns the wire form of decisions, never nil.
func Decisions(all []decision.Decision) []api.Decision {
	out := make([]api.Decision, len(all))
	for i, d := range all {
		out[i] = Decision(d)
	}
	return out
}
