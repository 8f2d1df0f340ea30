//go:build linux

package pid1

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
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
	"github.com/cove-sandbox/cove/internal/linux/executor"
	"github.com/cove-sandbox/cove/internal/linux/netsetup"
	"github.com/cove-sandbox/cove/internal/linux/seccomp/load"
)

// world implements guestd.Wall and guestd.Spawner.
type world struct {
	main, files *thread
	seal        guest.Seal
	staging     int
	scratch     []int    // the file systems that hold everything writable
	io          *os.File // the guest's own /proc/self/io
	oom         *os.File // the guest's own /proc/self/oom_score_adj
	oomOwn      string   // its initial value
	ahead       listeners
	parked      int // the named pipe that a reader waits at; of the files thread

	mu       sync.Mutex // guards children, and orders fork against reaping
	children map[int]*child
	anyChild sync.Cond
}

// anyWritable is a directory on the scratch file system of every sandbox.
const anyWritable = "/tmp"

func (w *world) Begin(b guest.Begin) error {
	err := w.main.do(func() error {
		if err := become(b.UID, b.GID); err != nil {
			return err
		}
		// A guest may wait long for its plan. What the host unmounts meanwhile, such as the disk of another sandbox, must
		// not be kept by the copy of its mounts. Setup ends this.
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
			return fmt.Errorf("take the mounts from the host: %w", err)
		}
		// It applies to this thread, which starts all children.
		if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
			return fmt.Errorf("new cgroup namespace: %w", err)
		}
		if err := netsetup.LoopbackUp(); err != nil {
			return fmt.Errorf("bring up the loopback interface: %w", err)
		}
		if err := w.stage(b.Staging); err != nil {
			return err
		}
		if err := w.build(nil, func(steps *build.Builder) error { return steps.Steps(b.Steps) }); err != nil {
			return err
		}
		return w.ahead.make(b.Listeners)
	})
	if err == nil {
		makeThreads()
	}
	return err
}

func (w *world) Setup(s guest.Setup, fds []*os.File) error {
	return w.main.do(func() error {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("make the mounts private: %w", err)
		}
		err := w.build(fds, func(b *build.Builder) error {
			b.Resize(s.Size, s.Inodes)
			return b.Steps(s.Steps)
		})
		if err != nil {
			return err
		}
		// The directory must lie inside the root: one of the staging directory would be a way out, by /proc/self/fd.
		fd, err := unix.Openat2(w.staging, guest.Root+anyWritable, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
		if err != nil {
			return fmt.Errorf("open %s: %w", anyWritable, err)
		}
		w.scratch = append(w.scratch, fd)
		return nil
	})
}

// stage mounts the scratch file system on the staging directory, with a provisional size until Setup sets the real one.
func (w *world) stage(staging string) (err error) {
	open := func() (int, error) {
		fd, err := unix.Open(staging, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return fd, os.NewSyscallError("open "+staging, err)
	}
	if w.staging, err = open(); err != nil {
		return err
	}
	defer unix.Close(w.staging)
	err = w.build(nil, func(b *build.Builder) error { b.Scratch(); return nil })
	if err == nil {
		w.staging, err = open()
	}
	return err
}

// build executes a script in the staging directory.
func (w *world) build(fds []*os.File, add func(b *build.Builder) error) error {
	_, err := w.execute(0, fds, add)
	return err
}

func (w *world) execute(answer int, fds []*os.File, add func(b *build.Builder) error) ([]byte, error) {
	b := build.New(w.staging, answer, len(fds))
	if err := add(b); err != nil {
		return nil, err
	}
	numbers := make([]int, len(fds))
	for i, f := range fds {
		if numbers[i] = -1; f != nil {
			numbers[i] = int(f.Fd())
		}
	}
	data, err := executor.Here(b.Script, numbers...)
	return data, build.Explain(err)
}

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

// Bind implements guestd.Wall: late mounts, listeners, then the seal.
func (w *world) Bind(p guest.Bind, fds []*os.File) (listeners []*os.File, err error) {
	err = w.main.do(func() error {
		w.seal = p.Seal
		if w.io, err = os.Open("/proc/self/io"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err // absent on kernels without task accounting
		}
		if err := w.openOOM(); err != nil {
			return err
		}
		for _, place := range p.Scratch {
			if err := w.count(place, p.Scratch); err != nil {
				return err
			}
		}
		if err := w.build(fds, func(b *build.Builder) error { return b.Steps(p.Steps) }); err != nil {
			return err
		}
		if listeners, err = w.listen(p.Listeners, fds, p.Seal); err != nil {
			return err
		}
		guestd.CloseAll(slices.Collect(maps.Values(w.ahead)))
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

// openOOM opens the guest's OOM score, which fork raises for a moment. Afterwards fork restores the present value, not
// zero: systemd starts user sessions with 100 or 200, and only root outside may go below (oom_score_adj_min).
func (w *world) openOOM() error {
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return err
	}
	w.oomOwn = string(own)
	w.oom, err = os.OpenFile("/proc/self/oom_score_adj", os.O_WRONLY, 0)
	return err
}

// pivot makes the assembled tree the root of the process, and the host's root unreachable.
func pivot(staging int) error {
	fd, err := unix.Openat(staging, guest.Root[1:], unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Fchdir(fd); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	// The old root is mounted on top of the new one now (pivot_root(2)).
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the old root: %w", err)
	}
	return unix.Chdir("/")
}

type listeners map[guest.Listen]*os.File

func (ahead *listeners) make(ls []guest.Listen) error {
	*ahead = listeners{}
	for _, l := range ls {
		f, err := netsetup.Listen(l.Network, l.Address)
		if err != nil {
			return fmt.Errorf("listen on %s %s: %w", l.Network, l.Address, err)
		}
		(*ahead)[l] = f
	}
	return nil
}

// listen returns the listening sockets, and makes those that were not made ahead.
func (w *world) listen(ls []guest.Listen, fds []*os.File, seal guest.Seal) (files []*os.File, err error) {
	for _, l := range ls {
		f := w.ahead[l]
		delete(w.ahead, l)
		switch {
		case f != nil:
		case l.FD != nil:
			f, err = given(fds, *l.FD)
		case l.Network != guest.UnixNetwork:
			f, err = netsetup.Listen(l.Network, l.Address)
		case !seal.Pivot:
			err = errors.New("there is no place for it")
		default:
			f, err = w.listenUnix(l, seal)
		}
		if err != nil {
			guestd.CloseAll(files)
			return nil, fmt.Errorf("listen on %s %s: %w", l.Network, l.Address, err)
		}
		files = append(files, f)
	}
	return files, nil
}

// given returns a descriptor of the request and takes ownership of it.
func given(fds []*os.File, i int) (*os.File, error) {
	if i < 0 || i >= len(fds) || fds[i] == nil {
		return nil, errors.New("no such descriptor")
	}
	f := fds[i]
	fds[i] = nil
	return f, nil
}

func (w *world) listenUnix(l guest.Listen, seal guest.Seal) (*os.File, error) {
	place, err := os.Open(os.DevNull) // a descriptor for the script
	if err != nil {
		return nil, err
	}
	defer place.Close()
	answer, err := w.execute(8, nil, func(b *build.Builder) error {
		fd, err := b.ListenUnix(l, seal, int(place.Fd()))
		b.Store(b.Answer(), 8, fd)
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(binary.NativeEndian.Uint64(answer)), l.Address), nil
}

// become changes every id of every thread and drops all supplementary groups. A user namespace made without privilege
// may not change groups; the caller's remain there, which "cove doctor" reports.
func become(uid, gid int) error {
	if err := awaitSignals(); err != nil {
		return err
	}
	if err := syscall.Setgroups(nil); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("leave the groups: %w", err)
	}
	if err := syscall.Setresgid(gid, gid, gid); err != nil {
		return fmt.Errorf("become group %d: %w", gid, err)
	}
	if err := syscall.Setresuid(uid, uid, uid); err != nil {
		return fmt.Errorf("become user %d: %w", uid, err)
	}
	return nil
}

// enclose drops all privileges, in an order in which each step is still permitted. The drop is irreversible.
func (w *world) enclose(s guest.Seal) error {
	if s.Pivot {
		if err := pivot(w.staging); err != nil {
			return err
		}
		unix.Close(w.staging)
	}
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
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if ownID {
		data[0].Permitted, data[0].Effective = build.Kept, build.Kept
	}
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
