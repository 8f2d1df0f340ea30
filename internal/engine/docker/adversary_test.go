//go:build linux

package docker

import (
	"os"
	"testing"

	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/test/adversary"
)

// TestAdversary attacks sandboxes from inside. Each attempt is a subtest.
func TestAdversary(t *testing.T) {
	t.Setenv(daemonVar, host(t)) // for the owners that are killed
	adversary.Run(t, openShared, adversaryOptions(""))
}

// TestAdversaryOverTCP attacks sandboxes of a daemon that counts as one of another machine.
func TestAdversaryOverTCP(t *testing.T) {
	if os.Getenv("COVE_TEST_LONG") == "" {
		t.Skip("the daemon makes the same containers as over its socket: set COVE_TEST_LONG=1")
	}
	t.Setenv(daemonVar, overTCP(t))
	adversary.Run(t, openShared, adversaryOptions(""))
}

// TestAdversaryOfPrepared attacks containers that a pool has prepared: from programs in empty ones, and from what their
// parked interpreters become.
func TestAdversaryOfPrepared(t *testing.T) {
	t.Setenv(daemonVar, host(t))
	for _, ahead := range []adversary.Ahead{adversary.Empty, adversary.Parked} {
		t.Run(string(ahead), func(t *testing.T) { adversary.Run(t, openShared, adversaryOptions(ahead)) })
	}
}

// TestAdversaryOfDebuggers attacks containers whose programs may trace one another.
func TestAdversaryOfDebuggers(t *testing.T) {
	t.Setenv(daemonVar, host(t))
	o := adversaryOptions("")
	o.Debuggers = true
	adversary.Run(t, openShared, o)
}

func adversaryOptions(ahead adversary.Ahead) adversary.Options {
	return adversary.Options{
		// The kernel names the source of a bind mount in the table of mounts.
		HostPaths: []string{" " + guestPath + " ", " /etc/hosts ", " /etc/resolv.conf "},
		Slow:      true,
		Alike: []string{"C10.crowd", "F5.mount_race", "X1.anywhere", "X1.bound", "X1.filling", "X1.flooding",
			"X1.stubborn"},
		Ahead: ahead,
	}
}

// openShared makes an engine whose run directory is the suite's: engines of
// several processes, one of which may have been killed.
func openShared(t testing.TB, state string) engine.Engine {
	t.Helper()
	if err := os.Chmod(state, 0o755); err != nil {
		t.Fatal(err)
	}
	in, err := instance.Hold(state)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Release() })
	return open(t, Options{Host: host(t), Guest: enginetest.SharedGuest(t, state), RunDir: state,
		Instance: in.ID, Paths: adversary.Rules(state), Log: discard})
}
