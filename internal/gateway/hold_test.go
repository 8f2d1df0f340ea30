package gateway

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ask is a policy that asks for everything at asked.test, and allows
// allowed.test.
func ask(t *testing.T) *policy.Document {
	t.Helper()
	d, err := policy.Parse("policy.yaml", []byte("rules:\n  - {hosts: asked.test, action: ask}\n  - hosts: allowed.test\n"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func newTestWay(t *testing.T) (*Way, *clock.Manual) {
	t.Helper()
	c := clock.NewManual(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	g := New(Options{Dir: t.TempDir(), Clock: c, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(g.Close)
	w, err := g.Open(Spec{Sandbox: cove.NewSandboxID(), Name: "test", Policy: []*policy.Document{ask(t)}})
	if err != nil {
		t.Fatal(err)
	}
	return w, c
}

func connectTo(t *testing.T, name string, port uint16) policy.Request {
	t.Helper()
	h, err := policy.ParseHost(name)
	if err != nil {
		t.Fatal(err)
	}
	return policy.Request{Layer: policy.LayerConnect, Host: h, Port: port}
}

// begin asks, and waits until the request is held.
func begin(t *testing.T, w *Way, r policy.Request) (Hold, <-chan policy.Verdict) {
	t.Helper()
	before := len(w.Held())
	verdict := make(chan policy.Verdict, 1)
	go func() { verdict <- w.Decide(context.Background(), r) }()
	for {
		if held := w.Held(); len(held) > before {
			return held[len(held)-1], verdict
		}
		select {
		case v := <-verdict:
			t.Fatalf("not held: %+v", v)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestApproval(t *testing.T) {
	w, c := newTestWay(t)
	r := connectTo(t, "asked.test", 443)
	if v := w.Decide(t.Context(), policy.Request{Layer: policy.LayerDNS, Host: r.Host}); v.Action != policy.Allow {
		t.Errorf("its name: %+v", v)
	}

	h, verdict := begin(t, w, r)
	if h.Sandbox != w.sandbox || h.Request != r || h.Rule == "" {
		t.Errorf("held as %+v", h)
	}
	if err := w.Reply(h.ID, Answer{Allow: true}); err != nil {
		t.Fatal(err)
	}
	if v := <-verdict; v.Action != policy.Allow {
		t.Errorf("approved: %+v", v)
	}
	if err := w.Reply(h.ID, Answer{Allow: true}); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("a second answer: %v", err)
	}

	h, verdict = begin(t, w, r) // once was once
	w.Reply(h.ID, Answer{})
	if v := <-verdict; v.Action != policy.Deny {
		t.Errorf("denied: %+v", v)
	}

	h, verdict = begin(t, w, r)
	w.Reply(h.ID, Answer{Allow: true, For: time.Hour})
	<-verdict
	if v := w.Decide(t.Context(), r); v.Action != policy.Allow {
		t.Errorf("within the hour: %+v", v)
	}
	if v := w.judge(connectTo(t, "asked.test", 80)); v.Action != policy.Ask {
		t.Errorf("another port: %+v", v)
	}
	c.Advance(time.Hour)
	if v := w.judge(r); v.Action != policy.Ask {
		t.Errorf("after the hour: %+v", v)
	}
}

func TestNobodyApproves(t *testing.T) {
	w, c := newTestWay(t)
	_, verdict := begin(t, w, connectTo(t, "asked.test", 443))
	c.Advance(defaultPatience)
	if v := <-verdict; v.Action != policy.Deny {
		t.Errorf("%+v", v)
	}
	if held := w.Held(); len(held) > 0 {
		t.Errorf("still held: %+v", held)
	}
	_, verdict = begin(t, w, connectTo(t, "asked.test", 443))
	w.Close()
	if v := <-verdict; v.Action != policy.Deny {
		t.Errorf("%+v", v)
	}
}

func TestTooManyHolds(t *testing.T) {
	w, _ := newTestWay(t)
	r := connectTo(t, "asked.test", 443)
	for range maxHolds {
		begin(t, w, r)
	}
	if v := w.Decide(t.Context(), r); v.Action != policy.Deny {
		t.Errorf("one more: %+v", v)
	}
}
