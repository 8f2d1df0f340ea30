package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

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

// text renders the refusal for clients that show a body to people.
func (f refusal) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s by the gateway of this sandbox: ", f.Error)
	if f.Host != "" {
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
	body, _ := json.MarshalIndent(struct { // strings and numbers only, so it cannot fail
		Error   fault  `json:"error"`
		Message string `json:"message"`
		refusal
	}{fault{f.Error, message}, message, f}, "", "  ")
	return append(body, '\n')
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
	x.status = status
	h := x.w.Header()
	h["Cache-Control"] = []string{"no-store"}
	h["X-Content-Type-Options"] = []string{"nosniff"}
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
	x.w.WriteHeader(status)
	n, _ := x.w.Write(body)
	x.answer.Add(int64(n))
}

// answerWith writes an answer unchanged.
func (x *exchange) answerWith(a *Answer) {
	x.status = a.Status
	h := x.w.Header()
	maps.Copy(h, a.Header)
	h["Cache-Control"] = []string{"no-store"}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	x.w.WriteHeader(a.Status)
	n, _ := x.w.Write(a.Body)
	x.answer.Add(int64(n))
}

// block answers with the policy's refusal and its remedy.
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

// refuse answers with a stage's error.
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
	status, word := http.StatusBadGateway, "failed"
	switch code {
	case cove.Forbidden, cove.Unauthenticated, cove.NotFound:
		status, word = http.StatusForbidden, "blocked"
	case cove.InvalidArgument:
		status, word = http.StatusBadRequest, "malformed"
	case cove.TooLarge:
		status, word = http.StatusRequestEntityTooLarge, "too large"
	case cove.Overloaded:
		status, word = http.StatusTooManyRequests, "rate limited"
	case cove.Unavailable:
		status, word = http.StatusServiceUnavailable, "unavailable"
	}
	said.Error = word
	x.say(status, said)
}

// bad answers for an origin that is unreachable or breaks the protocol.
func (x *exchange) bad(ctx context.Context, reason string) {
	x.broken(ctx, errors.New(reason))
	x.problem = reason
	x.say(http.StatusBadGateway, refusal{Error: "upstream", Reason: reason})
}

// failed answers for a failed round trip.
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
		x.bad(ctx, err.Error())
	}
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}
