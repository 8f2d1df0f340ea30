package hostpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/policy"
)

// Wish says how a path is to be mounted.
type Wish struct {
	ReadOnly bool
	Allow    cove.MountAllow
	User     uint32 // of the sandbox, inside
	Again    bool   // it was mounted before: sockets that have come since do not refuse it
	Token    bool   // it is one of Files.Tokens, for the sandbox that a profile gives it to
}

// Opened is a place that may be mounted.
type Opened struct {
	Place  *os.File // O_PATH
	Guards []Guard  // parents first
	Mark   *Mark    // nil where nothing is kept read-only
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
	_, err = r.judgePlace(path, place, nil)
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
	system, err := r.judgePlace(resolved, place, &w)
	if err == nil && system != "" && !w.ReadOnly && !w.Allow.System {
		err = cove.Errorf(cove.Forbidden, "the host path %q is refused: programs of the machine in %s could be changed",
			resolved, system).WithHint("mount it read-only (:ro), or allow it with --system-dirs")
	}
	if err == nil && !w.ReadOnly {
		err = r.judgePart(place.Name(), w.Allow)
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

// Guards returns the parts of a directory that others have to attach once more, over a writable mount of it with
// MountAllow.Git: read-only or as they are. Absent is what of the read-only ones could be made yet. Errors: those of
// Open.
func (r Rules) Guards(ctx context.Context, dir string) (readOnly map[string]bool, absent []string, err error) {
	o, err := r.Open(ctx, dir, Wish{Allow: cove.MountAllow{Git: true}})
	if err != nil {
		return nil, nil, cove.Errorf(cove.ErrorCode(err), "%s", cove.ErrorMessage(err)).
			WithHint("put it right in the directory: it would be attached to the container, and writable there")
	}
	defer o.Close()
	readOnly = map[string]bool{}
	for _, g := range o.Guards {
		readOnly[g.Name] = g.ReadOnly
	}
	for _, name := range append([]string{".git/commondir", ".git/config.worktree"}, r.Guarded...) {
		if name = strings.TrimSuffix(name, "/**"); !readOnly[name] && !readOnly[filepath.Dir(name)] {
			absent = append(absent, name)
		}
	}
	return readOnly, absent, nil
}

// judgePart refuses a writable mount of a part of a repository that would be read-only in a mount of the whole.
func (r Rules) judgePart(name string, allow cove.MountAllow) error {
	for dir := name; dir != "/"; dir = filepath.Dir(dir) {
		above := filepath.Dir(dir)
		below, _ := filepath.Rel(above, name)
		var of, words string
		switch {
		case filepath.Base(dir) == ".git":
			inGit, _ := filepath.Rel(dir, name)
			of, words = dir, lacking(allow, inGit, isDir(dir))
		case policy.IsGitDirectory(func(name string) bool { return has(above, name) }):
			of, words = above, lacking(allow, below, true)
		case !allow.Hooks && has(above, ".git") && slices.ContainsFunc(r.Guarded, func(guarded string) bool {
			return overlap(below, guardedName(guarded))
		}):
			of, words = above, "--writable-hooks"
		}
		if words != "" {
			return cove.Errorf(cove.Forbidden, "the host path %q is refused: it belongs to what your own programs "+
				"execute or obey in %s", name, of).WithHint("mount it read-only (:ro), or allow it with %s", words)
		}
	}
	return nil
}

// overlap reports whether a path may lie in what a pattern matches, or contain it.
func overlap(name, pattern string) bool {
	names, parts := strings.Split(name, "/"), strings.Split(pattern, "/")
	for i := range min(len(names), len(parts)) {
		if is, err := path.Match(parts[i], names[i]); err != nil || !is {
			return false
		}
	}
	return true
}

// lacking says which flags a writable mount of a part of git's own lacks, or "". The part is named from the directory
// of git's own, or is "."; a file named .git leads to another repository.
func lacking(allow cove.MountAllow, part string, isDir bool) string {
	decides := func(name string) bool { return within(part, name) }
	hooks := !isDir || slices.ContainsFunc(gitHooks, decides) || within(part, "worktrees")
	switch {
	case hooks && !allow.Open():
		return "--writable-git --writable-hooks"
	case !allow.Git:
		return "--writable-git"
	}
	return ""
}

// gitHooks are the parts of a directory of git's own that decide what git executes: hooks, configuration, and the
// pointers to where both are. A repository without one of the first two could be given one.
var gitHooks = []string{"hooks", "config", "config.worktree", "commondir", "gitdir"}

// judgePlace refuses an open place that has to do with Cove's own, and returns the tree of the machine's programs that
// it lies in, or "". Both are found by place in the file system, whatever mounts or names lead there. Configured files
// are judged with a wish.
func (r Rules) judgePlace(path string, place *os.File, w *Wish) (system string, err error) {
	mounts, err := mountTable()
	if err != nil {
		return "", err
	}
	here, err := mounts.locate(int(place.Fd()))
	if err != nil {
		return "", err
	}
	all, err := r.places(w)
	if err != nil {
		return "", err
	}
	for _, own := range all {
		relation := mounts.relation(here, place.Name(), own)
		if relation == "" || relation == "is" && own.alone {
			continue
		}
		why := fmt.Sprintf("it %s %s, which %s", relation, own.path, own.what)
		return "", refused(path, place.Name(), why).WithHint("%s", own.hint)
	}
	for _, tree := range systemTrees {
		there, _, err := mounts.find(tree, false)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("the place of %s is not known: %w", tree, err)
		}
		if within(place.Name(), tree) || err == nil && here.within(there) {
			return tree, nil
		}
	}
	for _, tree := range startTrees() {
		there, _, err := mounts.find(tree.path, false)
		found := err == nil
		switch {
		case within(place.Name(), tree.path), found && here.within(there):
		case tree.whole && (within(tree.path, place.Name()) || found && there.within(here)):
		default:
			continue
		}
		return tree.path, nil
	}
	return "", nil
}

// startTree is a directory from which the shell or the login of this process's user starts programs.
type startTree struct {
	path  string
	whole bool // nor may what contains it be written
}

// startTrees returns those of the home, and what of it is in this process's PATH: that may lie in a project.
func startTrees() (all []startTree) {
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return nil
	}
	for _, name := range startNames {
		all = append(all, startTree{filepath.Join(home, name), true})
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) && within(filepath.Clean(dir), home) {
			all = append(all, startTree{filepath.Clean(dir), false})
		}
	}
	return all
}

// ownPlace is a directory or file that mounts are held against.
type ownPlace struct {
	path, what, hint string
	link             bool // it is a symbolic link that leads to one
	alone            bool // it may be attached by itself
}

// places returns what a mount is held against, for Check without a wish.
func (r Rules) places(w *Wish) (all []ownPlace, err error) {
	add := func(like ownPlace, paths []string) {
		for _, like.path = range paths {
			all = append(all, like)
		}
	}
	own := ownPlace{what: "is Cove's own", hint: projectHint}
	add(own, r.Own)
	if w == nil {
		return all, nil
	}
	var files Files
	if r.Files != nil {
		if files, err = r.Files(); err != nil && !w.Again {
			return nil, fmt.Errorf("which files have keys is not known: %w", err)
		}
	}
	key := ownPlace{what: "has a key for Cove", hint: "keep that file elsewhere, or mount a directory beside it"}
	add(key, files.Keys)
	key.alone = w.Token && w.ReadOnly
	add(key, files.Tokens)
	if !w.ReadOnly {
		obeyed := ownPlace{what: "Cove obeys", hint: "mount it read-only (:ro), or keep that file elsewhere"}
		add(obeyed, files.Obeyed)
		obeyed.link, obeyed.what = true, "leads to what Cove obeys"
		for _, path := range slices.Concat(r.Own, files.Obeyed) {
			add(obeyed, links(path))
		}
	}
	return all, nil
}

// links returns the symbolic links that a path passes, each by a name that passes none.
func links(path string) (passed []string) {
	at, rest := "/", strings.Split(path, "/")
	for len(rest) > 0 && len(passed) < 40 { // as many as the kernel follows
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		target, err := os.Readlink(next)
		if err != nil {
			at = next
			continue
		}
		passed = append(passed, next)
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return passed
}

// relation says how a place and one of Cove's own are to each other: "is", "contains", "lies in", or "". Of what cannot
// be looked at, the name alone counts.
func (t table) relation(here location, name string, own ownPlace) string {
	there, known, err := t.find(own.path, own.link)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return ""
	}
	if err != nil {
		there, known = location{}, filepath.Clean(own.path)
	}
	switch {
	case err == nil && here == there && name == known:
		return "is"
	case err == nil && there.within(here) || within(known, name):
		return "contains"
	case err == nil && here.within(there) || within(name, known):
		return "lies in"
	}
	return ""
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

// find returns the location of a path of Cove's or the machine's own, and its name without symbolic links; of a link
// itself, if it is one that is looked for.
func (t table) find(path string, link bool) (l location, resolved string, err error) {
	if resolved = path; !link {
		if resolved, err = filepath.EvalSymlinks(path); err != nil {
			return l, "", err
		}
	}
	fd, err := unix.Open(resolved, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
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
