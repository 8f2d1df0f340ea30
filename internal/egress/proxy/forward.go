package proxy

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// serveHTTP answers one request of the sandbox.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		panic(http.ErrAbortHandler)
	}
	defer s.running.Done()
	c := connOf(r)
	c.carried(meterRequest)
	if r.Method == http.MethodConnect {
		s.serveConnect(w, r, c.route)
		return
	}
	if r.ProtoMajor == 1 {
		defer c.strict.answered.Add(1)
	}
	x := &exchange{server: s, conn: c, route: c.route, w: w, r: r, began: time.Now()}
	defer x.end()
	select {
	case s.requests <- struct{}{}:
		defer func() { <-s.requests }()
		x.serve()
	default:
		x.refuse(cove.Errorf(cove.Overloaded, "%d requests are under way, and a sandbox may have no more", cap(s.requests)))
	}
}

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

func (x *exchange) serve() {
	var err error
	if x.target, err = x.route.read(x.r); err != nil {
		x.refuseTarget(err)
		return
	}
	s, request := x.server, x.target.Request
	var ctx context.Context
	ctx, x.cancel = context.WithCancelCause(x.r.Context())
	defer x.cancel(nil)
	f := s.flows.add(&flow{request: request, cut: func() { x.cancel(errCut); x.unblock() }})
	defer s.flows.remove(f)

	x.stage = decision.StagePolicy
	if x.verdict = s.judge(ctx, x.route, request); x.verdict.Action != policy.Allow {
		x.block()
		return
	}
	if request.Host.Name() == policy.GatewayService {
		x.serveEndpoint(ctx)
		return
	}
	x.origin = x.target
	if !x.route.explicit && x.route.host.IsZero() && x.r.ProtoMajor == 1 {
		x.route.host = x.target.Host // requests on one connection are sequential and for one host
	}
	x.forward(ctx, s.sandbox.Prepare)
}

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

// forward sends the request to the origin and its answer back.
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
		defer x.closeBody(out.Body)
	}
	transport := x.server.transport
	if x.origin.Endpoint {
		transport = x.server.behind
	}
	res, err := transport.RoundTrip(out)
	if err != nil {
		x.failed(ctx, err)
		return
	}
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

// closeBody closes the request's body. Closing waits for announced bytes, and the client may wait for its answer, so
// the answer is sent first.
func (x *exchange) closeBody(body io.Closer) {
	if x.status != 0 && x.r.ProtoMajor == 1 { // in HTTP/2 closing does not wait, and a head alone can end an answer (gRPC)
		http.NewResponseController(x.w).Flush()
	}
	body.Close()
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
		ctx = withVersion1(ctx)
		in.Header["Connection"] = []string{"Upgrade"}
		in.Header["Upgrade"] = []string{"websocket"}
	}
	out = (&http.Request{
		Method: in.Method, URL: x.origin.url(), Host: x.origin.hostHeader(), Header: in.Header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: in.ContentLength,
	}).WithContext(ctx)
	if in.ContentLength != 0 && in.Body != nil {
		if in.ProtoMajor == 1 {
			// The origin may answer before it has read the whole request.
			http.NewResponseController(x.w).EnableFullDuplex()
		}
		body := &requestBody{ReadCloser: in.Body, exchange: x, in: in}
		body.announce(out)
		out.Body = body
	}
	return out, socket
}

// requestBody counts bytes, and sets the trailers after the body.
type requestBody struct {
	io.ReadCloser
	exchange *exchange
	in       *http.Request
	trailer  http.Header // announced and allowed; nil if none
}

func (b *requestBody) announce(out *http.Request) {
	for name := range b.in.Trailer {
		if trailerAllowed(name) {
			if b.trailer == nil {
				b.trailer = http.Header{}
			}
			b.trailer[name] = nil
		}
	}
	out.Trailer = b.trailer
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.exchange.body.Add(int64(n))
	b.exchange.conn.carried(n)
	b.exchange.watchdog.moved()
	if err == io.EOF {
		for name := range b.trailer {
			b.trailer[name] = b.in.Trailer[name]
		}
	}
	return n, err
}

// respond sends the origin's answer to the client.
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
	x.begin(res.StatusCode)
	x.w.WriteHeader(res.StatusCode)
	if err := x.copyBody(ctx, res); err != nil {
		// A truncated answer must not look complete.
		x.problem = "the answer broke off: " + cause(ctx, err).Error()
		panic(http.ErrAbortHandler)
	}
	for name, values := range res.Trailer {
		switch {
		case slices.Contains(announced, name):
			h[name] = values
		case trailerAllowed(name):
			h[http.TrailerPrefix+name] = values
		}
	}
}

var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// copyBody copies an answer's body as it arrives.
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

// broken records the origin's fault, if it was the origin's.
func (x *exchange) broken(ctx context.Context, err error) {
	if ctx.Err() == nil || context.Cause(ctx) == errStall {
		x.failure = cause(ctx, err)
	}
}

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

// recordMalformed records a request that could not be parsed.
func (s *Server) recordMalformed(rt *route, err error) {
	s.sandbox.Record(Event{
		Time: time.Now(), Entry: rt.entry, Protocol: rt.protocol(), Stage: decision.StageProtocol,
		Request: policy.Request{Layer: policy.LayerHTTP, Host: rt.host, Port: rt.port},
		Verdict: policy.Verdict{Rule: ruleProtocol, Reason: err.Error()}, Status: http.StatusBadRequest, Problem: err.Error(),
	})
}

// cause returns the cause of a context's end, if that is the reason for err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// serveConnect opens a tunnel for a client that is configured for the proxy.
func (s *Server) serveConnect(w http.ResponseWriter, r *http.Request, rt *route) {
	x := &exchange{server: s, conn: connOf(r), route: &route{entry: EntryConnect, explicit: true}, w: w, r: r,
		began: time.Now()}
	x.target.Request = policy.Request{Layer: policy.LayerConnect}
	w.Header()["Connection"] = []string{"close"} // after CONNECT the bytes are not HTTP, whatever the answer
	if !rt.explicit || r.ProtoMajor != 1 {
		x.stage = decision.StageProtocol
		x.verdict = policy.Verdict{Rule: ruleProtocol, Reason: "CONNECT inside a connection to an origin"}
		x.block()
		x.record()
		return
	}
	host, port, err := policy.ParseAuthority(r.RequestURI, 0)
	if err != nil {
		x.refuseTarget(err)
		x.record()
		return
	}
	c := x.conn
	inner := &route{entry: EntryConnect, port: port}
	inner.bind(host)
	t := &tunnel{server: s, conn: c, route: inner, began: x.began, host: s.candidate(inner)}
	t.verdict = s.admit(c, t.host, port)
	x.target.Host, x.target.Port, x.verdict = t.host, port, t.verdict
	if t.verdict.Action != policy.Allow {
		s.forget(c)
		x.stage = decision.StagePolicy
		x.block()
		x.record()
		return
	}
	if !t.hijack(w) {
		return
	}
	c.route = inner
	t.serve()
}

// hijack takes the connection from the HTTP server and tells the client that the tunnel is open.
func (t *tunnel) hijack(w http.ResponseWriter) bool {
	taken, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.conn.Close()
		return false
	}
	taken.SetDeadline(time.Time{})
	ahead, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	t.conn.ahead = append(append([]byte(nil), ahead...), t.conn.ahead...)
	if _, err := io.WriteString(t.conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		t.conn.Close()
		return false
	}
	return true
}
