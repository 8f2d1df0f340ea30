package command

import (
	"slices"
	"strings"
)

// heads are the names of commits that git keeps for the worktree itself.
var heads = []string{"HEAD", "@", "ORIG_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD",
	"FETCH_HEAD", "AUTO_MERGE", "BISECT_HEAD"}

// remoteName is the only remote there is.
const remoteName = "origin"

// ref reports whether a name, as git looks it up, is one that the sandbox may
// see, and the full name of a branch or tag.
func (c *Context) ref(name string) (full string, ok bool) {
	if slices.Contains(heads, name) {
		return name, true
	}
	if name == "stash" || name == "refs/stash" {
		return "refs/stash", true
	}
	if name == remoteName || name == remoteName+"/HEAD" || name == "refs/remotes/"+remoteName+"/HEAD" {
		return "refs/remotes/" + remoteName + "/HEAD", true
	}
	// A bisection marks only commits that were named, and so could be seen.
	if rest, cut := strings.CutPrefix(strings.TrimPrefix(name, "refs/"), "bisect/"); cut && refName(rest) &&
		!strings.Contains(rest, "/") {
		return "refs/bisect/" + rest, true
	}
	for _, form := range []struct{ prefix, full string }{
		{"refs/heads/", "refs/heads/"}, {"heads/", "refs/heads/"}, {"", "refs/heads/"},
		{"refs/remotes/" + remoteName + "/", "refs/remotes/" + remoteName + "/"},
		{"remotes/" + remoteName + "/", "refs/remotes/" + remoteName + "/"},
		{remoteName + "/", "refs/remotes/" + remoteName + "/"},
	} {
		if rest, cut := strings.CutPrefix(name, form.prefix); cut && c.branch(rest) {
			return form.full + rest, true
		}
	}
	for _, prefix := range []string{"refs/tags/", "tags/", ""} {
		if rest, cut := strings.CutPrefix(name, prefix); cut && rest != "" && slices.Contains(c.Tags, rest) {
			return "refs/tags/" + rest, true
		}
	}
	return "", false
}

// branch reports whether a branch is the sandbox's own or a shared one.
func (c *Context) branch(name string) bool {
	return name != "" && (name == c.Branch || slices.Contains(c.Shared, name))
}

func isHex(s string) bool {
	return len(s) >= 4 && len(s) <= 64 && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

// revisions judges a revision or range, and returns the ids in it.
func (c *Context) revisions(s string) (objects []string, err error) {
	s = strings.TrimPrefix(s, "^")
	if left, right, ok := cutRange(s); ok {
		for _, side := range []string{left, right} {
			if side == "" {
				continue // HEAD
			}
			ids, err := c.one(side)
			if err != nil {
				return nil, err
			}
			objects = append(objects, ids...)
		}
		return objects, nil
	}
	return c.one(s)
}

// cutRange takes a range apart. Dots within a path of a tree are no range.
func cutRange(s string) (left, right string, ok bool) {
	head := s
	if i := strings.IndexByte(s, ':'); i >= 0 {
		if j := strings.Index(s, ".."); j < 0 || j > i {
			return "", "", false
		}
		head = s[:i]
	}
	i := strings.Index(head, "..")
	if i < 0 {
		return "", "", false
	}
	right = s[i+2:]
	right = strings.TrimPrefix(right, ".")
	return s[:i], right, true
}

// one judges what names one object: a name or an id, with suffixes.
func (c *Context) one(s string) (objects []string, err error) {
	refused := func() error { return c.unseen(s) }
	switch {
	case s == "" || strings.HasPrefix(s, "-"):
		return nil, refused()
	case strings.HasPrefix(s, ":/"):
		return nil, forbidden("':/' looks through all branches, which is not allowed in this sandbox").
			WithHint("say where to begin: \"HEAD^{/TEXT}\"")
	case strings.HasPrefix(s, ":"): // of the index
		return nil, nil
	}
	base, suffix := s, ""
	if i := strings.IndexAny(s, "^~:"); i >= 0 {
		base, suffix = s[:i], s[i:]
	}
	if i := strings.Index(base, "@{"); i >= 0 {
		// a date may have colons in it
		end := strings.IndexByte(s[i:], '}')
		if end < 0 {
			return nil, refused()
		}
		base, suffix = s[:i+end+1], s[i+end+1:]
	}
	if !wellFormed(suffix) {
		return nil, invalid("bad revision '%s'", s)
	}
	name, log, logged := strings.Cut(base, "@{")
	if logged {
		return nil, c.logged(name, strings.TrimSuffix(log, "}"), s)
	}
	if _, ok := c.ref(base); ok {
		return nil, nil
	}
	if isHex(base) {
		return []string{strings.ToLower(base)}, nil
	}
	if i := strings.LastIndex(base, "-g"); i > 0 && isHex(base[i+2:]) { // as "git describe" says it
		return []string{strings.ToLower(base[i+2:])}, nil
	}
	return nil, refused()
}

// logged judges what follows "@{": of a branch that every sandbox may read there is
// what it follows; of the sandbox's own and of HEAD also what it was.
func (c *Context) logged(name, log, whole string) error {
	full, ok := c.ref(name)
	if name == "" {
		full, ok = "HEAD", true
	}
	switch strings.ToLower(log) {
	case "u", "upstream", "push":
		if ok && (full == "HEAD" || full == "@" || strings.HasPrefix(full, "refs/heads/")) {
			return nil
		}
		return c.unseen(whole)
	}
	if ok && log != "" && !strings.ContainsAny(log, "{}") &&
		(full == "HEAD" || full == "@" || full == "refs/stash" || full == "refs/heads/"+c.Branch) {
		return nil
	}
	return forbidden("'%s' reads the log of a branch that is not this sandbox's", whole).
		WithHint("it may read those of HEAD and %s", c.Branch)
}

// wellFormed judges what follows a name: parents, peeling, and a path in a tree.
func wellFormed(suffix string) bool {
	for suffix != "" {
		switch {
		case suffix[0] == ':':
			return true
		case strings.HasPrefix(suffix, "^{"):
			end := strings.IndexByte(suffix, '}')
			if end < 0 {
				return false
			}
			suffix = suffix[end+1:]
		case suffix[0] == '^':
			suffix = strings.TrimLeft(strings.TrimLeft(suffix[1:], "@!-"), "0123456789")
		case suffix[0] == '~':
			suffix = strings.TrimLeft(suffix[1:], "0123456789")
		default:
			return false
		}
	}
	return true
}

func (c *Context) unseen(s string) error {
	seen := append([]string{c.Branch}, c.Shared...)
	return forbidden("'%s' is not something that this sandbox may see", s).
		WithHint("it sees %s, tags, and commits that belong to these", strings.Join(seen, ", "))
}

// refName reports whether a name could be that of a branch or tag.
func refName(name string) bool {
	return name != "" && name[0] != '-' && !strings.ContainsAny(name, " ~^:?*[\\\x7f") &&
		!strings.Contains(name, "..") && !strings.Contains(name, "@{")
}

// notesRef returns the whole name of a ref of notes, as git completes it.
func notesRef(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "refs/"), "notes/")
	return "refs/notes/" + name
}
