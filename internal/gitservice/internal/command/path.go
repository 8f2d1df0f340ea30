package command

import (
	"path"
	"strings"
)

// inside judges a path by its text: it has to be in the workspace, and not of a
// git directory. It is written so that it stays a path after "--".
func (c *Context) inside(name string) (string, error) {
	if name == "" {
		return "", invalid("empty string is not a valid path")
	}
	whole := name
	if !path.IsAbs(name) {
		whole = c.Dir + "/" + name
	}
	whole = path.Clean(whole)
	if whole != c.Root && !strings.HasPrefix(whole, c.Root+"/") {
		return "", forbidden("%s: '%s' is outside repository at '%s'", name, name, c.Root)
	}
	for part := range strings.SplitSeq(whole, "/") {
		if gitDirectory(part) {
			return "", forbidden("invalid path '%s': the git directory is not in this sandbox", name)
		}
	}
	if name[0] == '-' {
		name = "./" + name
	}
	return name, nil
}

// pathOnly writes a path or pathspec so that git takes it for nothing else, also without "--".
func pathOnly(name string) string {
	for _, prefix := range []string{"/", "./", "../", ":("} {
		if strings.HasPrefix(name, prefix) {
			return name
		}
	}
	if name == "." || name == ".." {
		return name
	}
	return "./" + name
}

// gitDirectory reports whether a file system may take a name for ".git": in other case, with dots and spaces at its
// end, as an alternate stream, or by its short name.
func gitDirectory(name string) bool {
	name, _, _ = strings.Cut(name, ":")
	name = strings.ToLower(strings.TrimRight(name, ". "))
	return name == ".git" || name == "git~1"
}

// magics are the words of pathspecs that are allowed: they choose among files, and no more.
var magics = map[string]bool{"top": true, "exclude": true, "literal": true, "glob": true, "icase": true}

// spec judges a pathspec.
func (c *Context) spec(s string) (string, error) {
	magic, name, top, err := cutMagic(s)
	if err != nil {
		return "", err
	}
	if magic == "" {
		return c.inside(name)
	}
	at := *c
	if top {
		at.Dir = c.Root
	}
	if name == "" { // everything
		return magic, nil
	}
	if top && (name[0] == '/' || name[0] == '-') {
		return "", invalid("'%s' is not a path of the repository", s)
	}
	checked, err := at.inside(name)
	if err != nil {
		return "", err
	}
	if top {
		checked = name
	}
	return magic + checked, nil
}

// cutMagic takes the magic from a pathspec, and says whether what follows begins at the root of the repository.
func cutMagic(s string) (magic, name string, top bool, err error) {
	if !strings.HasPrefix(s, ":") {
		return "", s, false, nil
	}
	if long, ok := strings.CutPrefix(s, ":("); ok {
		words, name, ok := strings.Cut(long, ")")
		if !ok {
			return "", "", false, invalid("Missing ')' at the end of pathspec magic in '%s'", s)
		}
		for word := range strings.SplitSeq(words, ",") {
			if word != "" && !magics[word] {
				return "", "", false, forbidden("pathspec magic '%s' is not allowed in this sandbox: '%s'", word, s)
			}
			top = top || word == "top"
		}
		return ":(" + words + ")", name, top, nil
	}
	rest := s[1:]
	var words []string
	for rest != "" {
		switch rest[0] {
		case '/':
			words, top = append(words, "top"), true
		case '!', '^':
			words = append(words, "exclude")
		case ':':
			return ":(" + strings.Join(words, ",") + ")", rest[1:], top, nil
		default:
			if strings.IndexByte("\"#%&',-;<=>@_`~", rest[0]) >= 0 {
				return "", "", false, invalid("Unimplemented pathspec magic '%c' in '%s'", rest[0], s)
			}
			return ":(" + strings.Join(words, ",") + ")", rest, top, nil
		}
		rest = rest[1:]
	}
	return ":(" + strings.Join(words, ",") + ")", "", top, nil
}
