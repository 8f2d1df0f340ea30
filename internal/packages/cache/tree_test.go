//go:build linux

package cache

import (
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/packages"
)

var ours = Tree{Owner: cove.KeyHolder("one"), Registry: "npm.example.com:443"}

func sumOf(content string) string {
	sum := sha512.Sum512([]byte(content))
	return hex.EncodeToString(sum[:])
}

// install stores a file by its SHA-512 and adds it to trees.
func (f *fixture) install(t *testing.T, url, content string, in ...Tree) {
	t.Helper()
	w := f.Begin(url, int64(len(content)))
	if w == nil {
		t.Fatal("no writer")
	}
	io.WriteString(w, content)
	w.Commit(packages.Digest{SHA512: sumOf(content)})
	for _, tree := range in {
		f.Share(tree, url)
	}
}

// npm returns what npm finds in a tree of an owner by the content.
func (f *fixture) npm(tree Tree, content string) string {
	place, ok := f.Shown(tree.Owner)[tree.Registry]
	if !ok {
		return "no tree"
	}
	sum := sumOf(content)
	const below = "_cacache/content-v2/sha512"
	data, err := os.ReadFile(filepath.Join(place.Dir, place.Name, below, sum[:2], sum[2:4], sum[4:]))
	if err != nil {
		return "none"
	}
	return string(data)
}

// TestTrees: an owner has what was stored by its SHA-512 and shared with it, of the registry alone.
func TestTrees(t *testing.T) {
	f := open(t, t.TempDir(), 1<<30)
	f.install(t, "one", "content", ours)
	f.put(t, "by another digest", "other")
	f.Share(ours, "by another digest")
	f.Share(ours, "not there")
	f.Share(Tree{Owner: ours.Owner, Registry: "../x"}, "one")
	f.Share(Tree{Owner: cove.System("builds"), Registry: ours.Registry}, "one")
	f.Share(Tree{Registry: ours.Registry}, "one")
	w := f.Begin("poisoned", -1)
	io.WriteString(w, "poison")
	w.Commit(packages.Digest{SHA512: sumOf("package")})
	f.Share(ours, "poisoned")
	for content, want := range map[string]string{"content": "content", "other": "none", "poison": "none",
		"package": "none"} {
		if got := f.npm(ours, content); got != want {
			t.Errorf("%s is %q in the tree, want %q", content, got, want)
		}
	}
	if all := f.Shown(ours.Owner); len(all) != 1 {
		t.Errorf("the trees are %v", all)
	}
	for _, other := range []cove.Principal{cove.KeyHolder("two"), cove.MachineOwner(), cove.System("builds"), {}} {
		if all := f.Shown(other); len(all) != 0 {
			t.Errorf("%v has %v", other, all)
		}
	}
	f.o.Apart = true
	if f.Share(Tree{Owner: cove.MachineOwner(), Registry: ours.Registry}, "one"); len(f.Shown(ours.Owner)) != 0 {
		t.Error("there are trees where there are to be none")
	}
	f.o.Apart = false
	if all := f.Shown(cove.MachineOwner()); len(all) != 0 {
		t.Errorf("there is %v", all)
	}
}

// leftIn lists the files of all trees, and what lies beside.
func (f *fixture) leftIn(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir(f.place(trees, ""), func(path string, d os.DirEntry, err error) error {
		if err == nil && path != f.place(trees, "") {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return all
}

// TestTreesAreEvicted: what goes from the cache goes from every tree, directories count, and a tree that is used keeps
// its files longer than others are kept.
func TestTreesAreEvicted(t *testing.T) {
	const file = 64 << 10
	f := open(t, t.TempDir(), 20*(file+3*block))
	other := Tree{Owner: cove.KeyHolder("two"), Registry: ours.Registry}
	content := func(i int) string { return strings.Repeat(fmt.Sprint(i%10), file-1) + string(rune('a'+i)) }
	for i := range 4 {
		f.clock.Advance(time.Minute)
		f.install(t, fmt.Sprint(i), content(i), ours, other)
	}
	for i := 4; i < 26; i++ {
		f.clock.Advance(time.Minute)
		f.Use(ours)
		f.install(t, fmt.Sprint(i), content(i))
	}
	for i := range 4 {
		if got := f.npm(ours, content(i)); got != content(i) {
			t.Errorf("file %d of a tree that is used is %.10q", i, got)
		}
	}
	if f.get(t, "4") != "none" {
		t.Error("what was used the longest ago is there")
	}
	for i := 26; i < 50; i++ {
		f.clock.Advance(time.Minute)
		f.install(t, fmt.Sprint(i), content(i))
		for j := range 4 {
			_, gone := os.Lstat(f.place("files", stated(content(j)).SHA256))
			if gone != nil && f.npm(other, content(j)) == content(j) {
				t.Fatalf("file %d is gone, and in a tree", j)
			}
		}
	}
	if left := f.leftIn(t); len(left) != 0 {
		t.Errorf("of files that are gone there are %d, such as %q", len(left), left[len(left)-1])
	}
	for i := range 40 { // small ones, of which the directories are most
		f.clock.Advance(time.Minute)
		f.install(t, fmt.Sprint("small", i), fmt.Sprint("small", i), ours, other)
	}
	var total int64
	for _, path := range f.leftIn(t) {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			total += block
		}
	}
	total += int64(f.count(t, "files")) * 2 * block
	f.grown(0)
	if f.known > f.o.Most || f.known < total {
		t.Errorf("%d bytes are known, of %d that there are at least; %d are allowed", f.known, total, f.o.Most)
	}
}

// TestTreesAfterACrash: links of files that are gone, or were stored anew, and empty directories go with the next look
// of a process; a tree that no sandbox was shown goes after a while.
func TestTreesAfterACrash(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir, 1<<30)
	f.install(t, "one", "content", ours, Tree{Owner: cove.KeyHolder("two"), Registry: ours.Registry})
	f.install(t, "two", "second", ours)
	if err := os.Remove(f.place("files", stated("content").SHA256)); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(f.place(f.treesOf(ours.Owner), ours.Registry), content, "aa", "bb")
	if err := os.MkdirAll(empty, private); err != nil {
		t.Fatal(err)
	}
	next := open(t, dir, 1<<30)
	next.clock.Advance(time.Hour)
	next.put(t, "three", "third")
	if next.npm(ours, "content") != "none" || next.npm(ours, "second") != "second" {
		t.Error(next.leftIn(t))
	}
	if left := next.leftIn(t); len(left) != 8 { // the owner, the tree, three of npm's, two of the digest, the file
		t.Errorf("there are %q", left)
	}
	later := open(t, dir, 1<<30)
	later.clock.Advance(unused + time.Minute)
	later.put(t, "four", "fourth")
	if left := later.leftIn(t); len(left) != 0 {
		t.Errorf("after a while there are %q", left)
	}
	if later.get(t, "two") != "second" {
		t.Error("the file has gone with the tree")
	}
}
