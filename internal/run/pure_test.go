package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/message"
)

// TestHopeless: only what can never be gone on with is ended.
func TestHopeless(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{cove.Errorf(cove.NotFound, "no such run runs"), true},
		{cove.Errorf(cove.Conflict, "the sandbox does not run"), true},
		{cove.Errorf(cove.Corrupt, "what it has written is not there any more"), true},
		{cove.Errorf(cove.RuntimeMissing, "the agent is not installed"), true},
		{cove.Errorf(cove.InvalidArgument, "no agent of that name"), true},
		{cove.Errorf(cove.Unsupported, "not with this agent"), true},
		{fmt.Errorf("take up: %w", &guest.Failure{Kind: guest.FailNotFound, Message: "no such process"}), true},
		{fmt.Errorf("take up: %w", &guest.ProtocolError{Reason: "an answer that was not asked for"}), true},
		{errClosing, false},
		{context.Canceled, false},
		{context.DeadlineExceeded, false},
		{cove.Errorf(cove.StorageFull, "the disk is full"), false},
		{cove.Errorf(cove.Unavailable, "the guest does not answer"), false},
		{cove.Errorf(cove.Overloaded, "too many open files"), false},
		{errors.New("database is locked"), false},
	} {
		if got := hopeless(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// TestLeft: a caller is told to ask again only for what was not begun, or where nothing is left of it.
func TestLeft(t *testing.T) {
	gone := errors.New("the agent is not installed")
	for name, c := range map[string]struct {
		left left
		code cove.Code
		hint string
	}{
		"it was not started":           {left{"one", true, false, true, nil}, cove.Shutdown, "ask for the same again"},
		"its end is unknown":           {left{"one", true, true, true, nil}, cove.Unavailable, "cove stop one"},
		"its sandbox has ended since":  {left{"one", false, true, true, nil}, cove.Unavailable, "cove diff one"},
		"it has worked":                {left{"one", true, false, false, nil}, cove.Unavailable, "cove diff one"},
		"it had begun, or not":         {left{"one", false, false, true, nil}, cove.Unavailable, "cove diff one"},
		"this server has ended it":     {left{"one", true, false, true, gone}, cove.Unavailable, "cove diff one"},
		"its sandbox is not there":     {left{"", false, false, true, nil}, cove.Unavailable, "ask for the same again"},
		"nor is what it has worked on": {left{"", false, false, false, nil}, cove.Unavailable, "ask for the same again"},
	} {
		err := c.left.why()
		if cove.ErrorCode(err) != c.code || !strings.Contains(cove.ErrorHint(err), c.hint) ||
			c.left.ended != nil && !errors.Is(err, c.left.ended) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOutcome(t *testing.T) {
	done, failed := &message.Message{Type: message.TypeResult}, &message.Message{Type: message.TypeResult, IsError: true}
	turns := cove.Errorf(cove.LimitReached, "no more: %w", agent.ErrTurns)
	spent := cove.Errorf(cove.LimitReached, "the budget is used up")
	for name, c := range map[string]struct {
		e      ending
		status store.RunStatus
		limit  cove.LimitKind
		code   cove.Code
	}{
		"it has done it": {ending{exit: new(0), result: done}, store.RunSucceeded, "", ""},
		"although something was out of memory": {ending{exit: new(0), result: done, measured: cove.LimitOOM},
			store.RunSucceeded, "", ""},
		"although a budget was used up": {ending{exit: new(0), result: done, overdrawn: spent},
			store.RunSucceeded, "", ""},
		"its program has gone, its answer not": {ending{result: done}, store.RunSucceeded, "", ""},
		"it could not":                         {ending{exit: new(0), result: failed}, store.RunFailed, "", ""},
		"its program failed after its answer":  {ending{exit: new(1), result: done}, store.RunFailed, "", ""},
		"its program failed": {ending{exit: new(1), err: cove.Errorf(cove.AgentFailed, "x")},
			store.RunFailed, "", cove.AgentFailed},
		"it was out of memory": {ending{exit: new(137), err: cove.Errorf(cove.AgentFailed, "x"),
			measured: cove.LimitOOM}, store.RunLimit, cove.LimitOOM, ""},
		"its sandbox was, and has gone": {ending{broken: true, err: errors.New("gone"), measured: cove.LimitOOM},
			store.RunLimit, cove.LimitOOM, ""},
		"its sandbox has gone": {ending{broken: true, err: cove.Errorf(cove.Conflict, "gone")}, store.RunError,
			"", cove.Conflict},
		"its time is up": {ending{exit: new(137), limit: cove.LimitTimeout,
			err: cove.Errorf(cove.AgentFailed, "x")}, store.RunLimit, cove.LimitTimeout, ""},
		"it is up, and no model has answered": {ending{exit: new(137), limit: cove.LimitTimeout,
			unanswered: cove.Errorf(cove.ModelUnreachable, "x")}, store.RunLimit, cove.LimitTimeout, cove.ModelUnreachable},
		"it was out of memory, and no model has answered": {ending{exit: new(137), measured: cove.LimitOOM,
			unanswered: cove.Errorf(cove.ModelUnreachable, "x")}, store.RunLimit, cove.LimitOOM, cove.ModelUnreachable},
		"it has done it, although a model did not answer at last": {ending{exit: new(0), result: done,
			unanswered: cove.Errorf(cove.ModelUnreachable, "x")}, store.RunSucceeded, "", ""},
		"it was interrupted when it was up": {ending{asked: askedInterrupt, limit: cove.LimitTimeout},
			store.RunInterrupted, "", ""},
		"it has no more turns": {ending{exit: new(0), result: failed, err: turns}, store.RunLimit,
			limitTurns, ""},
		"its budget is used up": {ending{exit: new(1), overdrawn: spent, err: cove.Errorf(cove.AgentFailed, "x")},
			store.RunLimit, limitBudget, cove.LimitReached},
		"its agent's own budget is used up": {ending{exit: new(1), result: failed, err: agent.ErrBudget}, store.RunLimit,
			limitBudget, ""},
		"no model answers": {ending{exit: new(1), err: cove.Errorf(cove.ModelUnreachable, "x")},
			store.RunError, "", cove.ModelUnreachable},
		"it says nothing": {ending{exit: new(0)}, store.RunError, "", cove.AgentProtocol},
		"it breaks its word after its answer": {ending{exit: new(0), result: done, broken: true,
			err: cove.Errorf(cove.AgentProtocol, "x")}, store.RunError, "", cove.AgentProtocol},
	} {
		status, limit, err := outcome(c.e)
		if status != c.status || limit != c.limit || cove.ErrorCode(err) != c.code {
			t.Errorf("%s: %s, %q, %v", name, status, limit, err)
		}
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\nc"), 2)
	f.Fuzz(func(t *testing.T, p []byte, step int) {
		step = max(1, step%64)
		var l lines
		var got []string
		take := func(line []byte) error { got = append(got, string(line)); return nil }
		for rest := p; len(rest) > 0; {
			n := min(step, len(rest))
			if err := l.push(rest[:n], take); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := l.end(take); err != nil {
			t.Fatal(err)
		}
		want := strings.Split(string(p), "\n")
		if want[len(want)-1] == "" {
			want = want[:len(want)-1]
		}
		for i := range want {
			if i < len(want)-1 || bytes.HasSuffix(p, []byte("\n")) {
				want[i] = strings.TrimSuffix(want[i], "\r")
			}
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") || len(got) != len(want) {
			t.Errorf("%q is %q, want %q", p, got, want)
		}
	})
}

// TestOutgoing: as much goes as is beyond the bounds, of what ended first, and nothing of what runs.
func TestOutgoing(t *testing.T) {
	at := func(n int) *time.Time { return new(time.Unix(int64(n), 0)) }
	all := []taken{{store.Run{ID: "late", EndedAt: at(3)}, 10}, {store.Run{ID: "early", EndedAt: at(1)}, 10},
		{store.Run{ID: "runs"}, 100}, {store.Run{ID: "empty", EndedAt: at(0)}, 0}, {store.Run{ID: "mid", EndedAt: at(2)}, 10}}
	for _, c := range []struct {
		bounds     Bounds
		used, free int64
		want       string
	}{
		{Bounds{}, 1000, 0, ""},
		{Bounds{Size: 130, Free: 50}, 130, 50, ""},
		{Bounds{Size: 130}, 131, 0, "early "},
		{Bounds{Size: 130}, 140, 0, "early "},
		{Bounds{Size: 130}, 141, 0, "early mid "},
		{Bounds{Free: 50}, 130, 49, "early "},
		{Bounds{Size: 130, Free: 50}, 131, 35, "early mid "},
		{Bounds{Size: 1}, 130, 0, "early mid late "},
	} {
		var got string
		for _, r := range outgoing(all, c.bounds.excess(c.used, c.free)) {
			got += string(r.ID) + " "
		}
		if got != c.want {
			t.Errorf("%+v with %d used and %d free: %q, want %q", c.bounds, c.used, c.free, got, c.want)
		}
	}
}
