package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/store"
)

// Limits of one sandbox: waiting requests, and questions about them.
const (
	maxWaiting = 1024
	maxHolds   = 64
)

// holds are the open questions of one sandbox, and the answers given.
type holds struct {
	*identity
	decider   *decider
	clock     clock.Clock
	patience  time.Duration   // how long a request waits
	approvals *store.Vault    // nil stores none
	started   string          // digest of the policy and credentials with which the route was opened
	peers     func() []*holds // of all routes of the gateway
	closed    <-chan struct{} // with the route
	log       *slog.Logger
	deadline  atomic.Pointer[time.Time] // see EndBy

	mu       sync.Mutex
	waiting  map[question]*hold
	requests int // in waiting
	settled  map[approval.Subject]settlement
	epoch    int           // count of approvals for the policy
	changed  chan struct{} // closed when waiting changes; nil without a watcher
}

// question identifies requests that share one answer. Different methods are different questions, even where rules
// ignore them, so that the person who answers sees the method.
type question struct {
	about  approval.Subject
	method string
}

// hold is an open question, with its requests in order of arrival. It ends with the last of them.
type hold struct {
	id       cove.HoldID
	rule     string
	reason   string
	requests []*heldRequest
}

type heldRequest struct {
	request      policy.Request
	alone        bool // the question is about no request, and cannot be judged again here
	since, until time.Time
	answer       chan answer // has a buffer of one
}

type answer int

const (
	denied  answer = iota
	allowed        // the request was approved
	rejudge        // the policy has changed, and decides again
)

// settlement is an answer that covers further requests.
type settlement struct {
	allow bool
	from  clock.Instant
	life  time.Duration // validity; 0 is for ever
}

func (h *holds) answered(s approval.Subject) (allow, ok bool) {
	x, ok := h.settled[s]
	if ok && x.life > 0 && h.clock.Since(x.from) >= x.life {
		delete(h.settled, s)
		return false, false
	}
	return x.allow, ok
}

func (h *holds) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.requests
}

// notify notifies watchers of a change of waiting; h.mu must be held.
func (h *holds) notify() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// add makes a request wait; h.mu must be held. It returns nil when too many do.
func (h *holds) add(q question, v policy.Verdict, request policy.Request, alone bool) *heldRequest {
	one := h.waiting[q]
	if h.requests >= maxWaiting || one == nil && len(h.waiting) >= maxHolds {
		return nil
	}
	if one == nil {
		one = &hold{id: cove.NewHoldID(), rule: v.Rule, reason: v.Reason}
		if h.waiting == nil {
			h.waiting = map[question]*hold{}
		}
		h.waiting[q] = one
	}
	now := h.clock.Now()
	r := &heldRequest{request: request, alone: alone, since: now, until: now.Add(h.patience), answer: make(chan answer, 1)}
	one.requests = append(one.requests, r)
	h.requests++
	h.notify()
	return r
}

// leave removes a request that no longer waits, if it is still there; h.mu must be held.
func (h *holds) leave(q question, r *heldRequest) {
	one := h.waiting[q]
	if one == nil {
		return
	}
	i := slices.Index(one.requests, r)
	if i < 0 {
		return
	}
	one.requests = slices.Delete(one.requests, i, i+1)
	h.requests--
	if len(one.requests) == 0 {
		delete(h.waiting, q)
	}
	h.notify()
}

// release answers all requests of a question; h.mu must be held.
func (h *holds) release(q question, a answer) {
	for _, r := range slices.Clone(h.waiting[q].requests) {
		h.leave(q, r)
		r.answer <- a
	}
}

// releaseAll answers all requests of a subject; h.mu must be held.
func (h *holds) releaseAll(s approval.Subject, a answer) {
	for q := range h.waiting {
		if q.about == s {
			h.release(q, a)
		}
	}
}

// reconsider releases requests about which a changed policy does not ask any more.
func (h *holds) reconsider() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for q, one := range h.waiting {
		for _, r := range slices.Clone(one.requests) {
			if r.alone || h.decider.judge(r.request).Action != policy.Ask {
				h.leave(q, r)
				r.answer <- rejudge
			}
		}
	}
}

func (h *holds) find(id cove.HoldID) (question, bool) {
	for q, one := range h.waiting {
		if one.id == id {
			return q, true
		}
	}
	return question{}, false
}

// describe returns a question for the caller to answer.
func (h *holds) describe(q question, one *hold) approval.Hold {
	first, name := one.requests[0], *h.name.Load()
	d := approval.Hold{ID: one.id, Subject: q.about, Method: q.method, Path: first.request.Path, Rule: one.rule,
		Reason: one.reason, Since: first.since, Until: first.until, Count: len(one.requests)}
	if h.owner == cove.RegisteredClient(name) {
		d.Client = name
	} else {
		d.Execution = cove.ExecutionID(name)
	}
	if deadline := h.deadline.Load(); deadline != nil && deadline.Before(d.Until) {
		d.Until = *deadline
	}
	return d
}

// Decide returns the verdict on a request, and waits for an approval if the policy asks for one.
func (h *holds) Decide(ctx context.Context, r policy.Request) policy.Verdict {
	v := h.decider.judge(r)
	if v.Action == policy.Ask {
		v = h.ask(ctx, r, v, false)
	}
	return v
}

// ask returns the answer to a request, and waits for one if necessary. No answer in time is a denial. alone is for a
// question about something other than a request, in its form; a change of policy denies that.
func (h *holds) ask(ctx context.Context, r policy.Request, v policy.Verdict, alone bool) policy.Verdict {
	deny := func(why string) policy.Verdict {
		v.Action, v.Reason = policy.Deny, why
		return v
	}
	settle := func(allow bool) policy.Verdict {
		if !allow {
			v.Remedy = ""
			return deny("approval was asked for, and denied")
		}
		v.Action, v.Reason = policy.Allow, v.Reason+", and it was approved"
		return v
	}
	q := question{approval.Of(r, v), r.Method}
	var held *heldRequest
	for {
		h.mu.Lock()
		epoch := h.epoch
		allow, ok := h.answered(q.about)
		h.mu.Unlock()
		if ok {
			return settle(allow)
		}
		if h.approved(ctx, q.about) {
			return settle(true)
		}
		h.mu.Lock()
		if _, ok = h.answered(q.about); ok || h.epoch != epoch { // an answer has come meanwhile
			h.mu.Unlock()
			continue
		}
		held = h.add(q, v, r, alone)
		h.mu.Unlock()
		break
	}
	if held == nil {
		return deny("too many requests of this sandbox wait for an answer")
	}
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.leave(q, held)
	}()
	timer := h.clock.NewTimer(h.patience)
	defer timer.Stop()
	follow := func(a answer) policy.Verdict {
		switch {
		case a == rejudge && alone:
			return deny("the policy has changed while approval was asked for; try again")
		case a == rejudge:
			return h.Decide(ctx, r)
		}
		return settle(a == allowed)
	}
	select {
	case a := <-held.answer:
		return follow(a)
	case <-timer.C: // either: an answer that is there counts
		select {
		case a := <-held.answer:
			return follow(a)
		default:
			return deny(fmt.Sprintf("approval was asked for, and no answer came within %s", h.patience))
		}
	case <-ctx.Done():
		if now := h.decider.judge(r); !alone && now.Action == policy.Deny {
			return now // the request was cut for that reason
		}
		return deny("the program that asked has gone")
	case <-h.closed:
		return deny("the sandbox ends")
	}
}

func (h *holds) approved(ctx context.Context, s approval.Subject) bool {
	if h.approvals == nil {
		return false
	}
	ok, err := h.approvals.For(h.owner).Approved(ctx, h.started, s, h.clock.Now())
	if err != nil && ctx.Err() == nil {
		h.log.Error("cannot look up what has been approved; it is asked about again", "sandbox", h.sandbox,
			"error", err)
	}
	return ok
}

// Holds returns the open questions of the sandbox, oldest first, and a channel that is closed when they change.
func (h *holds) Holds() (all []approval.Hold, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for q, one := range h.waiting {
		all = append(all, h.describe(q, one))
	}
	slices.SortFunc(all, approval.ByAge)
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return all, h.changed
}

// Answer answers, and returns, an open question. Errors: NotFound, InvalidArgument, those of Records.Approve.
func (h *holds) Answer(ctx context.Context, who cove.Principal, id cove.HoldID,
	a approval.Answer) (approval.Hold, error) {
	a, err := a.Normal()
	if err != nil {
		return approval.Hold{}, err
	}
	h.mu.Lock()
	q, ok := h.find(id)
	if !ok {
		h.mu.Unlock()
		return approval.Hold{}, notOpen(id)
	}
	what, said := h.describe(q, h.waiting[q]), denied
	if a.Allow {
		said = allowed
	}
	switch a.Scope {
	case approval.Once:
		h.release(q, said)
	case approval.Sandbox:
		if h.settled == nil {
			h.settled = map[approval.Subject]settlement{}
		}
		h.settled[q.about] = settlement{a.Allow, h.clock.Monotonic(), a.For}
		h.releaseAll(q.about, said)
	}
	h.mu.Unlock()
	if a.Scope == approval.Policy {
		err = h.approve(ctx, who, what, a)
	}
	return what, err
}

// approve stores an approval for the policy, and applies it to the other sandboxes started with that policy.
func (h *holds) approve(ctx context.Context, who cove.Principal, what approval.Hold, a approval.Answer) error {
	if h.approvals == nil {
		return cove.Errorf(cove.Unsupported, "this gateway remembers nothing").WithHint("choose the scope sandbox")
	}
	now := h.clock.Now().UTC()
	err := h.approvals.For(who).Approve(ctx, approval.Approval{ID: cove.NewApprovalID(), Policy: h.started,
		Subject: what.Subject, Rule: what.Rule, Time: now, Until: now.Add(a.For)})
	if err != nil {
		return err
	}
	for _, other := range h.peers() {
		if other.started == h.started && (who.IsOwner() || who == other.owner) {
			other.allowAll(what.Subject)
		}
	}
	return nil
}

// allowAll applies an approval for the policy that has been stored.
func (h *holds) allowAll(s approval.Subject) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.epoch++
	h.releaseAll(s, allowed)
}

// EndBy limits how long questions are shown to be open: by then the program that waits has ended.
func (h *holds) EndBy(deadline time.Time) { h.deadline.Store(&deadline) }

func notOpen(id cove.HoldID) error {
	return cove.Errorf(cove.NotFound, "nothing waits as %s", id).
		WithHint("it was answered, or has gone; \"cove approve\" lists what waits")
}

// digest identifies a policy together with its credentials: a request with a key has more effect.
func digest(p *policy.Policy, credentials []string) (string, error) {
	text, err := p.Digest()
	if err != nil {
		return "", err
	}
	names := slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(credentials))), func(s string) bool {
		return s == ""
	})
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %q", text, names))
	return hex.EncodeToString(sum[:]), nil
}
