// Package enginetest is the conformance suite of the engine contract: what every engine must do, whatever it is made
// of.
//
// An engine's own test calls [Run], or fills a [Suite] when it has more to say. What an engine cannot do is read from
// its Capabilities, and what only a kernel can show from Suite.InMemory; no test asks which engine it is.
//
// # What the suite needs inside
//
// The sandboxes' root filesystem has the programs of a small Unix system: true, false, cat, echo, env, head, id, ln,
// mkfifo, printf, pwd, sh, sleep, stty; beyond an in-memory engine also bash, dd, getent and tail.
package enginetest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

// Suite is an engine under test and what the suite has to know about it.
type Suite struct {
	// Open makes an engine; the suite closes it. It is called once per test.
	Open func(t *testing.T) engine.Engine
	// Reopen makes another engine over what the last one of Open has left, as
	// the next process of Cove would. Nil when nothing outlives an engine.
	Reopen func(t *testing.T) engine.Engine
	// Rootfs is what the sandboxes are made of. The zero value is the host's own toolchain.
	Rootfs engine.Rootfs
	// Lifetime is that of the sandboxes; the zero value is that of a request.
	Lifetime cove.Lifetime
	// InMemory says that no kernel stands behind the sandboxes: limits, ids
	// and the network are not real, and there is nothing to exceed.
	InMemory bool
	// NoTTY says that the guest gives no terminals.
	NoTTY bool
	// Leftovers lists everything the engine has on the host at the moment: processes, mounts, cgroups, containers,
	// directories. After each test the list must be what it was before. Nil when nothing can be left.
	Leftovers func(t *testing.T) []string
	// Groups are the names of the groups of tests to run; nil is all.
	Groups []string
	// Sandboxes is how many live at once in the test of many; 0 means 20.
	Sandboxes int
}

// Run runs the suite over an engine of which nothing special has to be known.
func Run(t *testing.T, open func(t *testing.T) engine.Engine) {
	Suite{Open: open}.Run(t)
}

// Run runs the suite.
func (s Suite) Run(t *testing.T) {
	if s.Rootfs.Kind == "" {
		s.Rootfs.Kind = engine.RootfsHost
	}
	if s.Sandboxes == 0 {
		s.Sandboxes = 20
	}
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"lifecycle", lifecycleTests},
		{"refusals", refusalTests},
		{"processes", processTests},
		{"streams", streamTests},
		{"terminal", terminalTests},
		{"files", fileTests},
		{"binding", bindingTests},
		{"crowd", crowdTests},
		{"wall", wallTests},
		{"limits", limitTests},
		{"lasting", lastingTests},
		{"pausing", pausingTests},
	} {
		if s.Groups != nil && !slices.Contains(s.Groups, group.name) {
			continue
		}
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.tests {
				t.Run(c.name, func(t *testing.T) { s.one(t, c) })
			}
		})
	}
}

// test is one behaviour.
type test struct {
	name string
	// kernel says that the test shows what only a kernel can do.
	kernel bool
	run    func(t *testing.T, x *env)
}

func (s Suite) one(t *testing.T, c test) {
	if c.kernel && s.InMemory {
		t.Skip("an in-memory engine has no kernel to show this with")
	}
	before := s.leftovers(t)
	eng := s.Open(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	x := &env{suite: s, eng: eng, caps: eng.Capabilities(), ctx: ctx}
	t.Cleanup(func() {
		cancel()
		if err := eng.Close(); err != nil {
			t.Errorf("closing the engine: %v", err)
		}
		s.nothingLeft(t, before)
	})
	c.run(t, x)
}

func (s Suite) leftovers(t *testing.T) []string {
	if s.Leftovers == nil {
		return nil
	}
	return s.Leftovers(t)
}

// nothingLeft gives the host a moment: a kernel removes a cgroup or a mount
// when its last user has gone, which may be after the call that asked for it.
func (s Suite) nothingLeft(t *testing.T, before []string) {
	if s.Leftovers == nil {
		return
	}
	var left []string
	deadline := time.Now().Add(10 * time.Second)
	for {
		left = slices.DeleteFunc(s.Leftovers(t), func(item string) bool { return slices.Contains(before, item) })
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if len(left) > 0 {
		t.Errorf("left behind (invariant H6):\n\t%s", strings.Join(left, "\n\t"))
	}
}

// Limits are what the suite's sandboxes get where the engine can enforce it: small enough to be exceeded in a moment.
func Limits(c engine.Capabilities) cove.Limits {
	l := cove.Limits{OpenFiles: 256, Stdout: 1 << 20, Stderr: 256 << 10, Timeout: time.Minute}
	if c.MemoryLimit && c.SwapLimit {
		l.Memory = 128 << 20
	}
	if c.CPULimit {
		l.CPUs = 1
	}
	if c.PIDsLimit {
		l.PIDs = 64
	}
	if c.DiskLimit {
		l.Disk, l.Inodes = 32<<20, 2000
	}
	return l
}
