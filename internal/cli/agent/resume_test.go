package agent

import (
	"slices"
	"testing"

	"github.com/cove-sandbox/cove/api"
)

// TestConversations: what --resume takes is the newest run here whose sandbox, conversation and end are there.
func TestConversations(t *testing.T) {
	there := []api.Sandbox{
		{ID: "kept", Name: "calm-heron", State: "stopped"},
		{ID: "other", State: "running"},
		{ID: "held", Name: "dear-deer", State: "paused"},
		{ID: "made here", State: "running", Repository: &api.SandboxRepository{Source: "/here"}},
	}
	run := func(id, sandbox, dir string) api.Run {
		return api.Run{ID: id, Sandbox: sandbox, Directory: dir, Session: "s", Status: api.RunSucceeded}
	}
	screen, silent, going := run("5", "kept", "/here"), run("6", "kept", "/here"), run("7", "kept", "/here")
	screen.Interactive, silent.Session, going.Status = true, "", api.RunRunning
	for name, c := range map[string]struct {
		runs       []api.Run
		next, last string
		why        string
		offered    []string
	}{
		"nothing":    {},
		"the newest": {[]api.Run{run("2", "kept", "/here"), run("1", "kept", "/here")}, "2", "2", "", nil},
		"its sandbox is gone": {[]api.Run{run("2", "gone", "/here"), run("1", "kept", "/here")}, "1", "2",
			"its sandbox is gone", nil},
		"it has no name": {[]api.Run{silent, run("1", "kept", "/here")}, "1", "6",
			"it has given its conversation no name", nil},
		"it goes on":             {[]api.Run{going}, "", "7", "it has not ended", nil},
		"its sandbox is paused":  {[]api.Run{run("2", "held", "/here")}, "", "2", "its sandbox dear-deer is paused", nil},
		"a screen is none":       {[]api.Run{screen}, "", "", "", nil},
		"in a sandbox from here": {[]api.Run{run("2", "made here", "")}, "2", "2", "", nil},
		"elsewhere, each sandbox once": {[]api.Run{run("3", "other", "/there"), run("2", "other", "/there"),
			run("1", "gone", "/there")}, "", "", "", []string{"3"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := conversationsOf(c.runs, there, "/here")
			id := func(r *api.Run) string {
				if r == nil {
					return ""
				}
				return r.ID
			}
			var offered []string
			for _, r := range got.offered {
				offered = append(offered, r.ID)
			}
			if id(got.next) != c.next || id(got.last) != c.last || got.why != c.why || !slices.Equal(offered, c.offered) {
				t.Errorf("next %q, last %q (%s), offered %q", id(got.next), id(got.last), got.why, offered)
			}
		})
	}
}
