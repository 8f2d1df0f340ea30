package cli

import (
	"cmp"
	"time"

	"github.com/spf13/pflag"
)

// pageSize is how many records are asked for at once.
const pageSize = 100

// listFlags are those of every command that lists records.
type listFlags struct {
	since string
	limit int
	json  bool
}

// add defines the flags; begun is what happened since --since.
func (l *listFlags) add(f *pflag.FlagSet, begun string) {
	f.StringVar(&l.since, "since", "", begun+" since `TIME` only: how long ago, like 1h or 7d, or when")
	f.IntVarP(&l.limit, "limit", "n", 50, "at most `COUNT`")
	f.BoolVar(&l.json, "json", false, "print one JSON object")
}

// from is the time that --since says.
func (l *listFlags) from(now time.Time) (time.Time, error) {
	since, err := parseSince(l.since, now)
	return since, cmp.Or(err, checkLimit(l.limit))
}

// upTo reads page after page, until there are limit records or no more.
func upTo[T any](limit int, page func(cursor string, limit int) (records []T, next string, err error)) ([]T, error) {
	all := []T{}
	for cursor := ""; ; {
		records, next, err := page(cursor, min(pageSize, limit-len(all)))
		if err != nil {
			return nil, err
		}
		all = append(all, records...)
		if cursor = next; cursor == "" || len(all) >= limit {
			return all, nil
		}
	}
}
