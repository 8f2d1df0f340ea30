package sandbox

import (
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/api"
)

// TestWithWithin: what is within a sandbox goes with it, and first.
func TestWithWithin(t *testing.T) {
	all := []api.Sandbox{{ID: "host"}, {ID: "a", Within: "host"}, {ID: "other"}, {ID: "b", Within: "host"},
		{ID: "c", Within: "else"}}
	for chosen, want := range map[string]string{"host": "a b host", "a": "a", "other host": "a b other host",
		"b host a": "a b host", "": ""} {
		var picked []api.Sandbox
		for _, id := range strings.Fields(chosen) {
			for _, s := range all {
				if s.ID == id {
					picked = append(picked, s)
				}
			}
		}
		var got []string
		for _, s := range withWithin(all, picked) {
			got = append(got, s.ID)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %s", chosen, got, want)
		}
	}
}
