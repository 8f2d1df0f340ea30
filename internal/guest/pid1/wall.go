//go:build linux

package pid1

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/build"
	"github.com/cove-sandbox/cove/internal/guest/guestd"
	"github.com/cove-sandbox/cove/internal/linux/seccomp/load"
)

// world implements guestd.Wall and guestd.Spawner.
type world struct {
	main, files *thread
	seal        guest.Seal
	scratch     []int    // the file systems that hold everything writable
	io          *os.File // the guest's own /proc/self/io
	oom         *os.File // the guest's own /proc/self/oom_score_adj
	oomOwn      string   // its initial value
	parked      int      // the named pipe that a reader waits at; of the files thread
	mortal      bool     // processes end with it; of PID 1, the kernel sees to that

	mu       sync.Mutex // guards children, and orders fork against reaping
	children map[int]*child
	anyChild sync.Cond
}

var errBuilt = errors.New("a container engine has built the root")

// Begin implements guestd.Wall.
func (w *world) Begin(guest.Begin) error { return errBuilt }

// Setup implements guestd.Wall.
func (w *world) Setup(guest.Setup, []*os.File) error { return errBuilt }

// count adds the file system at a place, which the guest may be unable to read, to Stats. A symlink of the image may
// have led the container engine's mount elsewhere; only another of the places is accepted as its target.
func (w *world) count(place string, places []string) error {
	fd, err := unix.Open(place, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", place, err)
	}
	w.scratch = append(w.scratch, fd)
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return err
	}
	if !slices.Contains(places, real) {
		return fmt.Errorf("the image's %s leads to %s, where nothing may be written", place, real)
	}
	return nil
}

// Bind implements guestd.Wall: the listeners that the host has made, then the seal.
func (w *world) Bind(p guest.Bind, fds []*os.File) (listeners []*os.File, err error) {
	if len(p.Steps) > 0 || p.Seal.Pivot {
		return nil, errBuilt
	}
	err = w.main.do(func() error {
		w.seal = p.Seal
		if err := w.openOwn(); err != nil {
			return err
		}
		for _, place := range p.Scratch {
			if err := w.count(place, p.Scratch); err != nil {
				return err
			}
		}
		if listeners, err = taken(p.Listeners, fds); err != nil {
			return err
		}
		if p.Hostname != "" {
			if err := unix.Sethostname([]byte(p.Hostname)); err != nil {
				return fmt.Errorf("set the host name: %w", err)
			}
		}
		return w.enclose(p.Seal)
	})
	if err != nil {
		return nil, err
	}
	if err := w.startFiles(); err != nil {
		return nil, err
	}
	w.startReaping()
	return listeners, nil
}

// openOwn opens what the guest needs of its own /proc.
//
// fork raises the OOM score for a moment. Afterwards it restores the present value, not zero: systemd starts user
// sessions with 100 or 200, and only root outside may go below (oom_score_adj_min).
func (w *world) openOwn() (err error) {
	if w.io, err = os.Open("/proc/self/io"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // absent on kernels without task accounting
	}
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return err
	}
	w.oomOwn = string(own)
	w.oom, err = os.OpenFile("/proc/self/oom_score_adj", os.O_WRONLY, 0)
	return err
}

// taken returns the listening sockets, each a descriptor of the request, and takes ownership of them.
func taken(ls []guest.Listen, fds []*os.File) (files []*os.File, err error) {
	for _, l := range ls {
		if l.FD == nil || *l.FD < 0 || *l.FD >= len(fds) || fds[*l.FD] == nil {
			guestd.CloseAll(files)
			return nil, fmt.Errorf("listen on %s %s: no such descriptor", l.Network, l.Address)
		}
		files = append(files, fds[*l.FD])
		fds[*l.FD] = nil
	}
	return files, nil
}

// enclose drops all privileges, in an order in which each step is still permitted. The drop is irreversible.
func (w *world) enclose(s guest.Seal) error {
	syscall.Umask(0o022)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("not dumpable: %w", err)
	}
	if err := dropCapabilities(unix.Getuid() != s.UserUID); err != nil {
		return err
	}
	if err := limits(s); err != nil { // of signals, too, of which the drop needs some
		return err
	}
	return load.Filter(s.Filter, unix.SECCOMP_FILTER_FLAG_TSYNC)
}

func limits(s guest.Seal) error {
	for _, resource := range build.Halved {
		var l syscall.Rlimit
		if err := syscall.Getrlimit(resource, &l); err != nil {
			return err
		}
		if err := setLimit(resource, l.Max/2); err != nil {
			return err
		}
	}
	for _, l := range []struct {
		resource int
		value    uint64
	}{
		// 1 is smaller than any core file, and the one value with which the kernel does not start the host's crash
		// handler (fs/coredump.c); 0 applies to files only. The seccomp policy preserves it.
		{unix.RLIMIT_CORE, 1},
		{unix.RLIMIT_NOFILE, uint64(s.OpenFiles)},
		{unix.RLIMIT_FSIZE, uint64(s.FileSize)},
		{unix.RLIMIT_MEMLOCK, 64 << 10},
	} {
		if l.value == 0 {
			continue
		}
		if err := setLimit(l.resource, l.value); err != nil {
			return err
		}
	}
	return nil
}

// setLimit lowers a limit to a value. One that is lower stays: raising needs a privilege on the host.
func setLimit(resource int, value uint64) error {
	var have syscall.Rlimit
	if err := syscall.Getrlimit(resource, &have); err != nil {
		return err
	}
	value = min(value, have.Max)
	if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: value, Max: value}); err != nil {
		return fmt.Errorf("resource limit %d: %w", resource, err)
	}
	return nil
}

// dropCapabilities empties the bounding, ambient and inheritable sets, and reduces the permitted and effective ones to
// kept, or to nothing. The first two are the main thread's: they matter at an exec only, and every child comes from it.
func dropCapabilities(ownID bool) error {
	for c := uintptr(0); c <= build.LastCapability; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if err == unix.EINVAL {
			break // beyond the kernel's last
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	if err := awaitSignals(); err != nil {
		return err
	}
	if ownID {
		return keepCapabilities(build.Kept)
	}
	return keepCapabilities(0)
}

// keepCapabilities reduces the capabilities of all threads to those of a set that they have. No child inherits them.
func keepCapabilities(set uint32) error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("look at the capabilities: %w", err)
	}
	kept := data[0].Permitted & set
	data = [2]unix.CapUserData{{Permitted: kept, Effective: kept}}
	_, _, errno := syscall.AllThreadsSyscall6(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)),
		uintptr(unsafe.Pointer(&data)), 0, 0, 0, 0)
	runtime.KeepAlive(&hdr)
	runtime.KeepAlive(&data)
	if errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	return nil
}

// setFSIDs sets this thread's file-system ids. The call returns the old value and no error, so a second verifies it.
func setFSIDs(uid, gid int) error {
	syscall.RawSyscall(unix.SYS_SETFSGID, uintptr(gid), 0, 0)
	syscall.RawSyscall(unix.SYS_SETFSUID, uintptr(uid), 0, 0)
	none := ^uintptr(0)
	g, _, _ := syscall.RawSyscall(unix.SYS_SETFSGID, none, 0, 0)
	u, _, _ := syscall.RawSyscall(unix.SYS_SETFSUID, none, 0, 0)
	if int(g) != gid || int(u) != uid {
		return fmt.Errorf("the files thread could not become user %d", uid)
	}
	return nil
}
