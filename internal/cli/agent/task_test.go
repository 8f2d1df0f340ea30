package agent

import (
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

func TestExitCodesOfRuns(t *testing.T) {
	failed := func(code cove.Code) *api.Error { return &api.Error{Error: "x", Code: string(code)} }
	for _, c := range []struct {
		name    string
		r       api.Run
		stopped syscall.Signal
		want    int
	}{
		{"done", api.Run{Status: api.RunSucceeded}, 0, 0},
		{"done before the signal arrived", api.Run{Status: api.RunSucceeded}, syscall.SIGINT, 0},
		{"not done", api.Run{Status: api.RunFailed}, 0, 1},
		{"interrupted here", api.Run{Status: api.RunInterrupted}, syscall.SIGTERM, 143},
		{"interrupted elsewhere", api.Run{Status: api.RunInterrupted}, 0, 130},
		{"out of time", api.Run{Status: api.RunLimit, LimitHit: "timeout"}, 0, 124},
		{"out of turns", api.Run{Status: api.RunLimit, LimitHit: "turns"}, 0, 137},
		{"the program failed", api.Run{Status: api.RunError, Error: failed(cove.AgentFailed)}, 0, 1},
		{"nonsense", api.Run{Status: api.RunError, Error: failed(cove.AgentProtocol)}, 0, 125},
		{"no models", api.Run{Status: api.RunError, Error: failed(cove.ModelUnreachable)}, 0, 123},
		{"not installed", api.Run{Status: api.RunError, Error: failed(cove.RuntimeMissing)}, 0, 127},
		{"nobody knows", api.Run{Status: api.RunError}, 0, 125},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := exitOfRun(c.r, c.stopped); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}
