package ui

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cove-sandbox/cove/api"
)

// TestStepsSaySizes: a step that counts bytes is said with them, where no line can be drawn over.
func TestStepsSaySizes(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "err"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := NewTerminal(Streams{Err: f}, func(string) string { return "" }).NewSteps()
	s.Take(api.Progress{Step: "fetching x"})
	s.Take(api.Progress{Step: "fetching x", Bytes: 9 << 20, Total: 18 << 20, Elapsed: 1})
	s.Take(api.Progress{Step: "fetching x", Bytes: 18 << 20, Total: 18 << 20, Elapsed: 2})
	s.Take(api.Progress{Step: "trying x", Elapsed: 3})
	s.Fail()
	const want = "cove: fetching x, 18 MiB (3 s)\ncove: trying x\n"
	if got, err := os.ReadFile(f.Name()); string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}
