package execution

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
)

func TestWait(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name        string
		ahead       int
		step, still time.Duration
		want        time.Duration
		retry       time.Duration
	}{
		{"nothing is known", 5, 0, 0, 0, time.Second},
		{"the next one", 0, 20 * ms, 0, 20 * ms, time.Second},
		{"a step is under way", 0, 20 * ms, 15 * ms, 20 * ms, time.Second},
		{"a step takes longer than others", 0, 20 * ms, 90 * ms, 90 * ms, time.Second},
		{"one slow step does not make all slow", 50, 20 * ms, 90 * ms, 1090 * ms, 2 * time.Second},
		{"a whole line", 255, 20 * ms, 0, 5120 * ms, 6 * time.Second},
		{"whole seconds stay", 99, 20 * ms, 0, 2 * time.Second, 2 * time.Second},
		{"the line stands", 3, 20 * ms, 30 * time.Second, 30*time.Second + 60*ms, 31 * time.Second},
		{"it has stood for an hour", 3, 20 * ms, time.Hour, time.Hour + 60*ms, longestRetry},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := wait(c.ahead, c.step, c.still)
			if got != c.want || retryAfter(got) != c.retry {
				t.Errorf("wait %s, retry after %s; want %s, %s", got, retryAfter(got), c.want, c.retry)
			}
		})
	}
}

func TestPace(t *testing.T) {
	var p pace
	if p.mean() != 0 {
		t.Errorf("without a step: %s", p.mean())
	}
	p.add(10)
	p.add(20)
	if p.mean() != 15 {
		t.Errorf("of two steps: %d", p.mean())
	}
	for range paceSteps {
		p.add(40)
	}
	if p.mean() != 40 {
		t.Errorf("old steps are not forgotten: %d", p.mean())
	}
}

func TestRests(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name string
		usage
		want bool
	}{
		{"its sandbox is being made", usage{age: 50 * ms}, false},
		{"an image is being pulled", usage{age: time.Second}, true},
		{"the first look", usage{age: 50 * ms, sandbox: true}, false},
		{"it computes", usage{age: 100 * ms, sandbox: true, cpu: 60 * ms, used: 50 * ms, past: 50 * ms}, false},
		{"it computes on a busy machine",
			usage{age: 100 * ms, sandbox: true, cpu: 15 * ms, used: 5 * ms, past: 50 * ms}, false},
		{"it sleeps", usage{age: 100 * ms, sandbox: true, cpu: 10 * ms, used: 0, past: 50 * ms}, true},
		{"it hardly computes", usage{age: 100 * ms, sandbox: true, cpu: 10 * ms, used: ms / 2, past: 50 * ms}, true},
		{"it computes for long", usage{age: 500 * ms, sandbox: true, cpu: 250 * ms, used: 50 * ms, past: 50 * ms}, true},
		{"its sandbox took long to make", usage{age: 5 * time.Second, sandbox: true}, false},
	} {
		if got := c.rests(); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// TestEstimate has executions of callers, by letters, arrive at a line with one slot, of which one ends each second:
// first so many that the pace is known. Then a caller comes that waits for so long at most.
func TestEstimate(t *testing.T) {
	for _, c := range []struct {
		name     string
		wait     string // those that wait when it comes
		after    time.Duration
		comes    string
		patience time.Duration
		refused  string // in the error
		retry    time.Duration
	}{
		{name: "nobody waits", wait: "", comes: "b", patience: time.Second},
		{name: "a wait that is short enough", wait: "aaa", comes: "a", patience: 4 * time.Second},
		{name: "and one that is too long", wait: "aaa", comes: "a", patience: 4*time.Second - 1,
			refused: "3 executions wait already: this one would begin in about 4s, and waits 3.999999999s at most",
			retry:   4 * time.Second},
		{name: "another caller does not wait for all", wait: "aaaaaa", comes: "b", patience: 2 * time.Second},
		{name: "without patience nothing is too long", wait: "aaaaaaaaa", comes: "a"},
		{name: "the line stands", wait: "a", after: time.Minute, comes: "b", patience: 30 * time.Second,
			refused: "this one would begin in about 1m1s", retry: 61 * time.Second},
		{name: "a full line says when it is over", wait: "OOOOOOOOOOOOOOOO", comes: "O",
			refused: "1 executions run and 16 wait already", retry: 17 * time.Second},
		{name: "so does a share", wait: "aaaaaaaaaaaa", comes: "a", refused: "12 executions of this caller wait already",
			retry: 13 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, now := newLine(1, 16, 0, 1), clock.Instant(0)
			join := func(name string, patience time.Duration) (*turn, error) {
				return l.join(caller(name), 0, patience, now)
			}
			inside, err := join("x", 0)
			if err != nil {
				t.Fatal(err)
			}
			for range paceSteps {
				next, err := join("x", 0)
				if err != nil {
					t.Fatal(err)
				}
				now = now.Add(time.Second)
				l.leave(inside, now)
				inside = next
			}
			for name := range strings.SplitSeq(c.wait, "") {
				if _, err := join(name, 0); err != nil {
					t.Fatal(err)
				}
			}
			if c.wait == "" {
				l.leave(inside, now)
			}
			now = now.Add(c.after)
			_, err = join(c.comes, c.patience)
			if c.refused == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.refused) || cove.ErrorCode(err) != cove.Overloaded ||
				cove.ErrorRetry(err) != c.retry || !strings.Contains(cove.ErrorHint(err), "try again in "+c.retry.String()) {
				t.Errorf("%v, again in %s", err, cove.ErrorRetry(err))
			}
		})
	}
}

// TestPaceOfWhatIsBlocked: an execution that waits for its caller's own quota says nothing about how fast others begin.
func TestPaceOfWhatIsBlocked(t *testing.T) {
	l, now := newLine(2, 16, 0, 2), clock.Instant(0)
	quick := l.pace.mean
	first, _ := l.join(caller("a"), 1, 0, now)
	if _, err := l.join(caller("a"), 1, 0, now); err != nil {
		t.Fatal(err)
	}
	first.cpu = 40 * time.Millisecond
	now = now.Add(time.Hour)
	l.leave(first, now)
	if got := quick(); got != 20*time.Millisecond {
		t.Errorf("a step takes %s; want half of the CPU time, of two processors", got)
	}
}

// TestAhead compares how many turns are said to be ahead with how many are given before, in lines of chance.
func TestAhead(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		l := newLine(1+r.IntN(3), 40, 0, 1)
		var turns, inside []*turn
		gather := func() {
			for i := 0; i < len(turns); i++ {
				if given(turns[i]) {
					inside, turns = append(inside, turns[i]), append(turns[:i:i], turns[i+1:]...)
					i--
				}
			}
		}
		for range r.IntN(60) {
			if len(inside) > 0 && r.IntN(3) == 0 {
				l.leave(inside[0], 0)
				inside = inside[1:]
			} else if t, err := l.join(caller(string(rune('a'+r.IntN(4)))), 0, 0, 0); err == nil {
				turns = append(turns, t)
			}
			gather()
		}
		who := caller(string(rune('a' + r.IntN(5))))
		ahead := l.ahead(l.party(who, 0))
		last, err := l.join(who, 0, 0, 0)
		if err != nil || given(last) {
			continue
		}
		before := 0
		for !given(last) {
			l.leave(inside[0], 0)
			inside = inside[1:]
			if gather(); !given(last) {
				before++
			}
		}
		if before != ahead {
			t.Fatalf("seed %d: %d turns are given before it; %d were said to be ahead", seed, before, ahead)
		}
	}
}
