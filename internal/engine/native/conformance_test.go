//go:build linux

package native

import (
	"os"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
)

// account is whom the tests run as in the VM of test/vmtest, where they run a
// second time: with version 2 of control groups, and without root.
var account = os.Getenv("COVE_TEST_IN_VM")

func TestConformance(t *testing.T) { conformance(t, "") }

// TestConformanceOfDetached has the suite look at sandboxes whose processes have a keeper.
func TestConformanceOfDetached(t *testing.T) {
	if account != "" {
		t.Skip("keepers are looked at outside the VM, where a program takes eight times as long to start")
	}
	conformance(t, cove.LifetimeDetached)
}

func conformance(t *testing.T, lifetime cove.Lifetime) {
	switch {
	case account == "undelegated" || account == "partial":
		t.Skip("there is no control group with every controller; TestRefusesWithoutDelegation looks at that")
	case account == "" && os.Geteuid() != 0:
		t.Skip(
			"needs root: without it the limits are those of a delegated cgroup, which is the virtual machine tests' matter")
	}
	var run string
	enginetest.Suite{
		Open: func(t *testing.T) engine.Engine {
			e := open(t)
			run = e.o.RunDir
			return e
		},
		Reopen:    func(t *testing.T) engine.Engine { return openIn(t, run) },
		Leftovers: leftovers, Lifetime: lifetime,
	}.Run(t)
}

// leftovers are the control groups of the tests' own parent. The engine mounts nothing on the host.
func leftovers(t *testing.T) []string {
	h, err := cgroup.Find(groupParent)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	left, err := h.List()
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// TestRefusesWithoutDelegation: what the caller's control group does not allow
// is refused by name, and the message says what to do.
func TestRefusesWithoutDelegation(t *testing.T) {
	if account != "undelegated" && account != "partial" {
		t.Skip("needs an account without a delegated control group; the VM has two")
	}
	e := open(t)
	tmpl := engine.Template{
		ID: cove.NewSandboxID(), Shape: cove.Shape{Limits: limits, User: cove.CodeUser},
		Rootfs: engine.Rootfs{Kind: engine.RootfsHost}, Network: cove.NetworkNone,
	}
	refused := func(limits cove.Limits, want ...string) {
		t.Helper()
		tmpl.Limits = limits
		sb, err := e.Prepare(t.Context(), tmpl)
		if err == nil {
			sb.Destroy(t.Context())
		}
		if cove.ErrorCode(err) != cove.Unsupported {
			t.Fatalf("Prepare with %+v: %v", limits, err)
		}
		for _, text := range want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%q does not say %q", err, text)
			}
		}
	}
	if account == "partial" {
		refused(limits, "cpu_limit", "Delegate=cpu memory pids")
		without := limits
		without.CPUs = 0
		tmpl.Limits = without
		sb, err := e.Prepare(t.Context(), tmpl)
		if err != nil {
			t.Fatalf("without a CPU limit: %v", err)
		}
		if err := sb.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		return
	}
	refused(limits, "cpu_limit", "memory_limit", "pids_limit", "systemd-run --user --scope")
	refused(cove.Limits{Disk: 1 << 20, Inodes: 100}, "control group", "systemd-run --user --scope")
}
