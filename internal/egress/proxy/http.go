package proxy

import (
	"context"
	"io"
	"net/http"
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
