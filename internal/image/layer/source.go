package layer

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Source holds files to be copied: the context of a build, or the tree of a stage. Nothing outside of its directory is
// read, whatever its symbolic links say, also while programs change it.
type Source struct {
	root    *rootfs.View
	in      rootfs.Stack                   // that it is, whose files keep their owners; nil: a context
	ignores []string                       // patterns of ignored
	ignored *patternmatcher.PatternMatcher // nil: nothing is
	matches sync.Mutex                     // of ignored, which compiles its patterns when it needs them
}

// maxIgnore is the most bytes of a .dockerignore.
const maxIgnore = 1 << 20

// OpenContext opens a directory of the user's, without what its .dockerignore says, or that of its Dockerfile, which
// may be outside ("Dockerfile.dockerignore" beside it). With below, the context is that directory in it.
func OpenContext(dir, below string, beside []byte) (*Source, error) {
	root, err := os.OpenRoot(dir)
	if err == nil && below != "" {
		top := root
		root, err = top.OpenRoot(below)
		top.Close()
		dir = path.Join(dir, below)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cove.Errorf(cove.NotFound, "there is no directory %s", dir)
	}
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "the context %s cannot be read: %w", dir, err)
	}
	s := &Source{root: rootfs.ViewOf(root)}
	text := beside
	if text == nil {
		if text, err = s.read(".dockerignore", maxIgnore); errors.Is(err, fs.ErrNotExist) {
			return s, nil
		}
	}
	if err == nil {
		s.ignores, err = ignorefile.ReadAll(strings.NewReader(string(text)))
	}
	if err == nil {
		s.ignored, err = patternmatcher.New(s.ignores)
	}
	if err != nil {
		root.Close()
		return nil, cove.Errorf(cove.InvalidArgument, ".dockerignore: %w", err)
	}
	return s, nil
}

// OpenStack opens a root filesystem, whose files keep their owners.
func OpenStack(in rootfs.Stack) (*Source, error) {
	root, err := in.Open()
	return &Source{root: root, in: in}, failure(err, "open a root filesystem")
}

// Origin describes a Source for another process.
type Origin struct {
	Dir    *os.File     `json:"-"` // the directory of a context, open; of a root filesystem, that of its tree
	In     rootfs.Stack // a root filesystem
	Ignore []string     // patterns of what is left out; nil: nothing is
}

// Origin describes the source. The caller closes its directory.
func (s *Source) Origin() (Origin, error) {
	dir, err := s.root.Open(".")
	return Origin{Dir: dir, In: s.in, Ignore: s.ignores}, failure(err, "open the context")
}

// Open opens the source again. It does not need the directory of the origin after that.
func (o Origin) Open() (*Source, error) {
	if o.In != nil {
		return OpenStack(o.In)
	}
	root, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(int(o.Dir.Fd())))
	if err != nil {
		return nil, failure(err, "open the context")
	}
	s := &Source{root: rootfs.ViewOf(root), ignores: o.Ignore}
	if o.Ignore != nil {
		if s.ignored, err = patternmatcher.New(o.Ignore); err != nil {
			root.Close()
			return nil, cove.Errorf(cove.InvalidArgument, ".dockerignore: %w", err)
		}
	}
	return s, nil
}

// Close releases the directory.
func (s *Source) Close() { s.root.Close() }

func (s *Source) read(name string, most int64) ([]byte, error) {
	real, err := s.resolve(name)
	if err != nil {
		return nil, err
	}
	f, err := s.root.Open(real)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > most {
		return nil, cove.Errorf(cove.InvalidArgument, "%s is not a file of at most %d bytes", name, most)
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// ReadFile reads a file of the context, such as its Dockerfile.
func (s *Source) ReadFile(name string, most int64) ([]byte, error) {
	data, err := s.read(name, most)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cove.Errorf(cove.NotFound, "there is no file %s in the context", name)
	}
	return data, failure(err, "read "+name)
}

func (s *Source) resolve(name string) (string, error) {
	return s.root.Resolve(name)
}

// skips reports whether a path is ignored. Something below an ignored directory may not be.
func (s *Source) skips(name string) (bool, error) {
	if s.ignored == nil || name == "." {
		return false, nil
	}
	s.matches.Lock()
	skip, err := s.ignored.MatchesOrParentMatches(name)
	s.matches.Unlock()
	if err != nil {
		return false, cove.Errorf(cove.InvalidArgument, ".dockerignore: %w", err)
	}
	return skip, nil
}

// find returns the places that a word of a COPY means, of which there is at least one.
func (s *Source) find(word string) ([]string, error) {
	clean := strings.TrimPrefix(path.Clean("/"+word), "/")
	found := []string{clean}
	if strings.ContainsAny(clean, `*?[\`) {
		var err error
		if found, err = s.glob(".", strings.Split(clean, "/")); err != nil {
			return nil, err
		}
		slices.Sort(found)
	}
	kept := found[:0:0]
	for _, name := range found {
		real, err := s.resolve(name)
		if err != nil {
			return nil, err
		}
		info, err := s.root.Lstat(real)
		skip, e := s.skips(real)
		if e != nil {
			return nil, e
		}
		if err == nil && (!skip || info.IsDir() && s.ignored.Exclusions()) {
			kept = append(kept, name)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, failure(err, "read "+name)
		}
	}
	if len(kept) == 0 {
		e := cove.Errorf(cove.NotFound, "%.200q is not there to copy", word)
		if s.ignored != nil {
			return nil, e.WithHint("see whether .dockerignore leaves it out")
		}
		return nil, e
	}
	return kept, nil
}

// glob returns what patterns match, one for each component.
func (s *Source) glob(dir string, patterns []string) (found []string, err error) {
	if len(patterns) == 0 {
		return []string{dir}, nil
	}
	real, err := s.resolve(dir)
	if err != nil {
		return nil, err
	}
	names, err := s.root.Names(real, 0)
	if err != nil {
		return nil, nil // a file, or nothing, has nothing in it
	}
	for _, name := range names {
		ok, err := path.Match(patterns[0], name)
		if err != nil {
			return nil, cove.Errorf(cove.InvalidArgument, "the pattern %.200q: %w", patterns[0], err)
		}
		if !ok {
			continue
		}
		more, err := s.glob(path.Join(dir, name), patterns[1:])
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}
