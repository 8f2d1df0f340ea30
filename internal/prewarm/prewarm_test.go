package prewarm_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cove-sandbox/cove/internal/prewarm"
)

// TestEachIsTakenOnce: concurrent callers get different values, and remaining values are discarded.
func TestEachIsTakenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		var discarded []int
		s := prewarm.New(3, func(context.Context) (int, error) {
			made++
			return made, nil
		}, func(n int) { discarded = append(discarded, n) })
		synctest.Wait()
		if n, ok := s.Take(); ok {
			t.Errorf("%d before the first Refill", n)
		}
		var mu sync.Mutex
		var taken []int
		for range 4 {
			s.Refill()
			synctest.Wait()
			var takers sync.WaitGroup
			for range 2 {
				takers.Go(func() {
					n, ok := s.Take()
					mu.Lock()
					defer mu.Unlock()
					if taken = append(taken, n); !ok {
						t.Error("nothing is ready")
					}
				})
			}
			takers.Wait()
		}
		s.Refill()
		synctest.Wait()
		s.Close()
		s.Close()
		slices.Sort(taken)
		if want := []int{1, 2, 3, 4, 5, 6, 7, 8}; !slices.Equal(taken, want) {
			t.Errorf("taken: %v", taken)
		}
		if want := []int{9, 10, 11}; !slices.Equal(discarded, want) {
			t.Errorf("discarded: %v", discarded)
		}
		s.Refill()
		synctest.Wait()
		if n, ok := s.Take(); ok {
			t.Errorf("%d after the end", n)
		}
	})
}

// TestFailureIsNotRepeated: after a failure the next Refill tries again, and nothing before it.
func TestFailureIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, fails := 0, true
		s := prewarm.New(1, func(context.Context) (int, error) {
			if tries++; fails {
				return 0, errors.New("not now")
			}
			return tries, nil
		}, func(int) {})
		defer s.Close()
		for want := 1; want < 3; want++ {
			s.Refill()
			synctest.Wait()
			if n, ok := s.Take(); ok || tries != want {
				t.Errorf("%d, %v after %d tries", n, ok, tries)
			}
		}
		fails = false
		s.Refill()
		synctest.Wait()
		if n, ok := s.Take(); !ok || n != 3 {
			t.Errorf("%d, %v", n, ok)
		}
	})
}

// TestCloseEndsWhatIsBeingMade: Close ends the making of a value, and waits for its end.
func TestCloseEndsWhatIsBeingMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		s := prewarm.New(1, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			ended = true
			return 0, ctx.Err()
		}, func(int) {})
		s.Refill()
		synctest.Wait()
		if s.Close(); !ended {
			t.Error("Close returned before the maker ended")
		}
	})
}
