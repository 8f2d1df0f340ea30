package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

func (s *Set) searchTools() []tool {
	return []tool{
		define("glob",
			"Finds files by a pattern of their paths below a directory: * is any part of a name, ** any directories, {a,b} "+
				"either. What .gitignore names is left out, unless ignored is set.",
			`"pattern":{"type":"string","minLength":1},"path":{"type":"string"},"ignored":{"type":"boolean"}`,
			[]string{"pattern"}, s.glob),
		define("grep",
			"Searches files for a regular expression (RE2), line by line, below a directory or in one file. glob chooses "+
				"files by their paths below it; a pattern without a slash, by their names. Binary files are left out, and what "+
				".gitignore names, unless ignored is set.",
			`"pattern":{"type":"string","minLength":1},"path":{"type":"string"},"glob":{"type":"string"},`+
				`"ignore_case":{"type":"boolean"},
			"context":{"type":"integer","minimum":0,"maximum":20,"description":"lines before and after each match"},
			"files_only":{"type":"boolean","description":"only the names of files that match"},"ignored":{"type":"boolean"}`,
			[]string{"pattern"}, s.grep),
	}
}

// walk calls file for the regular files below a directory, in the order of their names. Unreadable entries are skipped.
func walk(ctx context.Context, dir string, all bool, file func(name string) error) error {
	var rules ignored
	top := "."
	if !all {
		rules, top = rulesAbove(dir)
	}
	var into func(below string, rules ignored) error
	into = func(below string, rules ignored) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		at := filepath.Join(dir, below)
		entries, err := os.ReadDir(at)
		if err != nil {
			if below == "." {
				return err
			}
			return nil
		}
		if !all {
			rules = rules.with(at, path.Join(top, below))
		}
		for _, e := range entries {
			name := path.Join(below, e.Name())
			if e.IsDir() && e.Name() == ".git" || !all && rules.leavesOut(path.Join(top, name), e.IsDir()) {
				continue
			}
			switch {
			case e.IsDir():
				err = into(name, rules)
			case e.Type().IsRegular():
				err = file(name)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return into(".", rules)
}

type globInput struct {
	Pattern, Path string
	Ignored       bool
}

func (s *Set) glob(ctx context.Context, in globInput) (string, error) {
	if !doublestar.ValidatePattern(in.Pattern) {
		return "", fmt.Errorf("%q is no pattern", in.Pattern)
	}
	var b strings.Builder
	n := 0
	err := walk(ctx, s.at(in.Path), in.Ignored, func(name string) error {
		if match, _ := doublestar.Match(in.Pattern, name); match {
			if n++; n <= maxNames {
				b.WriteString(path.Join(filepath.ToSlash(in.Path), name) + "\n")
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if n == 0 {
		return "no file matches", nil
	}
	if n > maxNames {
		fmt.Fprintf(&b, "(%d more; narrow the pattern)\n", n-maxNames)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

type grepInput struct {
	Pattern    string
	Path       string
	Glob       string
	IgnoreCase bool `json:"ignore_case"`
	Context    int
	FilesOnly  bool `json:"files_only"`
	Ignored    bool
}

type found struct {
	b       strings.Builder
	matches int
	left    int // matches, or files, not shown
	passed  int // files that are too large
}

func (s *Set) grep(ctx context.Context, in grepInput) (string, error) {
	pattern := in.Pattern
	if in.IgnoreCase {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return "", err
	}
	if !doublestar.ValidatePattern(in.Glob) {
		return "", fmt.Errorf("%q is no pattern", in.Glob)
	}
	root := s.at(in.Path)
	info, err := os.Stat(root)
	if err != nil {
		return "", err
	}
	var f found
	if !info.IsDir() {
		err = f.search(root, in.Path, re, in)
	} else {
		err = walk(ctx, root, in.Ignored, func(name string) error {
			judged := name
			if !strings.Contains(in.Glob, "/") {
				judged = path.Base(name)
			}
			if match, _ := doublestar.Match(in.Glob, judged); in.Glob != "" && !match {
				return nil
			}
			err := f.search(filepath.Join(root, name), path.Join(filepath.ToSlash(in.Path), name), re, in)
			if errors.Is(err, errBinary) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
	}
	if err != nil {
		return "", err
	}
	if f.left > 0 {
		fmt.Fprintf(&f.b, "(%d more are left out; narrow the search)\n", f.left)
	}
	if f.passed > 0 {
		fmt.Fprintf(&f.b, "(%d files of more than %d MiB were not searched)\n", f.passed, maxFile>>20)
	}
	if f.matches == 0 {
		return "nothing matches\n" + f.b.String(), nil
	}
	return strings.TrimSuffix(f.b.String(), "\n"), nil
}

func (f *found) search(path, name string, re *regexp.Regexp, in grepInput) error {
	file, info, err := open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if info.Size() > maxFile {
		f.passed++
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return err
	}
	if binary(data) {
		return errBinary
	}
	if !re.Match(data) && !strings.ContainsAny(in.Pattern, "^$") { // anchors match at lines
		return nil
	}
	var all [][]byte
	for text := range bytes.Lines(data) {
		all = append(all, bytes.TrimRight(text, "\r\n"))
	}
	shown := -1 // the last line shown
	hits := 0
	for i, text := range all {
		if !re.Match(text) {
			continue
		}
		hits++
		f.matches++
		if in.FilesOnly {
			f.add(name + "\n")
			break
		}
		var b strings.Builder
		from := max(shown+1, i-in.Context)
		if in.Context > 0 && hits > 1 && from > shown+1 {
			b.WriteString("--\n")
		}
		for j := from; j <= min(i+in.Context, len(all)-1); j++ {
			mark := ":"
			if j != i && !re.Match(all[j]) {
				mark = "-"
			}
			fmt.Fprintf(&b, "%s%s%d%s%s\n", name, mark, j+1, mark, line(string(all[j])))
			shown = j
		}
		if b.Len() > 0 {
			f.add(b.String())
		}
	}
	return nil
}

func (f *found) add(text string) {
	if f.left > 0 || f.b.Len()+len(text) > maxOutput {
		f.left++
		return
	}
	f.b.WriteString(text)
}

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
	for _, r := range slices.Backward(g) {
		if match, _ := doublestar.Match(r.pattern, name); match && (dir || !r.dirs) {
			return !r.negated
		}
	}
	return false
}

// rulesAbove returns the rules for a directory's content, and its path below the top of its work tree, or of itself.
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
