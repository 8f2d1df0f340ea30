//go:build linux

package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/internal/packages"
)

type fixture struct {
	*Cache
	clock *clocktest.Manual
	room  hostdisk.Room
	log   bytes.Buffer
}

func open(t *testing.T, dir string, most int64) *fixture {
	t.Helper()
	f := &fixture{clock: clocktest.NewManual(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)),
		room: hostdisk.Room{Free: 1 << 40, Total: 1 << 40}}
	f.Cache = New(Options{Dir: dir, Most: most, Clock: f.clock, Log: slog.New(slog.NewTextHandler(&f.log, nil)),
		Room: func(string) (hostdisk.Room, error) { return f.room, nil }})
	return f
}

func stated(content string) packages.Digest {
	sum := sha256.Sum256([]byte(content))
	return packages.Digest{SHA256: hex.EncodeToString(sum[:])}
}

func (f *fixture) put(t *testing.T, url, content string) (stored bool) {
	t.Helper()
	w := f.Begin(url, int64(len(content)))
	if w == nil {
		return false
	}
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	return w.Commit(stated(content))
}

func (f *fixture) get(t *testing.T, url string) string {
	t.Helper()
	s, ok := f.Open(url)
	if !ok {
		return "none"
	}
	defer s.Close()
	f.Served(s)
	data, err := io.ReadAll(s)
	if err != nil || int64(len(data)) != s.Size {
		t.Fatal(len(data), s.Size, err)
	}
	return string(data)
}

func (f *fixture) count(t *testing.T, kind string) int {
	t.Helper()
	entries, err := os.ReadDir(f.place(kind, ""))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestStore: what was stored is there for every process; equal files are stored once.
func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "packages")
	f := open(t, dir, 1<<30)
	if f.get(t, "one") != "none" {
		t.Error("something is in an empty cache")
	}
	for _, url := range []string{"one", "two"} {
		if !f.put(t, url, "content") {
			t.Errorf("%s is not stored", url)
		}
	}
	other := open(t, dir, 1<<30)
	if other.get(t, "one") != "content" || other.get(t, "two") != "content" || other.get(t, "three") != "none" {
		t.Error("another process sees something else")
	}
	if f.count(t, "files") != 1 || f.count(t, "names") != 2 || f.count(t, "parts") != 0 {
		t.Error("the files are", f.count(t, "files"), f.count(t, "names"), f.count(t, "parts"))
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info.Mode(), err)
	}
	if c := f.Counts(); c != (Counts{Added: 2}) {
		t.Errorf("%+v", c)
	}
}

// TestNotWhatIsStated: a file with another digest is not stored, and neither is one that was given up.
func TestNotWhatIsStated(t *testing.T) {
	f := open(t, t.TempDir(), 1<<30)
	for url, with := range map[string]packages.Digest{"other": stated("other"), "none": {},
		"half": {SHA256: stated("content").SHA256, SHA512: strings.Repeat("0", 128)}} {
		w := f.Begin(url, -1)
		io.WriteString(w, "content")
		if w.Commit(with) || f.get(t, url) != "none" {
			t.Errorf("%s is stored", url)
		}
	}
	w := f.Begin("gone", -1)
	io.WriteString(w, "content")
	w.Abort()
	w.Abort()
	if f.count(t, "files")+f.count(t, "names")+f.count(t, "parts") != 0 {
		t.Error("something is left")
	}
}

// TestDamaged: a file is hashed when it is opened; one that is not what it was is removed, and so is a name that says
// something else.
func TestDamaged(t *testing.T) {
	f := open(t, t.TempDir(), 1<<30)
	damage := map[string]func(){
		"changed":   func() { os.WriteFile(f.place("files", stated("changed").SHA256), []byte("chanGed"), 0o600) },
		"truncated": func() { os.Truncate(f.place("files", stated("truncated").SHA256), 3) },
		"removed":   func() { os.Remove(f.place("files", stated("removed").SHA256)) },
		"garbled":   func() { os.WriteFile(f.namePlace("garbled"), []byte("{"), 0o600) },
		"elsewhere": func() {
			os.WriteFile(f.namePlace("elsewhere"),
				[]byte(`{"url":"elsewhere","sha256":"../names/x","size":9}`), 0o600)
		},
		"swapped": func() {
			data, _ := os.ReadFile(f.namePlace("elsewhere of"))
			os.WriteFile(f.namePlace("swapped"), data, 0o600)
		},
	}
	f.put(t, "elsewhere of", "elsewhere of")
	for url, do := range damage {
		if !f.put(t, url, url) || f.get(t, url) != url {
			t.Fatal(url)
		}
		do()
		if got := f.get(t, url); got != "none" {
			t.Errorf("%s: %q", url, got)
		}
		if _, err := os.Stat(f.namePlace(url)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: its name is still there: %v", url, err)
		}
		if !f.put(t, url, url) || f.get(t, url) != url {
			t.Errorf("%s is not stored again", url)
		}
	}
	if c := f.Counts(); c.Mismatched != 2 {
		t.Errorf("%+v", c)
	}
}

// TestBound: beyond the bound the files go that were used the longest ago, with their names, and no file is larger than
// a part of it.
func TestBound(t *testing.T) {
	const most = 40 * 2 * block
	f := open(t, t.TempDir(), most)
	for i := range 100 {
		f.clock.Advance(time.Minute)
		f.put(t, fmt.Sprint(i), fmt.Sprint("content ", i))
		if got := f.get(t, "0"); got != "content 0" { // which is used all the time
			t.Fatalf("after %d: %s", i, got)
		}
		if n := f.count(t, "files"); n > 40 {
			t.Fatalf("%d files", n)
		}
	}
	if f.get(t, "99") == "none" || f.get(t, "1") != "none" {
		t.Error("the wrong ones are gone")
	}
	if f.count(t, "names") != f.count(t, "files") {
		t.Error("names and files:", f.count(t, "names"), f.count(t, "files"))
	}
	if f.Begin("large", most/2) != nil {
		t.Error("a file may have all of the cache")
	}
	w := f.Begin("lies", 1)
	w.Write(make([]byte, most/2))
	w.Commit(stated(string(make([]byte, most/2))))
	if f.get(t, "lies") != "none" || f.count(t, "parts") != 0 {
		t.Error("a file that is larger than it said is stored")
	}
	smaller := open(t, f.o.Dir, 4*2*block)
	smaller.put(t, "new", "new")
	if n := smaller.count(t, "files"); n > 4 {
		t.Errorf("%d files in a smaller cache", n)
	}
}

// TestNotesCount: notes take their part of the bound. The files make room for them, and then the oldest notes.
func TestNotesCount(t *testing.T) {
	const most = 40 * 2 * block
	f := open(t, t.TempDir(), most)
	for i := range 40 {
		f.clock.Advance(time.Minute)
		f.put(t, fmt.Sprint(i), fmt.Sprint("content ", i))
	}
	note := make([]byte, 15*block)
	for i := range 10 {
		f.clock.Advance(time.Minute)
		f.SetNote(fmt.Sprint(i), note)
		if used := f.count(t, "files")*2 + f.count(t, "notes")*16; used > 80 {
			t.Fatalf("%d blocks after %d notes", used, i+1)
		}
		if i == 1 && f.count(t, "files") < 10 {
			t.Errorf("%d files beside two notes", f.count(t, "files"))
		}
	}
	if _, _, ok := f.Note("9"); !ok {
		t.Error("the last note is gone")
	}
	if _, _, ok := f.Note("0"); ok {
		t.Error("the first note is there beyond the bound")
	}
}

// TestParts: what a writer that ended has left goes when a process begins to use the cache; that of another stays.
func TestParts(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, 1<<30)
	living := first.Begin("living", -1)
	defer living.Abort()
	if err := os.WriteFile(first.place("parts", "dead"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	second := open(t, dir, 1<<30)
	second.put(t, "one", "one")
	if _, err := os.Stat(first.place("parts", "dead")); !errors.Is(err, os.ErrNotExist) {
		t.Error("it is still there")
	}
	io.WriteString(living, "living")
	if !living.Commit(stated("living")) || second.get(t, "living") != "living" {
		t.Error("a living writer lost its file")
	}
}

// TestFullDisk: what the disk has no room for is not stored; the log says it once.
func TestFullDisk(t *testing.T) {
	f := open(t, t.TempDir(), 1<<30)
	f.room.Free = f.room.Floor()
	for range 3 {
		if f.Begin("one", 10) != nil {
			t.Error("the floor of the disk is written to")
		}
	}
	if n := strings.Count(f.log.String(), "packages are not cached"); n != 1 {
		t.Errorf("%d lines: %s", n, &f.log)
	}
	f.room.Free = f.room.Total
	w := f.Begin("filling", -1)
	f.room.Free = f.room.Floor()
	for range 40 {
		if n, err := w.Write(make([]byte, 1<<20)); n != 1<<20 || err != nil {
			t.Fatal(n, err)
		}
	}
	if info, err := w.file.Stat(); err != nil || info.Size() > 2*step {
		t.Errorf("%d bytes were written to a full disk, %v", info.Size(), err)
	}
	if !w.Commit(stated("")) || f.get(t, "filling") != "none" || f.count(t, "parts") != 0 {
		t.Error("it is stored")
	}
}

// TestOneWriter: of several that write one URL, one does.
func TestOneWriter(t *testing.T) {
	f := open(t, t.TempDir(), 1<<30)
	w := f.Begin("one", -1)
	if w == nil || f.Begin("one", -1) != nil {
		t.Fatal("two write")
	}
	w.Abort()
	if w = f.Begin("one", -1); w == nil {
		t.Fatal("none writes")
	}
	w.Abort()
	for i := range maxWriters + 1 {
		w := f.Begin(fmt.Sprint(i), -1)
		if (w != nil) != (i < maxWriters) {
			t.Errorf("writer %d: %v", i, w != nil)
		}
		if w != nil {
			defer w.Abort()
		}
	}
}

// TestChecked: a file keeps when its index was asked.
func TestChecked(t *testing.T) {
	f := open(t, t.TempDir(), 1<<30)
	f.put(t, "one", "one")
	began := f.clock.Now()
	f.clock.Advance(time.Hour)
	checked := func() time.Time {
		s, ok := f.Open("one")
		if !ok {
			t.Fatal("it is gone")
		}
		defer s.Close()
		if s.Stated != stated("one") {
			t.Errorf("%+v", s.Stated)
		}
		return s.Checked
	}
	if !checked().Equal(began) {
		t.Error(checked())
	}
	f.Confirm("one")
	f.Confirm("two")
	if !checked().Equal(f.clock.Now()) || f.get(t, "two") != "none" {
		t.Error(checked())
	}
	f.Drop("one")
	if f.get(t, "one") != "none" {
		t.Error("it is still there")
	}
}
