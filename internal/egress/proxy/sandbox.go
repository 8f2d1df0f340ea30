package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Sandbox is the proxy's view of the sandbox that it serves.
type Sandbox interface {
	ID() cove.SandboxID
	// Decide judges a request. It may wait for an approval until ctx ends, and never returns Ask.
	Decide(ctx context.Context, r policy.Request) policy.Verdict
	// Early reports whether preparations for a request may start before it. With LayerConnect: every request in the
	// connection would be allowed, and one more connection to the origin is within all bounds; it is counted. With
	// LayerDial: Decide would allow it without an approval.
	Early(r policy.Request) bool
	// Pinned returns the name for which the sandbox's DNS returned an address.
	Pinned(a netip.Addr) (policy.Host, bool)
	// Found returns, once, the addresses of the DNS query before a connection, or none. They are judged when dialled.
	Found(name policy.Host) []netip.Addr
	// Leaf returns a certificate for a host that only this sandbox trusts.
	Leaf(host policy.Host) (*tls.Certificate, error)
	// HTTP2 reports whether clients are offered HTTP/2 for a host.
	HTTP2(host policy.Host) bool
	// Endpoint handles a request to the gateway's own name (policy.GatewayService) that Decide has allowed: the request is
	// forwarded to another origin, with h possibly changed, or it is answered. The forwarded request is judged at every
	// layer, as a policy.Request with Endpoint set.
	Endpoint(r policy.Request, h *http.Request) (*Origin, *Answer)
	// Prepare admits an allowed request and changes it on its way out: it may limit rates, judge a body (which it then
	// replaces), remove and set credentials. An error is the answer: a *Refusal, an *Answer, or an error with a code of
	// cove; At adds its stage. A passed-through connection is admitted in the same way, without h.
	Prepare(r policy.Request, h *http.Request) (Passage, error)
	// Conceal returns a text without the values that may not return to the sandbox. Everything that the proxy itself
	// says passes it: reasons may quote an origin.
	Conceal(text string) string
	// Record receives every final decision: a refused connection or request, an answered request, a closed tunnel.
	Record(e Event)
}

// Origin is the origin behind an endpoint.
type Origin struct {
	URL     *url.URL                                                 // without a query: the request's query is used
	Prepare func(r policy.Request, h *http.Request) (Passage, error) // in place of Sandbox.Prepare
}

// Passage is one request on its way to the origin and back.
type Passage interface {
	// Send has next carry the request to the origin, or answers it in the origin's place; stage is what answered.
	Send(h *http.Request, next http.RoundTripper) (res *http.Response, stage decision.Stage, err error)
	// Response changes the answer on its way in. With a new body of another length it sets ContentLength to -1.
	Response(h *http.Response) error
	// Problem returns the error that the origin has reported within its answer, or "". It is called after the answer's
	// last byte, and recorded.
	Problem() string
	// End is called once and last; for a passed-through connection, once the origin is connected. failure is the origin's
	// fault: it was unreachable, did not answer, or broke off. It is nil without a fault, and ErrUnfinished when another
	// cause ended the request before the origin answered.
	End(failure error)
}

// ErrUnfinished reports that an origin was not tested: the sandbox or a change of policy ended the request.
var ErrUnfinished = errors.New("it was ended before the origin answered")

// Dialer resolves a host, unless its addresses are known, and connects to it. It resolves once, calls check with every
// address, and connects to no address that check has refused. See Direct.
type Dialer interface {
	Dial(ctx context.Context, host policy.Host, port uint16, known []netip.Addr,
		check func(netip.Addr) error) (net.Conn, error)
}

// Entry is the kind of entry point of a connection.
type Entry = decision.Entry

const (
	EntryTransparent Entry = "transparent"
	EntryConnect     Entry = "connect"
	EntryAbsolute    Entry = "absolute-form"
	EntrySOCKS       Entry = "socks5"
)

// Event is one decision and its outcome.
type Event struct {
	Time     time.Time // start
	Duration time.Duration
	Entry    Entry
	Protocol decision.Protocol // empty if unknown
	Stage    decision.Stage    // the stage it reached
	Request  policy.Request
	Verdict  policy.Verdict
	Status   int    // of the HTTP answer; 0 if there was none
	Sent     int64  // bytes from the sandbox, bodies only for HTTP
	Received int64  // bytes to the sandbox, bodies only for HTTP
	Problem  string // what went wrong, or was malformed; empty if nothing
	// Untrusted is of a connection that its client gave up because it does not accept the certificate.
	Untrusted bool
}

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
	Err    error         // its cause, which Reason spells out; may be nil
}

func (f *Refusal) Error() string { return f.Reason }
func (f *Refusal) Unwrap() error { return f.Err }

type blocked struct {
	request policy.Request
	verdict policy.Verdict
}

func (b *blocked) Error() string {
	return fmt.Sprintf("%s at %s is refused: %s", b.request.Host, b.request.Address, b.verdict.Reason)
}

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

func stageOf(err error, otherwise decision.Stage) decision.Stage {
	if s, ok := errors.AsType[*staged](err); ok {
		return s.stage
	}
	return otherwise
}

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
