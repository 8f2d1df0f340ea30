package hostpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// Wish says how a path is to be mounted.
type Wish struct {
	ReadOnly bool
	Allow    cove.MountAllow
	User     uint32 // of the sandbox, inside
	Again    bool   // it was mounted before: sockets that have come since do not refuse it
}

// Opened is a place that may be mounted.
type Opened struct {
	Place  *os.File // O_PATH
	Guards []Guard  // parents first
}

// Guard is a part of a mount that is attached once more, on itself: read-only, or, so that it cannot be moved away
// from above a read-only one, as it is.
type Guard struct {
	Name     string   // below the mount
	Place    *os.File // O_PATH
	Dev, Ino uint64   // of Place
	ReadOnly bool
}

// Close closes the descriptors.
func (o *Opened) Close() {
	o.Place.Close()
	for _, g := range o.Guards {
		g.Place.Close()
	}
}

// Check judges a host path that a user wants a sandbox to see. Symbolic links are resolved first; the result is what
// may be used. With roots, the resolved path must also lie in one of them; an empty, non-nil roots refuses everything.
// What a directory holds is searched by Open. Errors: InvalidArgument, NotFound, Forbidden.
func (r Rules) Check(path string, roots []string) (string, error) {
	resolved, err := check(path, Judge)
	if err != nil {
		return "", err
	}
	if roots != nil && !slices.ContainsFunc(roots, func(root string) bool { return under(resolved, root) }) {
		return "", refused(path, resolved, "it is not under sandbox.allowed_workdir_roots")
	}
	place, err := open(resolved)
	if err != nil {
		return "", err
	}
	defer place.Close()
	_, err = r.judgePlace(path, place, false)
	return resolved, err
}

// Open opens a path that Check has returned, judges what was opened, and searches it at all levels. What it returns is
// what was judged, wherever the path leads meanwhile. Errors: NotFound, Forbidden, InvalidArgument, and the context's.
func (r Rules) Open(ctx context.Context, resolved string, w Wish) (*Opened, error) {
	place, err := open(resolved)
	if err != nil {
		return nil, err
	}
	o := &Opened{Place: place}
	system, err := r.judgePlace(resolved, place, !w.ReadOnly)
	if err == nil && system != "" && !w.ReadOnly && !w.Allow.System {
		err = cove.Errorf(cove.Forbidden, "the host path %q is refused: programs of the machine in %s could be changed",
			resolved, system).WithHint("mount it read-only (:ro), or allow it with --system-dirs")
	}
	if err == nil && !w.ReadOnly && !w.Allow.Git {
		err = r.judgePart(place.Name())
	}
	if err == nil {
		err = r.search(ctx, o, w)
	}
	if err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// judgePart refuses a writable mount of a part of a repository that would be read-only in a mount of the whole.
func (r Rules) judgePart(name string) error {
	for dir := name; dir != "/"; {
		base, above := filepath.Base(dir), filepath.Dir(dir)
		git := base == ".git"
		if git {
			above = dir
		} else if git = has(above, "HEAD") && has(above, "objects") && has(above, "refs"); !git && has(above, ".git") {
			below := name[len(strings.TrimSuffix(above, "/"))+1:]
			git = slices.ContainsFunc(r.Guarded, func(guarded string) bool {
				guarded, _ = strings.CutSuffix(guarded, "/**")
				return within(below, guarded) || within(guarded, below)
			})
		}
		if git {
			return cove.Errorf(cove.Forbidden, "the host path %q is refused: it belongs to what your own programs "+
				"execute or obey in %s", name, above).WithHint("mount it read-only (:ro), or allow it with --writable-git")
		}
		dir = above
	}
	return nil
}

// judgePlace refuses an open place that has to do with Cove's own, and returns the tree of the machine's programs that
// it lies in, or "". Both are found by place in the file system, whatever mounts or names lead there.
func (r Rules) judgePlace(path string, place *os.File, writable bool) (system string, err error) {
	mounts, err := mountTable()
	if err != nil {
		return "", err
	}
	here, err := mounts.locate(int(place.Fd()))
	if err != nil {
		return "", err
	}
	files, err := r.files()
	if err != nil {
		return "", err
	}
	if !writable {
		files.Obeyed = nil
	}
	for _, own := range []struct {
		what, hint string
		places     []string
	}{
		{"is Cove's own", projectHint, r.Own},
		{"has a key for Cove", "keep that file elsewhere, or mount a directory beside it", files.Keys},
		{"Cove obeys", "mount it read-only (:ro), or keep that file elsewhere", files.Obeyed},
	} {
		for _, p := range own.places {
			there, name, err := mounts.find(p)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return "", fmt.Errorf("the place of %s, which %s, is not known: %w", p, own.what, err)
			}
			relation := ""
			switch {
			case here == there && place.Name() == name:
				relation = "is"
			case there.within(here) || within(name, place.Name()):
				relation = "contains"
			case here.within(there) || within(place.Name(), name):
				relation = "lies in"
			default:
				continue
			}
			why := fmt.Sprintf("it %s %s, which %s", relation, p, own.what)
			return "", refused(path, place.Name(), why).WithHint("%s", own.hint)
		}
	}
	for _, tree := range systemTrees {
		there, _, err := mounts.find(tree)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("the place of %s is not known: %w", tree, err)
		}
		if within(place.Name(), tree) || err == nil && here.within(there) {
			return tree, nil
		}
	}
	return "", nil
}

// files returns the files that Cove is configured with.
func (r Rules) files() (Files, error) {
	if r.Files == nil {
		return Files{}, nil
	}
	return r.Files()
}

// location is the place of a directory or file, whatever mount it is seen through.
type location struct {
	dev  string // of the file system, as mountinfo has it
	path string // from the root of the file system
}

func (l location) within(tree location) bool { return l.dev == tree.dev && within(l.path, tree.path) }

// table holds the mounts of this thread's namespace, by their ids.
type table map[uint64]mountLine

type mountLine struct{ dev, root, point string }

func mountTable() (table, error) {
	text, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(text)), nil
}

// find returns the location of a path of Cove's or the machine's own, and its name without symbolic links.
func (t table) find(path string) (l location, name string, err error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return l, "", err
	}
	fd, err := unix.Open(resolved, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return l, "", os.NewSyscallError("open", err)
	}
	defer unix.Close(fd)
	l, err = t.locate(fd)
	return l, resolved, err
}

// locate returns the location of an open place.
func (t table) locate(fd int) (l location, err error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil { // 5.8
		return l, os.NewSyscallError("statx", err)
	}
	path, err := os.Readlink(procFD(fd))
	if err != nil {
		return l, err
	}
	mount, ok := t[st.Mnt_id]
	if !ok || !within(path, mount.point) {
		return l, changed(path)
	}
	below, err := filepath.Rel(mount.point, path)
	return location{mount.dev, filepath.Join(mount.root, below)}, err
}

// parseMounts reads a table in the format of mountinfo (proc(5)).
func parseMounts(text string) table {
	t := table{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		id, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil {
			continue
		}
		plain := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
		t[id] = mountLine{dev: fields[2], root: plain.Replace(fields[3]), point: plain.Replace(fields[4])}
	}
	return t
}

func procFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
