package userconfig

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/hostpath"
)

// Bounds of what is brought.
const (
	MaxFiles = 1024
	MaxBytes = 12 << 20
	// maxDocument bounds a document before it is filtered: Claude Code keeps more in one than its configuration.
	maxDocument = 64 << 20
	maxDepth    = 16
)

// File is a file for the home of a sandbox.
type File struct {
	Path string
	Mode fs.FileMode // 0600, or 0700 for a program
	Data []byte
}

// Bundle holds the part of a user's configuration that is brought.
type Bundle struct {
	From    string // where it is from, for people
	Files   []File
	Brought []string // in words
	LeftOut []string
	Servers []Server
}

// reader reads one user's configuration.
type reader struct {
	from     Source
	real     string // where the home is
	of       []agent.Own
	choice   Choice
	prefixes []string
	made     Bundle
	size     int
	entries  map[string]bool // that were counted
	counts   map[string]int
	nouns    []string
}

// Read reads what a choice names of a user's configuration of an agent: in the home, or where the agent's variables
// say. Errors: TooLarge, InvalidArgument.
func Read(home string, getenv func(string) string, a agent.Agent, c Choice) (Bundle, error) {
	real, err := filepath.EvalSymlinks(home)
	if err != nil || !filepath.IsAbs(real) || real == "/" {
		return Bundle{}, nil // there is no home to read from
	}
	of := a.Config
	from, notes := NewSource(home, a.ConfigPlaces, getenv)
	for i, p := range from.places {
		if from.places[i].real, err = filepath.EvalSymlinks(p.at); err != nil {
			from.places[i].real = p.at // nothing is there
		}
	}
	r := &reader{from: from, real: real, of: of, choice: c, entries: map[string]bool{}, counts: map[string]int{}}
	r.made.LeftOut = notes
	for _, o := range of {
		before, _, _ := strings.Cut(o.Path, "*")
		r.prefixes = append(r.prefixes, before)
	}
	if len(of) > 0 {
		r.made.From = from.shown(path.Dir(of[0].Path))
	}
	for _, o := range of {
		if !c.has(o.Kind) && (o.Servers == "" || !c.has(kindServers)) {
			continue
		}
		found, err := r.glob(o.Path)
		if err != nil {
			return Bundle{}, cove.Errorf(cove.InvalidArgument, "the path %.80q of an agent's configuration: %w", o.Path, err)
		}
		for _, name := range found {
			if err := r.visit(o, name, name, 0); err != nil {
				return Bundle{}, err
			}
		}
	}
	r.tell()
	return r.made, nil
}

// glob returns the paths below the home that a pattern matches.
func (r *reader) glob(pattern string) ([]string, error) {
	for _, p := range r.from.places {
		rest, below := strings.CutPrefix(pattern, p.path+"/")
		switch {
		case pattern == p.path:
			return []string{pattern}, nil
		case below:
			found, err := fs.Glob(os.DirFS(p.real), rest)
			for i := range found {
				found[i] = p.path + "/" + found[i]
			}
			return found, err
		}
	}
	return fs.Glob(os.DirFS(r.real), pattern)
}

// leave notes what is left out.
func (r *reader) leave(format string, args ...any) {
	r.made.LeftOut = append(r.made.LeftOut, fmt.Sprintf(format, args...))
}

// visit takes a file, or what is in a directory. top is the entry of the declaration that it belongs to.
func (r *reader) visit(o agent.Own, top, name string, depth int) error {
	shown := r.from.shown(name)
	at, why := r.follow(name)
	if why != "" {
		r.leave("%s: %s", shown, why)
		return nil
	}
	info, err := os.Lstat(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		r.leave("%s: %v", shown, err)
		return nil
	case info.Mode().IsRegular():
		return r.take(o, top, name, at)
	case !info.IsDir() || o.Document():
		r.leave("%s, which is no regular file", shown)
		return nil
	case depth == maxDepth:
		r.leave("%s, which is too deep", shown)
		return nil
	}
	all, err := os.ReadDir(at)
	if err != nil {
		r.leave("%s: %v", shown, err)
		return nil
	}
	for _, d := range all {
		below := path.Join(name, d.Name())
		switch {
		case d.Name() == ".git" || o.Leaves(strings.TrimPrefix(below, top+"/")):
		case neverBrought(d.Name()):
			r.leave("%s, which may hold keys", r.from.shown(below))
		default:
			if err := r.visit(o, top, below, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// follow returns the real place of a name below the home, or why it is not to be read.
func (r *reader) follow(name string) (at, why string) {
	at, err := filepath.EvalSymlinks(r.from.at(name))
	if err != nil {
		return "", "it leads nowhere"
	}
	rel, ok := r.named(at)
	if !ok {
		return "", "it leads out of your home"
	}
	if rel == name || r.declared(rel) {
		return at, ""
	}
	return at, judgeLink(rel)
}

// named returns the path below the home that a file is, if it is one.
func (r *reader) named(at string) (rel string, ok bool) {
	longest := 0
	for _, p := range r.from.places {
		rest, below := strings.CutPrefix(at, p.real)
		if below && (rest == "" || rest[0] == '/') && len(p.real) > longest {
			rel, longest = p.path+rest, len(p.real)
		}
	}
	if longest > 0 {
		return rel, true
	}
	rel, err := filepath.Rel(r.real, at)
	return rel, err == nil && filepath.IsLocal(rel)
}

// declared reports whether a path is one that may be brought by itself.
func (r *reader) declared(rel string) bool {
	return slices.ContainsFunc(r.of, func(o agent.Own) bool {
		if o.Document() {
			return false
		}
		parts, want := strings.Split(rel, "/"), strings.Split(o.Path, "/")
		if len(parts) < len(want) {
			return false
		}
		ok, _ := path.Match(o.Path, strings.Join(parts[:len(want)], "/"))
		return ok && !slices.ContainsFunc(parts[len(want):], neverBrought)
	})
}

// judgeLink says why a symbolic link to a path below the home is not followed, or "". Hidden directories hold logins
// and histories of programs; those in which people keep their configuration are followed. It is pure.
func judgeLink(rel string) string {
	if why := hostpath.HoldsCredentials("/" + rel); why != "" {
		return why
	}
	first, _, _ := strings.Cut(rel, "/")
	if strings.HasPrefix(first, ".") && !slices.Contains([]string{".dotfiles", ".agents", ".config"}, first) ||
		strings.HasPrefix(rel, ".config/opencode/") {
		return "it leads into " + first + ", which may hold credentials"
	}
	if slices.ContainsFunc(strings.Split(rel, "/"), neverBrought) {
		return "it leads to what may hold keys"
	}
	return ""
}

// take reads a file.
func (r *reader) take(o agent.Own, top, name, at string) error {
	limit, shown := MaxBytes, r.from.shown(name)
	if o.Document() {
		limit = maxDocument
	}
	data, mode, err := readRegular(at, limit)
	switch {
	case err != nil:
		r.leave("%s: %v", shown, err)
		return nil
	case len(data) > limit:
		return r.tooLarge(name)
	}
	switch {
	case o.Document():
		of := o
		of.Path = name
		made, servers, notes, err := Document(of, r.choice, r.from, r.prefixes, data)
		for _, n := range notes {
			r.leave("%s", n)
		}
		if err != nil {
			r.leave("%s: %v", shown, err)
		}
		if made == nil || err != nil {
			return nil
		}
		data, r.made.Servers = made, append(r.made.Servers, servers...)
	case knownSecret(data):
		r.leave("%s, in which there is what looks like a key", shown)
		return nil
	}
	r.size += len(data)
	if len(r.made.Files) == MaxFiles || r.size > MaxBytes {
		return r.tooLarge(name)
	}
	f := File{Path: name, Mode: 0o600, Data: data}
	if mode&0o100 != 0 {
		f.Mode = 0o700
	}
	r.made.Files = append(r.made.Files, f)
	r.count(o, top, name)
	return nil
}

func (r *reader) tooLarge(name string) error {
	return cove.Errorf(cove.TooLarge,
		"your configuration of the agent is larger than %d files or %d MiB; it was reached at %s", MaxFiles, MaxBytes>>20,
		r.from.shown(name)).WithHint("choose what to bring, such as --agent-config instructions,skills,mcp, " +
		"or nothing: --agent-config none")
}

// readRegular reads a regular file, at most one byte more than limit.
func readRegular(at string, limit int) ([]byte, fs.FileMode, error) {
	f, err := os.Open(at)
	if err != nil {
		return nil, 0, errors.Unwrap(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, errors.New("it is no regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	return data, info.Mode(), err
}

// count names what a file is a part of: a file by its name, and of a directory the entries by their number.
func (r *reader) count(o agent.Own, top, name string) {
	if name == top {
		if o.Kind != kindServers && o.Kind != "plugins" {
			r.made.Brought = append(r.made.Brought, path.Base(name))
		}
		return
	}
	noun := strings.TrimSuffix(o.Noun(), "s")
	if noun == "" {
		return
	}
	parts := strings.Split(strings.TrimPrefix(name, top+"/"), "/")
	entry := noun + "\x00" + strings.Join(parts[:min(len(parts), max(o.Each, 1))], "/")
	if r.entries[entry] {
		return
	}
	r.entries[entry] = true
	if r.counts[noun]++; r.counts[noun] == 1 {
		r.nouns = append(r.nouns, noun)
	}
}

// tell completes what was brought, in words.
func (r *reader) tell() {
	for _, noun := range r.nouns {
		n := r.counts[noun]
		if n > 1 {
			noun += "s"
		}
		r.made.Brought = append(r.made.Brought, fmt.Sprintf("%d %s", n, noun))
	}
	for _, s := range r.made.Servers {
		text := "MCP server " + s.Name
		switch {
		case s.Host != "" && s.Host != "localhost" && s.Host != "127.0.0.1" && s.Host != "::1":
			text += fmt.Sprintf(" (which needs the host %s: --allow %s)", s.Host, s.Host)
		case s.Lost != "":
			text += fmt.Sprintf(" (which needs %s: --mount %s:%s:ro)", s.Lost, s.Lost, s.Lost)
		}
		r.made.Brought = append(r.made.Brought, text)
	}
}
