package flags

import (
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// TestTargetIsOnesOwn: a sandbox of another caller is meant only where none of one's own is.
func TestTargetIsOnesOwn(t *testing.T) {
	at := time.Unix(1_900_000_000, 0)
	all := []api.Sandbox{
		{ID: "sb_1a", Name: "pro", OfAnother: true, LastUsedAt: at.Add(time.Hour)},
		{ID: "sb_2b", Name: "project", LastUsedAt: at},
		{ID: "sb_3c", Name: "lone", OfAnother: true, LastUsedAt: at},
		{ID: "sb_4d", Name: "lone-a", OfAnother: true, LastUsedAt: at},
	}
	for name, c := range map[string]struct {
		target Target
		of     []api.Sandbox
		want   string
		code   cove.Code
	}{
		"a beginning, and another's name": {Target{Name: "pro"}, all, "sb_2b", ""},
		"another's id":                    {Target{Name: "sb_1a"}, all, "sb_1a", ""},
		"another's name":                  {Target{Name: "lone"}, all, "sb_3c", ""},
		"the beginning of two others":     {Target{Name: "lo"}, all, "", cove.InvalidArgument},
		"no sandbox's":                    {Target{Name: "x"}, all, "", cove.NotFound},
		"the last":                        {Target{Last: true}, all, "sb_2b", ""},
		"the last, of others alone":       {Target{Last: true}, all[2:], "sb_3c", ""},
	} {
		got, err := c.target.Among(c.of, "")
		if got.ID != c.want || err != nil && cove.ErrorCode(err) != c.code || err == nil && c.code != "" {
			t.Errorf("%s: %s, %v; want %s %s", name, got.ID, err, c.want, c.code)
		}
	}
}
