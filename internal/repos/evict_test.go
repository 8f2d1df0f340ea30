package repos

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// sized makes a repository of a size that does not compress.
func sized(t *testing.T, server *gittest.Server, name string, size int) *gittest.Repository {
	t.Helper()
	repo := server.Create(name + ".git")
	work := gittest.NewGit(t, t.TempDir())
	work.Run("clone", "-q", repo.Dir, ".")
	work.Commit("large", "blob", noise(t, size))
	work.Run("push", "-q", repo.Dir, "HEAD:main")
	return repo
}

// TestMirrorsAreBounded: mirrors stay within their bound together. Those that nothing uses make room, the one first
// that was used the longest ago; those that sandboxes borrow from never do.
func TestMirrorsAreBounded(t *testing.T) {
	const mib = 1 << 20
	server := gittest.Start(t, gittest.Options{})
	s := open(t, Options{Home: t.TempDir(), Outlet: direct{server.CA}, MaxMirrors: 8 * mib})
	urls := map[string]string{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		urls[name] = sized(t, server, name, 3*mib).URL
	}
	fetch := func(name string) error {
		_, err := s.FetchMirror(t.Context(), owner, urls[name], false, nil)
		time.Sleep(10 * time.Millisecond) // sleep: the clock of the file system has ticks
		return err
	}
	there := func() (names string) {
		t.Helper()
		all, err := s.Mirrors(t.Context(), owner)
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, m := range all {
			names += strings.TrimPrefix(filepath.Base(m.Key), "/")
			if sum += m.Size; m.UsedAt.IsZero() {
				t.Errorf("%s was never used", m.Key)
			}
		}
		if sum > 8*mib {
			t.Errorf("the mirrors have %d MiB", sum>>20)
		}
		return names
	}
	want := func(what, names string) {
		t.Helper()
		if got := there(); got != names {
			t.Errorf("%s: there are %s, not %s", what, got, names)
		}
	}
	of := func(name string) workspace.Workspace {
		return create(t, s, spec(name, workspace.Repository{Source: urls[name]}))
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(fetch("a"))
	b := of("b")
	want("two", "ab")
	must(fetch("c"))
	want("a third", "bc")
	must(fetch("d"))
	want("a fourth", "bd")
	d := of("d")
	err := fetch("e")
	if cove.ErrorCode(err) != cove.StorageFull || !strings.Contains(err.Error(), "disk.repositories_mb") {
		t.Errorf("beside two that are in use: %v", err)
	}
	want("refused", "bd")
	for _, w := range []workspace.Workspace{b, d} {
		server.Client().In(w.Directory).Run("fsck")
	}
	must(s.Remove(t.Context(), b.ID, true)) // its work is kept, and borrows on
	if err := fetch("e"); cove.ErrorCode(err) != cove.StorageFull {
		t.Errorf("beside one that kept work borrows from: %v", err)
	}
	must(s.Remove(t.Context(), d.ID, false))
	must(fetch("e"))
	want("one is free", "be")
}

// TestMirrorsMakeRoom: where the disk of the machine is short, mirrors that nothing uses make room for another.
func TestMirrorsMakeRoom(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a file system of its own needs root")
	}
	const mib = 1 << 20
	server := gittest.Start(t, gittest.Options{})
	one, two := sized(t, server, "one", 12*mib), sized(t, server, "two", 18*mib)
	home := t.TempDir()
	if err := unix.Mount("tmpfs", home, "tmpfs", 0, "size=27m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(home, 0) })
	s := open(t, Options{Home: home, Outlet: direct{server.CA}})
	for _, repo := range []*gittest.Repository{one, two} {
		if _, err := s.FetchMirror(t.Context(), owner, repo.URL, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := s.Mirrors(t.Context(), owner); err != nil || len(all) != 1 || all[0].Address != two.URL {
		t.Errorf("%+v, %v", all, err)
	}
	if got := names(t, filepath.Join(home, "reserved")); got != ".lock" {
		t.Errorf("reserved is %s", got)
	}
}

// TestEvictionKilled: a process that is killed while it removes a mirror leaves it whole, or nothing of it once the
// store was opened again.
func TestEvictionKilled(t *testing.T) {
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	home := t.TempDir()
	halves := 0
	for round := range 6 {
		s := open(t, Options{Home: home, Outlet: direct{server.CA}})
		if _, err := s.FetchMirror(t.Context(), owner, repo.URL, false, nil); err != nil {
			t.Fatal(err)
		}
		dir := s.mirror(keyOf(t, repo.URL)).dir
		for i := range 1000 {
			if err := os.WriteFile(filepath.Join(dir, "objects", fmt.Sprint("filler", i)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		evictor := exec.Command(os.Args[0], "-test.run=^TestEvictMirrors$")
		evictor.Env = append(os.Environ(), "COVE_TEST_EVICT="+home)
		out, err := evictor.StdoutPipe()
		if err == nil {
			err = evictor.Start()
		}
		if err == nil {
			_, err = bufio.NewReader(out).ReadString('\n')
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.IntN(15_000)) * time.Microsecond) // sleep: a kill at any moment
		evictor.Process.Kill()
		evictor.Wait()
		described, left := exists(dir, mirrorFile), exists(dir)
		if left && !described {
			halves++
		}
		s = open(t, Options{Home: home, Outlet: direct{server.CA}})
		if exists(dir) != described {
			t.Fatalf("round %d: of a mirror that was described (%v) and there (%v) is there: %v", round, described, left,
				exists(dir))
		}
		if described {
			gittest.NewGit(t, dir).Run("fsck")
		}
	}
	if halves == 0 {
		t.Error("no process was killed in the midst: this tests nothing")
	}
}

// TestEvictMirrors is the process that TestEvictionKilled kills.
func TestEvictMirrors(t *testing.T) {
	home := os.Getenv("COVE_TEST_EVICT")
	if home == "" {
		t.Skip("a part of TestEvictionKilled")
	}
	s := open(t, Options{Home: home})
	fmt.Println("begins")
	if _, err := s.evictMirrors(t.Context(), "", func() bool { return false }); err != nil {
		t.Fatal(err)
	}
}
