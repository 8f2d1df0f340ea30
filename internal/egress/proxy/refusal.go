package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Rules that no policy can change.
const (
	ruleProtocol = "gateway: protocol"
	ruleTLS      = "gateway: tls"
)

// Answer is an answer of the gateway itself, in a form that the client can read. It is returned as an error.
type Answer struct {
	Status int
	Header http.Header // Content-Type and further headers
	Body   []byte
	Rule   string // for the record, if it refuses
	Reason string
}

func (a *Answer) Error() string { return a.Reason }

// Refusal is a stage's objection to a request that policy has allowed.
type Refusal struct {
	Code   cove.Code // Forbidden, Overloaded, Unavailable, …
	Rule   string
	Reason string        // one sentence
	Remedy string        // a way to allow it
	After  time.Duration // when to try again; 0 if that is pointless
}

func (f *Refusal) Error() string { return f.Reason }

// blocked is a verdict in the form of an error.
type blocked struct {
	request policy.Request
	verdict policy.Verdict
}

func (b *blocked) Error() string {
	return fmt.Sprintf("%s at %s is refused: %s", b.request.Host, b.request.Address, b.verdict.Reason)
}

// staged is an error with its stage.
type staged struct {
	stage decision.Stage
	error
}

func (s *staged) Unwrap() error { return s.error }

// At adds a stage to an error, for the record.
func At(stage decision.Stage, err error) error {
	if err == nil {
		return nil
	}
	return &staged{stage, err}
}

// stageOf returns the stage of an error, or otherwise if it has none.
func stageOf(err error, otherwise decision.Stage) decision.Stage {
	if s, ok := errors.AsType[*staged](err); ok {
		return s.stage
	}
	return otherwise
}

// verdictOf returns the verdict in an error, or v.
func verdictOf(err error, v policy.Verdict) policy.Verdict {
	if b, ok := errors.AsType[*blocked](err); ok {
		return b.verdict
	}
	return v
}

// refusedBy returns the verdict of a stage that refused.
func refusedBy(stage decision.Stage, err error) policy.Verdict {
	if f, ok := errors.AsType[*Refusal](err); ok {
		return policy.Verdict{Rule: f.Rule, Reason: f.Reason, Remedy: f.Remedy}
	}
	if a := (*Answer)(nil); errors.As(err, &a) && a.Rule != "" {
		return policy.Verdict{Rule: a.Rule, Reason: a.Reason}
	}
	return policy.Verdict{Rule: "gateway: " + string(stage), Reason: err.Error()}
}
