package sandbox

import (
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// TestPick: what a caller names is its own, where it may be: another caller's sandbox takes no word of it away.
func TestPick(t *testing.T) {
	owner, ci, dev := cove.MachineOwner(), cove.KeyHolder("ci"), cove.KeyHolder("dev")
	view := func(id, name string, of cove.Principal) View {
		return View{Sandbox: store.Sandbox{ID: cove.SandboxID(id), Name: name, Owner: of}}
	}
	all := []View{
		view("sb_1a", "pro", ci), view("sb_2b", "project", owner), view("sb_3c", "test", owner), view("sb_4d", "test", ci),
		view("sb_5e", "tool-a", owner), view("sb_6f", "tool-b", owner), view("sb_7g", "tool-", ci),
		view("sb_8h", "lone", dev), view("sb_9i", "twin", ci), view("sb_9j", "twin", dev), view("sb_0k", "sb_3c", ci),
	}
	for _, c := range []struct {
		name, ref, want string
		code            cove.Code
	}{
		{name: "its beginning, and another's name", ref: "pro", want: "sb_2b"},
		{name: "a name that both have", ref: "test", want: "sb_3c"},
		{name: "the id of another's", ref: "sb_1a", want: "sb_1a"},
		{name: "its id, and another's name", ref: "sb_3c", want: "sb_3c"},
		{name: "the beginning of several, and another's name", ref: "tool-", code: cove.Conflict},
		{name: "another's name", ref: "lone", want: "sb_8h"},
		{name: "the beginning of another's", ref: "lo", want: "sb_8h"},
		{name: "the beginning of another's id", ref: "8h", want: "sb_8h"},
		{name: "a name of two others", ref: "twin", code: cove.Conflict},
		{name: "the beginning of what two others have", ref: "tw", code: cove.Conflict},
		{name: "no sandbox", ref: "none", code: cove.NotFound},
		{name: "nothing", ref: "", code: cove.NotFound},
	} {
		got, err := pick(owner, all, c.ref)
		if string(got.ID) != c.want || err != nil && cove.ErrorCode(err) != c.code || err == nil && c.code != "" {
			t.Errorf("%s: %s, %v; want %s %s", c.name, got.ID, err, c.want, c.code)
		}
	}
}
