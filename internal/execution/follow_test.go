package execution_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/store"
)

// reader is an Output that hands each piece to a test. A slow one waits until the test has taken it.
type reader struct{ stdout, stderr chan string }

func newReader() reader  { return reader{make(chan string, 100), make(chan string, 100)} }
func slowReader() reader { return reader{make(chan string), make(chan string, 100)} }

func (r reader) Stdout(p []byte) error { r.stdout <- string(p); return nil }
func (r reader) Stderr(p []byte) error { r.stderr <- string(p); return nil }

// expect takes pieces until they are want.
func expect(t *testing.T, from chan string, want string) {
	t.Helper()
	got := ""
	for len(got) < len(want) {
		got += <-from
	}
	if got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestFollow(t *testing.T) {
	words := make(chan string)
	h := newHouse(t, func(p *fake.Process) int {
		for w := range words {
			fmt.Fprint(p.Stdout, w)
			fmt.Fprint(p.Stderr, strings.ToUpper(w))
		}
		return 3
	})
	id, out := make(chan cove.ExecutionID, 1), newReader()
	var runs, follows sync.WaitGroup
	runs.Go(func() {
		if r, err := h.Execute(t.Context(), owner, python("x"), func(i cove.ExecutionID) { id <- i }, out); err != nil ||
			r.ExitCode != 3 {
			t.Errorf("%+v, %v", r, err)
		}
	})
	e := <-id
	words <- "one"
	expect(t, out.stdout, "one")
	expect(t, out.stderr, "ONE")

	follow := func(from execution.Position, r reader) reader {
		begun := make(chan struct{})
		follows.Go(func() {
			err := h.Follow(t.Context(), owner, e, from, func() { close(begun) }, r)
			close(r.stdout)
			if err != nil {
				t.Errorf("from %v: %v", from, err)
			}
			// What follows the end finds the record.
			if s, err := h.store.Get(t.Context(), e); err != nil || s.Status != cove.StatusCompleted {
				t.Errorf("record %+v, %v", s, err)
			}
		})
		<-begun
		return r
	}
	whole := follow(execution.Position{}, newReader())
	rest := follow(execution.Position{Stdout: 2, Stderr: 3}, slowReader())
	beyond := follow(execution.Position{Stdout: 1000, Stderr: 1000}, newReader())
	expect(t, whole.stdout, "one")
	expect(t, whole.stderr, "ONE")
	expect(t, rest.stdout, "e")

	// Nobody reads from rest now: the program does not wait for it.
	words <- "two"
	expect(t, out.stdout, "two")
	expect(t, out.stderr, "TWO")
	expect(t, whole.stdout, "two")
	expect(t, whole.stderr, "TWO")
	close(words)
	runs.Wait()
	expect(t, rest.stdout, "two")
	expect(t, rest.stderr, "TWO")
	for name, r := range map[string]reader{"whole": whole, "rest": rest, "beyond": beyond} {
		if more, open := <-r.stdout; open {
			t.Errorf("%s got %q after the end", name, more)
		}
	}
	follows.Wait()
	if err := h.Follow(t.Context(), owner, e, execution.Position{}, nil, nil); cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("after the end: %v", err)
	}
}

func TestFollowGivesUp(t *testing.T) {
	h := newHouse(t, untilKilled)
	id := make(chan cove.ExecutionID, 1)
	var wg sync.WaitGroup
	wg.Go(func() { h.Execute(t.Context(), owner, python("x"), func(i cove.ExecutionID) { id <- i }, nil) })
	e := <-id
	ctx, cancel := context.WithCancel(t.Context())
	if err := h.Follow(ctx, owner, e, execution.Position{}, cancel, &output{}); cove.ErrorCode(err) != cove.Canceled {
		t.Errorf("a follower that goes away: %v", err)
	}
	if err := h.Follow(t.Context(), owner, e, execution.Position{}, func() {},
		&output{err: io.ErrClosedPipe}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a follower that cannot write: %v", err)
	}
	if h.Load().Running != 1 {
		t.Error("a follower ended the execution")
	}
	if err := h.Kill(t.Context(), owner, e); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	elsewhere := store.Execution{ID: cove.NewExecutionID()}
	if err := h.store.Begin(t.Context(), elsewhere); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[cove.ExecutionID]cove.Code{cove.NewExecutionID(): cove.NotFound,
		elsewhere.ID: cove.Conflict} {
		if err := h.Follow(t.Context(), owner, id, execution.Position{}, nil, nil); cove.ErrorCode(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
