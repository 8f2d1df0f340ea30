//go:build linux

package pid1

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/netsetup"
)

// world implements guestd.Wall and guestd.Spawner.
type world struct {
	main, files *thread

	seal    guest.Seal
	staging int
	scratch []int    // the file systems that hold everything writable
	io      *os.File // the guest's own /proc/self/io
	oom     *os.File // the guest's own /proc/self/oom_score_adj
	oomOwn  string   // its initial value
	ahead   listeners

	mu       sync.Mutex // guards children, and orders fork against reaping
	children map[int]*child
	anyChild sync.Cond
}

// anyWritable is a directory on the scratch file system of every sandbox.
const anyWritable = "/tmp"

// Begin implements guestd.Wall.
func (w *world) Begin(b guest.Begin) error {
	err := w.main.do(func() error {
		if err := become(b.UID, b.GID); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("make the mounts private: %w", err)
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
		if err := (&builder{staging: w.staging}).run(b.Steps); err != nil {
			return err
		}
		return w.ahead.make(b.Listeners)
	})
	if err == nil {
		makeThreads()
	}
	return err
}

// Setup implements guestd.Wall.
func (w *world) Setup(s guest.Setup, fds []*os.File) error {
	return w.main.do(func() error {
		if err := resize(w.staging, s.Size, s.Inodes); err != nil {
			return fmt.Errorf("limit the scratch file system: %w", err)
		}
		b := &builder{staging: w.staging, fds: fds}
		if err := b.run(s.Steps); err != nil {
			return err
		}
		// The directory must lie inside the root: a descriptor of the staging directory would stay a way out of it, by
		// the guest's /proc/self/fd.
		fd, err := b.open(guest.Root + anyWritable)
		if err != nil {
			return fmt.Errorf("open %s: %w", anyWritable, err)
		}
		w.scratch = append(w.scratch, fd)
		return nil
	})
}

// stage mounts the scratch file system on the staging directory, with a provisional size until Setup sets the real one.
func (w *world) stage(staging string) error {
	under, err := unix.Open(staging, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", staging, err)
	}
	defer unix.Close(under)
	b := &builder{staging: under}
	err = b.step(guest.Step{Kind: guest.StepTmpfs, Target: "/", Size: 1 << 20, Inodes: 64, Mode: 0o755,
		Flags: guest.NoSuid | guest.NoDev})
	if err != nil {
		return fmt.Errorf("mount the scratch file system: %w", err)
	}
	w.staging, err = unix.Open(staging, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return err
}

// resize limits the tmpfs at a place to size bytes and inodes.
func resize(place int, size, inodes int64) error {
	fs, err := unix.Fspick(place, "", unix.FSPICK_CLOEXEC|unix.FSPICK_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("fspick: %w", err)
	}
	defer unix.Close(fs)
	if err := configure(fs, "size", strconv.FormatInt(size, 10), "nr_inodes", strconv.FormatInt(inodes, 10)); err != nil {
		return err
	}
	return unix.FsconfigReconfigure(fs)
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
		b := &builder{staging: w.staging, fds: fds}
		if err := b.run(p.Steps); err != nil {
			return err
		}
		if listeners, err = b.listen(p.Listeners, w.ahead, p.Seal); err != nil {
			return err
		}
		w.ahead.close()
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

// listeners are listening sockets made ahead, not yet requested.
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

// take removes and returns a listener, or nil.
func (ahead listeners) take(l guest.Listen) *os.File {
	f := ahead[l]
	delete(ahead, l)
	return f
}

func (ahead listeners) close() {
	for _, f := range ahead {
		f.Close()
	}
}

// listen returns the listening sockets, and makes those that were not made ahead.
func (b *builder) listen(ls []guest.Listen, ahead listeners, seal guest.Seal) (files []*os.File, err error) {
	for _, l := range ls {
		f := ahead.take(l)
		switch {
		case f != nil:
		case l.FD != nil:
			f, err = b.given(*l.FD)
		case l.Network != guest.UnixNetwork:
			f, err = netsetup.Listen(l.Network, l.Address)
		case !seal.Pivot:
			err = errors.New("there is no place for it")
		default:
			f, err = b.listenUnix(guest.Root+l.Address, seal)
		}
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, fmt.Errorf("listen on %s %s: %w", l.Network, l.Address, err)
		}
		files = append(files, f)
	}
	return files, nil
}

// given returns a descriptor of the request and takes ownership of it.
func (b *builder) given(i int) (*os.File, error) {
	if i < 0 || i >= len(b.fds) || b.fds[i] == nil {
		return nil, errors.New("no such descriptor")
	}
	f := b.fds[i]
	b.fds[i] = nil
	return f, nil
}

// listenUnix makes a listening socket that only the user's processes can connect to.
func (b *builder) listenUnix(target string, seal guest.Seal) (*os.File, error) {
	dir, err := b.parent(target)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	// bind(2) takes no directory descriptor.
	place := "/proc/self/fd/" + strconv.Itoa(dir) + "/" + path.Base(target)
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: place}); err == nil {
		if err = unix.Fchmodat(dir, path.Base(target), 0o600, 0); err == nil {
			if err = unix.Fchownat(dir, path.Base(target), seal.UserUID, seal.UserGID, unix.AT_SYMLINK_NOFOLLOW); err == nil {
				err = unix.Listen(fd, unix.SOMAXCONN)
			}
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), target), nil
}
