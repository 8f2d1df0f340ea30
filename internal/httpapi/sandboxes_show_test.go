package httpapi

import (
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
)

// TestSandboxOf: the place of a workspace on the host is shown to the machine's owner alone, who is told that it is
// another's.
func TestSandboxOf(t *testing.T) {
	v := sandbox.View{Sandbox: store.Sandbox{
		Owner: cove.KeyHolder("ci"), State: cove.StateRunning,
		Spec: store.SandboxSpec{Directory: "/srv/one", Repository: &store.SandboxRepository{Source: "o/r",
			Branch: "cove/one"}},
	}}
	for who, want := range map[cove.Principal]string{cove.MachineOwner(): "/srv/one", cove.KeyHolder("ci"): ""} {
		got := sandboxOf(who, v)
		if got.Directory != want || got.OfAnother != who.IsOwner() || got.CreatedBy != "key:ci" ||
			got.Image != "host" || got.Network != "none" || got.Repository.Branch != "cove/one" {
			t.Errorf("%s sees %+v", who, got)
		}
	}
}
