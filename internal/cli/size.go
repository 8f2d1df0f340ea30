package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
)

var units = []struct {
	names []string
	size  int64
}{
	{[]string{"gib", "gb", "g"}, 1 << 30},
	{[]string{"mib", "mb", "m"}, 1 << 20},
	{[]string{"kib", "kb", "k"}, 1 << 10},
	{[]string{"b", ""}, 1},
}

// parseSize reads a size that must be a positive multiple of step, so that it
// reaches the API without being rounded.
func parseSize(s string, step int64) (int64, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz ")
	unit := strings.TrimSpace(text[len(digits):])
	for _, u := range units {
		for _, name := range u.names {
			if name == unit {
				return scale(s, digits, u.size, step)
			}
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
		return 0, cove.Errorf(cove.InvalidArgument, "%q is not a size: it must be more than nothing", s).WithHint("leave the flag out for the default")
	case n > math.MaxInt64/2:
		return 0, cove.Errorf(cove.InvalidArgument, "%q is more than any machine has", s).WithHint("%s", sizeHint(step))
	case n != math.Trunc(n) || int64(n)%step != 0:
		return 0, cove.Errorf(cove.InvalidArgument, "%q is not a whole number of %s", s, sizeText(step)[2:]).WithHint("%s", sizeHint(step))
	}
	return int64(n), nil
}

// sizeText is a size for people: "256 MiB".
func sizeText(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size {
			return strings.TrimSuffix(strconv.FormatFloat(float64(n)/float64(u.size), 'f', 1, 64), ".0") + " " + u.name
		}
	}
	return fmt.Sprintf("%d B", n)
}

// parseSeconds reads a wall time: "10s", "1m30s", or seconds alone.
func parseSeconds(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		f, ferr := strconv.ParseFloat(s, 64)
		if ferr != nil || math.IsNaN(f) || math.Abs(f) > 1e9 {
			return 0, cove.Errorf(cove.InvalidArgument, "%q is not a time", s).WithHint("write it like 10s, 1m30s or 500ms")
		}
		d = time.Duration(f * float64(time.Second))
	}
	if d <= 0 {
		return 0, cove.Errorf(cove.InvalidArgument, "%q is not a time: it must be more than nothing", s).WithHint("leave the flag out for the default")
	}
	return d, nil
}

// timeText is a duration for people: "1.2 s", "35 ms".
func timeText(d time.Duration) string {
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
