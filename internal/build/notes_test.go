package build

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/image"
)

// notes is a store that counts which notes builds have found and written.
type notes struct {
	image.Builds
	mu             sync.Mutex
	found, written int
}

func (n *notes) Noted(name string) (string, error) {
	key, err := n.Builds.Noted(name)
	if err == nil {
		n.mu.Lock()
		n.found++
		n.mu.Unlock()
	}
	return key, err
}

func (n *notes) Note(name, key string) error {
	n.mu.Lock()
	n.written++
	n.mu.Unlock()
	return n.Builds.Note(name, key)
}

// later is a clock for which the files of a test are old. It calls now, if there is one, before it says the time.
type later struct {
	clock.Clock
	now func()
}

func (c *later) Now() time.Time {
	if c.now != nil {
		c.now()
	}
	return c.Clock.Now().Add(time.Hour)
}

// tree makes the files of a context.
func (l *lab) tree() {
	l.t.Helper()
	if err := os.MkdirAll(filepath.Join(l.dir, "d/sub"), 0o755); err != nil {
		l.t.Fatal(err)
	}
	l.write("d/a", "A")
	l.write("d/sub/b", "B")
	l.write("d/ignored", "I")
	l.write(".dockerignore", "d/ignored\n")
	if err := os.Symlink("a", filepath.Join(l.dir, "d/link")); err != nil {
		l.t.Fatal(err)
	}
}

// TestNotes: a COPY of files whose properties are as they were makes the same layer without reading them, and any
// change of one is noticed. The image is that of a build without notes.
func TestNotes(t *testing.T) {
	const copies = "FROM scratch\nCOPY d /d\n"
	epoch := time.Unix(1_600_000_000, 0)
	at := func(r *Request) { r.Epoch = &epoch }
	for name, test := range map[string]struct {
		change     func(d string) error
		dockerfile string
		found      int // notes
		same       bool
	}{
		"nothing": {func(string) error { return nil }, copies, 1, true},
		"a time": {func(d string) error {
			return os.Chtimes(d+"/a", epoch, epoch)
		}, copies, 0, true},
		"content of the same size and time": {func(d string) error {
			info, err := os.Stat(d + "/a")
			if err == nil {
				err = os.WriteFile(d+"/a", []byte("Z"), 0o644)
			}
			if err != nil {
				return err
			}
			return os.Chtimes(d+"/a", info.ModTime(), info.ModTime())
		}, copies, 0, false},
		"a mode":                   {func(d string) error { return os.Chmod(d+"/a", 0o755) }, copies, 0, false},
		"the mode of a directory":  {func(d string) error { return os.Chmod(d+"/sub", 0o700) }, copies, 0, false},
		"one more":                 {func(d string) error { return os.WriteFile(d+"/sub/c", nil, 0o644) }, copies, 0, false},
		"one less":                 {func(d string) error { return os.Remove(d + "/a") }, copies, 0, false},
		"a name":                   {func(d string) error { return os.Rename(d+"/a", d+"/z") }, copies, 0, false},
		"one that is ignored":      {func(d string) error { return os.WriteFile(d+"/ignored", nil, 0o644) }, copies, 1, true},
		"one that is copied apart": {func(d string) error { return os.WriteFile(d+"/../x", nil, 0o644) }, copies, 1, true},
		"what is ignored": {func(d string) error {
			return os.WriteFile(d+"/../.dockerignore", []byte("d/a\n"), 0o644)
		}, copies, 0, false},
		"a link": {func(d string) error {
			if err := os.Remove(d + "/link"); err != nil {
				return err
			}
			return os.Symlink("b", d+"/link")
		}, copies, 0, false},
		"the owner":    {func(string) error { return nil }, "FROM scratch\nCOPY --chown=5:6 d /d\n", 0, false},
		"what is left": {func(string) error { return nil }, "FROM scratch\nCOPY --exclude=a d /d\n", 0, false},
		"the base":     {func(string) error { return nil }, "FROM scratch\nWORKDIR /d\nCOPY d /d\n", 0, false},
		"its parents":  {func(string) error { return nil }, "FROM scratch\nCOPY --parents d /\n", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.clock = &later{Clock: clock.Real()}
			l.tree()
			first, err := l.build(copies, at)
			if err != nil || l.notes.found != 0 || l.notes.written != 1 {
				t.Fatalf("%d notes were found, %d written: %v", l.notes.found, l.notes.written, err)
			}
			if err := test.change(filepath.Join(l.dir, "d")); err != nil {
				t.Fatal(err)
			}
			noted, err := l.build(test.dockerfile, at)
			if err != nil || l.notes.found != test.found || (noted.Digest == first.Digest) != test.same {
				t.Errorf("%d notes were found; %s, and before %s: %v", l.notes.found, noted.Digest, first.Digest, err)
			}
			found, written := l.notes.found, l.notes.written
			fresh, err := l.build(test.dockerfile, at, func(r *Request) { r.Fresh = true })
			if err != nil || fresh.Digest != noted.Digest {
				t.Errorf("%s, and without notes %s: %v", noted.Digest, fresh.Digest, err)
			}
			if l.notes.found != found || l.notes.written != written {
				t.Error("a build without layers of others uses notes")
			}
		})
	}
}

// TestNotesAreFirm: there is no note of files that have changed a moment ago, or since they were copied.
func TestNotesAreFirm(t *testing.T) {
	l := newLab(t)
	l.tree()
	for range 2 {
		if _, err := l.build("FROM scratch\nCOPY d /d\n"); err != nil || l.notes.written != 0 {
			t.Fatalf("there are notes of files that were made just now: %v", err)
		}
	}
	c := &later{Clock: clock.Real()}
	l.clock = c
	c.now = func() { l.write("d/a", "Z") } // before each look at the files
	if _, err := l.build("FROM scratch\nCOPY d /d\n"); err != nil || l.notes.written != 0 {
		t.Fatalf("there are notes of files that have changed meanwhile: %v", err)
	}
	c.now = nil
	if _, err := l.build("FROM scratch\nCOPY d /d\n"); err != nil || l.notes.written != 1 {
		t.Fatalf("there is no note of others: %v", err)
	}
}

// TestNotesOfStages: what is copied from a stage is that of the stage as it is, also where its command has run again
// and made something else.
func TestNotesOfStages(t *testing.T) {
	l := newLab(t)
	const dockerfile = "FROM scratch AS one\nRUN x=TURN\nFROM scratch\nCOPY --from=one x /x\n"
	has := func(want string, found int) image.Image {
		t.Helper()
		l.notes.found = 0
		img, err := l.build(dockerfile)
		if err != nil {
			t.Fatal(err)
		}
		root, err := l.store.Resolve(t.Context(), img.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(place(root, "x")); err != nil || string(data) != want || l.notes.found != found {
			t.Errorf("x is %q, want %q, with %d notes: %v", data, want, l.notes.found, err)
		}
		return img
	}
	has("1", 0)
	img := has("1", 1)
	root, err := l.store.Resolve(t.Context(), img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Dir(filepath.Dir(root.Stack()[0]))
	gone := func(keep ...string) {
		t.Helper()
		all, err := os.ReadDir(kept)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if slices.Contains(keep, e.Name()) {
				continue
			}
			if err := os.RemoveAll(filepath.Join(kept, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	gone(img.Kept...)
	img = has("2", 0)
	has("2", 1)
	gone() // the note is there, and the layer is not
	has("3", 0)
}

// TestNotesAtOnce: builds that run at once find each other's notes, or none.
func TestNotesAtOnce(t *testing.T) {
	l := newLab(t)
	l.tree()
	epoch := time.Unix(1_600_000_000, 0)
	var digests [4]string
	var all sync.WaitGroup
	for i := range digests {
		all.Go(func() {
			one := &lab{t: t, store: l.store, dir: l.dir, clock: &later{Clock: clock.Real()}}
			for range 3 {
				img, err := one.build("FROM scratch\nCOPY d /d\n", func(r *Request) { r.Epoch = &epoch })
				if err != nil {
					t.Error(err)
				}
				digests[i] = img.Digest
			}
			if one.notes.found == 0 {
				t.Error("no note was found")
			}
		})
	}
	all.Wait()
	if slices.ContainsFunc(digests[:], func(d string) bool { return d != digests[0] || d == "" }) {
		t.Errorf("%q", digests)
	}
}

// TestNotesOfExceptions: what a .dockerignore leaves out does not count, unless an exception of it brings it back.
func TestNotesOfExceptions(t *testing.T) {
	l := newLab(t)
	l.clock = &later{Clock: clock.Real()}
	l.tree()
	l.write(".dockerignore", "d\n!d/sub/b\n")
	epoch := time.Unix(1_600_000_000, 0)
	build := func(found int, change ...func(*Request)) string {
		t.Helper()
		l.notes.found = 0
		at := func(r *Request) { r.Epoch = &epoch }
		img, err := l.build("FROM scratch\nCOPY . /\n", append(change, at)...)
		if err != nil || l.notes.found != found {
			t.Errorf("%d notes were found, want %d: %v", l.notes.found, found, err)
		}
		return img.Digest
	}
	first := build(0)
	l.write("d/a", "AA")
	if again := build(1); again != first {
		t.Errorf("%s, and with another file that is ignored %s", first, again)
	}
	l.write("d/sub/b", "BB")
	next := build(0)
	if fresh := build(0, func(r *Request) { r.Fresh = true }); next == first || next != fresh {
		t.Errorf("%s, then %s, and without notes %s", first, next, fresh)
	}
}
