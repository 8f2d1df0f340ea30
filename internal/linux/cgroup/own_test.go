//go:build linux

package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSmallest(t *testing.T) {
	top := t.TempDir()
	for dir, limit := range map[string]string{
		".": "max\n", "a": "9223372036854771712\n", "a/b": "1000\n", "a/b/c": "3000\n", "d": "max\n", "e/f": "70\n",
	} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(top, dir, "limit"), []byte(limit), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for below, want := range map[string]int64{
		"/": 0, "/a": 0, "/a/b": 1000, "/a/b/c": 1000, "/d": 0, "/e": 0, "/e/f": 70, "/not/there": 0, "/../..": 0,
	} {
		if got := smallest(top, below, "limit"); got != want {
			t.Errorf("%s: %d, want %d", below, got, want)
		}
	}
}

func TestAround(t *testing.T) {
	for name, want := range map[string]string{
		"/user.slice/libpod-c0ffee.scope/container": "/user.slice/libpod-c0ffee.scope",
		"/docker/c0ffee":         "/docker/c0ffee",
		"/user.slice/some.scope": "",
	} {
		got := ""
		if g := new(Hierarchy).Group(name).around("c0ffee"); g != nil {
			got = g.Name()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestLimited: of a group and the one below it, where a runtime has put a process, that with the limits is found.
func TestLimited(t *testing.T) {
	h := find(t)
	g := create(t, h, Limits{PIDs: 100})
	part := filepath.Base(g.Name())
	if h.version == 2 {
		if err := os.WriteFile(filepath.Join(g.dir(PIDs), "cgroup.subtree_control"), []byte("+pids"), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(g.dir(PIDs), "container"), 0o755); err != nil {
		t.Fatal(err)
	}
	below := h.Group(g.Name() + "/container")
	defer os.Remove(below.dir(PIDs))
	if got := below.Limited(part); got == nil || got.Name() != g.Name() {
		t.Errorf("above: %+v", got)
	}
	if err := os.WriteFile(filepath.Join(below.dir(PIDs), "pids.max"), []byte("7"), 0); err != nil {
		t.Fatal(err)
	}
	if got := below.Limited(part); got != below {
		t.Errorf("below: %+v", got)
	}
	if got := below.Limited("c0ffee"); got != nil {
		t.Errorf("of another container: %+v", got)
	}
}

// TestOwnMemoryLimit: a process of a limited group sees its limit, or that of a group above it.
func TestOwnMemoryLimit(t *testing.T) {
	if os.Getenv("COVE_TEST_OWN_LIMIT") != "" {
		limit, err := OwnMemoryLimit()
		if err != nil || limit == 0 || limit > 256<<20 {
			t.Fatalf("%d, %v", limit, err)
		}
		return
	}
	h := find(t)
	g := create(t, h, Limits{Memory: 256 << 20})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd, out := start(t, h, g, "COVE_TEST_OWN_LIMIT=1 exec "+self+" -test.run='^TestOwnMemoryLimit$' -test.v 2>&1")
	said, _ := out.ReadString(0)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, said)
	}
}
