package run

import (
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/report"
)

func TestExitCodesOfExecutions(t *testing.T) {
	for _, c := range []struct {
		name    string
		e       api.Execution
		stopped syscall.Signal
		want    int
	}{
		{"the program's", api.Execution{Status: api.StatusCompleted, ExitCode: 3}, 0, 3},
		{"the program's, by a signal", api.Execution{Status: api.StatusCompleted, ExitCode: 139}, 0, 139},
		{"finished before the signal arrived", api.Execution{Status: api.StatusCompleted, ExitCode: 0}, syscall.SIGINT, 0},
		{"timeout", api.Execution{Status: api.StatusTimeout, ExitCode: -1}, 0, 124},
		{"limit, killed by the kernel", api.Execution{Status: api.StatusLimited, LimitHit: "oom", ExitCode: 137}, 0, 137},
		{"limit, ended by Cove", api.Execution{Status: api.StatusLimited, LimitHit: "output", ExitCode: -1}, 0, 137},
		{"Ctrl-C", api.Execution{Status: api.StatusKilled, ExitCode: -1}, syscall.SIGINT, 130},
		{"killed by another client", api.Execution{Status: api.StatusKilled, ExitCode: -1}, 0, 137},
		{"refused", api.Execution{Status: api.StatusRefused, ExitCode: -1}, 0, 126},
		{"failed", api.Execution{Status: api.StatusFailed, ExitCode: -1}, 0, 125},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := exitOf(c.e, c.stopped); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

// TestVerdictNamesEveryLimit: a limit added to the vocabulary needs its words.
func TestVerdictNamesEveryLimit(t *testing.T) {
	for _, kind := range []cove.LimitKind{cove.LimitOOM, cove.LimitTimeout, cove.LimitPIDs, cove.LimitDisk,
		cove.LimitOutput} {
		for _, used := range []cove.Limits{{}, defaultsOf("python")} {
			v := report.Verdict(api.Execution{Status: api.StatusLimited, LimitHit: string(kind)}, used)
			if !strings.HasPrefix(v, "stopped: ") || !strings.Contains(v, "--") {
				t.Errorf("%s: %q", kind, v)
			}
		}
	}
	if v := report.Verdict(api.Execution{Status: api.StatusCompleted, ExitCode: 1}, cove.Limits{}); v != "" {
		t.Errorf("a program that ended by itself: %q", v)
	}
}
