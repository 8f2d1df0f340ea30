package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/sandbox"
)

// verdict says in one line what ended an execution from outside, and which
// flag changes it; nothing when the program ended by itself. used are the
// limits that were in force, as far as they are known.
func verdict(e api.Execution, used cove.Limits) string {
	switch cove.LimitKind(e.LimitHit) {
	case cove.LimitTimeout:
		return stopped("out of time", positive(int64(used.Timeout), timeText(used.Timeout)), "--timeout")
	case cove.LimitOOM:
		return stopped("out of memory", positive(used.Memory, sizeText(used.Memory)), "--memory")
	case cove.LimitPIDs:
		return stopped("too many processes", positive(used.PIDs, fmt.Sprint(used.PIDs)), "--pids")
	case cove.LimitDisk:
		known := positive(used.Disk, sizeText(used.Disk))
		if known != "" && used.Inodes > 0 {
			known += fmt.Sprintf(" and %d files", used.Inodes)
		}
		return stopped("disk full", known, "--disk or --inodes")
	case cove.LimitOutput:
		return stopped("too much output", keptText(used), "--stdout-limit or --stderr-limit")
	}
	switch e.Status {
	case api.StatusTimeout:
		return stopped("out of time", positive(int64(used.Timeout), timeText(used.Timeout)), "--timeout")
	case api.StatusKilled:
		return "stopped: killed"
	case api.StatusFailed:
		return "failed: " + e.Error
	case api.StatusRefused:
		return "refused: " + e.Error
	}
	return ""
}

func stopped(why, limit, flag string) string {
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
	return fmt.Sprintf("%s of output, %s of errors", sizeText(used.Stdout), sizeText(used.Stderr))
}

// truncation says that output was dropped.
func truncation(e api.Execution, used cove.Limits) string {
	if !e.Truncated || cove.LimitKind(e.LimitHit) == cove.LimitOutput {
		return ""
	}
	if kept := keptText(used); kept != "" {
		return fmt.Sprintf("output was cut (limit %s; raise it with --stdout-limit or --stderr-limit)", kept)
	}
	return "output was cut (raise the limit with --stdout-limit or --stderr-limit)"
}

// warnings are the security events worth a person's attention.
func warnings(e api.Execution) []string {
	var lines []string
	for _, ev := range e.SecurityEvents {
		if ev.Rule == sandbox.DeniedRule {
			lines = append(lines, fmt.Sprintf("note: policy denied %s (allow it with --allow %[1]s)", ev.Detail))
		}
		if ev.Severity == "high" || ev.Severity == "critical" {
			lines = append(lines, fmt.Sprintf("note: line %d looks like an escape attempt: %s (%s)", ev.Line, ev.Detail, ev.Rule))
		}
	}
	return lines
}

// inForce are the limits of a request over the defaults of its runtime.
func inForce(defaults cove.Limits, l *api.Limits, timeout float64) cove.Limits {
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

// summary is how an execution ended, in two words.
func summary(e api.Execution) string {
	parts := []string{string(e.Status)}
	if e.LimitHit != "" && e.LimitHit != string(e.Status) {
		parts = append(parts, e.LimitHit)
	}
	return strings.Join(parts, ": ")
}
