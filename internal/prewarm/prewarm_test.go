package prewarm_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// TestAwait: who awaits a value gets the one that is being made, and none where none is, or will be.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		s := prewarm.New(1, func(ctx context.Context) (int, error) {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			if made++; made == 2 {
				return 0, errors.New("not now")
			}
			return made, ctx.Err()
		}, func(int) {})
		await := func(why string, want int, takes time.Duration) {
			t.Helper()
			began := time.Now()
			n, ok := s.Await(t.Context())
			if n != want || ok != (want > 0) || time.Since(began) != takes {
				t.Errorf("%s: %d, %v after %v, want %d after %v", why, n, ok, time.Since(began), want, takes)
			}
		}
		await("none was asked for", 0, 0)
		s.Refill()
		synctest.Wait()
		s.Refill()
		await("it is being made", 1, time.Second)
		await("the next one, asked for meanwhile, cannot be made", 0, time.Second)
		await("none is being made", 0, 0)
		s.Refill()
		time.Sleep(time.Minute) // sleep: of the bubble, which takes no time
		await("it is ready", 3, 0)
		s.Refill()
		short, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if _, ok := s.Await(short); ok {
			t.Error("it has waited for too long")
		}
		time.Sleep(time.Minute) // sleep: of the bubble, which takes no time
		await("it was made without the one who has left", 4, 0)
		time.Sleep(time.Minute) // sleep: of the bubble, which takes no time
		if made != 4 {
			t.Errorf("%d values were made, and 4 were asked for", made)
		}
		s.Refill()
		time.AfterFunc(time.Second/2, s.Close)
		await("the end comes first", 0, time.Second/2)
		s.Refill()
		await("it is after the end", 0, 0)
	})
}
