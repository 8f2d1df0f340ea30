package gateway

import (
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

// Decision is what became of one attempt to leave a sandbox. It holds no
// secret: no header, no query, no body.
type Decision struct {
	Time     time.Time      `json:"time"` // when it began
	Sandbox  cove.SandboxID `json:"sandbox"`
	Entry    string         `json:"entry"` // dns, transparent, connect, absolute-form, socks5
	Host     string         `json:"host"`
	Port     uint16         `json:"port,omitempty"`
	Method   string         `json:"method,omitempty"` // of HTTP, or the type of a question
	Path     string         `json:"path,omitempty"`
	Verdict  Verdict        `json:"verdict"`
	Rule     string         `json:"rule,omitempty"`
	Reason   string         `json:"reason,omitempty"`
	Remedy   string         `json:"remedy,omitempty"`
	Status   int            `json:"status,omitempty"`
	Sent     int64          `json:"sent,omitempty"`     // bytes
	Received int64          `json:"received,omitempty"` // bytes
	Duration time.Duration  `json:"duration,omitempty"` // ns
}

// Verdict is how an attempt was judged.
type Verdict string

const (
	Allowed Verdict = "allow"
	Denied  Verdict = "deny"
)

func verdictOf(allowed bool) Verdict {
	if allowed {
		return Allowed
	}
	return Denied
}

func decisionOf(e proxy.Event) Decision {
	d := Decision{
		Time: e.Time, Entry: string(e.Entry), Host: e.Request.Host.String(), Port: e.Request.Port, Method: e.Request.Method, Path: e.Request.Path,
		Verdict: verdictOf(e.Verdict.Action == policy.Allow), Rule: e.Verdict.Rule, Reason: e.Verdict.Reason, Remedy: e.Verdict.Remedy,
		Status: e.Status, Sent: e.Sent, Received: e.Received, Duration: e.Duration,
	}
	if e.Problem != "" {
		d.Reason = e.Problem
	}
	return d
}

// maxDenied is how many places are remembered that a sandbox wanted to reach
// and may not.
const maxDenied = 32

// denials are those places, in the order of the first attempt.
type denials struct {
	mu     sync.Mutex
	places []string
}

func (d *denials) add(place string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.places) < maxDenied && !slices.Contains(d.places, place) {
		d.places = append(d.places, place)
	}
}

// Denied lists what the sandbox wanted to reach and policy did not allow, in
// the way that "--allow" takes it: HOST, or HOST:PORT where that is needed.
func (w *Way) Denied() []string {
	w.denied.mu.Lock()
	defer w.denied.mu.Unlock()
	return slices.Clone(w.denied.places)
}

// place is what would have to be allowed.
func (d Decision) place() string {
	if d.Port == 0 || d.Port == 80 || d.Port == 443 {
		return d.Host
	}
	return net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port)))
}

func (w *Way) record(d Decision) {
	d.Sandbox = w.sandbox
	if d.Verdict == Denied && d.Remedy != "" {
		w.denied.add(d.place())
	}
	if d.Time.IsZero() {
		d.Time = w.gateway.o.Clock.Now()
	}
	if w.gateway.o.Record != nil {
		w.gateway.o.Record(d)
	}
}
