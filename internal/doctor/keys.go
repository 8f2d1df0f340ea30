package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// expiresSoon is how long before its end the doctor warns about an API key.
const expiresSoon = 14 * 24 * time.Hour

// keyChecks look at the API keys of the configuration, if one of them has an end.
func keyChecks(o Options) (all []check) {
	for _, name := range slices.Sorted(maps.Keys(o.Expires)) {
		all = append(all, check{"api_key." + name, "API keys", name, "",
			func(context.Context, *host) outcome { return judgeKey(name, o.Expires[name], time.Now()) }})
	}
	return all
}

// judgeKey judges the end of an API key. It is pure.
func judgeKey(name string, end, now time.Time) outcome {
	fix := fmt.Sprintf("make another one (cove config new-key %s), or move expires of it in the configuration", name)
	last := end.AddDate(0, 0, -1).Format(time.DateOnly)
	switch left := end.Sub(now); {
	case left <= 0:
		return warn("has expired: its last day was "+last, fix)
	case left < expiresSoon:
		return warn("expires soon: its last day is "+last, fix)
	}
	return ok("its last day is " + last)
}
