package backlog

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

// disk takes records of text, unless one of its errors is in the way.
type disk struct {
	all  error            // of every write
	each map[string]error // of one record, by its text
	has  map[string]bool
}

func (d *disk) write(_ context.Context, text string) error {
	if d.all != nil {
		return d.all
	}
	if err := d.each[text]; err != nil {
		return err
	}
	d.has[text] = true
	return nil
}

func lab() (*disk, *Backlog[int, string], *bytes.Buffer) {
	d, log := &disk{each: map[string]error{}, has: map[string]bool{}}, &bytes.Buffer{}
	return d, New(Options[int, string]{
		Name: "a text", Log: slog.New(slog.NewTextHandler(log, nil)), Write: d.write,
		Size: func(s string) int { return len(s) }, Shorten: func(s string) string { return s[:min(len(s), 1)] },
		Most: 5, MostBytes: 20,
	}), log
}

var full = cove.Errorf(cove.StorageFull, "the disk is full")

// TestBounds: records that wait are whole while there is room for all of them, and then there is a last one.
func TestBounds(t *testing.T) {
	d, b, log := lab()
	d.all = full
	for i, c := range []struct{ text, waits string }{
		{"eighteen bytes....", "eighteen bytes...."},
		{"too long now", "t"},
		{"1", "1"},
		{"2 is too long as well", "2"},
		{"", ""},
	} {
		if b.Record(t.Context(), i, c.text) {
			t.Fatalf("%q is said to be recorded", c.text)
		}
		if got, waits := b.Waiting(i); !waits || got != c.waits {
			t.Errorf("%q waits as %q, %v", c.text, got, waits)
		}
	}
	b.Record(t.Context(), 9, "late")
	if _, waits := b.Waiting(9); waits || !strings.Contains(log.String(), "will not have this one") {
		t.Errorf("one too many waits: %s", log)
	}
}

// TestRetry: what waits is written once the store takes it, and each is written once.
func TestRetry(t *testing.T) {
	d, b, _ := lab()
	d.all = full
	for i, text := range []string{"a", "b", "c", "d"} {
		b.Record(t.Context(), i, text)
	}
	if err := b.Retry(t.Context()); err != full || len(d.has) > 0 {
		t.Fatalf("on a full disk: %v, %v", err, d.has)
	}
	d.all = nil
	d.each["a"] = cove.Errorf(cove.NotFound, "removed meanwhile")
	d.each["b"] = cove.Errorf(cove.Internal, "refused")
	if err := b.Retry(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(d.has)); !slices.Equal(got, []string{"c", "d"}) {
		t.Errorf("written: %q", got)
	}
	for i, want := range []bool{false, true, false, false} {
		if _, waits := b.Waiting(i); waits != want {
			t.Errorf("%d waits: %v", i, waits)
		}
	}
	delete(d.each, "b")
	if err := b.Retry(t.Context()); err != nil || !d.has["b"] {
		t.Errorf("the one that was refused: %v, %v", err, d.has)
	}
}

// TestFinal: a record that the store will never take does not wait.
func TestFinal(t *testing.T) {
	d, b, _ := lab()
	d.each["a"] = cove.Errorf(cove.Conflict, "ended otherwise")
	if b.Record(t.Context(), 1, "a") {
		t.Error("it is said to be recorded")
	}
	if _, waits := b.Waiting(1); waits {
		t.Error("it waits")
	}
}

// TestBeside: one at a time writes what waits beside its caller.
func TestBeside(t *testing.T) {
	d, b, _ := lab()
	var work []func()
	beside := func(f func()) { work = append(work, f) }
	if b.RetryBeside(t.Context(), beside); len(work) != 0 {
		t.Error("there is work without a record")
	}
	d.all = full
	b.Record(t.Context(), 1, "a")
	d.all = nil
	for range 3 {
		b.RetryBeside(t.Context(), beside)
	}
	if len(work) != 1 || d.has["a"] {
		t.Fatalf("%d are to write it, %v", len(work), d.has)
	}
	work[0]()
	if _, waits := b.Waiting(1); waits || !d.has["a"] {
		t.Errorf("it waits, %v", d.has)
	}
}
