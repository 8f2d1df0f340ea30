package prices

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestData: each price has a page and a day, is complete, and is not below that of the same model's cached input.
func TestData(t *testing.T) {
	all := tables()
	for _, at := range []string{"https://api.anthropic.com/v1", "https://api.openai.com/v1",
		"https://openrouter.ai/api/v1", "gemini", "bedrock", "vertex"} {
		if len(all[at]) == 0 {
			t.Errorf("%s has no prices", at)
		}
	}
	for at, some := range all {
		seen := map[Price]bool{}
		for _, p := range some {
			if _, err := time.Parse(time.DateOnly, p.Read); err != nil || !strings.HasPrefix(p.Source, "https://") {
				t.Errorf("%s: %s is from %q, %q", at, p.Models, p.Source, p.Read)
			}
			if p.Models == "" || strings.Contains(p.Models, "*") || p.Input <= 0 || p.CacheRead <= 0 || p.CacheRead > p.Input ||
				p.CacheWrite <= 0 || p.Output < p.Input && p.Output != 0 {
				t.Errorf("%s: %+v", at, p)
			}
			same := Price{Models: p.Models, Above: p.Above}
			if seen[same] {
				t.Errorf("%s: %s is there twice", at, p.Models)
			}
			seen[same] = true
			if p.Above > 0 && seen[Price{Models: p.Models}] {
				t.Errorf("%s: %s has its price of long requests behind the other", at, p.Models)
			}
		}
	}
}

// TestNames: an id names itself and its versions, in the forms of all providers, and no other model.
func TestNames(t *testing.T) {
	for id, names := range map[string][]string{
		"claude-sonnet-4-5": {"claude-sonnet-4-5", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5-latest",
			"claude-sonnet-4-5@20250929", "claude-sonnet-4-5@default"},
		"us.anthropic.claude-sonnet-4-5": {"us.anthropic.claude-sonnet-4-5-20250929-v1:0",
			"us.anthropic.claude-sonnet-4-5-v1"},
		"gpt-5":            {"gpt-5", "gpt-5-2025-08-07"},
		"gemini-2.5-flash": {"gemini-2.5-flash", "gemini-2.5-flash-001"},
	} {
		for _, name := range names {
			if !(Price{Models: id}).Names(name) {
				t.Errorf("%s does not name %s", id, name)
			}
		}
		for _, other := range []string{"", id[1:], "x" + id, id + "-pro", id + "-mini", id + "0", id + "-",
			id + ".1", id + "-1", id + "-fast", id + ":free", id + "-20250929-fast", id + "-v2-pro",
			id + "-preview-09-2025", id + "-codex"} {
			if (Price{Models: id}).Names(other) {
				t.Errorf("%s names %s", id, other)
			}
		}
	}
	for at, some := range tables() {
		for i, p := range some {
			if j := slices.IndexFunc(some[:i], func(q Price) bool { return q.Above == 0 && q.Names(p.Models) }); j >= 0 {
				t.Errorf("%s: %s is behind %s, which names it", at, p.Models, some[j].Models)
			}
		}
	}
}
