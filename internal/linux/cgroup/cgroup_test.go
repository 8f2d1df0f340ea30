//go:build linux

package cgroup

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/test/await"
)

// The tests run a second time on version 2, and without root, in the VM of test/vmtest.

// account is the account that runs the tests in the VM.
var account = os.Getenv("COVE_TEST_IN_VM")

// findAny returns a hierarchy with the available controllers and checks that it is gone at the end of the test.
func findAny(t *testing.T) *Hierarchy {
	t.Helper()
	h, err := Find("cgroup-test-" + strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	removable := h.claim != nil && h.cheap()
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if left := present(h); removable && len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	return h
}

// present returns the place's directories that exist.
func present(h *Hierarchy) []string {
	return slices.DeleteFunc(h.places(), func(dir string) bool { _, err := os.Stat(dir); return err != nil })
}

// find returns a hierarchy with every controller.
func find(t *testing.T) *Hierarchy {
	t.Helper()
	h := findAny(t)
	if !h.Has(PIDs) || !h.Has(Memory) || !h.Has(CPU) {
		if account == "" && os.Geteuid() != 0 {
			t.Skip("needs root or a delegated control group: " + h.Missing(PIDs) + h.Missing(Memory) + h.Missing(CPU))
		}
		if account == "undelegated" || account == "partial" {
			t.Skip("not every controller is delegated; TestNotDelegated and TestPartlyDelegated look at that")
		}
		t.Fatalf("missing: %v", h.missing)
	}
	return h
}

// create makes a group, which is removed with its children at the end of the test.
func create(t *testing.T, h *Hierarchy, l Limits) *Group {
	t.Helper()
	g, err := h.Create("g")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Kill(), g.Remove(5*time.Second)); err != nil {
			t.Error(err)
		}
	})
	if err := g.Limit(l); err != nil {
		t.Fatal(err)
	}
	return g
}

// start starts a shell script in a group, in the way of each version.
func start(t *testing.T, h *Hierarchy, g *Group, script string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	door, err := g.Door()
	if err != nil {
		t.Fatal(err)
	}
	defer door.Close()
	if h.Version() == 2 {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(door.Dir.Fd())}
		err = cmd.Start()
		if err != nil {
			t.Fatal(err)
		}
		return cmd, bufio.NewReader(out)
	}
	done := make(chan error)
	go func() { done <- startInside(door, cmd) }()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewReader(out)
}

// startInside starts cmd from a thread in the group. The thread ends with its goroutine, which stays locked to it.
func startInside(door Door, cmd *exec.Cmd) error {
	runtime.LockOSThread()
	if syscall.Gettid() == os.Getpid() {
		// The main thread cannot end, so hold it meanwhile.
		done := make(chan error)
		go func() { done <- startInside(door, cmd) }()
		defer runtime.UnlockOSThread()
		return <-done
	}
	if err := door.Enter(); err != nil {
		return err
	}
	return cmd.Start()
}

func stats(t *testing.T, g *Group) Stats {
	t.Helper()
	s, err := g.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMembership(t *testing.T) {
	h := find(t)
	g := create(t, h, Limits{})
	cmd, out := start(t, h, g, "cat /proc/self/cgroup; echo end; exec sleep 100")
	defer cmd.Process.Kill()
	var lines []string
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "end\n" {
			break
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	own := parseOwn(strings.Join(lines, "\n"))
	for _, c := range []string{Memory, CPU, PIDs} {
		path := own[c]
		if h.Version() == 2 {
			path = own[""]
		}
		if !strings.HasSuffix(g.dir(c), path) || path == "/" || path == "" {
			t.Errorf("%s: the process is in %q, want %q", c, path, g.dir(c))
		}
	}
	if names, err := h.List(); err != nil || !slices.Equal(names, []string{"g"}) {
		t.Errorf("List: %v, %v", names, err)
	}
	await.That(t, "the kernel no longer counts cat, which has ended", func() bool { return stats(t, g).PIDs == 1 })
	if s := stats(t, g); s.PIDsPeak < 1 || s.MemoryPeak == 0 || s.CPUTime == 0 {
		t.Errorf("stats of one process: %+v", s)
	}
	if _, err := h.Create("g"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("make it again: %v, want that it exists", err)
	}
	if s := stats(t, g); s.PIDs != 1 {
		t.Errorf("to make it again has harmed it: %+v", s)
	}
}

func TestMemoryLimit(t *testing.T) {
	h := find(t)
	g := create(t, h, Limits{Memory: 8 << 20})
	// The shell holds 16 MiB of x.
	cmd, out := start(t, h, g, `x=$(head -c 16777216 /dev/zero | tr '\0' x); echo ${#x}`)
	io.Copy(io.Discard, out)
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("16 MiB in a group of 8: %v", err)
	}
	s := stats(t, g)
	if s.OOMKills == 0 {
		t.Errorf("no kill was counted: %v, %+v", err, s)
	}
	if s.MemoryPeak < 4<<20 || s.MemoryPeak > 8<<20 {
		t.Errorf("the peak is %d, want most of 8 MiB and not more", s.MemoryPeak)
	}
}

func TestPIDsLimit(t *testing.T) {
	h := find(t)
	g := create(t, h, Limits{PIDs: 5})
	cmd, out := start(t, h, g, "for i in 1 2 3 4 5 6 7 8; do sleep 100 >/dev/null 2>&1 & done")
	io.Copy(io.Discard, out) // the shell gives up when a fork fails
	cmd.Wait()
	s := stats(t, g)
	if s.PIDs > 5 || s.PIDsDenied == 0 {
		t.Errorf("after eight forks in a group of five: %+v", s)
	}
}

// The groups of a place leave a quarter of the machine's tasks to the machine, also those without a limit of their own.
func TestPIDsInSum(t *testing.T) {
	h := find(t)
	least := int64(noLimit)
	for _, table := range tables {
		n, err := number(filepath.Split(table))
		if err != nil {
			t.Fatal(err)
		}
		least = min(least, n)
	}
	if got, err := number(h.dirs[PIDs], "pids.max"); err != nil || got != least/4*3 {
		t.Errorf("the limit of the place is %d, %v, of %d tasks that the machine can have", got, err, least)
	}

	const share = 30
	table := filepath.Join(t.TempDir(), "pid_max")
	if err := os.WriteFile(table, []byte(strconv.Itoa(share/3*4)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.limitSum(append(tables, table)...); err != nil {
		t.Fatal(err)
	}
	g := create(t, h, Limits{})
	cmd, out := start(t, h, g, "i=0; while [ $i -lt 60 ]; do sleep 100 >/dev/null 2>&1 & i=$((i+1)); done")
	io.Copy(io.Discard, out) // the shell gives up when a fork fails
	cmd.Wait()
	if s := stats(t, g); s.PIDs > share || s.PIDs < share/2 {
		t.Errorf("a group without a limit has %d tasks of the %d that all have", s.PIDs, share)
	}
}

func TestCPULimit(t *testing.T) {
	h := find(t)
	g := create(t, h, Limits{CPUs: 0.2})
	cmd, _ := start(t, h, g, "while :; do :; done")
	defer cmd.Wait()
	defer cmd.Process.Kill()
	time.Sleep(300 * time.Millisecond) // sleep: the first period's quota is spent
	// Wait until the loop has used CPU time: an emulated machine on a busy host is slow.
	before, at := stats(t, g).CPUTime, time.Now()
	var used, passed time.Duration
	for used < 200*time.Millisecond && passed < time.Minute {
		time.Sleep(100 * time.Millisecond) // sleep: what is measured is a share of time
		used, passed = stats(t, g).CPUTime-before, time.Since(at)
	}
	// The kernel enforces a quota roughly; without one the loop has a whole CPU.
	if share := float64(used) / float64(passed); share > 0.5 || used == 0 {
		t.Errorf("a loop got %.2f of a CPU (%s in %s), want 0.2", share, used, passed)
	}
}

func TestKill(t *testing.T) {
	h := find(t)
	g := create(t, h, Limits{PIDs: 30})
	cmd, out := start(t, h, g, "for i in 1 2 3 4 5; do sleep 100 & done; echo up; wait")
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := g.Remove(0); err == nil {
		t.Fatal("a group with processes was removed")
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if err := g.Remove(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Stats(); err == nil {
		t.Error("a removed group has statistics")
	}
	if err := errors.Join(g.Kill(), g.Remove(0)); err != nil {
		t.Errorf("kill and remove what is not there: %v", err)
	}
}

// TestPlaceGoesWithItsLastUser: the last user's Close removes the place, and only if no group is left in it.
func TestPlaceGoesWithItsLastUser(t *testing.T) {
	h := find(t)
	if !h.cheap() {
		t.Skip("this kernel enables controllers slowly, so that the place stays")
	}
	name := filepath.Base(h.places()[0]) + "-own"
	places := func(group string, users int) []string {
		var all []*Hierarchy
		for range users {
			u, err := Find(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, u)
		}
		var g *Group
		for i, u := range all {
			if err := u.Close(); err != nil {
				t.Error(err)
			}
			if i == 0 && group != "" { // the others still use it
				var err error
				if g, err = all[users-1].Create(group); err != nil {
					t.Fatal(err)
				}
			}
		}
		left := present(all[0])
		if g != nil {
			g.Remove(0)
		}
		return left
	}
	if left := places("g", 2); len(left) != len(present(h)) {
		t.Errorf("with a group in it, only this is there: %v", left)
	}
	if left := places("", 3); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestPlaceIsSafeToUse: a place stays usable while others find it and give it up.
func TestPlaceIsSafeToUse(t *testing.T) {
	h := find(t)
	name := filepath.Base(h.places()[0]) + "-shared"
	use := func(group string) error {
		mine, err := Find(name)
		if err != nil {
			return err
		}
		g, err := mine.Create(group)
		if err == nil {
			err = g.Limit(Limits{PIDs: 5, Memory: 32 << 20, CPUs: 1})
		}
		return errors.Join(err, mine.Group(group).Remove(time.Second), mine.Close())
	}
	var users sync.WaitGroup
	for i := range 4 {
		users.Go(func() {
			for range 100 {
				if err := use(strconv.Itoa(i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	users.Wait()
	if _, err := os.Stat(filepath.Join(filepath.Dir(h.places()[0]), name)); h.cheap() && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there still, or %v", err)
	}
}

// TestNotDelegated: a caller without delegation gets a reason and a fix for every controller, and nothing half made.
func TestNotDelegated(t *testing.T) {
	if account != "undelegated" {
		t.Skip("needs an account without a delegated control group; the VM has one")
	}
	h := findAny(t)
	for _, c := range []string{Memory, CPU, PIDs} {
		if h.Has(c) || !strings.Contains(h.Missing(c), "systemd-run") {
			t.Errorf("%s: usable %v, missing %q", c, h.Has(c), h.Missing(c))
		}
	}
	if err := h.Group("g").Limit(Limits{PIDs: 1}); err == nil {
		t.Error("a limit could be set")
	}
}

// TestPartlyDelegated: systemd before 252 delegates only memory and pids.
func TestPartlyDelegated(t *testing.T) {
	if account != "partial" {
		t.Skip("needs an account with a control group that lacks a controller; the VM has one")
	}
	h := findAny(t)
	if !h.Has(Memory) || !h.Has(PIDs) || h.Has(CPU) || !strings.Contains(h.Missing(CPU), "Delegate=cpu") {
		t.Errorf("missing: %v", h.missing)
	}
	g := create(t, h, Limits{Memory: 64 << 20, PIDs: 10})
	if err := g.Limit(Limits{CPUs: 1}); err == nil || !strings.Contains(err.Error(), "Delegate=cpu") {
		t.Errorf("a CPU limit without the controller: %v", err)
	}
	cmd, out := start(t, h, g, "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done")
	io.Copy(io.Discard, out)
	cmd.Wait()
	if s := stats(t, g); s.CPUTime == 0 {
		t.Errorf("CPU time is not counted without the controller: %+v", s)
	}
}

func TestParseOwn(t *testing.T) {
	for _, c := range []struct {
		name, data string
		want       map[string]string
	}{
		{"version 2", "0::/user.slice/session-1.scope\n", map[string]string{"": "/user.slice/session-1.scope"}},
		{"hybrid", "5:cpu,cpuacct:/a\n1:name=systemd:/b\n0::/c\n",
			map[string]string{"cpu": "/a", "cpuacct": "/a", "name=systemd": "/b", "": "/c"}},
		{"a colon in a name", "0::/a:b\n", map[string]string{"": "/a:b"}},
		{"nonsense", "x\n::\n\n", map[string]string{"": ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := parseOwn(c.data); !maps.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
