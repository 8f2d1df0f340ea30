// Package report owns the words in which the command line tells what became of
// executions, connections and work, for all rooms that show them.
package report

import (
	"fmt"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// Verdict describes in one line what ended an execution from outside, and which flag changes it. It is empty when the
// program ended by itself. used are the limits that were in force, as far as they are known.
func Verdict(e api.Execution, used cove.Limits) string {
	switch cove.LimitKind(e.LimitHit) {
	case cove.LimitTimeout:
		return Stopped("out of time", positive(int64(used.Timeout), ui.TimeText(used.Timeout)), "--timeout")
	case cove.LimitOOM:
		return Stopped("out of memory", positive(used.Memory, ui.SizeText(used.Memory)), "--memory")
	case cove.LimitPIDs:
		return Stopped("too many processes", positive(used.PIDs, fmt.Sprint(used.PIDs)), "--pids")
	case cove.LimitDisk:
		known := positive(used.Disk, ui.SizeText(used.Disk))
		if known != "" && used.Inodes > 0 {
			known += fmt.Sprintf(" and %d files", used.Inodes)
		}
		return Stopped("disk full", known, "--disk or --inodes")
	case cove.LimitOutput:
		return Stopped("too much output", keptText(used), "--stdout-limit or --stderr-limit")
	}
	switch e.Status {
	case api.StatusTimeout:
		return Stopped("out of time", positive(int64(used.Timeout), ui.TimeText(used.Timeout)), "--timeout")
	case api.StatusKilled:
		return "stopped: killed"
	case api.StatusFailed:
		return "failed: " + e.Error
	case api.StatusRefused:
		return "refused: " + e.Error
	}
	return ""
}

func Stopped(why, limit, flag string) string {
	if limit == "" {
		return fmt.Sprintf("stopped: %s (raise the limit with %s)", why, flag)
	}
	return fmt.Sprintf("stopped: %s (limit %s; raise it with %s)", why, limit, flag)
}

func positive(n int64, text string) string {
	if n <= 0 {
		return ""
	}
	return text
}

func keptText(used cove.Limits) string {
	if used.Stdout <= 0 || used.Stderr <= 0 {
		return ""
	}
	return fmt.Sprintf("%s of output, %s of errors", ui.SizeText(used.Stdout), ui.SizeText(used.Stderr))
}

// Truncation reports that output was dropped.
func Truncation(e api.Execution, used cove.Limits) string {
	if !e.Truncated || cove.LimitKind(e.LimitHit) == cove.LimitOutput {
		return ""
	}
	if kept := keptText(used); kept != "" {
		return fmt.Sprintf("output was cut (limit %s; raise it with --stdout-limit or --stderr-limit)", kept)
	}
	return "output was cut (raise the limit with --stdout-limit or --stderr-limit)"
}

// InForce are the limits of a request over the defaults of its runtime.
func InForce(defaults cove.Limits, l *api.Limits, timeout float64) cove.Limits {
	if timeout > 0 {
		defaults.Timeout = time.Duration(timeout * float64(time.Second))
	}
	if l == nil {
		return defaults
	}
	for _, f := range []struct {
		n, unit int64
		to      *int64
	}{
		{l.MemoryMB, 1 << 20, &defaults.Memory}, {l.DiskMB, 1 << 20, &defaults.Disk}, {l.PIDs, 1, &defaults.PIDs},
		{l.Inodes, 1, &defaults.Inodes}, {l.OpenFiles, 1, &defaults.OpenFiles},
		{l.StdoutKB, 1 << 10, &defaults.Stdout}, {l.StderrKB, 1 << 10, &defaults.Stderr},
	} {
		if f.n > 0 {
			*f.to = f.n * f.unit
		}
	}
	if l.CPUs > 0 {
		defaults.CPUs = l.CPUs
	}
	return defaults
}
