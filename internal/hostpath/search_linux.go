package hostpath

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/policy"
)

// Bounds of the search. What lies beyond them is told, and mounted only by MountAllow.Sockets and, if it can be written
// to, MountAllow.Git and MountAllow.Hooks.
const (
	maxEntries = 2_000_000
	maxDepth   = 96 // each level holds a descriptor
	maxGuards  = 256
	maxMounts  = 1024 // guards, and the directories that they are in
	maxSockets = 5    // that are named
)

// search looks into a directory at all levels of its file system, as a mount does not show what is mounted below it.
// It refuses sockets, places of credentials and Cove's own, and finds what has to be read-only. The kinds of entries
// are those that the directories have, so that nothing is opened but directories.
func (r Rules) search(ctx context.Context, o *Opened, w Wish) error {
	s := searching{ended: ctx.Err, o: o, wish: w, guards: !w.ReadOnly && !w.Allow.Open(), buffer: make([]byte, 32<<10),
		left: maxEntries, user: uint32(os.Geteuid())}
	fd, err := unix.Openat2(int(o.Place.Fd()), ".", directory)
	if errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err == nil {
		err = unix.Fstat(fd, &s.top)
	}
	if err == nil {
		err = s.look(fd, "", 0)
	}
	bound := errors.Is(err, errBound)
	switch {
	case len(s.sockets) > 0 && (err == nil || bound):
		err = s.refuseSockets()
	case bound && w.Allow.Sockets && !s.guards:
		err = nil
	case bound:
		err = cove.Errorf(cove.Forbidden, "the host path %q is refused: %s", o.Place.Name(), s.beyond).
			WithHint("%s", w.beyondHint())
	case err != nil && cove.ErrorCode(err) == "" && ctx.Err() == nil:
		err = cove.Errorf(cove.InvalidArgument, "the host path %q cannot be searched: %w", o.Place.Name(), err)
	}
	if err != nil || !s.guards {
		return err
	}
	s.find(ctx, r.Named)
	s.mark(r.Guarded)
	return s.guard(r.Guarded)
}

// beyondHint says what to do about a directory that the search does not come to the end of.
func (w Wish) beyondHint() string {
	switch {
	case w.Again:
		return "it was not so when the sandbox was made: remove that, and start the sandbox again"
	case w.ReadOnly:
		return "mount a part of it, or mount it as it is with --sockets: sockets and credentials in the rest are then " +
			"open to the sandbox"
	}
	return "mount a part of it, or mount it as it is with --sockets --writable-git --writable-hooks: sockets, " +
		"credentials and git repositories in the rest are then open to the sandbox"
}

var errBound = errors.New("a bound of the search")

var directory = &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
	Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV}

// searching is one search of a mount.
type searching struct {
	ended   func() error
	o       *Opened
	wish    Wish
	guards  bool // what programs of the owner execute is to be read-only
	again   bool // and nothing else is looked for, or refused
	buffer  []byte
	left    int // entries
	user    uint32
	top     unix.Stat_t
	beyond  string   // why the search ended before its end
	sockets []string // that a program listens on, below the mount
	roots   []string // of checkouts, below the mount
	named   []string // by the configuration of its owner's git, below the mount
	guarded int
	git     []repository
}

// repository is a directory or file of git's own.
type repository struct {
	name   string // below the mount
	file   bool   // that leads to another
	linked bool   // its hooks and configuration are another's
}

func (s *searching) refuse(name, why string) *cove.Error {
	return cove.Errorf(cove.Forbidden, "the host path %q is refused: it contains %s: %s", s.o.Place.Name(), name, why)
}

// refuseSockets names sockets of programs of this machine.
func (s *searching) refuseSockets() error {
	names := strings.Join(s.sockets, ", ")
	if len(s.sockets) == maxSockets {
		names += " and perhaps more"
	}
	return s.refuse(names, "a socket leads to a program of this machine, whatever network the sandbox has").
		WithHint("mount a part without it, or allow sockets with --sockets")
}

// look looks into the open directory, which it closes; dir is its name below the mount.
func (s *searching) look(fd int, dir string, depth int) error {
	defer unix.Close(fd)
	var below []string
	signs := map[string]bool{} // of a git directory
	for {
		n, err := unix.ReadDirent(fd, s.buffer)
		if err != nil {
			return os.NewSyscallError("getdents", err)
		}
		if n == 0 {
			break
		}
		for b := s.buffer[:n]; len(b) > 0; {
			e := nextEntry(&b)
			if e.name == "." || e.name == ".." {
				continue
			}
			if s.left--; s.left < 0 {
				s.beyond = fmt.Sprintf("it has more than %d files, which are too many to search", maxEntries)
				return errBound
			}
			if s.left%1024 == 0 && s.ended() != nil {
				return s.ended()
			}
			if e.kind == unix.DT_UNKNOWN {
				e.kind = kindOf(fd, e.name)
			}
			if err := s.judge(fd, dir, e); err != nil {
				return err
			}
			if e.kind == unix.DT_DIR {
				below = append(below, e.name)
			}
			if slices.Contains(policy.GitNames, e.name) {
				signs[e.name] = true
			}
		}
	}
	if policy.IsGitDirectory(func(name string) bool { return signs[name] }) || signs["commondir"] && s.inGit(dir) {
		if err := s.own(dir, !signs["objects"] || !signs["refs"]); err != nil {
			return err
		}
	}
	for _, name := range below {
		if err := s.descend(fd, path.Join(dir, name), name, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// own notes a directory of git's own that has another name than .git.
func (s *searching) own(dir string, linked bool) error {
	if !s.guards || s.kept(dir) {
		return nil
	}
	if dir == "" && !s.wish.Allow.Git && !s.again {
		return cove.Errorf(cove.Forbidden, "the host path %q is refused: it is the directory of a git repository, and "+
			"what is in it decides what git on this machine executes", s.o.Place.Name()).
			WithHint("mount it read-only (:ro), or allow it with --writable-git")
	}
	return s.note(repository{name: dir, linked: linked})
}

// note notes what is git's own.
func (s *searching) note(of repository) error {
	if slices.ContainsFunc(s.git, func(known repository) bool { return known.name == of.name }) {
		return nil
	}
	if s.git = append(s.git, of); len(s.git) > maxGuards {
		if s.again {
			s.beyond = fmt.Sprintf("it has more than %d repositories", maxGuards)
			return errBound
		}
		return s.tooManyGuards()
	}
	return nil
}

func (s *searching) tooManyGuards() error {
	return cove.Errorf(cove.Forbidden, "the host path %q is refused: more than %d places in it would have to be "+
		"read-only, such as the directories of git repositories", s.o.Place.Name(), maxGuards).
		WithHint("mount a part of it, mount it read-only (:ro), or allow it with --writable-git --writable-hooks")
}

// inGit reports whether a directory is git's own, or lies in one.
func (s *searching) inGit(dir string) bool {
	return len(s.git) > 0 && slices.ContainsFunc(s.git, func(git repository) bool {
		return git.name == "" || within(dir, git.name)
	})
}

// kept reports whether a directory is read-only with the directory of git's own in which it lies.
func (s *searching) kept(dir string) bool { return !s.wish.Allow.Git && s.inGit(dir) }

func (s *searching) descend(fd int, dir, name string, depth int) error {
	if depth > maxDepth {
		return s.passOver("%s lies more than %d directories deep, too deep to search", dir, maxDepth)
	}
	sub, err := unix.Openat2(fd, name, directory)
	switch {
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil // something is mounted there, which does not come along, or it has gone
	case errors.Is(err, unix.EACCES):
		if !s.again && s.closed(fd, name) {
			return nil
		}
		return s.passOver("%s cannot be read, so that it cannot be searched", dir)
	case err != nil:
		return os.NewSyscallError("openat2", err)
	}
	return s.look(sub, dir, depth)
}

// closed reports whether a directory that cannot be read is closed to a sandbox as well. Its user is this one outside,
// or the owner of the mount, or, with an engine that maps no owners, has its own number, which its group has, too.
// Where names in the directory can be used, it is not closed.
func (s *searching) closed(fd int, name string) bool {
	var st unix.Stat_t
	if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	if st.Uid == s.user || st.Uid == s.top.Uid || st.Uid == s.wish.User {
		return false
	}
	if st.Mode&0o070 != 0 && (st.Gid == s.top.Gid || st.Gid == s.wish.User) {
		return false
	}
	return errors.Is(unix.Faccessat(fd, name, unix.X_OK, unix.AT_EACCESS|unix.AT_SYMLINK_NOFOLLOW), unix.EACCES)
}

// judge refuses an entry of a directory, or notes what it is.
func (s *searching) judge(fd int, dir string, e entry) error {
	name := func() string { return path.Join(dir, e.name) }
	switch {
	case s.again && e.name != ".git":
	case slices.Contains(engineSockets, e.name) && slices.Contains(maySocket, e.kind):
		return s.refuse(name(), "it is the socket of a container engine").WithHint("mount a directory without it")
	case e.kind == unix.DT_SOCK && !s.wish.Allow.Sockets && !s.wish.Again && !dead(fd, e.name):
		if s.sockets = append(s.sockets, name()); len(s.sockets) == maxSockets {
			return s.refuseSockets()
		}
	case slices.Contains(forbiddenNames, e.name), slices.Contains(lastNames, e.name):
		why := judgeNames(path.Join(s.o.Place.Name(), name()))
		has := func(sign string) bool {
			var st unix.Stat_t
			return unix.Fstatat(fd, e.name+"/"+sign, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
		}
		if why != "" && ofPerson(e.name, has) && (dir == "" || !empty(fd, e.name)) {
			return s.refuse(name(), why).WithHint("mount a directory without it, such as one beside it")
		}
	case e.name == ".git":
		return s.checkout(dir, e.kind)
	}
	return nil
}

// maySocket are the kinds of entries that may be a socket, or lead to one. A directory with the name of one is what a
// container engine makes for a volume whose source was missing.
var maySocket = []byte{unix.DT_SOCK, unix.DT_LNK, unix.DT_UNKNOWN}

// dead reports whether no program has a socket any more, as none can have again: a program that binds the name makes
// a new one. A datagram socket connects to others of its kind only, and tells them nothing.
func dead(fd int, name string) bool {
	ask, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(ask)
	return errors.Is(unix.Connect(ask, &unix.SockaddrUnix{Name: procFD(fd) + "/" + name}), unix.ECONNREFUSED)
}

// empty reports whether a directory or file holds nothing.
func empty(fd int, name string) bool {
	var st unix.Stat_t
	if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
		return st.Size == 0
	}
	sub, err := unix.Openat2(fd, name, directory)
	if err != nil {
		return false
	}
	dir := os.NewFile(uintptr(sub), name)
	defer dir.Close()
	_, err = dir.Readdirnames(1)
	return errors.Is(err, io.EOF)
}

// checkout notes the repository of a checkout.
func (s *searching) checkout(dir string, kind byte) error {
	if !s.guards {
		return nil
	}
	if kind == unix.DT_LNK && !s.again {
		return s.refuse(path.Join(dir, ".git"), "it leads elsewhere, and could be replaced").
			WithHint("mount it read-only (:ro), work on a copy (cove new DIR), or allow it with --writable-git " +
				"--writable-hooks")
	}
	if s.kept(dir) {
		return nil
	}
	s.roots = append(s.roots, dir)
	return s.note(repository{name: path.Join(dir, ".git"), file: kind != unix.DT_DIR})
}

// guard opens what has to be read-only: git's own, and the guarded files of each checkout and of the mount itself.
func (s *searching) guard(guarded []string) error {
	for _, git := range s.git {
		if err := s.guardGit(git); err != nil {
			return err
		}
	}
	if s.wish.Allow.Hooks {
		return nil
	}
	if !slices.Contains(s.roots, "") {
		s.roots = append(s.roots, "")
	}
	for _, root := range s.roots {
		for _, name := range s.expand(root, guarded) {
			if err := s.guardFile(name); err != nil {
				return err
			}
		}
	}
	for _, name := range s.named {
		if err := s.guardFile(name); err != nil {
			return err
		}
	}
	return nil
}

// guardFile guards a file or directory, or what a symbolic link there leads to, if there is one.
func (s *searching) guardFile(name string) error {
	err := s.add(name, true)
	if errors.Is(err, unix.ELOOP) {
		err = s.addTarget(name, true)
	}
	if missing(err) {
		return nil
	}
	return err
}

// find asks for what the configuration of each repository names in its checkout.
func (s *searching) find(ctx context.Context, named func(ctx context.Context, git, top string) []string) {
	if named == nil || s.wish.Allow.Hooks {
		return
	}
	for _, root := range s.roots {
		top := path.Join(s.o.Place.Name(), root)
		if git := path.Join(top, ".git"); isDir(git) {
			for _, name := range named(ctx, git, top) {
				s.named = append(s.named, path.Join(root, name))
			}
		}
	}
}

// expand returns the names, below the mount, that guarded files have in a checkout, whether or not they are there. Of a
// name with a "*" in it, those are what matches.
func (s *searching) expand(root string, guarded []string) (all []string) {
	listed := map[string][]string{}
	for _, pattern := range guarded {
		pattern = path.Join(root, guardedName(pattern))
		before, after, star := strings.Cut(pattern, "*")
		if !star {
			all = append(all, pattern)
			continue
		}
		dir := path.Dir(before + "*")
		part, rest, _ := strings.Cut(path.Base(before+"*")+after, "/")
		if _, known := listed[dir]; !known {
			listed[dir] = s.names(dir)
		}
		for _, name := range listed[dir] {
			if is, err := path.Match(part, name); err == nil && is {
				all = append(all, path.Join(dir, name, rest))
			}
		}
	}
	return all
}

// guardedName returns the place of a guarded file, or directory, from the root of a checkout.
func guardedName(pattern string) string {
	return strings.TrimPrefix(strings.TrimSuffix(pattern, "/**"), "**/")
}

// names lists a directory of the mount; one that cannot be read has none.
func (s *searching) names(dir string) []string {
	fd, err := unix.Openat2(int(s.o.Place.Fd()), dir, directory)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	return names
}

// guardGit guards what is git's own: all of it, or, where it stays writable, what decides what git executes.
func (s *searching) guardGit(git repository) error {
	whole := git.file || !s.wish.Allow.Git
	if git.name != "" {
		err := s.add(git.name, whole)
		if errors.Is(err, unix.EXDEV) {
			return nil // something is mounted there, which does not come along
		}
		if err != nil || whole {
			return s.wanted(git.name, err)
		}
	}
	for i, part := range gitHooks {
		name := path.Join(git.name, part)
		err := s.add(name, true)
		switch {
		case errors.Is(err, unix.ELOOP):
			return s.refuse(name, "it leads elsewhere, and could be replaced").
				WithHint("mount it read-only (:ro), or allow it with --writable-hooks")
		case missing(err) && !errors.Is(err, unix.EXDEV) && i < 2 && !git.linked:
			return cove.Errorf(cove.Forbidden, "the host path %q is refused: its repository has no %s, so that a program "+
				"could make one", s.o.Place.Name(), name).
				WithHint("make it (\"git init\" in the checkout, or \"mkdir hooks\" in its directory), or allow that with " +
					"--writable-hooks")
		case err != nil && !missing(err):
			return err
		}
	}
	return nil
}

// missing reports that there is no such part of a mount, or that something is mounted there, which does not come along.
func missing(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EXDEV)
}

// wanted is the error of add for a part that was there.
func (s *searching) wanted(name string, err error) error {
	if missing(err) || errors.Is(err, unix.ELOOP) {
		return changed(path.Join(s.o.Place.Name(), name))
	}
	return err
}

// add opens a part of the mount as a guard, and pins the directories that it is in, so that a program cannot put others
// in their place. The error for a part that is missing, or a symbolic link, is the kernel's.
func (s *searching) add(name string, readOnly bool) error {
	for i := range s.o.Guards {
		switch g := &s.o.Guards[i]; {
		case g.Name == name:
			g.ReadOnly = g.ReadOnly || readOnly
			return nil
		case g.ReadOnly && within(name, g.Name):
			return nil
		}
	}
	fd, err := unix.Openat2(int(s.o.Place.Fd()), name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: directory.Resolve})
	if err != nil && !missing(err) && !errors.Is(err, unix.ELOOP) {
		return s.unopened(name, err)
	}
	if err != nil {
		return err
	}
	place := os.NewFile(uintptr(fd), path.Join(s.o.Place.Name(), name))
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if kind := st.Mode & unix.S_IFMT; err != nil || kind != unix.S_IFDIR && kind != unix.S_IFREG {
		place.Close()
		return err
	}
	if parent := path.Dir(name); parent != "." {
		if err := s.add(parent, false); err != nil {
			place.Close()
			return s.wanted(parent, err)
		}
	}
	s.o.Guards = append(s.o.Guards, Guard{Name: name, Place: place, Dev: st.Dev, Ino: st.Ino, ReadOnly: readOnly})
	if readOnly {
		s.guarded++
	}
	if s.guarded > maxGuards || len(s.o.Guards) > maxMounts {
		return s.tooManyGuards()
	}
	return nil
}

// addTarget adds what a symlink of the mount leads to, if that is in the mount and of its file system.
func (s *searching) addTarget(name string, readOnly bool) error {
	fd, err := unix.Openat2(int(s.o.Place.Fd()), name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV})
	switch {
	case err == nil:
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil // it leads out of the mount, to nothing, or round in a circle
	default:
		return s.unopened(name, err)
	}
	defer unix.Close(fd)
	top, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", s.o.Place.Fd()))
	if err != nil {
		return s.unopened(name, err)
	}
	target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return s.unopened(name, err)
	}
	below, ok := strings.CutPrefix(target, strings.TrimSuffix(top, "/")+"/")
	if !ok {
		return changed(path.Join(s.o.Place.Name(), name))
	}
	return s.wanted(below, s.add(below, readOnly))
}

// unopened refuses a mount with a part that may have to be read-only, and cannot be looked at.
func (s *searching) unopened(name string, err error) error {
	return cove.Errorf(cove.Unavailable, "the host path %q cannot be searched: %s: %w", s.o.Place.Name(), name, err)
}

// entry is an entry of a directory.
type entry struct {
	name string
	kind byte // unix.DT_*
}

// nextEntry takes an entry from what getdents64(2) has written: inode, offset, length, kind, name and NUL.
func nextEntry(b *[]byte) entry {
	const length, kind, name = 16, 18, 19
	size := int(binary.NativeEndian.Uint16((*b)[length:]))
	text := (*b)[name:size]
	e := entry{kind: (*b)[kind]}
	if i := slices.Index(text, 0); i >= 0 {
		text = text[:i]
	}
	e.name = string(text)
	*b = (*b)[size:]
	return e
}

// kindOf asks where a file system does not say it.
func kindOf(fd int, name string) byte {
	var st unix.Stat_t
	if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return unix.DT_UNKNOWN
	}
	return byte(st.Mode & unix.S_IFMT >> 12) // as IFTODT of dirent.h
}
