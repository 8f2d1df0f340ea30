package fake

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/guestd"
)

// node is a file, directory, link, FIFO or device.
type node struct {
	mode     fs.FileMode
	uid      int
	time     time.Time
	data     []byte
	target   string           // of a symlink
	children map[string]*node // of a directory
	released chan struct{}    // of a parked pipe: closed once it is a file
}

func (n *node) info(name string) guest.FileInfo {
	return guest.FileInfo{Name: name, Size: int64(len(n.data)), Mode: uint32(n.mode), ModTime: n.time, Target: n.target}
}

// tree is a file system in memory, seen by one user.
type tree struct {
	uid                 int
	maxBytes, maxInodes int64 // 0 is no limit

	mu            sync.Mutex
	root          *node
	bytes, inodes int64
}

var _ guestd.Files = (*tree)(nil)

const (
	maxPath  = 4096
	maxName  = 255
	maxLinks = 40
)

// newTree is a small Unix system with programs in /usr/bin.
func newTree(uid int, maxBytes, maxInodes int64, programs []string) *tree {
	t := &tree{uid: uid, maxBytes: maxBytes, maxInodes: maxInodes, root: dir(0, 0o755)}
	for _, d := range []string{"etc", "usr", "usr/bin", "dev", "home", "proc", "sys"} {
		t.place(d, dir(0, 0o755))
	}
	for _, d := range []string{cove.WorkDir, cove.Home, cove.Workspace, "/run", "/dev/shm"} {
		t.place(d, dir(uid, 0o755))
	}
	t.place("tmp", dir(uid, fs.ModeSticky|0o777))
	t.place("bin", &node{mode: fs.ModeSymlink | 0o777, target: "usr/bin"})
	t.place("etc/passwd", &node{mode: 0o644, data: []byte("root:x:0:0:root:/root:/bin/sh\n")})
	t.place("dev/zero", &node{mode: fs.ModeDevice | fs.ModeCharDevice | 0o666})
	t.place("dev/null", &node{mode: fs.ModeDevice | fs.ModeCharDevice | 0o666})
	for _, name := range programs {
		t.place("usr/bin/"+name, &node{mode: 0o755})
	}
	return t
}

func dir(uid int, mode fs.FileMode) *node {
	return &node{mode: fs.ModeDir | mode, uid: uid, time: time.Now(), children: map[string]*node{}}
}

// place puts a node where its parent is known to be.
func (t *tree) place(path string, n *node) {
	at := t.root
	names := strings.Split(strings.Trim(path, "/"), "/")
	for _, name := range names[:len(names)-1] {
		at = at.children[name]
	}
	at.children[names[len(names)-1]] = n
}

const (
	mayRead  = 4
	mayWrite = 2
	mayEnter = 1
)

func (t *tree) may(n *node, what fs.FileMode) error {
	mode := n.mode
	if n.uid == t.uid {
		mode >>= 6
	}
	if mode&what == 0 {
		return syscall.EACCES
	}
	return nil
}

// spot is where a path leads: the node, or the place where it would be.
type spot struct {
	dir  *node // nil for the root itself
	name string
	node *node // nil when there is none
}

// walk follows path as the kernel does; follow says whether a link at its end is followed too.
func (t *tree) walk(path string, follow bool) (spot, error) {
	switch {
	case !strings.HasPrefix(path, "/"), strings.Contains(path, "\x00"):
		return spot{}, syscall.EINVAL
	case len(path) >= maxPath:
		return spot{}, syscall.ENAMETOOLONG
	}
	stack := []spot{{node: t.root}}
	rest := components(path)
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		at := stack[len(stack)-1].node
		switch {
		case len(name) > maxName:
			return spot{}, syscall.ENAMETOOLONG
		case at == nil:
			return spot{}, syscall.ENOENT
		case !at.mode.IsDir():
			return spot{}, syscall.ENOTDIR
		}
		if err := t.may(at, mayEnter); err != nil {
			return spot{}, err
		}
		if name == ".." {
			stack = stack[:max(1, len(stack)-1)]
			continue
		}
		next := at.children[name]
		if next != nil && next.mode&fs.ModeSymlink != 0 && (follow || len(rest) > 0) {
			if links++; links > maxLinks {
				return spot{}, syscall.ELOOP
			}
			if strings.HasPrefix(next.target, "/") {
				stack = stack[:1]
			}
			rest = append(components(next.target), rest...)
			continue
		}
		stack = append(stack, spot{at, name, next})
	}
	return stack[len(stack)-1], nil
}

func components(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(s string) bool { return s == "" || s == "." })
}

// existing is walk to something that is there.
func (t *tree) existing(path string, follow bool) (spot, error) {
	s, err := t.walk(path, follow)
	if err == nil && s.node == nil {
		err = syscall.ENOENT
	}
	return s, err
}

// add puts n at s, which must be free.
func (t *tree) add(s spot, n *node) error {
	if err := t.may(s.dir, mayWrite); err != nil {
		return err
	}
	if t.maxInodes > 0 && t.inodes >= t.maxInodes {
		return syscall.ENOSPC
	}
	t.inodes++
	n.uid, n.time = t.uid, time.Now()
	s.dir.children[s.name] = n
	return nil
}

func (t *tree) create(path string, n *node) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.walk(path, false)
	if err != nil {
		return err
	}
	if s.node != nil {
		return syscall.EEXIST
	}
	return t.add(s, n)
}

func (t *tree) symlink(target, path string) error {
	return t.create(path, &node{mode: fs.ModeSymlink | 0o777, target: target})
}

// mkdirAll is called with mu held.
func (t *tree) mkdirAll(path string, mode fs.FileMode) error {
	s, err := t.walk(path, true)
	if err == syscall.ENOENT {
		if err = t.mkdirAll(parent(path), 0o755); err == nil {
			s, err = t.walk(path, true)
		}
	}
	switch {
	case err != nil:
		return err
	case s.node == nil:
		return t.add(s, dir(t.uid, mode))
	case !s.node.mode.IsDir():
		return syscall.ENOTDIR
	}
	return nil
}

func parent(path string) string {
	path = strings.TrimRight(path, "/")
	return path[:strings.LastIndex(path, "/")+1]
}

func (t *tree) write(path string, mode fs.FileMode, offset int64, data []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.walk(path, true)
	if err == syscall.ENOENT {
		if err = t.mkdirAll(parent(path), 0o755); err == nil {
			s, err = t.walk(path, true)
		}
	}
	if err != nil {
		return err
	}
	n := s.node
	if n == nil {
		n = &node{mode: mode.Perm()}
		if err := t.add(s, n); err != nil {
			return err
		}
	} else if err := t.writable(n); err != nil {
		return err
	}
	if n.mode.Type() != 0 {
		return nil // a device takes everything
	}
	if offset < 0 || offset > int64(len(n.data)) {
		return syscall.EINVAL
	}
	grow := offset + int64(len(data)) - int64(len(n.data))
	if t.maxBytes > 0 && t.bytes+grow > t.maxBytes {
		return syscall.ENOSPC
	}
	t.bytes += grow
	n.data = append(n.data[:offset:offset], data...)
	n.time = time.Now()
	return nil
}

func (t *tree) writable(n *node) error {
	switch {
	case n.mode.IsDir():
		return syscall.EISDIR
	case n.mode&fs.ModeNamedPipe != 0:
		return syscall.EINVAL // nobody reads it
	}
	return t.may(n, mayWrite)
}

// regular finds a file that can be read as a whole.
func (t *tree) regular(path string) (spot, error) {
	s, err := t.existing(path, true)
	switch {
	case err != nil:
		return s, err
	case s.node.mode.IsDir():
		return s, syscall.EISDIR
	case !s.node.mode.IsRegular():
		return s, syscall.EINVAL
	}
	return s, t.may(s.node, mayRead)
}

func (t *tree) read(path string) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.regular(path)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(s.node.data), nil
}

// open is a program's way to read: devices are files too. What is endless ends with ctx.
func (t *tree) open(path string, ctx context.Context) (io.Reader, error) {
	t.mu.Lock()
	s, err := t.existing(path, true)
	t.mu.Unlock()
	if err == nil && s.node.mode&fs.ModeCharDevice != 0 {
		if s.name == "zero" {
			return zeroes{ctx}, nil
		}
		return strings.NewReader(""), nil
	}
	data, err := t.read(path)
	return bytes.NewReader(data), err
}

type zeroes struct{ ctx context.Context }

func (z zeroes) Read(p []byte) (int, error) {
	clear(p)
	return len(p), z.ctx.Err()
}

// executable says what the file at path runs: the program of its name when it is empty, otherwise a script.
func (t *tree) executable(path string) (name, script string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.existing(path, true)
	if err != nil {
		return "", "", err
	}
	if !s.node.mode.IsRegular() {
		return "", "", syscall.EACCES
	}
	return s.name, string(s.node.data), t.may(s.node, mayEnter)
}

func (t *tree) isDir(path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.existing(path, true)
	if err == nil && !s.node.mode.IsDir() {
		err = syscall.ENOTDIR
	}
	return err
}

func (t *tree) usage() guest.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return guest.Stats{DiskUsed: t.bytes, DiskSize: t.maxBytes, InodesUsed: t.inodes, InodesSize: t.maxInodes}
}

// Write implements guestd.Files.
func (t *tree) Write(w guest.WriteFile, data []byte) error {
	if w.Offset == 0 {
		if err := t.truncate(w.Path); err != nil {
			return err
		}
	}
	return t.write(w.Path, fs.FileMode(w.Mode), w.Offset, data)
}

// truncate empties the file at path if there is one.
func (t *tree) truncate(path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.walk(path, true)
	if err != nil || s.node == nil {
		return nil // the write reports it
	}
	if err := t.writable(s.node); err != nil {
		return err
	}
	t.bytes -= int64(len(s.node.data))
	s.node.data = nil
	return nil
}

// Read implements guestd.Files.
func (t *tree) Read(r guest.ReadFile) ([]byte, guest.FileInfo, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.regular(r.Path)
	if err != nil {
		return nil, guest.FileInfo{}, err
	}
	data := s.node.data[min(max(0, r.Offset), int64(len(s.node.data))):]
	return bytes.Clone(data[:min(len(data), guest.MaxChunk)]), s.node.info(s.name), nil
}

// Park implements guestd.Files.
func (t *tree) Park(path string) error {
	if err := t.write(path, 0o600, 0, nil); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.regular(path)
	if err == nil {
		s.node.mode |= fs.ModeNamedPipe
		s.node.released = make(chan struct{})
	}
	return err
}

// Release implements guestd.Files.
func (t *tree) Release(w guest.WriteFile, data []byte) error {
	t.mu.Lock()
	s, err := t.existing(w.Path, true)
	if err == nil {
		s.node.mode = fs.FileMode(w.Mode).Perm()
	}
	t.mu.Unlock()
	if err == nil {
		err = t.write(w.Path, 0, 0, data)
	}
	if err == nil {
		close(s.node.released)
	}
	return err
}

// wait waits until a pipe at a path that is parked has become a file.
func (t *tree) wait(ctx context.Context, path string) {
	t.mu.Lock()
	s, err := t.existing(path, true)
	t.mu.Unlock()
	if err == nil && s.node.released != nil {
		select {
		case <-s.node.released:
		case <-ctx.Done():
		}
	}
}

// Stat implements guestd.Files.
func (t *tree) Stat(path string) (guest.FileInfo, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.existing(path, false)
	if err != nil {
		return guest.FileInfo{}, err
	}
	return s.node.info(s.name), nil
}

// List implements guestd.Files.
func (t *tree) List(path string) ([]guest.FileInfo, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.existing(path, true)
	if err != nil {
		return nil, err
	}
	if !s.node.mode.IsDir() {
		return nil, syscall.ENOTDIR
	}
	if err := t.may(s.node, mayRead); err != nil {
		return nil, err
	}
	infos := make([]guest.FileInfo, 0, len(s.node.children))
	for name, n := range s.node.children {
		infos = append(infos, n.info(name))
	}
	slices.SortFunc(infos, func(a, b guest.FileInfo) int { return cmp.Compare(a.Name, b.Name) })
	return infos, nil
}

// Mkdir implements guestd.Files.
func (t *tree) Mkdir(w guest.WriteFile) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mkdirAll(w.Path, os.FileMode(w.Mode).Perm())
}

// Remove implements guestd.Files.
func (t *tree) Remove(path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.existing(path, false)
	if err != nil {
		return err
	}
	if s.dir == nil {
		return syscall.EBUSY
	}
	if err := t.may(s.dir, mayWrite); err != nil {
		return err
	}
	delete(s.dir.children, s.name)
	t.release(s.node)
	return nil
}

func (t *tree) release(n *node) {
	t.inodes--
	t.bytes -= int64(len(n.data))
	for _, c := range n.children {
		t.release(c)
	}
}
