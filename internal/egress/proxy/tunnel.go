package proxy

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// tunnel is a connection between its entry and the detection of its protocol.
type tunnel struct {
	server  *Server
	conn    *conn
	route   *route
	began   time.Time
	host    policy.Host       // its target, as far as known
	verdict policy.Verdict    // on that host
	speaks  decision.Protocol // empty: no byte has come yet
	early   *earlyConn        // to the origin
}

// admit asks policy about a connection to host, and registers it to be judged again whenever policy changes.
func (s *Server) admit(c *conn, host policy.Host, port uint16) policy.Verdict {
	s.flows.remove(c.flow)
	request := policy.Request{Layer: policy.LayerConnect, Host: host, Port: port}
	c.flow = s.flows.add(&flow{request: request, cut: func() { c.Conn.Close() }})
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	return s.sandbox.Decide(ctx, request)
}

// forget removes the connection's flow: the connection is no longer for the host it was judged for.
func (s *Server) forget(c *conn) {
	s.flows.remove(c.flow)
	c.flow = nil
}

// candidate returns the best known host of a connection: a name, the name for which DNS returned its address, or the
// address.
func (s *Server) candidate(rt *route) policy.Host {
	if !rt.host.IsZero() {
		return rt.host
	}
	if name, ok := s.sandbox.Pinned(rt.addr); ok {
		return name
	}
	return policy.HostOf(rt.addr)
}

// prepare starts the work that a TLS client will need, while the client makes its ClientHello: a certificate and a
// connection to the origin.
func (t *tunnel) prepare() {
	s, host := t.server, t.host
	if t.verdict.Action != policy.Allow || t.passes() || t.route.port == portHTTP {
		return
	}
	s.running.Go(func() {
		defer s.recovered()
		s.sandbox.Leaf(host) // the handshake reports its error
	})
	pinned, asked := s.sandbox.Pinned(t.route.addr)
	t.early = s.early.begin(host, t.route.port, asked && pinned == host)
}

// portHTTP is the port on which clients do not speak TLS.
const portHTTP = 80

func (t *tunnel) passes() bool { return t.verdict.Action == policy.Allow && t.verdict.PassThrough }

// refuse ends a connection for which no better answer exists.
func (t *tunnel) refuse(problem string) {
	stage := decision.StagePolicy
	if t.verdict.Action == policy.Allow {
		stage = decision.StageProtocol
		t.verdict = policy.Verdict{Rule: ruleProtocol, Reason: problem, Passable: t.verdict.Passable}
	}
	t.record(stage, problem, 0, 0)
	reset(t.conn)
}

func (t *tunnel) record(stage decision.Stage, problem string, sent, received int64) {
	t.server.sandbox.Record(Event{
		Time: t.began, Duration: time.Since(t.began), Entry: t.route.entry, Protocol: t.speaks, Stage: stage,
		Request: policy.Request{Layer: policy.LayerConnect, Host: t.host, Port: t.route.port},
		Verdict: t.verdict, Sent: sent, Received: received, Problem: problem,
	})
}

// passThrough joins both sides without looking. If the client waits for the server to speak first, its first bytes are
// checked when they come: a TLS handshake must still be for the judged host.
func (t *tunnel) passThrough(unseen bool) {
	s := t.server
	s.flows.passes(t.conn.flow)
	passage, err := s.sandbox.Prepare(policy.Request{Layer: policy.LayerConnect, Host: t.host, Port: t.route.port}, nil)
	if err != nil {
		stage := stageOf(err, decision.StagePolicy)
		t.verdict = refusedBy(stage, err)
		t.record(stage, err.Error(), 0, 0)
		reset(t.conn)
		return
	}
	up, err := s.dial(s.ctx, policy.Request{Layer: policy.LayerDial, Host: t.host, Port: t.route.port}, nil, s.decides)
	passage.End(dialFailure(err))
	if err != nil {
		t.verdict = verdictOf(err, t.verdict)
		t.record(stageOf(err, decision.StageDial), err.Error(), 0, 0)
		reset(t.conn)
		return
	}
	look := func() error { return nil }
	if unseen {
		look = t.lookLate
	}
	sent, received, err := splice(t.conn, up, s.timeouts.Idle, look)
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	t.record(decision.StageUpstream, problem, sent, received)
}

// dialFailure returns the origin's fault in a dialling error.
func dialFailure(err error) error {
	var refused *blocked
	if errors.As(err, &refused) || errors.Is(err, context.Canceled) {
		return ErrUnfinished
	}
	return err
}

// lookLate judges the first bytes of a client that was silent at first.
func (t *tunnel) lookLate() error {
	protocol, hello := peek(t.conn, t.server.timeouts.Idle)
	if protocol == protocolBroken {
		return errHello
	}
	if protocol != protocolTLS {
		return nil
	}
	name, err := hello.host(t.route)
	if err == nil && name != t.host {
		err = errOtherName
	}
	if err == nil && hello.encrypted {
		err = errEncryptedHello
	}
	return err
}

// recordMalformed records a request that could not be parsed.
func (s *Server) recordMalformed(rt *route, err error) {
	s.sandbox.Record(Event{
		Time: time.Now(), Entry: rt.entry, Protocol: rt.protocol(), Stage: decision.StageProtocol,
		Request: policy.Request{Layer: policy.LayerHTTP, Host: rt.host, Port: rt.port},
		Verdict: policy.Verdict{Rule: ruleProtocol, Reason: err.Error()}, Status: http.StatusBadRequest, Problem: err.Error(),
	})
}
