package gateway

import (
	"log/slog"
	"os"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// BenchmarkOpen measures the gateway's part of making a sandbox.
func BenchmarkOpen(b *testing.B) {
	roots, err := ca.SystemRoots(os.Getenv)
	if err != nil {
		b.Skip(err)
	}
	g := New(Options{Dir: b.TempDir(), Bundle: func() []byte { return roots }, Clock: clock.Real(),
		Log: slog.New(slog.DiscardHandler)})
	defer g.Close()
	document, err := policy.Args("--allow", policy.Allow, "*.example.com")
	if err != nil {
		b.Fatal(err)
	}
	document.Mode = cove.NetworkLimited
	b.ReportAllocs()
	for b.Loop() {
		w, err := g.Open(Spec{Sandbox: cove.NewSandboxID(), Policy: []*policy.Document{document}})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		w.Close()
		b.StartTimer()
	}
}
