package engines

import (
	"maps"
	"slices"
	"testing"

	"github.com/cove-sandbox/cove/internal/engine"
)

// TestTable: each engine that a configuration may name can be opened, and no other.
func TestTable(t *testing.T) {
	named := slices.Sorted(slices.Values(engine.Names()))
	if opened := slices.Sorted(maps.Keys(table)); !slices.Equal(opened, named) {
		t.Errorf("%v are opened, and %v are named", opened, named)
	}
}
