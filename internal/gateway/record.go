package gateway

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/egress/redact"
)

func verdictOf(allowed bool) decision.Verdict {
	if allowed {
		return decision.Allow
	}
	return decision.Deny
}

// decisionOf returns an event in the record's form.
func decisionOf(e proxy.Event) decision.Decision {
	d := decision.Decision{
		Time: e.Time, Entry: e.Entry, Protocol: e.Protocol, Host: e.Request.Host.String(), Port: e.Request.Port,
		Method: e.Request.Method, Path: e.Request.Path,
		Verdict: verdictOf(e.Verdict.Action == policy.Allow), Stage: e.Stage, Rule: e.Verdict.Rule, Remedy: e.Verdict.Remedy,
		Status: e.Status, Sent: e.Sent, Received: e.Received, Duration: e.Duration.Seconds(),
	}
	if d.Reason = e.Problem; d.Verdict == decision.Deny {
		d.Reason = e.Verdict.Reason
	}
	return d
}

// maxDenied bounds the denied places that are listed.
const maxDenied = 32

// journal records the decisions on one sandbox, without its secrets.
type journal struct {
	*identity
	recorder     *Recorder
	secrets      *secrets
	placeholders *redact.Set

	mu     sync.Mutex
	denied []string // places, in the order of the first attempt
}

// Denied returns the places that the sandbox tried to reach and that policy denied, in the notation of "--allow": HOST,
// or HOST:PORT where that is needed, or tcp://HOST:PORT where the protocol is neither HTTP nor TLS.
func (j *journal) Denied() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.denied)
}

func (j *journal) addDenied(place string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.denied) < maxDenied && !slices.Contains(j.denied, place) {
		j.denied = append(j.denied, place)
	}
}

// placeOf returns the place that would have to be allowed.
func placeOf(d decision.Decision) string {
	if d.Stage == decision.StageProtocol {
		return "tcp://" + net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port)))
	}
	if d.Port == 0 || d.Port == 80 || d.Port == 443 {
		return d.Host
	}
	return net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port)))
}

// record adds the sandbox to a decision, removes secrets from it and passes it on.
func (j *journal) record(d decision.Decision) {
	d.Execution, d.Sandbox, d.Client = *j.name.Load(), string(j.sandbox), j.owner.String()
	j.conceal(&d)
	if d.Verdict == decision.Deny && d.Remedy != "" && isOfPolicy(d.Stage) {
		j.addDenied(placeOf(d))
	}
	j.recorder.Record(d)
}

// isOfPolicy reports whether a stage refuses for lack of a rule.
func isOfPolicy(s decision.Stage) bool {
	return s == decision.StagePolicy || s == decision.StageApproval || s == decision.StageDial ||
		s == decision.StageProtocol
}

// left replaces removed segments of a path in the record.
const left = "…"

// conceal removes placeholders and known values of credentials from a decision.
func (j *journal) conceal(d *decision.Decision) {
	set, err := j.secrets.compiled()
	if err != nil { // a value that cannot be searched for
		d.Path, d.Reason = left, ""
		return
	}
	for _, s := range []*redact.Set{j.placeholders, set} {
		d.Path = withoutSegments(d.Path, s.Text(d.Path))
		for _, text := range []*string{&d.Host, &d.Method, &d.Rule, &d.Reason, &d.Remedy} {
			*text = s.Text(*text)
		}
	}
}

// withoutSegments removes each segment of a path that differs in masked, which has the same length.
func withoutSegments(path, masked string) string {
	if path == masked {
		return path
	}
	segments := strings.Split(path, "/")
	at := 0
	for i, s := range segments {
		if end := at + len(s); s != masked[at:end] {
			segments[i] = left
		}
		at += len(s) + 1
	}
	return strings.Join(segments, "/")
}
