package repos

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// Entry is a file in git; the zero Entry is none.
type Entry struct {
	Mode policy.Mode
	ID   string // of a blob, or of a submodule's commit
}

// Change is one changed path: added where Old is zero, deleted where New is.
type Change struct {
	Path           string // in git's form: any bytes
	OldPath        string // of a renamed file; else empty
	Old, New       Entry
	Added, Removed int  // lines
	Binary         bool // without line counts
	Link           string
	LinkKnown      bool   // Link is the target of the symlink New
	Patch          string // if requested
}

// parseChanges parses the output of "git diff-tree -z --raw --numstat". Errors: Internal for any other.
func parseChanges(out string) ([]Change, error) {
	bad := cove.Errorf(cove.Internal, "git does not say what has changed")
	if out == "" {
		return nil, nil
	}
	var all []Change
	at := map[string]int{}
	fields := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	next := func() (field string) {
		if len(fields) > 0 {
			field, fields = fields[0], fields[1:]
		}
		return field
	}
	for len(fields) > 0 {
		field := next()
		if raw, ok := strings.CutPrefix(field, ":"); ok {
			parts := strings.Fields(raw) // old mode, new mode, old id, new id, status
			if len(parts) != 5 || !hostgit.ValidID(parts[2]) || !hostgit.ValidID(parts[3]) {
				return nil, bad
			}
			c := Change{Path: next()}
			if parts[4][0] == 'R' {
				c.OldPath, c.Path = c.Path, next()
			}
			for i, e := range []*Entry{&c.Old, &c.New} {
				mode, err := strconv.ParseUint(parts[i], 8, 32)
				if err != nil {
					return nil, bad
				}
				if mode != 0 {
					*e = Entry{policy.Mode(mode), parts[2+i]}
				}
			}
			if c.Path == "" {
				return nil, bad
			}
			at[c.Path] = len(all)
			all = append(all, c)
			continue
		}
		parts := strings.SplitN(field, "\t", 3) // added, removed, path; for a rename two paths follow
		if len(parts) != 3 {
			return nil, bad
		}
		if parts[2] == "" {
			next()
			parts[2] = next()
		}
		i, ok := at[parts[2]]
		if !ok {
			return nil, bad
		}
		var e1, e2 error
		if all[i].Binary = parts[0] == "-"; !all[i].Binary {
			all[i].Added, e1 = strconv.Atoi(parts[0])
			all[i].Removed, e2 = strconv.Atoi(parts[1])
		}
		if e1 != nil || e2 != nil {
			return nil, bad
		}
	}
	return all, nil
}

// kindOfFile masks the type bits of a mode.
const kindOfFile = 0o170000

// addPatches assigns each change its part of a patch. A file whose type changes has two parts: a deletion and an
// addition. Errors: Internal when a part belongs to no change.
func addPatches(all []Change, patch string) error {
	const begin = "diff --git " // at a line's beginning: content lines begin with a sign
	for i, c := range all {
		parts := 1
		if c.Old.Mode != 0 && c.New.Mode != 0 && c.Old.Mode&kindOfFile != c.New.Mode&kindOfFile {
			parts = 2
		}
		for range parts {
			if !strings.HasPrefix(patch, begin) {
				return cove.Errorf(cove.Internal, "git does not say how %q has changed", c.Path)
			}
			end := strings.Index(patch, "\n"+begin) + 1
			if end == 0 {
				end = len(patch)
			}
			all[i].Patch += patch[:end]
			patch = patch[end:]
		}
	}
	if patch != "" {
		return cove.Errorf(cove.Internal, "git says more than what has changed")
	}
	return nil
}

// Objection is the reason why a change is not applied to a person's checkout.
type Objection struct {
	Path string
	Why  string
	// Asked permits the change on request: its file affects what others execute.
	Asked bool
}

// Checkout describes a person's checkout, beside the changes.
type Checkout struct {
	Has   func(path string) bool // nil: it has nothing
	Named []string               // what the configuration of the person's git names: see hostgit.Git.Named
}

// Judge returns the changes that must not be applied to a checkout, with reasons.
func Judge(changes []Change, to Checkout) []Objection {
	var all []Objection
	has := to.with(changes)
	for _, c := range changes {
		if why := objectionToPath(c.Path); why != "" {
			all = append(all, Objection{c.Path, why, false})
			continue
		}
		if why := objectionToEntry(c); why != "" {
			all = append(all, Objection{c.Path, why, false})
			continue
		}
		switch {
		case (policy.Change{Path: c.Path, Mode: c.New.Mode}).In(policy.Asked):
			all = append(all, Objection{c.Path, "it decides what others run", true})
		case slices.ContainsFunc(to.Named, func(name string) bool { return concerns(c.Path, name) }):
			all = append(all, Objection{c.Path, "the configuration of your git names it", true})
		case c.New != (Entry{}) && policy.InGitDirectory(c.Path, has):
			all = append(all, Objection{c.Path, "git takes its directory for a repository, whose files decide what git runs",
				true})
		}
	}
	return all
}

// with returns what asks for paths of a checkout with changes, in any case of letters. Its answers are kept.
func (to Checkout) with(changes []Change) func(string) bool {
	known := map[string]bool{}
	for _, c := range changes {
		for p := strings.ToLower(c.Path); c.New != (Entry{}) && !known[p]; p = path.Dir(p) {
			known[p] = true
		}
	}
	return func(p string) bool {
		is, asked := known[strings.ToLower(p)]
		if !asked && to.Has != nil {
			is = to.Has(p)
			known[strings.ToLower(p)] = is
		}
		return is
	}
}

// concerns reports whether a path is one that is named, lies in a directory that is, or leads to one.
func concerns(p, name string) bool {
	p, name = strings.ToLower(p), strings.ToLower(name)
	dir := strings.TrimSuffix(name, "/")
	return p == dir || strings.HasPrefix(dir, p+"/") || dir != name && strings.HasPrefix(p, name)
}

func objectionToEntry(c Change) string {
	for _, e := range []Entry{c.Old, c.New} {
		switch e.Mode {
		case 0, policy.File, policy.Program, policy.Symlink:
		case policy.Gitlink:
			return "it is a submodule, which has a repository of its own"
		default:
			return "it is no file"
		}
	}
	if c.New.Mode == policy.Symlink {
		if !c.LinkKnown {
			return "the link's target is unknown"
		}
		return objectionToLink(c.Path, c.Link)
	}
	return ""
}

// objectionToLink returns an objection to a symlink. It must stay in the checkout, whatever else is there, and not lead
// to a file of git's.
func objectionToLink(at, target string) string {
	if target == "" || path.IsAbs(target) || strings.IndexByte(target, 0) >= 0 || len(target) > 4096 {
		return "the link leads out of the checkout"
	}
	above, named := strings.Count(at, "/"), false
	for part := range strings.SplitSeq(target, "/") {
		switch {
		case part == "" || part == ".":
		case part == ".." && named:
			// An earlier component may itself be a symlink.
			return "the link leads through another name and up again"
		case part == "..":
			if above--; above < 0 {
				return "the link leads out of the checkout"
			}
		case isGitName(part):
			return "the link leads to git's own files"
		default:
			named = true
		}
	}
	return ""
}

// objectionToPath returns an objection to a path in a repository, valid for every file system that may hold a checkout.
func objectionToPath(p string) string {
	switch {
	case p == "" || len(p) > 4096:
		return "it has no name"
	case p[0] == '/' || strings.IndexByte(p, 0) >= 0:
		return "it leaves the checkout"
	case strings.ContainsFunc(p, func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }):
		return "its name has control characters"
	}
	for part := range strings.SplitSeq(strings.ReplaceAll(p, "\\", "/"), "/") { // a separator for some file systems
		switch {
		case (part == "" || part == "." || part == "..") && strings.Contains(p, `\`):
			return "its name has a backslash, which some file systems take for the end of a directory's name"
		case part == "" || part == "." || part == "..":
			return "it leaves the checkout"
		case isGitName(part):
			return "it is one of git's own files"
		case len(part) > 255:
			return "its name is too long"
		}
	}
	return ""
}

// isGitName reports whether some file system reads a name as ".git".
func isGitName(name string) bool {
	// HFS+ ignores these (git's utf8.c, next_hfs_char).
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
			return -1
		}
		return unicode.ToLower(r)
	}, name)
	name, _, _ = strings.Cut(name, ":") // NTFS: a stream of the file
	name = strings.TrimRight(name, " .")
	if name == ".git" {
		return true
	}
	// NTFS: the short name of ".git" is GIT~1; other numbers belong to other files.
	rest, ok := strings.CutPrefix(name, "git~")
	return ok && rest != "" && strings.Trim(rest, "0123456789") == ""
}

// ApplyStyle configures Apply.
type ApplyStyle struct {
	Restricted bool // include files that affect what others execute
	Merge      bool // merge files that both sides have changed
	// Choice has the chosen changes by path; nil takes all. Work.Paths has to name these paths.
	Choice map[string]Choice
}

// Choice selects a changed file, or parts of it.
type Choice struct {
	ID    string // of the content that the caller has seen; empty takes any
	Parts []int  // numbers of package patch; nil takes the file whole
}

// Applied is the result of Apply.
type Applied struct {
	Changes   []Change
	Merged    []string // paths of changes that were merged with the checkout's own
	Conflicts []Clash  // changes that were not applied, or not entirely
}

// Clash is a change that conflicts with another.
type Clash struct {
	Path    string
	Why     string
	Markers bool // the file contains both sides, between markers; else it is unchanged
}
