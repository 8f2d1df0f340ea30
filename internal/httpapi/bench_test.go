package httpapi

import (
	"testing"

	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/store"
)

// BenchmarkNew is what every cove run pays for its own server.
func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		if _, err := New(Options{Executor: &fakeExecutor{}, Store: store.NewVault(&fakeStore{}),
			CheckPath: hostpath.Rules{}.Check}); err != nil {
			b.Fatal(err)
		}
	}
}
