package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/egress/redact"
	"github.com/cove-sandbox/cove/internal/store"
)

// RecorderOptions configure a Recorder. All except Observe are required.
type RecorderOptions struct {
	Store   store.Vault
	Keep    int                     // maximum of decisions in the store
	Observe func(decision.Decision) // receives each at once; must not wait
	Clock   clock.Clock
	Log     *slog.Logger
}

// Recorder writes decisions to the store in batches, so that no request waits. Equal attempts of one sandbox within a
// batch become one decision with a count. Decisions that cannot be written are counted, and the count is written later.
// The nil Recorder records nothing.
type Recorder struct {
	o    RecorderOptions
	lost atomic.Int64

	mu      sync.Mutex
	pending []decision.Decision
	alike   map[decision.Decision]int // index in pending
	share   map[source]int            // of pending
	missing map[source]int64          // not recorded, and not reported yet
	due     bool                      // a write has been requested
	full    bool                      // and it must not wait

	writing sync.Mutex // guards the order of batches, and failing
	failing bool
}

type source struct{ execution, sandbox, client string }

func sourceOf(d decision.Decision) source { return source{d.Execution, d.Sandbox, d.Client} }

const (
	batchTime = 200 * time.Millisecond // how long a decision waits for more
	batchSize = 512                    // of one transaction; a full batch does not wait
	maxShare  = 2048                   // waiting decisions of one sandbox
)

// NewRecorder returns a Recorder. The caller must Flush it at the end.
func NewRecorder(o RecorderOptions) *Recorder {
	r := &Recorder{o: o, missing: map[source]int64{}}
	r.reset()
	return r
}

func (r *Recorder) reset() {
	r.pending, r.alike, r.share = nil, map[decision.Decision]int{}, map[source]int{}
	r.due, r.full = false, false
}

// Record accepts a decision. It never waits for the store.
func (r *Recorder) Record(d decision.Decision) {
	if r == nil {
		return
	}
	d.Count = max(d.Count, 1)
	if r.o.Observe != nil {
		r.o.Observe(d)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(d)
	switch {
	case len(r.pending) >= batchSize && !r.full:
		r.full = true
		go r.Flush()
	case !r.due:
		r.due = true
		r.o.Clock.AfterFunc(batchTime, r.Flush)
	}
}

func (r *Recorder) add(d decision.Decision) {
	from, key := sourceOf(d), kind(d)
	if i, ok := r.alike[key]; ok {
		p := &r.pending[i]
		p.Count += d.Count
		p.Sent += d.Sent
		p.Received += d.Received
		p.Duration += d.Duration
		return
	}
	if r.share[from] >= maxShare {
		r.miss(from, d.Count)
		return
	}
	r.share[from]++
	r.alike[key] = len(r.pending)
	r.pending = append(r.pending, d)
}

// kind returns the part that equal attempts share.
func kind(d decision.Decision) decision.Decision {
	d.Time, d.Count, d.Sent, d.Received, d.Duration = time.Time{}, 0, 0, 0, 0
	return d
}

func (r *Recorder) miss(from source, n int64) {
	r.missing[from] += n
	r.lost.Add(n)
}

// Lost returns the number of decisions that could not be recorded.
func (r *Recorder) Lost() int64 {
	if r == nil {
		return 0
	}
	return r.lost.Load()
}

// Flush writes the accepted decisions. On return each is in the store or lost.
func (r *Recorder) Flush() {
	if r == nil {
		return
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	for batch := r.take(); len(batch) > 0; {
		n := min(len(batch), batchSize)
		err := r.o.Store.For(cove.System("")).AppendDecisions(context.Background(), r.o.Keep, batch[:n]...)
		r.settle(batch[:n], err)
		batch = batch[n:]
	}
}

// take returns the pending decisions, and reports of lost ones.
func (r *Recorder) take() []decision.Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch := r.pending
	for from, n := range r.missing {
		batch = append(batch, decision.Decision{
			Time: r.o.Clock.Now(), Execution: from.execution, Sandbox: from.sandbox, Client: from.client,
			Verdict: decision.Lost, Reason: fmt.Sprintf("%d decisions were not recorded", n), Count: n,
		})
	}
	clear(r.missing)
	r.reset()
	return batch
}

// settle logs, once, that writing begins to fail, and that it works again.
func (r *Recorder) settle(batch []decision.Decision, err error) {
	if err == nil {
		if r.failing {
			r.o.Log.Info("decisions of the gateway are recorded again", "lost", r.Lost())
		}
		r.failing = false
		return
	}
	if !r.failing {
		r.o.Log.Error("decisions of the gateway are not recorded; they are counted until they can be", "error", err)
	}
	r.failing = true
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range batch {
		if r.missing[sourceOf(d)] += d.Count; d.Verdict != decision.Lost {
			r.lost.Add(d.Count)
		}
	}
}

func verdictOf(allowed bool) decision.Verdict {
	if allowed {
		return decision.Allow
	}
	return decision.Deny
}

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

const maxDenied = 32 // bounds the denied places that are listed

// identity names the sandbox of a route.
type identity struct {
	sandbox cove.SandboxID
	owner   cove.Principal
	asker   cove.Principal         // see Spec
	object  string                 // see Spec
	name    atomic.Pointer[string] // see Rename
}

// journal records the decisions on one sandbox, without its secrets.
type journal struct {
	*identity
	recorder     *Recorder
	secrets      *secrets
	placeholders *redact.Set

	mu     sync.Mutex
	denied []egress.Denial // in the order of the first attempt
}

// Denied returns the places that the sandbox tried to reach and that policy denied, in the notation of "--allow": HOST,
// or HOST:PORT where that is needed, or tcp://HOST:PORT where the protocol is neither HTTP nor TLS.
func (j *journal) Denied() []egress.Denial {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.denied)
}

// addDenied adds a place. A later denial may know a preset for it, which the look-up of its name did not.
func (j *journal) addDenied(d egress.Denial) {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := slices.IndexFunc(j.denied, func(have egress.Denial) bool {
		return have.Place == d.Place && have.Untrusted == d.Untrusted
	})
	switch {
	case i >= 0 && strings.HasPrefix(d.Flag, presetFlag):
		j.denied[i].Flag = d.Flag
	case i < 0 && len(j.denied) < maxDenied:
		j.denied = append(j.denied, d)
	}
}

const presetFlag = "--preset "

// denialOf returns the place that would have to be allowed, with the preset that its remedy names.
func denialOf(d decision.Decision) egress.Denial {
	place := placeOf(d.Host, d.Port)
	if d.Stage == decision.StageProtocol {
		place = "tcp://" + net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port)))
	}
	denial := egress.Denial{Place: place, Flag: "--allow " + place}
	if _, name, ok := strings.Cut(d.Remedy, presetFlag); ok {
		denial.Flag = presetFlag + name
	}
	return denial
}

func placeOf(host string, port uint16) string {
	if port == 0 || port == 80 || port == 443 {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// distrusted is the reason of a connection that its client gave up because of the certificate.
func distrusted(place string) string {
	return "the program does not accept the sandbox's authority (pinned?): --pass-through " + place +
		" lets it through unjudged"
}

// record adds the sandbox to a decision, removes secrets from it and passes it on.
func (j *journal) record(d decision.Decision) {
	d.Execution, d.Sandbox, d.Client = *j.name.Load(), string(j.sandbox), j.owner.String()
	j.conceal(&d)
	if d.Verdict == decision.Deny && d.Remedy != "" && isOfPolicy(d.Stage) {
		j.addDenied(denialOf(d))
	}
	j.recorder.Record(d)
}

// isOfPolicy reports whether a stage refuses for lack of a rule.
func isOfPolicy(s decision.Stage) bool {
	return s == decision.StagePolicy || s == decision.StageApproval || s == decision.StageDial ||
		s == decision.StageProtocol
}

const left = "…" // replaces removed segments of a path in the record

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
