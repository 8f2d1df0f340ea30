package flags

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// List holds the flags of every command that lists records.
type List struct {
	since string
	Limit int
	JSON  bool
}

// Add defines the flags; begun is what happened since --since.
func (l *List) Add(f *pflag.FlagSet, begun string) {
	f.StringVar(&l.since, "since", "", begun+" since `TIME` only: how long ago, like 1h or 7d, or when")
	f.IntVarP(&l.Limit, "limit", "n", 50, "at most `COUNT`")
	f.BoolVar(&l.JSON, "json", false, "print one JSON object")
}

// From is the time that --since says.
func (l *List) From(now time.Time) (time.Time, error) {
	since, err := ui.ParseSince(l.since, now)
	return since, cmp.Or(err, CheckLimit(l.Limit))
}

// CheckOneOf refuses a value of a flag that is neither empty nor allowed.
func CheckOneOf(flag, value string, allowed []string) error {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return cove.Errorf(cove.InvalidArgument, "%s %q is none of %s", flag, value, strings.Join(allowed, ", "))
}

func CheckLimit(n int) error {
	if n < 1 {
		return cove.Errorf(cove.InvalidArgument, "--limit %d: it must be at least 1", n)
	}
	return nil
}
