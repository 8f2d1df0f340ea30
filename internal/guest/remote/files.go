//go:build linux

package remote

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"os"
	"path"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/guestd"
	"github.com/cove-sandbox/cove/internal/linux/executor"
)

// files implements guestd.Files. Every call has the user's file-system ids.
type files struct{ w *world }

var _ guestd.Files = files{}

const (
	maxSeen  = 10 * guestd.MaxEntries // also those that have gone meanwhile
	maxDepth = 100_000                // of a directory that is removed
	statSize = int(unsafe.Sizeof(unix.Stat_t{}))
	// perScript bounds the entries of a directory that one script sees to.
	perScript = 32
	// errNotRegular is a file that is none of the kinds that may be read and written.
	errNotRegular = math.MaxUint16 - 2
)

var notRegular = &guest.Failure{Kind: guest.FailInvalid, Message: "not a regular file"}

// on runs a script with the user's rights for a path.
func (f files) on(p string, answer int, do func(s *executor.Script)) ([]byte, error) {
	if !path.IsAbs(p) || len(p) >= unix.PathMax || strings.IndexByte(p, 0) >= 0 {
		return nil, &guest.Failure{Kind: guest.FailInvalid,
			Message: "the path must be absolute and shorter than 4096 bytes, without a NUL byte"}
	}
	s := executor.New(answer, 0)
	s.Doing(p)
	f.w.asUser(s)
	do(s)
	s.Finally(func() { f.w.asGuest(s) })
	data, _, err := f.w.run(s)
	if failure, ok := errors.AsType[*executor.Error](err); ok && failure.Errno == errNotRegular {
		return nil, notRegular
	}
	return data, err
}

// openRegular opens a regular file without waiting for a FIFO's other end, and refuses everything else. It refuses the
// files of /proc too: some of them judge their reader, and PID 1 may see more of itself than the user may.
func openRegular(s *executor.Script, name string, flags int, mode uint32) (fd, stat executor.Value) {
	refused, ok := s.Label(), s.Label()
	fd = s.Call(unix.SYS_OPENAT, executor.CWD, s.Text(name),
		num(flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC), num(mode))
	s.On(unix.ENXIO, refused) // a FIFO without a reader
	stat = s.Space(statSize)
	s.Do(unix.SYS_FSTAT, fd, stat)
	s.JumpUnless(s.Load(stat.At(int(unsafe.Offsetof(unix.Stat_t{}.Mode))), 4), unix.S_IFMT, unix.S_IFREG, refused)
	on := s.Space(statfsSize)
	s.Do(unix.SYS_FSTATFS, fd, on)
	s.JumpUnless(s.Load(on, 8), ^uint64(0), unix.PROC_SUPER_MAGIC, ok) // f_type
	s.Here(refused)
	s.Fail(num(errNotRegular))
	s.Here(ok)
	return fd, stat
}

// mkdirAll makes the directories of a path, from the root on.
func mkdirAll(s *executor.Script, dir string, mode uint32) {
	for i, c := range dir + "/" {
		if c == '/' && i > 0 {
			s.Do(unix.SYS_MKDIRAT, executor.CWD, s.Text(dir[:i]), num(mode))
			s.Unless(unix.EEXIST)
		}
	}
}

func (f files) Write(w guest.WriteFile, data []byte) error {
	mode := w.Mode & uint32(fs.ModePerm)
	for {
		answer, err := f.on(w.Path, 8, func(s *executor.Script) {
			flags := unix.O_WRONLY | unix.O_CREAT
			if w.Offset == 0 {
				flags |= unix.O_TRUNC
				mkdirAll(s, path.Dir(path.Clean(w.Path)), 0o755)
			}
			fd, _ := openRegular(s, w.Path, flags, mode)
			if w.Offset == 0 {
				s.Do(unix.SYS_FCHMOD, fd, num(mode))
			}
			s.Store(s.Answer(), 8, s.Call(unix.SYS_PWRITE64, fd, s.Bytes(data), num(len(data)), num(w.Offset)))
		})
		if err != nil {
			return err
		}
		n := binary.NativeEndian.Uint64(answer)
		if n >= uint64(len(data)) {
			return nil
		}
		if n == 0 {
			return &os.PathError{Op: "write", Path: w.Path, Err: unix.ENOSPC}
		}
		data, w.Offset = data[n:], w.Offset+int64(n) // the next part says what is in the way
	}
}

func (f files) Read(r guest.ReadFile) ([]byte, guest.FileInfo, error) {
	answer, err := f.on(r.Path, 8+statSize+guest.MaxChunk, func(s *executor.Script) {
		fd, stat := openRegular(s, r.Path, unix.O_RDONLY, 0)
		copyStat(s, s.Answer().At(8), stat)
		n := s.Call(unix.SYS_PREAD64, fd, s.Answer().At(8+statSize), num(guest.MaxChunk), num(r.Offset))
		s.Store(s.Answer(), 8, n)
	})
	if err != nil {
		return nil, guest.FileInfo{}, err
	}
	n := min(binary.NativeEndian.Uint64(answer), guest.MaxChunk)
	return answer[8+statSize : 8+statSize+int(n)], describe(path.Base(r.Path), answer[8:], ""), nil
}

func copyStat(s *executor.Script, to, from executor.Value) {
	s.Scope(func() {
		for i := 0; i < statSize; i += 8 {
			s.Store(to.At(i), 8, s.Load(from.At(i), 8))
		}
	})
}

// entrySize is the answer of look: a result, a stat, the length of a link and its text.
const entrySize = 8 + statSize + 8 + unix.PathMax

// look stores what a name is: 1 and its stat, or 0 if there is no such file.
func look(s *executor.Script, at, dir executor.Value, name string, must bool) {
	end := s.Label()
	s.Do(sysFstatat, dir, s.Text(name), at.At(8), num(unix.AT_SYMLINK_NOFOLLOW))
	if !must {
		s.On(executor.AnyError, end)
	}
	s.Store(at, 8, num(1))
	n := s.Call(unix.SYS_READLINKAT, dir, s.Text(name), at.At(16+statSize), num(unix.PathMax))
	s.On(executor.AnyError, end)
	s.Store(at.At(8+statSize), 8, n)
	s.Here(end)
}

// entry reads what look has stored.
func entry(name string, answer []byte) (info guest.FileInfo, ok bool) {
	n := min(binary.NativeEndian.Uint64(answer[8+statSize:]), unix.PathMax)
	link := string(answer[16+statSize : 16+statSize+int(n)])
	return describe(name, answer[8:], link), binary.NativeEndian.Uint64(answer) == 1
}

func (f files) Stat(p string) (info guest.FileInfo, err error) {
	answer, err := f.on(p, entrySize, func(s *executor.Script) { look(s, s.Answer(), executor.CWD, p, true) })
	if err == nil {
		info, _ = entry(path.Base(p), answer)
	}
	return info, err
}

// List implements guestd.Files.
func (f files) List(p string) ([]guest.FileInfo, error) {
	f.w.walking.Lock()
	defer f.w.walking.Unlock()
	if err := f.enter(p, p); err != nil {
		return nil, err
	}
	defer f.leave()
	infos := []guest.FileInfo{}
	for seen := 0; len(infos) < guestd.MaxEntries && seen < maxSeen; {
		names, err := f.names(p)
		if err != nil || len(names) == 0 {
			return infos, err
		}
		seen += len(names)
		for len(names) > 0 && len(infos) < guestd.MaxEntries {
			some := names[:min(len(names), perScript, guestd.MaxEntries-len(infos))]
			names = names[len(some):]
			answer, err := f.on(p, len(some)*entrySize, func(s *executor.Script) {
				for i, name := range some {
					s.Scope(func() { look(s, s.Answer().At(i*entrySize), num(slotWalk), name, false) })
				}
			})
			if err != nil {
				return nil, err
			}
			for i, name := range some {
				if info, ok := entry(name, answer[i*entrySize:]); ok {
					infos = append(infos, info)
				}
			}
		}
	}
	return infos, nil
}

// enter has the walk begin at a directory, of which errors speak as p.
func (f files) enter(p, name string) error {
	_, err := f.on(p, 0, func(s *executor.Script) {
		fd := s.Call(unix.SYS_OPENAT, executor.CWD, s.Text(name),
			num(unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_CLOEXEC), num(0))
		s.Keep(fd, slotWalk)
	})
	return err
}

// leave ends the walk.
func (f files) leave() {
	s := executor.New(0, 0)
	s.Keep(num(0), slotWalk)
	f.w.run(s)
}

// names are the next entries of the directory that the walk has come to; none at its end. Only its first part may have
// none but "." and "..".
func (f files) names(p string) ([]string, error) {
	const room = 32 << 10
	for range 3 {
		answer, err := f.on(p, 8+room, func(s *executor.Script) {
			s.Store(s.Answer(), 8, s.Call(unix.SYS_GETDENTS64, num(slotWalk), s.Answer().At(8), num(room)))
		})
		if err != nil {
			return nil, err
		}
		n := min(binary.NativeEndian.Uint64(answer), room)
		names, ok := dirents(answer[8 : 8+n])
		if !ok {
			return nil, f.w.violated("no entries of a directory")
		}
		if n == 0 || len(names) > 0 {
			return names, nil
		}
	}
	return nil, f.w.violated("parts of a directory without entries")
}

// dirents are the names among what getdents64 has answered, except "." and ".."; false is something else.
func dirents(data []byte) (names []string, ok bool) {
	const head = int(unsafe.Offsetof(unix.Dirent{}.Name))
	for len(data) > 0 {
		if len(data) < head {
			return nil, false
		}
		n := int(binary.NativeEndian.Uint16(data[unsafe.Offsetof(unix.Dirent{}.Reclen):]))
		if n <= head || n > len(data) {
			return nil, false
		}
		name, _, ended := bytes.Cut(data[head:n], []byte{0})
		if !ended || len(name) == 0 || len(name) >= unix.PathMax || bytes.IndexByte(name, '/') >= 0 {
			return nil, false
		}
		data = data[n:]
		if s := string(name); s != "." && s != ".." {
			names = append(names, s)
		}
	}
	return names, true
}

func (f files) Mkdir(w guest.WriteFile) error {
	_, err := f.on(w.Path, 0, func(s *executor.Script) {
		clean := path.Clean(w.Path)
		mkdirAll(s, clean, w.Mode&uint32(fs.ModePerm))
		st := s.Space(statSize)
		s.Do(sysFstatat, executor.CWD, s.Text(clean), st, num(0))
		mode := s.Load(st.At(int(unsafe.Offsetof(unix.Stat_t{}.Mode))), 4)
		s.FailUnless(mode, unix.S_IFMT, unix.S_IFDIR, num(unix.ENOTDIR))
	})
	return err
}

// Remove implements guestd.Files.
func (f files) Remove(p string) error {
	clean := path.Clean(p)
	whole, err := f.remove(p, executor.CWD, clean)
	if err != nil || whole {
		return err
	}
	f.w.walking.Lock()
	defer f.w.walking.Unlock()
	if err := f.descend(p, executor.CWD, clean); err != nil {
		return err
	}
	defer f.leave()
	type level struct {
		name     string
		dev, ino uint64
	}
	here, err := f.here(p)
	if err != nil {
		return err
	}
	at := []level{{clean, here.Dev, here.Ino}}
	for {
		into, err := f.empty(p)
		if err != nil {
			return err
		}
		if into != "" {
			if len(at) == maxDepth {
				return &os.PathError{Op: "remove", Path: p, Err: unix.ENAMETOOLONG}
			}
			if err := f.descend(p, num(slotWalk), into); err != nil {
				return err
			}
			if here, err = f.here(p); err != nil {
				return err
			}
			at = append(at, level{into, here.Dev, here.Ino})
			continue
		}
		last := at[len(at)-1]
		if at = at[:len(at)-1]; len(at) == 0 {
			return f.removeEmpty(p, executor.CWD, clean)
		}
		if err := f.descend(p, num(slotWalk), ".."); err != nil {
			return err
		}
		if here, err = f.here(p); err != nil {
			return err
		}
		if up := at[len(at)-1]; here.Dev != up.dev || here.Ino != up.ino {
			return &os.PathError{Op: "remove", Path: p, Err: errors.New("a directory was moved meanwhile")}
		}
		if err := f.removeEmpty(p, num(slotWalk), last.name); err != nil {
			return err
		}
	}
}

// removeEmpty removes a directory that has been emptied. If a program has put something into it meanwhile, the removal
// fails: the walk does not begin again, so that the program cannot keep it going.
func (f files) removeEmpty(p string, dir executor.Value, name string) error {
	whole, err := f.remove(p, dir, name)
	if err == nil && !whole {
		err = &os.PathError{Op: "remove", Path: p, Err: unix.ENOTEMPTY}
	}
	return err
}

// remove removes a file or an empty directory, which may be gone already; false is a directory that is not empty.
func (f files) remove(p string, dir executor.Value, name string) (whole bool, err error) {
	answer, err := f.on(p, 8, func(s *executor.Script) { unlink(s, s.Answer(), dir, name) })
	return err == nil && binary.NativeEndian.Uint64(answer) == 0, err
}

// unlink stores 1 for a directory that is not empty.
func unlink(s *executor.Script, at, dir executor.Value, name string) {
	directory, end, full, failed := s.Label(), s.Label(), s.Label(), s.Label()
	first := s.Var()
	s.Do(unix.SYS_UNLINKAT, dir, s.Text(name), num(0))
	s.On(unix.ENOENT, end)
	s.On(executor.AnyError, directory)
	s.Jump(end)
	s.Here(directory)
	s.Set(first, s.Errno())
	s.Do(unix.SYS_UNLINKAT, dir, s.Text(name), num(unix.AT_REMOVEDIR))
	s.On(unix.ENOTEMPTY, full)
	s.On(executor.AnyError, failed)
	s.Jump(end)
	s.Here(failed)
	notDir, report := s.Label(), s.Label()
	s.JumpUnless(s.Errno(), ^uint64(0), uint64(unix.ENOTDIR), notDir)
	s.Fail(first) // it is a file, and that error is the one to tell
	s.Here(notDir)
	s.JumpUnless(s.Errno(), ^uint64(0), uint64(unix.ENOENT), report)
	s.Jump(end)
	s.Here(report)
	s.Fail(s.Errno())
	s.Here(full)
	s.Store(at, 8, num(1))
	s.Here(end)
}

// empty removes what it can of the directory that the walk has come to, and returns the first that is not empty.
func (f files) empty(p string) (into string, err error) {
	for {
		names, err := f.names(p)
		if err != nil || len(names) == 0 {
			return "", err
		}
		for len(names) > 0 {
			some := names[:min(len(names), perScript)]
			names = names[len(some):]
			answer, err := f.on(p, 8*len(some), func(s *executor.Script) {
				for i, name := range some {
					s.Scope(func() { unlink(s, s.Answer().At(8*i), num(slotWalk), name) })
				}
			})
			if err != nil {
				return "", err
			}
			for i, name := range some {
				if binary.NativeEndian.Uint64(answer[8*i:]) == 1 {
					return name, nil
				}
			}
		}
	}
}

// descend moves the walk to a directory, by no symbolic link.
func (f files) descend(p string, from executor.Value, name string) error {
	_, err := f.on(p, 0, func(s *executor.Script) {
		fd := s.Call(unix.SYS_OPENAT, from, s.Text(name),
			num(unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC), num(0))
		s.Keep(fd, slotWalk)
	})
	return err
}

// here is the directory that the walk has come to.
func (f files) here(p string) (st unix.Stat_t, err error) {
	answer, err := f.on(p, statSize, func(s *executor.Script) { s.Do(unix.SYS_FSTAT, num(slotWalk), s.Answer()) })
	if err == nil {
		executor.Load(&st, answer)
	}
	return st, err
}

// describe makes of a struct stat what the protocol has of it.
func describe(name string, stat []byte, target string) guest.FileInfo {
	var st unix.Stat_t
	executor.Load(&st, stat)
	return guest.FileInfo{Name: name, Size: st.Size, Mode: uint32(fileMode(st.Mode)), ModTime: time.Unix(st.Mtim.Unix()),
		Target: target, Dev: uint64(st.Dev), Ino: st.Ino}
}

var typeModes = map[uint32]fs.FileMode{unix.S_IFDIR: fs.ModeDir, unix.S_IFLNK: fs.ModeSymlink,
	unix.S_IFIFO: fs.ModeNamedPipe, unix.S_IFSOCK: fs.ModeSocket, unix.S_IFBLK: fs.ModeDevice,
	unix.S_IFCHR: fs.ModeDevice | fs.ModeCharDevice}

func fileMode(mode uint32) fs.FileMode {
	m := fs.FileMode(mode&0o777) | typeModes[mode&unix.S_IFMT]
	for bit, flag := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid,
		unix.S_ISVTX: fs.ModeSticky} {
		if mode&bit != 0 {
			m |= flag
		}
	}
	return m
}
