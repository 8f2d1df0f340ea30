package repos

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/internal/workspace"
	"github.com/cove-sandbox/cove/test/await"
)

// diskStore opens a store whose workspaces have disks of their own, and unmounts them at the end of the test.
func diskStore(t *testing.T, server *gittest.Server) *Store {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	s := newStore(t, server)
	if err := s.disks.Bounds(t.Context()); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { unmountAll(t, s) })
	return s
}

func unmountAll(t *testing.T, s *Store) {
	t.Helper()
	entries, err := os.ReadDir(s.workspaces)
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		if err := imageIn(filepath.Join(s.workspaces, e.Name())).Unmount(); err != nil {
			t.Error(err)
		}
	}
}

func onDisk(w workspace.Spec, bytes, inodes int64) workspace.Spec {
	w.Disk = workspace.Disk{Bytes: bytes, Inodes: inodes}
	return w
}

// mountsBelow returns the mount points below the workspaces.
func mountsBelow(t *testing.T, s *Store) (points []string) {
	t.Helper()
	for line := range strings.Lines(read(t, "/proc/self/mountinfo")) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], s.workspaces) {
			points = append(points, f[4])
		}
	}
	return points
}

// TestDiskBounds: checkout and home together hold what the disk has, in bytes and in files, and nothing beyond.
func TestDiskBounds(t *testing.T) {
	s := diskStore(t, nil)
	w := create(t, s, onDisk(workspace.Spec{ID: cove.NewSandboxID(), Name: "quiet-heron"}, 64<<20, 500))
	if w.Disk != workspace.DiskImage {
		t.Fatalf("%+v", w)
	}
	if err := os.WriteFile(filepath.Join(w.Directory, "a"), make([]byte, 50<<20), 0o600); err != nil {
		t.Errorf("50 MB of 64 cannot be written: %v", err)
	}
	if err := os.WriteFile(filepath.Join(w.Home, "b"), make([]byte, 30<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("30 MB more: %v", err)
	}
	used, err := s.disks.Used(t.Context(), w.ID)
	if err != nil || used.Bytes < 60<<20 || used.Bytes > 70<<20 {
		t.Errorf("%+v is used, %v", used, err)
	}
	made := 0
	for ; made < 2000 && err == nil; made++ {
		err = os.Mkdir(filepath.Join(w.Home, strconv.Itoa(made)), 0o700)
	}
	if made > 800 || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%d directories were made: %v", made, err)
	}
	if err := s.Remove(t.Context(), w.ID, false); err != nil {
		t.Error(err)
	}
	if m := mountsBelow(t, s); m != nil || exists(s.directory(w.ID)) {
		t.Errorf("left: %v", m)
	}
}

// TestDiskRestart: the disk is mounted again by whatever opens the workspace after a restart of the machine.
func TestDiskRestart(t *testing.T) {
	s := diskStore(t, nil)
	w := create(t, s, onDisk(workspace.Spec{ID: cove.NewSandboxID(), Name: "quiet-heron"}, 8<<20, 100))
	if err := os.WriteFile(filepath.Join(w.Home, "note"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	unmountAll(t, s)
	s = open(t, s.o)
	if again, err := s.Open(t.Context(), w.ID); err != nil || read(t, again.Home, "note") != "kept" {
		t.Errorf("%+v, %v", again, err)
	}
	unmountAll(t, s)
	if err := s.Remove(t.Context(), w.ID, false); err != nil || exists(s.directory(w.ID)) {
		t.Error(err)
	}
}

// TestDiskTooSmall: what does not fit leaves nothing, and the error names the flag.
func TestDiskTooSmall(t *testing.T) {
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	noise := make([]byte, 3<<20)
	for i := range noise { // which does not compress to nothing
		noise[i] = byte(i * i >> 7)
	}
	work := gittest.NewGit(t, t.TempDir())
	work.Run("clone", "-q", repo.Dir, ".")
	work.Commit("large", "large", string(noise))
	work.Run("push", "-q", "origin", "HEAD:main")
	s := diskStore(t, server)
	for name, d := range map[string]workspace.Disk{"bytes": {Bytes: 1 << 20, Inodes: 100},
		"files": {Bytes: 64 << 20, Inodes: 1}} {
		q := ownSpec("quiet-heron", workspace.Repository{Source: repo.URL})
		q.Disk = d
		_, err := s.Create(t.Context(), q, nil)
		if cove.ErrorCode(err) != cove.TooLarge || !strings.Contains(cove.ErrorHint(err), "--disk") {
			t.Errorf("%s: %v (%s)", name, err, cove.ErrorHint(err))
		}
		if m := mountsBelow(t, s); m != nil || exists(s.directory(q.ID)) || exists(s.workspaces, coming+string(q.ID)) {
			t.Errorf("%s: left %v in %s", name, m, names(t, s.workspaces))
		}
	}
	q := onDisk(ownSpec("quiet-heron", workspace.Repository{Source: repo.URL}), 16<<20, 100)
	if w := create(t, s, q); !exists(w.Directory, "large") {
		t.Errorf("%+v", w)
	}
}

// TestDiskKept: a kept checkout is a plain directory at the same place, and a killed process leaves nothing else.
func TestDiskKept(t *testing.T) {
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	s := diskStore(t, server)
	w := create(t, s, onDisk(ownSpec("quiet-heron", workspace.Repository{Source: repo.URL}), 16<<20, 1000))
	if err := errors.Join(os.WriteFile(filepath.Join(w.Directory, "work"), []byte("mine"), 0o640),
		os.Symlink("/etc/passwd", filepath.Join(w.Directory, "link"))); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		if m := mountsBelow(t, s); m != nil {
			t.Errorf("%s: mounted: %v", when, m)
		}
		gittest.NewGit(t, w.Directory).Run("-c", "safe.directory=*", "log", "--oneline") // with the objects that it borrows
		link, err := os.Readlink(filepath.Join(w.Directory, "link"))
		if read(t, w.Directory, "work") != "mine" || link != "/etc/passwd" || exists(w.Home) || err != nil ||
			names(t, s.directory(w.ID)) != "disk record.json" {
			t.Errorf("%s: %s, %v", when, names(t, s.directory(w.ID)), err)
		}
	}
	// As a process leaves it that is killed right after the record says it.
	r, err := s.read(w.ID)
	if err == nil {
		err = s.disks.copyOff(t.Context(), s.directory(w.ID), r, coreConfig("sha1", false))
	}
	r.Kept = true
	if err = errors.Join(err, writeRecord(s.directory(w.ID), r)); err != nil {
		t.Fatal(err)
	}
	s = open(t, s.o)
	check("killed")
	if err := os.RemoveAll(w.Directory); err != nil {
		t.Fatal(err)
	}
	if err := s.forget(t.Context()); err != nil || exists(s.directory(w.ID)) {
		t.Errorf("forgotten: %v", err)
	}

	w = create(t, s, onDisk(ownSpec("quiet-heron", workspace.Repository{Source: repo.URL}), 16<<20, 1000))
	if err := errors.Join(os.WriteFile(filepath.Join(w.Directory, "work"), []byte("mine"), 0o640),
		os.Symlink("/etc/passwd", filepath.Join(w.Directory, "link")), s.Remove(t.Context(), w.ID, true)); err != nil {
		t.Fatal(err)
	}
	check("kept")
	// As a process does it again that was killed before the sandbox was off the record.
	if err := s.Remove(t.Context(), w.ID, true); err != nil {
		t.Errorf("kept again: %v", err)
	}
	check("kept again")
	// A sandbox that could not be removed with its work kept is removed by a second attempt, which may not say it.
	if err := s.Remove(t.Context(), w.ID, false); cove.ErrorCode(err) != cove.Conflict ||
		!strings.Contains(err.Error(), w.Directory) {
		t.Errorf("kept work is removed: %v", err)
	}
	check("removed without keeping")
	if err := errors.Join(os.RemoveAll(w.Directory), s.Remove(t.Context(), w.ID, false)); err != nil ||
		exists(s.directory(w.ID)) {
		t.Errorf("a workspace whose kept work is gone: %v", err)
	}
}

// TestDiskKeptWatched: work without an image is kept, and kept again.
func TestDiskKeptWatched(t *testing.T) {
	s := newStore(t, nil)
	w := create(t, s, workspace.Spec{ID: cove.NewSandboxID(), Name: "quiet-heron"})
	if err := os.WriteFile(filepath.Join(w.Directory, "work"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Remove(t.Context(), w.ID, true); err != nil || read(t, w.Directory, "work") != "mine" || exists(w.Home) {
			t.Errorf("kept: %v", err)
		}
	}
}

// TestRefuseRemoval: work that was kept is not removed by a later attempt that does not keep it.
func TestRefuseRemoval(t *testing.T) {
	for name, c := range map[string]struct {
		r    record
		keep bool
		in   string
		want cove.Code
	}{
		"removed":        {record{}, false, "", ""},
		"kept":           {record{}, true, "", ""},
		"kept before":    {record{Kept: true}, false, "/w/checkout", cove.Conflict},
		"kept again":     {record{Kept: true}, true, "/w/checkout", ""},
		"kept, and gone": {record{Kept: true}, false, "", ""},
		"within":         {record{Within: "sb_1"}, false, "", ""},
		"within, kept":   {record{Within: "sb_1"}, true, "", cove.Unsupported},
	} {
		if err := refuseRemoval(c.r, c.keep, c.in); cove.ErrorCode(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDiskWithin: a checkout within another sandbox is on its disk, from its making to its removal.
func TestDiskWithin(t *testing.T) {
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	s := diskStore(t, server)
	source := workspace.Repository{Source: repo.URL}
	host := create(t, s, onDisk(ownSpec("host", source), 16<<20, 1000))
	q := onDisk(ownSpec("one", source), 16<<20, 1000)
	q.Within = host.ID
	unmountAll(t, s) // as after a restart of the machine
	one := create(t, s, q)
	place := filepath.Join(host.Home, filepath.Base(one.Place))
	if got := read(t, place, ".git/objects/info/alternates"); got != workspace.BorrowedPlace+"\n" {
		t.Errorf("it borrows from %q", got)
	}
	if len(mountsBelow(t, s)) != 2 { // the disk, and what it is mounted on
		t.Errorf("%v", mountsBelow(t, s))
	}
	if err := s.Remove(t.Context(), one.ID, false); err != nil || exists(place) || exists(s.directory(one.ID)) {
		t.Errorf("removed: %v", err)
	}
	left := filepath.Join(s.directory(host.ID), diskDir, withinDir, string(cove.NewSandboxID()))
	if err := os.MkdirAll(left, 0o700); err != nil { // as of a killed process
		t.Fatal(err)
	}
	q.ID = cove.NewSandboxID()
	create(t, s, q)
	if exists(left) {
		t.Error("what a killed process has left within is there")
	}
	if err := errors.Join(s.Remove(t.Context(), host.ID, false), s.Remove(t.Context(), q.ID, false)); err != nil {
		t.Error(err)
	}
	if exists(s.directory(q.ID)) {
		t.Error("a checkout outlives its sandbox")
	}
}

// TestDiskWithinDamaged: a sandbox whose disk cannot be mounted any more can be removed, with its checkouts.
func TestDiskWithinDamaged(t *testing.T) {
	server := gittest.Start(t, gittest.Options{})
	source := workspace.Repository{Source: server.Create("project.git").URL}
	s := diskStore(t, server)
	host := create(t, s, onDisk(ownSpec("host", source), 16<<20, 1000))
	q := onDisk(ownSpec("one", source), 16<<20, 1000)
	q.Within = host.ID
	one := create(t, s, q)
	unmountAll(t, s)
	i := imageIn(s.directory(host.ID))
	if err := errors.Join(i.Released(t.Context()), os.Truncate(i.File, 4096)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), host.ID); err == nil {
		t.Error("a disk that is cut off is mounted")
	}
	if err := errors.Join(s.Remove(t.Context(), host.ID, false), s.Remove(t.Context(), one.ID, false)); err != nil {
		t.Error(err)
	}
	if exists(s.directory(host.ID)) || exists(s.directory(one.ID)) || mountsBelow(t, s) != nil {
		t.Error("something is left")
	}
}

// TestResizeEarlier: the size of a workspace without a disk cannot be changed.
func TestResizeEarlier(t *testing.T) {
	s := newStore(t, nil)
	w := create(t, s, workspace.Spec{ID: cove.NewSandboxID(), Name: "x"})
	err := s.disks.Resize(t.Context(), w.ID, workspace.Disk{Bytes: 64 << 20, Inodes: 100}, false)
	if cove.ErrorCode(err) != cove.Conflict || !strings.Contains(err.Error(), "earlier version") {
		t.Errorf("%v", err)
	}
}

// TestDiskWorktree: a repository that is hidden from its sandbox is on the same disk.
func TestDiskWorktree(t *testing.T) {
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	s := diskStore(t, server)
	q := onDisk(ownSpec("quiet-heron", workspace.Repository{Source: repo.URL, Worktree: true}), 16<<20, 1000)
	w := create(t, s, q)
	git := exec.Command("git", "-C", w.Directory, "-c", "safe.directory=*", "status", "--porcelain")
	if out, err := git.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%s%v", out, err)
	}
	if filepath.Dir(w.Hidden) != filepath.Dir(w.Directory) {
		t.Errorf("%+v", w)
	}
}

// TestDiskKilled kills a process at any point of making and removing disks, and looks for what is left afterwards.
func TestDiskKilled(t *testing.T) {
	s := diskStore(t, nil)
	if os.Getenv("COVE_TEST_DISKS_OF") != "" {
		return
	}
	for round := range 12 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestDiskVictim$", "-test.count=1")
		cmd.Env = append(os.Environ(), "COVE_TEST_DISKS_OF="+s.o.Home)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64)
		for range round/3 + 1 {
			if n, _ := out.Read(buf); !bytes.Contains(buf[:n], []byte(".")) {
				t.Fatalf("the victim says %q", buf[:n])
			}
		}
		for range round * 40_000 { // a little later each time
		}
		cmd.Process.Kill()
		cmd.Wait()
		await.That(t, "no child of it holds its lock", func() bool {
			s = open(t, s.o)
			return !strings.Contains(names(t, s.workspaces), coming)
		})
		ids, err := s.List(t.Context())
		for _, id := range ids {
			err = errors.Join(err, s.Remove(t.Context(), id, false))
		}
		if err != nil {
			t.Error(err)
		}
		if m := mountsBelow(t, s); m != nil {
			t.Fatalf("round %d: mounted: %v", round, m)
		}
		if left := names(t, s.workspaces); strings.Contains(left, "sb_") || strings.Contains(left, "try") {
			t.Fatalf("round %d: left: %s", round, left)
		}
	}
}

// TestDiskVictim is the process that TestDiskKilled kills.
func TestDiskVictim(t *testing.T) {
	home := os.Getenv("COVE_TEST_DISKS_OF")
	if home == "" {
		t.Skip("TestDiskKilled runs it")
	}
	s := open(t, Options{Home: home})
	for {
		os.Stdout.WriteString(".")
		w := create(t, s, onDisk(workspace.Spec{ID: cove.NewSandboxID(), Name: "x"}, 4<<20, 64))
		if err := s.Remove(t.Context(), w.ID, false); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDisksAtOnce: many at once, by two stores of two homes, do not disturb each other.
func TestDisksAtOnce(t *testing.T) {
	stores := []*Store{diskStore(t, nil), diskStore(t, nil)}
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			s := stores[i%2]
			w, err := s.Create(context.Background(), onDisk(workspace.Spec{ID: cove.NewSandboxID(), Name: "x"}, 4<<20, 64), nil)
			if err == nil {
				err = os.WriteFile(filepath.Join(w.Home, "x"), []byte(w.ID), 0o600)
			}
			if err == nil && read(t, w.Home, "x") != string(w.ID) {
				err = errors.New("another's home")
			}
			if err = errors.Join(err, s.Remove(context.Background(), w.ID, false)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, s := range stores {
		if m := mountsBelow(t, s); m != nil {
			t.Errorf("mounted: %v", m)
		}
	}
}

// TestDiskResize changes the size of a workspace's disk while its sandbox is stopped.
func TestDiskResize(t *testing.T) {
	s := diskStore(t, nil)
	w := create(t, s, onDisk(workspace.Spec{ID: cove.NewSandboxID(), Name: "x"}, 16<<20, 100))
	if err := s.disks.Resize(t.Context(), w.ID, workspace.Disk{Bytes: 64 << 20, Inodes: 100}, false); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.Home, "x"), make([]byte, 40<<20), 0o600); err != nil {
		t.Error(err)
	}
	small := workspace.Disk{Bytes: 16 << 20, Inodes: 100}
	for _, runs := range []bool{true, false} {
		if err := s.disks.Resize(t.Context(), w.ID, small, runs); cove.ErrorCode(err) != cove.Conflict {
			t.Errorf("shrinking, running %v: %v", runs, err)
		}
	}
	if err := os.Remove(filepath.Join(w.Home, "x")); err != nil {
		t.Fatal(err)
	}
	if err := s.disks.Resize(t.Context(), w.ID, small, false); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(w.Home, "x"), make([]byte, 40<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("40 MB on 16: %v", err)
	}
}

func TestFloor(t *testing.T) {
	for _, c := range []struct {
		room  hostdisk.Room
		floor int64
		short bool
	}{
		{hostdisk.Room{Free: 100 << 30, Total: 200 << 30}, 1 << 30, false},
		{hostdisk.Room{Free: 1<<30 - 1, Total: 200 << 30}, 1 << 30, true},
		{hostdisk.Room{Free: 40 << 20, Total: 1000 << 20}, 50 << 20, true},
		{hostdisk.Room{Free: 60 << 20, Total: 1000 << 20}, 50 << 20, false},
		{hostdisk.Room{}, 0, false},
	} {
		if c.room.Floor() != c.floor || c.room.Short() != c.short {
			t.Errorf("%+v: %d, %v", c.room, c.room.Floor(), c.room.Short())
		}
	}
}
