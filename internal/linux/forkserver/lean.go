//go:build linux

package forkserver

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// lean is a copy of this process's mount namespace without a directory that is a mount, and what is mounted below it.
// A process in a new mount namespace copies all mounts of the one it comes from, so that many that it does not need
// make its start slower. The copy is made anew after every change of the process's namespace, for which it is kept
// from no file system that is unmounted there.
type lean struct {
	without string
	own     *os.File // the process's namespace; nil if nothing is left out

	mu    sync.Mutex
	table *os.File // mountinfo of the process, which tells of changes; nil if nothing is left out; guarded by mu
	fresh bool     // nothing has changed; guarded by mu
	copy  *os.File // nil if there is none; guarded by mu
}

// newLean leaves out a directory, if it is not empty.
func newLean(without string) *lean {
	l := &lean{without: without}
	if without == "" {
		return l
	}
	table, err := openTable()
	if err != nil {
		return l
	}
	watched, err := openTable()
	if err != nil {
		table.Close()
		return l
	}
	if l.own, err = os.Open("/proc/self/ns/mnt"); err != nil {
		table.Close()
		watched.Close()
		return l
	}
	l.table = table
	go l.watch(watched)
	return l
}

// openTable opens mountinfo, of which the runtime's poller, which os.Open would give it to, learns nothing: the kernel
// tells each file of a change once.
func openTable() (*os.File, error) {
	const name = "/proc/self/mountinfo"
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// watch gives up the copy at once when something changes.
func (l *lean) watch(table *os.File) {
	defer table.Close()
	for {
		if _, err := unix.Poll(changes(table), -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		l.mu.Lock()
		l.forget()
		l.mu.Unlock()
	}
}

func changes(table *os.File) []unix.PollFd {
	return []unix.PollFd{{Fd: int32(table.Fd()), Events: unix.POLLPRI}}
}

func (l *lean) forget() {
	if l.copy != nil {
		l.copy.Close()
	}
	l.copy, l.fresh = nil, false
}

// enter puts the calling thread into the copy as it is to be now, until leave, and reports whether it has: else the
// process's own namespace is as good, or a start takes longer. No thread stays in the copy, so that the copy ends when
// it is given up.
func (l *lean) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.table == nil {
		return false
	}
	if n, err := unix.Poll(changes(l.table), 0); n > 0 || err != nil {
		l.forget()
	}
	if !l.fresh {
		l.fresh = true
		if isMount(l.without) {
			l.copy, _ = copyWithout(l.without) // without it, starts take longer
		}
	}
	return l.copy != nil && enterMounts(l.copy) == nil
}

// leave takes the calling thread back to the process's own namespace.
func (l *lean) leave() error { return enterMounts(l.own) }

func isMount(dir string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_SYMLINK_NOFOLLOW, 0, &st)
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// copyWithout copies the mount namespace. What is unmounted in the original goes from the copy, where the original's
// mounts are shared; nothing comes back.
func copyWithout(dir string) (ns *os.File, err error) {
	done := make(chan struct{})
	go OnOwnThread(func() {
		defer close(done)
		if err = os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_NEWNS)); err != nil {
			return
		}
		if err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
			return
		}
		for err == nil { // mounts on top of each other
			err = unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
		ns, err = os.Open("/proc/thread-self/ns/mnt")
	})
	<-done
	return ns, err
}

// enterMounts puts the calling thread, which is locked to its goroutine, into a mount namespace.
func enterMounts(ns *os.File) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // setns(2) refuses a thread that shares its root
		return err
	}
	return unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS)
}
