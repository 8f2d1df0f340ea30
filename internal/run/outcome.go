package run

import (
	"cmp"
	"errors"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/message"
)

// asked is why a run was ended from outside.
type asked string

const (
	askedNothing   asked = ""
	askedInterrupt asked = "interrupt"
	askedKill      asked = "kill"
)

// ending is how a run has ended, as far as it is known.
type ending struct {
	asked    asked
	limit    cove.LimitKind // that Cove has ended it for
	measured cove.LimitKind // that the sandbox's accounting says may have
	exit     *int
	result   *message.Message // that the agent gave; nil: none
	broken   bool             // err is about its output or its sandbox, not about how it ended
	err      error
	used     cove.Usage // by its sandbox
	models   []model.ProviderUsage
	// unanswered is why the latest request for a model has no usable answer; nil: it has one.
	unanswered error
	overdrawn  error // requests to models were refused, since a budget was used up: the reason
}

const (
	limitTurns  cove.LimitKind = "turns"
	limitBudget cove.LimitKind = "budget"
)

// outcome returns the status of a run, the limit that ended it, and its error: with a limit, why its models did not
// answer at the end, such as whose budget is used up. It is pure. An action of a user or of Cove takes precedence over
// its consequences, and no limit has ended a run that succeeds.
func outcome(e ending) (status store.RunStatus, limit cove.LimitKind, err error) {
	failed := e.result == nil || e.result.IsError || e.exit != nil && *e.exit != 0
	switch {
	case e.asked != askedNothing:
		return store.RunInterrupted, "", nil
	case e.limit != "":
		return store.RunLimit, e.limit, e.unanswered
	case failed && e.measured != "":
		return store.RunLimit, e.measured, e.unanswered
	case e.broken:
		return store.RunError, "", e.err
	case errors.Is(e.err, agent.ErrTurns):
		return store.RunLimit, limitTurns, nil
	case errors.Is(e.err, agent.ErrBudget), failed && e.overdrawn != nil:
		return store.RunLimit, limitBudget, e.overdrawn
	case cove.ErrorCode(e.err) == cove.AgentFailed:
		return store.RunFailed, "", e.err
	case e.err != nil:
		return store.RunError, "", e.err
	case e.result == nil:
		return store.RunError, "", cove.Errorf(cove.AgentProtocol, "the agent has ended without a result")
	case failed:
		return store.RunFailed, "", nil
	}
	return store.RunSucceeded, "", nil
}

// account puts what a message says into a record.
func account(r *store.Run, m message.Message) {
	r.Session, r.Model = cmp.Or(m.Session, r.Session), cmp.Or(m.Model, r.Model)
	switch m.Type {
	case message.TypeResult:
		r.Result = m.Content
	case message.TypeUsage:
		if m.Usage != nil {
			r.Usage = *m.Usage
		}
	}
}
