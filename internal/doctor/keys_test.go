package doctor

import (
	"strings"
	"testing"
	"time"
)

func TestJudgeKey(t *testing.T) {
	end := time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		now  time.Time
		want Status
		says string
	}{
		{end.AddDate(0, -3, 0), OK, "its last day is 2027-01-31"},
		{end.AddDate(0, 0, -14), OK, "its last day is"},
		{end.AddDate(0, 0, -13), Warn, "expires soon: its last day is 2027-01-31"},
		{end.Add(-1), Warn, "expires soon"},
		{end, Warn, "has expired: its last day was 2027-01-31"},
	} {
		got := keyChecks(Options{Expires: map[string]time.Time{"ci": end}})[0].finding(judgeKey("ci", end, c.now), native)
		if got.Status != c.want || !strings.Contains(got.Found, c.says) || got.ID != "api_key.ci" ||
			(c.want == Warn) != strings.Contains(got.Fix, "cove config new-key ci") {
			t.Errorf("%s: %+v", c.now, got)
		}
	}
}
