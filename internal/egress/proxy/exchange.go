package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

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
	sent    *requestBody // by the client; nil if it sends none
	closes  bool         // the answer has announced the end of the connection

	cancel   context.CancelCauseFunc
	watchdog *watchdog

	mu    sync.Mutex
	begun bool // guarded by mu; the answer has begun
	ended bool // guarded by mu; w and r must not be used any more
}

// requestBody is the body that a client sends, for the stages and the transport to the origin. It counts bytes, and
// sets the trailers after the body. In HTTP/1 Close only ends their reading: finish reads the rest.
type requestBody struct {
	exchange *exchange
	in       *http.Request
	trailer  http.Header // announced and allowed; nil if none
	expects  bool        // the client sends nothing before "100 Continue", or may do so

	closed   atomic.Bool
	read     atomic.Int64
	complete atomic.Bool // its end has been read
	broken   atomic.Bool // a read has failed
}

// maxRest bounds the part of a body, in bytes, that is read after the answer for the sake of a further request.
const maxRest = 256 << 10

// left returns the number of bytes that have still to be read, or MaxInt64 if that is unknown.
func (b *requestBody) left() int64 {
	switch {
	case b.complete.Load():
		return 0
	case b.expects || b.broken.Load() || b.in.ContentLength < 0:
		return math.MaxInt64
	}
	return b.in.ContentLength - b.read.Load()
}

// announceEnd announces the end of the connection, before the head of an answer, if more of the request's body is to
// come than finish would read: a client must not send its next request on a connection that closes.
func (x *exchange) announceEnd() {
	if x.sent != nil && x.r.ProtoMajor == 1 && x.sent.left() > maxRest {
		x.w.Header()["Connection"] = []string{"close"}
		x.closes = true
	}
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

// watchdog calls bark once after a period without activity.
type watchdog struct {
	period time.Duration
	last   atomic.Int64 // nanoseconds since start
	start  time.Time
	bark   func()

	mu      sync.Mutex
	timer   *time.Timer // guarded by mu
	stopped bool        // guarded by mu
}

func watch(period time.Duration, bark func()) *watchdog {
	w := &watchdog{period: period, start: time.Now(), bark: bark}
	w.timer = time.AfterFunc(period, w.look)
	return w
}

// moved notes activity. A nil watchdog does nothing.
func (w *watchdog) moved() {
	if w != nil {
		w.last.Store(int64(time.Since(w.start)))
	}
}

func (w *watchdog) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	if rest := w.period - (time.Since(w.start) - time.Duration(w.last.Load())); rest > 0 {
		w.timer.Reset(rest)
		return
	}
	w.stopped = true
	w.bark()
}

// stop returns when bark is not running and will not run.
func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
}

// refusal is the body of every answer made by the gateway itself.
type refusal struct {
	Error  string         `json:"-"` // blocked, malformed, upstream, …
	Host   string         `json:"host,omitempty"`
	Port   uint16         `json:"port,omitempty"`
	Stage  decision.Stage `json:"stage,omitempty"`
	Rule   string         `json:"rule,omitempty"`
	Reason string         `json:"reason"`
	Allow  string         `json:"allow,omitempty"`       // the exact command, or another way to allow it
	After  int            `json:"retry_after,omitempty"` // seconds
}

// openings begin the texts of some kinds of refusals; others begin with the kind and "by Cove's gateway".
var openings = map[string]string{
	"upstream":    "Cove's gateway has no answer from the origin",
	"failed":      "Cove's gateway failed",
	"unavailable": "not sent by Cove's gateway",
	"malformed":   "refused as malformed by Cove's gateway",
	"too large":   "refused as too large by Cove's gateway",
}

// text renders the refusal for clients that show a body to people.
func (f refusal) text() string {
	var b strings.Builder
	begins, ok := openings[f.Error]
	if !ok {
		begins = f.Error + " by Cove's gateway"
	}
	b.WriteString(begins + ": ")
	if f.Host != "" && (f.Error != "upstream" || !strings.Contains(f.Reason, f.Host)) { // said once
		fmt.Fprintf(&b, "%s port %d: ", f.Host, f.Port)
	}
	b.WriteString(f.Reason)
	if f.Rule != "" {
		fmt.Fprintf(&b, " (rule: %s)", f.Rule)
	}
	b.WriteString("\n")
	if f.Allow != "" {
		fmt.Fprintf(&b, "To allow it: %s\n", f.Allow)
	}
	return b.String()
}

// json renders the refusal for programs. SDKs of model providers and many others expect an object with a message in
// "error", and ignore any other form; gh and others expect "message".
func (f refusal) json() []byte {
	type fault struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	message := strings.TrimSpace(f.text())
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // for people who read it in a terminal
	e.Encode(struct {      // strings and numbers only, so it cannot fail
		Error   fault  `json:"error"`
		Message string `json:"message"`
		refusal
	}{fault{f.Error, message}, message, f})
	return body.Bytes()
}

// wantsText reports browsers, and git, which shows plain text and nothing else.
func wantsText(r *http.Request) bool {
	accept := r.Header.Get("Accept")
	return strings.HasPrefix(r.UserAgent(), "git/") ||
		strings.Contains(accept, "text/") && !strings.Contains(accept, "json")
}

// say answers in the gateway's own name.
func (x *exchange) say(status int, f refusal) {
	if !x.target.Host.IsZero() {
		f.Host, f.Port = x.target.Host.String(), x.target.Port
	}
	f.Stage = x.stage
	for _, text := range []*string{&f.Rule, &f.Reason, &f.Allow} { // before quoting could hide a value in them
		*text = x.server.sandbox.Conceal(*text)
	}
	h := x.w.Header()
	if f.After > 0 {
		h["Retry-After"] = []string{strconv.Itoa(f.After)}
	}
	var body []byte
	if wantsText(x.r) {
		h["Content-Type"] = []string{"text/plain; charset=utf-8"}
		body = []byte(f.text())
	} else {
		h["Content-Type"] = []string{"application/json"}
		body = f.json()
	}
	x.answerWith(&Answer{Status: status, Body: body})
}

// answerWith writes every answer of the gateway itself.
func (x *exchange) answerWith(a *Answer) {
	x.status = a.Status
	conceal := x.server.sandbox.Conceal
	h := x.w.Header()
	for name, values := range a.Header {
		h[name] = nil
		for _, v := range values {
			h[name] = append(h[name], conceal(v))
		}
	}
	h["Cache-Control"] = []string{"no-store"}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	body := conceal(string(a.Body))
	if len(body) > 0 {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	x.announceEnd()
	x.w.WriteHeader(a.Status)
	n, _ := io.WriteString(x.w, body)
	x.answer.Add(int64(n))
}

func (x *exchange) block() {
	x.say(http.StatusForbidden, refusal{Error: "blocked", Rule: x.verdict.Rule, Reason: x.verdict.Reason,
		Allow: x.verdict.Remedy})
}

// refuseTarget answers a request that is ambiguous or not for this connection.
func (x *exchange) refuseTarget(err error) {
	x.problem, x.stage = err.Error(), decision.StageProtocol
	x.verdict = policy.Verdict{Rule: ruleProtocol, Reason: err.Error()}
	if _, ok := errors.AsType[misdirected](err); ok {
		x.block()
		return
	}
	x.say(http.StatusBadRequest, refusal{Error: "malformed", Rule: ruleProtocol, Reason: err.Error()})
}

func (x *exchange) refuse(err error) {
	x.problem = err.Error()
	if answer, ok := errors.AsType[*Answer](err); ok {
		x.answerWith(answer)
		return
	}
	said := refusal{Reason: "a stage of the gateway failed", Allow: cove.ErrorHint(err)}
	code := cove.ErrorCode(err)
	if known, ok := errors.AsType[*cove.Error](err); ok {
		said.Reason = known.Message
	}
	if refused, ok := errors.AsType[*Refusal](err); ok {
		code = refused.Code
		said = refusal{Rule: refused.Rule, Reason: refused.Reason, Allow: refused.Remedy,
			After: int(math.Ceil(refused.After.Seconds()))}
	}
	status := http.StatusBadGateway
	said.Error = "failed"
	switch code {
	case cove.Forbidden, cove.Unauthenticated, cove.NotFound:
		status, said.Error = http.StatusForbidden, "blocked"
	case cove.InvalidArgument:
		status, said.Error = http.StatusBadRequest, "malformed"
	case cove.TooLarge:
		status, said.Error = http.StatusRequestEntityTooLarge, "too large"
	case cove.Overloaded:
		status, said.Error = http.StatusTooManyRequests, "rate limited"
	case cove.Unavailable:
		status, said.Error = http.StatusServiceUnavailable, "unavailable"
	}
	x.say(status, said)
}

// bad answers for an origin that is unreachable or breaks the protocol.
func (x *exchange) bad(ctx context.Context, reason string) {
	x.broken(ctx, errors.New(reason))
	x.problem = reason
	x.say(http.StatusBadGateway, refusal{Error: "upstream", Reason: reason})
}

func (x *exchange) failed(ctx context.Context, err error) {
	x.stage = stageOf(err, decision.StageUpstream)
	var refused *blocked
	var answer *Answer
	switch {
	case errors.As(err, &answer): // from reading the request's body
		x.verdict = refusedBy(x.stage, err)
		x.refuse(answer)
	case errors.As(err, &refused):
		x.verdict = refused.verdict
		x.problem = refused.Error()
		x.block()
	case ctx.Err() != nil && context.Cause(ctx) == errStall:
		x.broken(ctx, err)
		x.problem = errStall.Error()
		x.say(http.StatusGatewayTimeout, refusal{Error: "upstream", Reason: "the origin does not answer"})
	case ctx.Err() != nil: // the client left, or policy changed
		x.problem = cause(ctx, err).Error()
		panic(http.ErrAbortHandler)
	case isTimeout(err):
		x.broken(ctx, err)
		x.problem = err.Error()
		x.say(http.StatusGatewayTimeout, refusal{Error: "upstream", Reason: "the origin cannot be reached in time"})
	default:
		x.broken(ctx, err)
		x.problem = err.Error()
		reason := x.problem
		if known, ok := errors.AsType[*cove.Error](err); ok { // its cause may name addresses of the host
			reason = known.Message
		}
		x.say(http.StatusBadGateway, refusal{Error: "upstream", Reason: reason})
	}
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}
