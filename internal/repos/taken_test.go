package repos

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// TestLeft: an import brings at most what its sandbox's disk has, what one may bring, and what the host can spare.
func TestLeft(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	wide := hostdisk.Room{Free: 100 * gib, Total: 200 * gib}
	for _, tt := range []struct {
		name string
		room room
		left int64
		code cove.Code
		says string
	}{
		{"nothing yet", room{most: 4 * gib, once: 2 * gib, free: wide}, 2 * gib, cove.TooLarge, "more than 2048 MiB"},
		{"a small disk", room{most: 64 * mib, once: 2 * gib, free: wide}, 64 * mib, cove.TooLarge, "the 64 MiB outside"},
		{"some is used", room{most: 64 * mib, used: 60 * mib, once: 2 * gib, free: wide}, 4 * mib, cove.TooLarge, "64 MiB"},
		{"more than all is used", room{most: 64 * mib, used: 70 * mib, once: 2 * gib, free: wide}, mib, cove.TooLarge,
			"64 MiB"},
		{"the host is short", room{most: 4 * gib, once: 2 * gib, free: hostdisk.Room{Free: gib + mib, Total: 200 * gib}},
			mib, cove.StorageFull, "1025 MiB left"},
		{"the host is below its floor", room{most: 4 * gib, once: 2 * gib, free: hostdisk.Room{Free: mib, Total: gib}}, mib,
			cove.StorageFull, "51 alone"},
	} {
		left, err := tt.room.left()
		if over, is := err.(noRoom); is {
			err = over.error
		}
		if left != tt.left || cove.ErrorCode(err) != tt.code || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %d, %v", tt.name, left, err)
		}
	}
	for _, tt := range []struct {
		size, kept int64
		want       bool
	}{{0, 0, false}, {smallImport + 1, 0, true}, {29 * mib, 14 * mib, false}, {30 * mib, 14 * mib, true}} {
		if got := grown(tt.size, tt.kept); got != tt.want {
			t.Errorf("of %d, %d were kept: %v", tt.size, tt.kept, got)
		}
	}
}

// noise returns incompressible text of a size.
func noise(t *testing.T, size int) string {
	t.Helper()
	data := make([]byte, size)
	if _, err := rand.Read(data); err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestImportsAreBounded: whatever a sandbox rewrites, what is imported of it stays within the size of its disk, and
// what does not fit is refused and leaves nothing.
func TestImportsAreBounded(t *testing.T) {
	const disk, file = 5 << 20, 2 << 20
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	for name, r := range map[string]workspace.Repository{"whole": {}, "worktree": {Worktree: true}, "partial": {}} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, server)
			if name == "partial" {
				if _, err := s.FetchMirror(t.Context(), cove.MachineOwner(), repo.URL, true, nil); err != nil {
					t.Fatal(err)
				}
			}
			r.Source = repo.URL
			w := create(t, s, spec("x", r))
			git := server.Client().In(w.Directory)
			size := func() int64 {
				t.Helper()
				bytes, _, err := hostdisk.Tree(t.Context(), s.ImportDirectory(w.ID))
				if err != nil {
					t.Fatal(err)
				}
				return bytes
			}
			snapshots := 0
			snapshot := func() string {
				t.Helper()
				snapshots++
				index := git.With("GIT_INDEX_FILE="+filepath.Join(t.TempDir(), "index"),
					"GIT_AUTHOR_DATE=2001-02-03T04:05:0"+strconv.Itoa(snapshots)+"Z")
				index.Run("add", "--all")
				id := index.Run("commit-tree", "-p", "HEAD", "-m", "work", index.Run("write-tree"))
				git.Run("update-ref", WorkRef, id)
				return id
			}
			var first, blob string
			for i := range 5 {
				git.Write("big", noise(t, file))
				id := snapshot()
				if i == 0 {
					first, blob = id, git.Run("hash-object", "big")
					git.Write("small", "applied\n")
				}
				refs, err := s.Import(t.Context(), w.ID, disk, inside(t, w))
				if err != nil {
					t.Fatalf("%d: %v", i, err)
				}
				if got := size(); got < file || got > disk {
					t.Errorf("%d: %d MiB of imports", i, got>>20)
				}
				if changes, err := s.Changes(t.Context(), w.ID, Work{}, ChangeStyle{}); err != nil || len(changes) == 0 {
					t.Errorf("%d: %v, %v, %v", i, refs, changes, err)
				}
			}
			imports := gittest.NewGit(t, s.ImportDirectory(w.ID))
			if imports.Try("cat-file", "-e", blob).Code == 0 {
				t.Errorf("%s of %s is still there", blob, first)
			}
			// What is read stays until it was read, also when that leaves no room.
			held, err := keepImported(t.Context(), s.importOf(w.ID))
			if err != nil {
				t.Fatal(err)
			}
			old := imports.Run("rev-parse", imported+"work")
			for range 3 {
				git.Write("big", noise(t, file))
				snapshot()
				_, err = s.Import(t.Context(), w.ID, disk, inside(t, w))
				if size() > disk {
					t.Errorf("%d MiB of imports while they are read", size()>>20)
				}
			}
			if cove.ErrorCode(err) != cove.TooLarge || !strings.Contains(cove.ErrorHint(err), "--disk") {
				t.Errorf("while the imports are read: %v", err)
			}
			imports.Run("cat-file", "-e", old+":big")
			held.Close()
			if _, err := s.Import(t.Context(), w.ID, disk, inside(t, w)); err != nil || size() > disk {
				t.Errorf("%d MiB of imports after they were read: %v", size()>>20, err)
			}
			// More than the disk has.
			before := size()
			for i := range 3 {
				git.Write("more"+strconv.Itoa(i), noise(t, file))
			}
			snapshot()
			if _, err := s.Import(t.Context(), w.ID, disk, inside(t, w)); cove.ErrorCode(err) != cove.TooLarge {
				t.Errorf("more than the disk has: %v", err)
			}
			if _, err := s.Import(t.Context(), w.ID, disk, inside(t, w)); cove.ErrorCode(err) != cove.TooLarge ||
				size() > before {
				t.Errorf("once more: %d MiB, %v", size()>>20, err)
			}
			os.Remove(filepath.Join(w.Directory, "more0"))
			os.Remove(filepath.Join(w.Directory, "more1"))
			snapshot()
			if _, err := s.Import(t.Context(), w.ID, disk, inside(t, w)); err != nil {
				t.Errorf("less again: %v", err)
			}
		})
	}
}

// TestUntidied: work is imported although what was imported before cannot be tidied.
func TestUntidied(t *testing.T) {
	server := gittest.Start(t, gittest.Options{})
	s := newStore(t, server)
	w := create(t, s, spec("x", workspace.Repository{Source: server.Create("project.git").URL}))
	if err := os.Mkdir(filepath.Join(s.ImportDirectory(w.ID), keptFile), 0o700); err != nil {
		t.Fatal(err)
	}
	git := server.Client().In(w.Directory)
	for i := range 2 {
		id := git.Commit("work", "big", noise(t, 2*smallImport))
		if refs, err := s.Import(t.Context(), w.ID, 1<<30, inside(t, w)); err != nil ||
			!slices.ContainsFunc(refs, func(r Ref) bool { return r.ID == id }) {
			t.Fatalf("%d: %v, %v", i, refs, err)
		}
	}
}

// TestImportsBelowTheFloor: what was imported stays where the disk of the machine is short, little more is still taken,
// and much is not.
func TestImportsBelowTheFloor(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a file system of its own needs root")
	}
	const mib = 1 << 20
	home := t.TempDir()
	if err := unix.Mount("tmpfs", home, "tmpfs", 0, "size=100m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(home, 0) })
	server := gittest.Start(t, gittest.Options{})
	s := open(t, Options{Home: home, Outlet: direct{server.CA}})
	w := create(t, s, spec("x", workspace.Repository{Source: server.Create("project.git").URL}))
	git := server.Client().In(w.Directory)
	take := func() error {
		_, err := s.Import(t.Context(), w.ID, 1<<30, inside(t, w))
		return err
	}
	first := git.Commit("first", "big", noise(t, 4*mib))
	if err := take(); err != nil {
		t.Fatal(err)
	}
	git.Commit("second", "larger", noise(t, 3*mib))
	room, err := s.Disks().Free()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "filler"), make([]byte, room.Free-room.Floor()+mib/2), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := take(); cove.ErrorCode(err) != cove.StorageFull {
		t.Errorf("three MiB more: %v", err)
	}
	gittest.NewGit(t, s.ImportDirectory(w.ID)).Run("cat-file", "-e", first+":big")
	git.Run("reset", "-q", "--hard", "HEAD~1")
	git.Commit("third", "small", "third\n")
	if err := take(); err != nil {
		t.Errorf("a line more: %v", err)
	}
}

// TestDeliveredOutlivesTidying: work that is elsewhere is known as such when the import of it was superseded.
func TestDeliveredOutlivesTidying(t *testing.T) {
	server := gittest.Start(t, gittest.Options{})
	s := newStore(t, server)
	w := create(t, s, spec("x", workspace.Repository{Source: server.Create("project.git").URL}))
	git := server.Client().In(w.Directory)
	take := func() []Ref {
		t.Helper()
		refs, err := s.Import(t.Context(), w.ID, 1<<30, inside(t, w))
		if err != nil {
			t.Fatal(err)
		}
		return refs
	}
	snapshot := func(date string) string {
		index := git.With("GIT_INDEX_FILE="+filepath.Join(t.TempDir(), "index"), "GIT_AUTHOR_DATE="+date)
		index.Run("add", "--all")
		id := index.Run("commit-tree", "-p", "HEAD", "-m", "work", index.Run("write-tree"))
		git.Run("update-ref", WorkRef, id)
		return id
	}
	git.Write("file", "applied\n")
	applied := snapshot("2001-02-03T04:05:06Z")
	take()
	s.Deliver(w.ID, applied)
	for range 5 {
		git.Write("big", noise(t, 2*smallImport))
		snapshot("2002-02-03T04:05:06Z")
		take()
	}
	if size, _, err := hostdisk.Tree(t.Context(), s.ImportDirectory(w.ID)); err != nil || size > 7*smallImport {
		t.Fatalf("nothing was tidied: %d MiB, %v", size>>20, err)
	}
	os.Remove(filepath.Join(w.Directory, "big"))
	snapshot("2003-02-03T04:05:06Z")
	if held, err := s.Held(context.Background(), w.ID, take()); err != nil || held != (Held{}) {
		t.Errorf("%+v, %v", held, err)
	}
}

// TestSharedImportRoom: checkouts within one sandbox share the room of its imports. What none of them needs any more
// makes room for each of them, and then what can be imported again.
func TestSharedImportRoom(t *testing.T) {
	const disk, file = 5 << 20, 2 << 20
	server := gittest.Start(t, gittest.Options{})
	source := workspace.Repository{Source: server.Create("project.git").URL}
	s := newStore(t, server)
	host := create(t, s, ownSpec("host", source))
	type checkout struct {
		workspace.Workspace
		git gittest.Git
	}
	of := func(name string) checkout {
		q := ownSpec(name, source)
		q.Within = host.ID
		w := create(t, s, q)
		w.Directory = filepath.Join(host.Home, filepath.Base(w.Place))
		r, err := s.read(w.ID)
		if err != nil {
			t.Fatal(err)
		}
		// The path of the objects inside.
		if err := os.WriteFile(filepath.Join(w.Directory, ".git/objects/info/alternates"),
			[]byte(filepath.Join(s.mirror(r.Mirror).dir, "objects")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return checkout{w, server.Client().In(w.Directory)}
	}
	one, two := of("one"), of("two")
	commit := func(c checkout, size int) string {
		t.Helper()
		c.git.Run("reset", "-q", "--hard", "origin/main")
		return c.git.Commit("work", "big", noise(t, size))
	}
	take := func(c checkout) {
		t.Helper()
		if _, err := s.Import(t.Context(), c.ID, disk, inside(t, c.Workspace)); err != nil {
			t.Fatal(err)
		}
		r, err := s.read(c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if used, err := s.takenOf(t.Context(), r); err != nil || used > disk {
			t.Errorf("%d MiB of imports, %v", used>>20, err)
		}
	}
	there := func(c checkout, commit string) bool {
		return gittest.NewGit(t, s.ImportDirectory(c.ID)).Try("cat-file", "-e", commit+":big").Code == 0
	}
	old := commit(one, file)
	take(one)
	now := commit(one, file)
	take(one)
	if !there(one, old) {
		t.Fatal("what was superseded is gone already: this tests nothing")
	}
	theirs := commit(two, file)
	take(two)
	if there(one, old) || !there(one, now) || !there(two, theirs) {
		t.Errorf("superseded %v, imported %v and %v are there", there(one, old), there(one, now), there(two, theirs))
	}
	theirs = commit(two, 2*file)
	take(two)
	if there(one, now) || !there(two, theirs) {
		t.Errorf("of one %v, of two %v are there", there(one, now), there(two, theirs))
	}
	take(one)
}
