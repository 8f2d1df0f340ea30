package hostpath

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/cove-sandbox/cove"
)

// Mark says what a writable mount held when it was attached, of what programs of its owner execute or obey.
type Mark struct {
	Source   string // the kernel's name of it
	Dev, Ino uint64
	Allow    cove.MountAllow
	Guarded  []string // Rules.Guarded
	Named    []string `json:",omitempty"` // of Rules.Named, below the mount
	Held     Deciding
}

// Deciding are places that decide what programs of a mount's owner run, by their names below the mount.
type Deciding struct {
	Git   []string // directories and files of git's own, and parts of them
	Files []string
}

// Made names the places that came into being in a mount and decide what programs of its owner run.
type Made struct {
	Source string
	Deciding
	Beyond string // why not all of the mount was searched
	Kept   bool   `json:",omitempty"` // it is no mount, but work that was kept, of whatever age the places in it are
}

// Any reports whether there is something to say.
func (m Made) Any() bool { return len(m.Git)+len(m.Files) > 0 || m.Beyond != "" }

// Paths returns the places on the host, git's own first.
func (m Made) Paths() []string {
	var all []string
	for _, name := range slices.Concat(m.Git, m.Files) {
		all = append(all, filepath.Join(m.Source, name))
	}
	return all
}

// Text says it in a sentence.
func (m Made) Text() string {
	if m.Kept && len(m.Git)+len(m.Files) > 0 {
		return listed(slices.Concat(m.Git, m.Files)) + " in " + m.Source + ", which has the sandbox's work, may run " +
			"programs on this machine: look at that before you use the directory"
	}
	var made []string
	if len(m.Git) > 0 {
		made = append(made, listed(m.Git)+" in "+m.Source+", which decides what your git executes there")
	}
	if len(m.Files) > 0 {
		made = append(made, listed(m.Files)+" in "+m.Source)
	}
	rest := m.Source + " was not searched to the end for what the sandbox made (" + m.Beyond + ")"
	if len(made) == 0 {
		return rest
	}
	text := "the sandbox made " + strings.Join(made, ", and ") + ": look at that before you use the directory"
	if m.Beyond != "" {
		text += "; " + rest
	}
	return text
}

// maxListed is the most names of a sentence.
const maxListed = 5

func listed(names []string) string {
	var all []string
	for _, name := range names[:min(len(names), maxListed)] {
		if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			name = strconv.Quote(name)
		}
		all = append(all, name)
	}
	text := strings.Join(all, ", ")
	if more := len(names) - maxListed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// since returns the places that were not there before, without those that lie in another one.
func (d Deciding) since(before Deciding) Deciding {
	was := map[string]bool{}
	for _, name := range slices.Concat(before.Git, before.Files) {
		was[name] = true
	}
	fresh := func(names []string) (made []string) {
		for _, name := range slices.Sorted(slices.Values(names)) {
			inside := func(top string) bool { return within(name, top) || top == "." }
			if !was[name] && !slices.ContainsFunc(made, inside) {
				made = append(made, name)
			}
		}
		slices.SortStableFunc(made, func(a, b string) int { return cmp.Compare(depth(a), depth(b)) })
		return made
	}
	return Deciding{Git: fresh(d.Git), Files: fresh(d.Files)}
}

func depth(name string) int {
	n := 0
	for dir := name; dir != "."; dir = path.Dir(dir) {
		n++
	}
	return n
}
