package proxy

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// exchange is one request and its answer.
type exchange struct {
	server *Server
	conn   *conn
	route  *route
	w      http.ResponseWriter
	r      *http.Request
	began  time.Time

	target  target // as the sandbox sees it
	origin  target // the request to the origin: the same, except for endpoints
	verdict policy.Verdict
	passage Passage        // set when the request has been admitted
	stage   decision.Stage // the stage it has reached
	problem string
	failure error // the origin's fault, or ErrUnfinished
	status  int
	answer  atomic.Int64 // bytes of the answer's body
	body    atomic.Int64 // bytes of the request's body

	cancel   context.CancelCauseFunc
	watchdog *watchdog

	mu    sync.Mutex
	begun bool // guarded by mu; the answer has begun
	ended bool // guarded by mu; w and r must not be used any more
}

var (
	errCut   = errors.New("policy no longer allows it")
	errStall = errors.New("nothing has moved for too long")
)

// judge asks policy at each layer that has not been asked yet.
func (s *Server) judge(ctx context.Context, rt *route, r policy.Request) policy.Verdict {
	if !rt.admitted {
		v := s.sandbox.Decide(ctx, policy.Request{Layer: policy.LayerConnect, Host: r.Host, Port: r.Port,
			Endpoint: r.Endpoint, Inside: true})
		if v.Action != policy.Allow {
			return v
		}
	}
	return s.sandbox.Decide(ctx, r)
}

var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// unblock ends pending reads and writes of the client's side.
func (x *exchange) unblock() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return
	}
	rc := http.NewResponseController(x.w)
	past := time.Unix(1, 0)
	rc.SetReadDeadline(past)
	if x.begun { // before it has begun, only the reason can be written
		rc.SetWriteDeadline(past)
	}
}

// begin marks the answer as begun.
func (x *exchange) begin(status int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.begun = true
	x.status = status
}

// end finishes an exchange; it is called last.
func (x *exchange) end() {
	x.mu.Lock()
	x.ended = true
	x.mu.Unlock()
	x.record()
}

func (x *exchange) record() {
	s, speaks := x.server, x.route.protocol()
	if x.target.Layer == policy.LayerConnect {
		speaks = "" // the tunnel was not opened
	}
	s.sandbox.Record(Event{
		Time: x.began, Duration: time.Since(x.began), Entry: x.route.entry, Protocol: speaks, Stage: x.stage,
		Request: x.target.Request, Verdict: x.verdict,
		Status: x.status, Sent: x.body.Load(), Received: x.answer.Load(), Problem: x.problem,
	})
}

// cause returns the cause of a context's end, if that is the reason for err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// broken records the origin's fault, if it was the origin's.
func (x *exchange) broken(ctx context.Context, err error) {
	if ctx.Err() == nil || context.Cause(ctx) == errStall {
		x.failure = cause(ctx, err)
	}
}
