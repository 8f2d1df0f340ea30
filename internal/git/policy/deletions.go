package policy

import (
	"hash/maphash"
	"path"
)

// maxCounted bounds the files of each kind that are counted. Beyond it, additions are not held against deletions.
const maxCounted = 1 << 17

// Tally counts the files that the commits of a push delete. It remembers sums of names, and not names.
type Tally struct {
	seed           maphash.Seed
	deleted, added map[uint64]sums // by path
	commit         string
	parents        int            // of the commit, that it has been compared to
	gone           map[uint64]int // by path: the parents of the commit that have it, where the commit has not
	contents       map[uint64]sums
}

// sums identify a file's content, and its name without its directory.
type sums struct{ content, name uint64 }

func NewTally() *Tally {
	return &Tally{seed: maphash.MakeSeed(), deleted: map[uint64]sums{}, added: map[uint64]sums{},
		gone: map[uint64]int{}, contents: map[uint64]sums{}}
}

func (t *Tally) sum(s string) uint64 { return maphash.String(t.seed, s) }

// Begin is called for each commit, and for each parent of a merge.
func (t *Tally) Begin(commit string) {
	if commit != t.commit {
		t.end()
		t.commit = commit
	}
	t.parents++
}

// end counts what the commit lacks that all of its parents have.
func (t *Tally) end() {
	for p, n := range t.gone {
		if n == t.parents && len(t.deleted) < maxCounted {
			t.deleted[p] = t.contents[p]
		}
	}
	clear(t.gone)
	clear(t.contents)
	t.parents = 0
}

// Add counts a difference to a parent. Ids are of contents, "" where there is none.
func (t *Tally) Add(file, before, after string) {
	p := t.sum(file)
	switch {
	case after == "":
		if len(t.gone) < maxCounted {
			t.gone[p]++
			t.contents[p] = sums{t.sum(before), t.sum(path.Base(file))}
		}
	case before == "" && len(t.added) < maxCounted:
		t.added[p] = sums{t.sum(after), t.sum(path.Base(file))}
	}
}

// Count returns how many files are deleted. A file that another commit of the push adds, or that is moved, is not: what
// is added with its content, or with its name in another directory, is taken for the moved file.
func (t *Tally) Count() (n int) {
	t.end()
	names := map[uint64]int{}         // of added files, how many have each
	contents := map[uint64][]uint64{} // names of the added files with a content
	for p, c := range t.added {
		if _, also := t.deleted[p]; !also {
			contents[c.content] = append(contents[c.content], c.name)
			names[c.name]++
		}
	}
	changed := map[uint64]int{} // names of deleted files whose content is not added
	for p, c := range t.deleted {
		_, back := t.added[p]
		switch moved := contents[c.content]; {
		case back:
		case len(moved) > 0:
			contents[c.content] = moved[1:]
			names[moved[0]]--
		default:
			changed[c.name]++
		}
	}
	for name, deleted := range changed {
		n += max(0, deleted-names[name])
	}
	return n
}
