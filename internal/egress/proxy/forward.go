package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

func (x *exchange) forward(ctx context.Context, prepare func(policy.Request, *http.Request) (Passage, error)) {
	x.watchdog = watch(x.server.timeouts.Idle, func() { x.cancel(errStall); x.unblock() })
	defer x.watchdog.stop()
	out, socket := x.outgoing(ctx)
	var err error
	if x.passage, err = prepare(x.origin.Request, out); err != nil {
		x.stage = stageOf(err, x.stage)
		x.verdict = refusedBy(x.stage, err)
		x.refuse(err)
		return
	}
	x.stage = decision.StageUpstream
	x.failure = ErrUnfinished
	defer func() { x.passage.End(x.failure) }()
	if out.Body != nil {
		defer out.Body.Close()
	}
	transport := x.server.transport
	if x.origin.Endpoint {
		transport = x.server.behind
	}
	res, stage, err := x.passage.Send(out, transport)
	if err != nil {
		x.failed(ctx, err)
		return
	}
	x.stage = stage
	defer res.Body.Close()
	x.watchdog.moved()
	x.failure = nil
	if res.StatusCode == http.StatusSwitchingProtocols {
		x.upgrade(ctx, res, socket)
		return
	}
	if res.StatusCode < 200 {
		x.bad(ctx, "the origin answered with status "+res.Status)
		return
	}
	x.respond(ctx, res)
}

// outgoing makes the outgoing request. socket is set when it requests a WebSocket.
func (x *exchange) outgoing(ctx context.Context) (out *http.Request, socket *webSocket) {
	in := x.r
	socket = askedWebSocket(in)
	wantsTrailers := has(in.Header, "Te", "trailers")
	strip(in.Header)
	delete(in.Header, "Host")
	if wantsTrailers { // the one TE coding that is not hop-by-hop (gRPC)
		in.Header["Te"] = []string{"trailers"}
	}
	if _, ok := in.Header["User-Agent"]; !ok {
		in.Header["User-Agent"] = nil // none, instead of Go's
	}
	if socket != nil {
		ctx = context.WithValue(ctx, version1Key{}, true)
		in.Header["Connection"] = []string{"Upgrade"}
		in.Header["Upgrade"] = []string{"websocket"}
	}
	out = (&http.Request{
		Method: in.Method, URL: x.origin.url(), Host: x.origin.hostHeader(), Header: in.Header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: in.ContentLength,
	}).WithContext(ctx)
	if x.sent != nil {
		x.sent.announce(out)
		out.Body = x.sent
	}
	return out, socket
}

func (x *exchange) respond(ctx context.Context, res *http.Response) {
	if err := x.passage.Response(res); err != nil {
		x.refuse(err)
		return
	}
	h := x.w.Header()
	strip(res.Header)
	maps.Copy(h, res.Header)
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // none, instead of Go's guess
	}
	if res.ContentLength < 0 {
		delete(h, "Content-Length")
	}
	announced := make([]string, 0, len(res.Trailer))
	for name := range res.Trailer {
		if trailerAllowed(name) {
			announced = append(announced, name)
		}
	}
	if len(announced) > 0 {
		h["Trailer"] = []string{strings.Join(announced, ", ")}
	}
	x.announceEnd()
	x.begin(res.StatusCode)
	x.w.WriteHeader(res.StatusCode)
	if err := x.copyBody(ctx, res); err != nil {
		// A truncated answer must not look complete.
		x.problem = "the answer broke off: " + cause(ctx, err).Error()
		panic(http.ErrAbortHandler)
	}
	x.problem = x.passage.Problem()
	for name, values := range res.Trailer {
		switch {
		case slices.Contains(announced, name):
			h[name] = values
		case trailerAllowed(name):
			h[http.TrailerPrefix+name] = values
		}
	}
}

func (x *exchange) copyBody(ctx context.Context, res *http.Response) error {
	flush := http.NewResponseController(x.w).Flush
	if res.ContentLength < 0 {
		if err := flush(); err != nil { // the head first
			return err
		}
	}
	buffer := copyBuffers.Get().(*[32 << 10]byte)
	defer copyBuffers.Put(buffer)
	for {
		n, err := res.Body.Read(buffer[:])
		x.watchdog.moved()
		if n > 0 {
			x.conn.carried(n)
			if _, err := x.w.Write(buffer[:n]); err != nil {
				return err
			}
			x.watchdog.moved()
			if x.answer.Add(int64(n)) != res.ContentLength { // more bytes may be slow to come
				if err := flush(); err != nil {
					return err
				}
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			x.broken(ctx, err)
			return err
		}
	}
}

const ruleEndpoint = "gateway: endpoints"

// serveEndpoint answers a request to the gateway's own name, or forwards it to the origin behind it, judged like any.
func (x *exchange) serveEndpoint(ctx context.Context) {
	s := x.server
	x.stage = decision.StageEndpoint
	asked := x.r.WithContext(ctx)
	if x.sent != nil {
		asked.Body = x.sent
	}
	origin, answer := s.sandbox.Endpoint(x.target.Request, asked)
	if answer != nil {
		if answer.Status >= http.StatusBadRequest {
			x.verdict = policy.Verdict{Rule: ruleEndpoint, Reason: answer.Reason}
		}
		x.answerWith(answer)
		return
	}
	var err error
	if x.origin, err = x.target.at(origin.URL); err != nil {
		x.refuse(fmt.Errorf("where an endpoint leads: %w", err))
		return
	}
	f := s.flows.add(&flow{request: x.origin.Request, cut: func() { x.cancel(errCut); x.unblock() }})
	defer s.flows.remove(f)
	x.stage = decision.StagePolicy
	if x.verdict = s.judge(ctx, &route{}, x.origin.Request); x.verdict.Action != policy.Allow {
		x.block()
		return
	}
	x.forward(ctx, origin.Prepare)
}

var errNoOrigin = errors.New("it is no http or https URL of a path")

// at returns the request moved to another URL, with its query.
func (t target) at(u *url.URL) (target, error) {
	t.Endpoint, t.scheme = true, u.Scheme
	port := map[string]uint16{"http": 80, "https": 443}[u.Scheme]
	if port == 0 || u.RawQuery != "" {
		return t, errNoOrigin
	}
	var err error
	if t.Host, t.Port, err = policy.ParseAuthority(strings.TrimSuffix(u.Host, ":"), port); err != nil {
		return t, err
	}
	t.Path, err = policy.CanonicalPath(u.EscapedPath())
	return t, err
}
