package tools

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// ignored are the patterns of the .gitignore files from the top of a work tree down to a directory, as defined by
// gitignore(5). Global excludes are not the project's, and not used.
type ignored []ignoreRule

type ignoreRule struct {
	pattern string // relative to the top, slashes between the parts
	negated bool
	dirs    bool // matches directories only
}

// with adds the .gitignore in dir; below is the directory's path from the top ("." for the top itself).
func (g ignored) with(dir, below string) ignored {
	f, info, err := open(filepath.Join(dir, ".gitignore"))
	if err != nil {
		return g
	}
	defer f.Close()
	if info.Size() > 1<<20 {
		return g
	}
	data, err := os.ReadFile(f.Name())
	if err != nil {
		return g
	}
	g = g[:len(g):len(g)] // appends must not affect the parent's rules
	for text := range bytes.Lines(data) {
		if r, ok := parseIgnore(strings.TrimRight(string(text), "\r\n"), below); ok {
			g = append(g, r)
		}
	}
	return g
}

// parseIgnore parses a line of a .gitignore file.
func parseIgnore(text, below string) (r ignoreRule, ok bool) {
	for strings.HasSuffix(text, " ") && !strings.HasSuffix(text, `\ `) {
		text = strings.TrimSuffix(text, " ")
	}
	if text == "" || text[0] == '#' {
		return r, false
	}
	if text, r.negated = strings.CutPrefix(text, "!"); text == "" {
		return r, false
	}
	if text, r.dirs = strings.CutSuffix(text, "/"); text == "" {
		return r, false
	}
	anchored := strings.Contains(text, "/")
	text = strings.TrimPrefix(text, "/")
	if !anchored {
		text = "**/" + text
	}
	if text == "**" || strings.HasSuffix(text, "/**") {
		text += "/*" // everything inside, without the directory itself
	}
	// Braces are alternatives to the matcher, but literal for git, as are the names of parent directories.
	text = braces.Replace(text)
	if below != "." {
		text = quote.Replace(below) + "/" + text
	}
	r.pattern = text
	return r, doublestar.ValidatePattern(text)
}

var (
	braces = strings.NewReplacer(`\\`, `\\`, `\{`, `\{`, `\}`, `\}`, `{`, `\{`, `}`, `\}`)
	quote  = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `{`, `\{`, `}`, `\}`)
)

// leavesOut judges a name below the top; the last matching rule counts. Its parent directories have been judged before.
func (g ignored) leavesOut(name string, dir bool) bool {
	for i := len(g) - 1; i >= 0; i-- {
		if g[i].dirs && !dir {
			continue
		}
		if match, _ := doublestar.Match(g[i].pattern, name); match {
			return !g[i].negated
		}
	}
	return false
}

// rulesAbove returns the rules for the content of a directory, and its path below the top of its work tree; without a
// work tree it is the top itself.
func rulesAbove(dir string) (rules ignored, below string) {
	top := dir
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			top = at
			break
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	rel, err := filepath.Rel(top, dir)
	if err != nil {
		rel = "."
	}
	below = filepath.ToSlash(rel)
	// The directory's own rules are added by walk.
	if below != "." {
		at := "."
		for _, name := range strings.Split(below, "/") {
			rules = rules.with(filepath.Join(top, at), at)
			at = path.Join(at, name)
		}
	}
	return rules, below
}
