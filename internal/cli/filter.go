package cli

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// statuses are what --status of "cove ps" may be.
var statuses = []string{string(api.StatusRunning), string(api.StatusCompleted), string(api.StatusTimeout), string(api.StatusLimited),
	string(api.StatusKilled), string(api.StatusRefused), string(api.StatusFailed)}

// verdicts are what --verdict of "cove audit" may be.
var verdicts = []string{"ok", "deny", "error"}

// checkOneOf refuses a value of a flag that is neither empty nor allowed.
func checkOneOf(flag, value string, allowed []string) error {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return cove.Errorf(cove.InvalidArgument, "%s %q is none of %s", flag, value, strings.Join(allowed, ", "))
}

func checkLimit(n int) error {
	if n < 1 {
		return cove.Errorf(cove.InvalidArgument, "--limit %d: it must be at least 1", n)
	}
	return nil
}

// parseSince reads --since: how long before now, or a time. Empty is no bound.
func parseSince(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	d, ok := parsePeriod(s)
	if !ok {
		return time.Time{}, cove.Errorf(cove.InvalidArgument, "--since %q is not a time that has passed", s).
			WithHint("write how long ago, like 90m, 24h or 7d, or when, like 2030-12-31T23:59:59Z")
	}
	return now.Add(-d), nil
}

// parsePeriod reads a time that lasts, with days: "90m", "7d".
func parsePeriod(s string) (time.Duration, bool) {
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); err != nil && ok {
		f, ferr := strconv.ParseFloat(days, 64)
		if err = ferr; math.Abs(f) <= 36_500 { // a century; NaN is not
			d = time.Duration(f * 24 * float64(time.Hour))
		}
	}
	return d, err == nil && d > 0
}
