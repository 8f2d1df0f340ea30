package proxy

import (
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// RoundTrip sends a request of the gateway's own to an origin: through the stages of prepare, over connections that are
// judged and recorded like the sandbox's. v is the policy's verdict on the request. The caller closes the answer's
// body, which ends the request. Errors: those of prepare and of the passage, Forbidden, those of the connection.
func (s *Server) RoundTrip(out *http.Request, r policy.Request, v policy.Verdict,
	prepare func(policy.Request, *http.Request) (Passage, error)) (*http.Response, error) {
	o := &own{server: s, event: Event{Time: time.Now(), Stage: decision.StagePolicy, Request: r, Verdict: v,
		Protocol: decision.Protocol(out.URL.Scheme), Sent: max(out.ContentLength, 0)}}
	if v.Action != policy.Allow {
		return nil, o.fail(cove.Errorf(cove.Forbidden, "%s", v.Reason))
	}
	var err error
	if o.passage, err = prepare(r, out); err != nil {
		o.event.Stage = stageOf(err, decision.StagePolicy)
		o.event.Verdict = refusedBy(o.event.Stage, err)
		return nil, o.fail(err)
	}
	o.event.Stage = decision.StageUpstream
	res, err := s.transport.RoundTrip(out)
	if err != nil {
		o.event.Stage, o.event.Verdict = stageOf(err, decision.StageUpstream), verdictOf(err, v)
		if o.failure = err; out.Context().Err() != nil || o.event.Verdict.Action != policy.Allow {
			o.failure = ErrUnfinished
		}
		return nil, o.fail(err)
	}
	o.event.Status = res.StatusCode
	if err := o.passage.Response(res); err != nil {
		res.Body.Close()
		return nil, o.fail(err)
	}
	o.ReadCloser, res.Body = res.Body, o
	return res, nil
}

// own is a request of the gateway's own, and the body of its answer: it counts the bytes, and Close ends the request.
type own struct {
	io.ReadCloser
	server  *Server
	event   Event
	passage Passage // nil until the stages have admitted the request
	failure error   // the origin's fault, or ErrUnfinished
	once    sync.Once
}

func (o *own) fail(err error) error {
	o.event.Problem = err.Error()
	o.end()
	return err
}

// end ends the request and records it, once.
func (o *own) end() {
	o.once.Do(func() {
		if o.passage != nil {
			o.passage.End(o.failure)
		}
		o.event.Duration = time.Since(o.event.Time)
		o.server.sandbox.Record(o.event)
	})
}

func (o *own) Read(p []byte) (int, error) {
	n, err := o.ReadCloser.Read(p)
	o.event.Received += int64(n)
	return n, err
}

func (o *own) Close() error {
	defer o.end()
	return o.ReadCloser.Close()
}
