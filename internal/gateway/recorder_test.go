package gateway

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/test/await"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/store"
)

// page is a store of decisions that can be full or slow.
type page struct {
	store.Store

	mu      sync.Mutex
	written []decision.Decision
	batches []int
	full    bool
	gate    chan struct{} // writes wait for it, unless nil
}

func (p *page) AppendDecisions(_ context.Context, _ int, all ...decision.Decision) error {
	if p.gate != nil {
		<-p.gate
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.full {
		return cove.Errorf(cove.StorageFull, "no space")
	}
	p.written = append(p.written, all...)
	p.batches = append(p.batches, len(all))
	return nil
}

// take returns the decisions written since the last call.
func (p *page) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, d := range p.written {
		all = append(all, fmt.Sprintf("%s %s %s x%d %d/%d %gs", d.Execution, d.Verdict, d.Host, d.Count, d.Sent,
			d.Received, d.Duration))
	}
	p.written, p.batches = nil, nil
	return all
}

func newRecorder(t *testing.T) (*Recorder, *page, *clocktest.Manual, *bytes.Buffer) {
	p, c, log := &page{}, clocktest.NewManual(time.Unix(1_900_000_000, 0)), &bytes.Buffer{}
	return NewRecorder(RecorderOptions{Store: store.NewVault(p), Keep: 10, Clock: c,
			Log: slog.New(slog.NewTextHandler(log, nil))}), p, c,
		log
}

func denial(execution, host string) decision.Decision {
	return decision.Decision{Time: time.Unix(1, 0), Execution: execution, Host: host, Verdict: decision.Deny, Sent: 1,
		Received: 2, Duration: 0.5}
}

func TestRecorderCountsWhatIsAlike(t *testing.T) {
	r, p, _, _ := newRecorder(t)
	later := denial("a", "x")
	later.Time = later.Time.Add(time.Second)
	for _, d := range []decision.Decision{denial("a", "x"), denial("a", "y"), later, denial("b", "x"), denial("a", "x")} {
		r.Record(d)
	}
	r.Flush()
	want := []string{"a deny x x3 3/6 1.5s", "a deny y x1 1/2 0.5s", "b deny x x1 1/2 0.5s"}
	if got := p.take(); !slices.Equal(got, want) {
		t.Errorf("wrote %q, want %q", got, want)
	}
	r.Record(denial("a", "x")) // written decisions are not counted again
	r.Flush()
	r.Flush()
	if got := p.take(); !slices.Equal(got, []string{"a deny x x1 1/2 0.5s"}) {
		t.Errorf("wrote %q", got)
	}
	(*Recorder)(nil).Record(denial("a", "x"))
	(*Recorder)(nil).Flush()
}

// TestRecorderWritesByItself: a batch is written after a while.
func TestRecorderWritesByItself(t *testing.T) {
	r, p, c, _ := newRecorder(t)
	for range 2 {
		r.Record(denial("a", "x"))
		if got := p.take(); len(got) > 0 {
			t.Errorf("wrote %q at once", got)
		}
		c.Advance(batchTime)
		waitFor(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.written) == 1 })
		p.take()
	}
	for i := range batchSize { // a full batch does not wait
		r.Record(denial("a", fmt.Sprint("h", i)))
	}
	waitFor(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.written) == batchSize })
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	await.That(t, "the records are written", done)
}

// TestRecorderNeverWaits: with a hanging store, one sandbox loses its excess, and no other does.
func TestRecorderNeverWaits(t *testing.T) {
	r, p, _, _ := newRecorder(t)
	p.gate = make(chan struct{})
	stuck := make(chan struct{})
	r.Record(denial("first", "x"))
	go func() { r.Flush(); close(stuck) }()
	waitFor(t, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.pending) == 0 })
	const more = 100
	for i := range maxShare + more {
		r.Record(denial("loops", fmt.Sprint("h", i)))
	}
	r.Record(denial("other", "x"))
	if r.Lost() != more {
		t.Errorf("lost %d", r.Lost())
	}
	close(p.gate)
	<-stuck
	r.Flush()
	batches := slices.Max(p.batches)
	got := p.take()
	if len(got) != 1+maxShare+1+1 || batches > batchSize {
		t.Errorf("wrote %d, up to %d at once", len(got), batches)
	}
	if !slices.Contains(got, "other deny x x1 1/2 0.5s") ||
		got[len(got)-1] != fmt.Sprintf("loops lost  x%d 0/0 0s", more) {
		t.Errorf("the last are %q", got[len(got)-3:])
	}
}

// TestRecorderSurvivesAFullDisk: the failure is logged once, and the missing count is recorded.
func TestRecorderSurvivesAFullDisk(t *testing.T) {
	r, p, _, log := newRecorder(t)
	p.full = true
	for range 3 {
		r.Record(denial("a", "x"))
		r.Record(denial("a", "x"))
		r.Flush()
	}
	if r.Lost() != 6 || strings.Count(log.String(), "level=ERROR") != 1 || !strings.Contains(log.String(), "no space") {
		t.Errorf("lost %d, log %s", r.Lost(), log)
	}
	p.full = false
	r.Record(denial("b", "y"))
	r.Flush()
	want := []string{"b deny y x1 1/2 0.5s", "a lost  x6 0/0 0s"}
	if got := p.take(); !slices.Equal(got, want) {
		t.Errorf("wrote %q, want %q", got, want)
	}
	if r.Lost() != 6 || !strings.Contains(log.String(), "recorded again") {
		t.Errorf("lost %d, log %s", r.Lost(), log)
	}
}
