package ui

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
)

var units = []struct {
	name  string
	names []string // that are read, too
	size  int64
}{
	{"GiB", []string{"gib", "gb", "g"}, 1 << 30},
	{"MiB", []string{"mib", "mb", "m"}, 1 << 20},
	{"KiB", []string{"kib", "kb", "k"}, 1 << 10},
	{"B", []string{"b", ""}, 1},
}

// ParseSize reads a size that must be a positive multiple of step, so that it reaches the API without being rounded.
func ParseSize(s string, step int64) (int64, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz ")
	unit := strings.TrimSpace(text[len(digits):])
	for _, u := range units {
		if slices.Contains(u.names, unit) {
			return scale(s, digits, u.size, step)
		}
	}
	return 0, cove.Errorf(cove.InvalidArgument, "%q is not a size", s).WithHint("%s", sizeHint(step))
}

func sizeHint(step int64) string {
	if step >= 1<<20 {
		return "write it like 256M or 1.5G"
	}
	return "write it like 512K or 2M"
}

func scale(s, digits string, unit, step int64) (int64, error) {
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) || strings.ContainsAny(digits, "+_pxe") {
		return 0, cove.Errorf(cove.InvalidArgument, "%q is not a size", s).WithHint("%s", sizeHint(step))
	}
	n := f * float64(unit)
	switch {
	case n <= 0:
		return 0, cove.Errorf(cove.InvalidArgument, "%q is not a size: it must be more than nothing", s).
			WithHint("leave the flag out for the default")
	case n > math.MaxInt64/2:
		return 0, cove.Errorf(cove.InvalidArgument, "%q is more than any machine has", s).WithHint("%s", sizeHint(step))
	case n != math.Trunc(n) || int64(n)%step != 0:
		return 0, cove.Errorf(cove.InvalidArgument, "%q is not a whole number of %s", s, SizeText(step)[2:]).
			WithHint("%s", sizeHint(step))
	}
	return int64(n), nil
}

// SizeText is a size for people: "256 MiB".
func SizeText(n int64) string {
	for _, u := range units {
		if n >= u.size {
			return strings.TrimSuffix(strconv.FormatFloat(float64(n)/float64(u.size), 'f', 1, 64), ".0") + " " + u.name
		}
	}
	return fmt.Sprintf("%d B", n)
}

// ParseSeconds reads a wall time: "10s", "1m30s", or seconds alone.
func ParseSeconds(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		f, ferr := strconv.ParseFloat(s, 64)
		if ferr != nil || math.IsNaN(f) || math.Abs(f) > 1e9 {
			return 0, cove.Errorf(cove.InvalidArgument, "%q is not a time", s).WithHint("write it like 10s, 1m30s or 500ms")
		}
		d = time.Duration(f * float64(time.Second))
	}
	if d <= 0 {
		return 0, cove.Errorf(cove.InvalidArgument, "%q is not a time: it must be more than nothing", s).
			WithHint("leave the flag out for the default")
	}
	return d, nil
}

// TimeText is a duration for people: "1.2 s", "35 ms".
func TimeText(d time.Duration) string {
	switch {
	case d >= 2*time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return strings.TrimSuffix(strconv.FormatFloat(d.Seconds(), 'f', 1, 64), ".0") + " s"
	case d >= time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%d µs", d.Microseconds())
}

func Ago(d time.Duration) string {
	switch {
	case d < 2*time.Second:
		return "now"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}

// ParsePeriod reads a time that lasts, with days: "90m", "7d".
func ParsePeriod(s string) (time.Duration, bool) {
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); err != nil && ok {
		f, ferr := strconv.ParseFloat(days, 64)
		if err = ferr; math.Abs(f) <= 36_500 { // a century; NaN is not
			d = time.Duration(f * 24 * float64(time.Hour))
		}
	}
	return d, err == nil && d > 0
}

// ParseSince reads --since: how long before now, or a time. Empty is no bound.
func ParseSince(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	d, ok := ParsePeriod(s)
	if !ok {
		return time.Time{}, cove.Errorf(cove.InvalidArgument, "--since %q is not a time that has passed", s).
			WithHint("write how long ago, like 90m, 24h or 7d, or when, like 2030-12-31T23:59:59Z")
	}
	return now.Add(-d), nil
}
