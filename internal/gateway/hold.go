package gateway

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Hold is a request that waits for somebody's word.
type Hold struct {
	ID      string // of this process: "7"
	Sandbox cove.SandboxID
	Request policy.Request
	Rule    string
	Reason  string
	Since   time.Time
}

// Answer is somebody's word.
type Answer struct {
	Allow bool
	// For is how long what is allowed stays so for this sandbox's requests to
	// the same host and port; 0 is this request alone.
	For time.Duration
}

// maxHolds bounds what may wait at a time in one sandbox.
const maxHolds = 64

// holds are what waits and what has been approved, of one sandbox.
type holds struct {
	mu      sync.Mutex
	next    int
	waiting map[string]*held
	granted map[place]grant
	asClock clock.Clock
}

type held struct {
	Hold
	answer chan Answer // one is sent, by who takes it out of waiting
}

// place is what an approval is for.
type place struct {
	host policy.Host
	port uint16
}

type grant struct {
	from clock.Instant
	life time.Duration
}

func (h *holds) approved(r policy.Request) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, ok := h.granted[place{r.Host, r.Port}]
	return ok && h.asClock.Since(g.from) < g.life
}

// hold waits for an answer. Nobody answering is a denial.
func (w *Way) hold(ctx context.Context, r policy.Request, v policy.Verdict) policy.Verdict {
	deny := func(why string) policy.Verdict {
		v.Action, v.Reason = policy.Deny, why
		return v
	}
	h := &w.holds
	one := &held{answer: make(chan Answer, 1)}
	timer := w.gateway.o.Clock.NewTimer(w.gateway.o.Patience)
	defer timer.Stop()
	h.mu.Lock()
	if len(h.waiting) >= maxHolds {
		h.mu.Unlock()
		return deny("too many requests of this sandbox wait for an approval")
	}
	h.next++
	one.Hold = Hold{ID: strconv.Itoa(h.next), Sandbox: w.sandbox, Request: r, Rule: v.Rule, Reason: v.Reason, Since: w.gateway.o.Clock.Now()}
	if h.waiting == nil {
		h.waiting = map[string]*held{}
	}
	h.waiting[one.ID] = one
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.waiting, one.ID)
		h.mu.Unlock()
	}()

	select {
	case a := <-one.answer:
		if !a.Allow {
			return deny("it was asked for and denied")
		}
		v.Action = policy.Allow
		return v
	case <-timer.C:
		return deny(fmt.Sprintf("nobody approved it within %s", w.gateway.o.Patience))
	case <-ctx.Done():
		return deny("whoever asked has gone")
	case <-w.ctx.Done():
		return deny("the sandbox ends")
	}
}

// Held lists what waits in a sandbox, oldest first.
func (w *Way) Held() []Hold {
	w.holds.mu.Lock()
	defer w.holds.mu.Unlock()
	var all []Hold
	for _, one := range w.holds.waiting {
		all = append(all, one.Hold)
	}
	slices.SortFunc(all, func(a, b Hold) int { return a.Since.Compare(b.Since) })
	return all
}

// Reply answers what waits. Errors: NotFound when it does not wait any more.
func (w *Way) Reply(id string, a Answer) error {
	h := &w.holds
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.waiting[id]
	if one == nil {
		return cove.Errorf(cove.NotFound, "nothing waits as %q in sandbox %s", id, w.sandbox)
	}
	delete(h.waiting, id)
	if a.Allow && a.For > 0 {
		if h.granted == nil {
			h.granted = map[place]grant{}
		}
		h.granted[place{one.Request.Host, one.Request.Port}] = grant{h.asClock.Monotonic(), a.For}
	}
	one.answer <- a
	return nil
}
