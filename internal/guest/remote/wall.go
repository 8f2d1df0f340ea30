//go:build linux

package remote

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/build"
	"github.com/cove-sandbox/cove/internal/guest/guestd"
	"github.com/cove-sandbox/cove/internal/linux/executor"
	"github.com/cove-sandbox/cove/internal/linux/netconnect"
)

// limitNumbers are the resources whose limits Begin reads.
var limitNumbers = slices.Concat(build.Halved,
	[]int{unix.RLIMIT_CORE, unix.RLIMIT_NOFILE, unix.RLIMIT_FSIZE, unix.RLIMIT_MEMLOCK})

const rlimitSize = int(unsafe.Sizeof(unix.Rlimit{}))

// Begin implements guestd.Wall.
func (w *world) Begin(p guest.Begin) error {
	if len(p.Listeners) > maxListeners {
		return errors.New("too many listeners")
	}
	b := build.New(slotStaging, rlimitSize*len(limitNumbers), 0)
	b.Doing("name the process")
	b.Do(unix.SYS_PRCTL, num(unix.PR_SET_NAME), b.Text("cove-guest"))
	b.Doing("read the limits")
	for i, n := range limitNumbers {
		b.Do(unix.SYS_PRLIMIT64, num(0), num(n), num(0), b.Answer().At(i*rlimitSize))
	}
	// A user namespace made without privilege may not change groups; the caller's remain there, which "cove doctor"
	// reports.
	b.Doing("leave the groups")
	b.Do(unix.SYS_SETGROUPS, num(0), num(0))
	b.Unless(unix.EPERM)
	b.Doing("become the guest's user")
	b.Do(unix.SYS_SETRESGID, num(p.GID), num(p.GID), num(p.GID))
	b.Do(unix.SYS_SETRESUID, num(p.UID), num(p.UID), num(p.UID))
	// A guest may wait long for its plan. What the host unmounts meanwhile, such as the disk of another sandbox, must
	// not be kept by the copy of its mounts. Setup ends this.
	b.Doing("take the mounts from the host")
	b.Do(unix.SYS_MOUNT, num(0), b.Text("/"), num(0), num(unix.MS_REC|unix.MS_SLAVE), num(0))
	b.Doing("new cgroup namespace")
	b.Do(unix.SYS_UNSHARE, num(unix.CLONE_NEWCGROUP))
	loopback(b)
	stage(b, p.Staging)
	if err := b.Steps(p.Steps); err != nil {
		return err
	}
	w.ahead = map[guest.Listen]int{}
	for i, l := range p.Listeners {
		fd, err := b.Listen(l)
		if err != nil {
			return fmt.Errorf("listen on %s %s: %w", l.Network, l.Address, err)
		}
		w.ahead[l] = slotListeners + i
		b.Keep(fd, w.ahead[l])
	}
	answer, _, err := w.run(b.Script)
	if err != nil {
		return err
	}
	w.begun, w.limits = p, map[int]uint64{}
	for i, n := range limitNumbers {
		w.limits[n] = binary.NativeEndian.Uint64(answer[i*rlimitSize+8:]) // rlim_max
	}
	return nil
}

func loopback(b *build.Builder) {
	b.Doing("bring up the loopback interface")
	var request [40]byte // struct ifreq
	copy(request[:], "lo")
	binary.NativeEndian.PutUint16(request[unix.IFNAMSIZ:], unix.IFF_UP|unix.IFF_RUNNING)
	fd := b.Call(unix.SYS_SOCKET, num(unix.AF_INET), num(unix.SOCK_DGRAM|unix.SOCK_CLOEXEC), num(0))
	b.Do(unix.SYS_IOCTL, fd, num(unix.SIOCSIFFLAGS), b.Bytes(request[:]))
	b.Close(fd)
}

// stage mounts the scratch file system on the staging directory, and keeps its root.
func stage(b *build.Builder, staging string) {
	h := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC}
	fd := b.Var()
	open := func() {
		b.Doing("open " + staging)
		b.OpenFrom(fd, executor.CWD, staging, h)
		b.Keep(fd, slotStaging)
		b.Close(fd)
	}
	open()
	b.Scratch()
	open()
}

// Setup implements guestd.Wall.
func (w *world) Setup(p guest.Setup, fds []*os.File) error {
	b := build.New(slotStaging, 0, len(fds))
	b.Doing("make the mounts private")
	b.Do(unix.SYS_MOUNT, num(0), b.Text("/"), num(0), num(unix.MS_REC|unix.MS_PRIVATE), num(0))
	b.Resize(p.Size, p.Inodes)
	if err := b.Steps(p.Steps); err != nil {
		return err
	}
	// The directory must lie inside the root: one of the staging directory would be a way out, by /proc/self/fd.
	b.Doing("open " + anyWritable)
	b.Keep(b.Open(guest.Root+anyWritable, unix.O_PATH), slotScratch)
	_, _, err := w.run(b.Script, fds...)
	return err
}

// anyWritable is a directory on the scratch file system of every sandbox, also of one that has /tmp in its layer.
const anyWritable = "/run"

// Bind implements guestd.Wall: late mounts, listeners, then the seal.
func (w *world) Bind(p guest.Bind, fds []*os.File) ([]*os.File, error) {
	if len(p.Scratch) > 0 || !p.Seal.Pivot || len(p.Hold) > maxHeld || len(p.Listeners) > maxListeners {
		return nil, errors.New("an executor has built its root itself, and holds few descriptors")
	}
	c, err := w.prepareCopy(p, fds)
	if err != nil {
		return nil, err
	}
	w.seal = p.Seal
	const oomSize = 16
	b := build.New(slotStaging, oomSize+8, len(fds)) // with the id of a copy
	oom := own(b, b.Answer())
	if err := b.Steps(p.Steps); err != nil {
		return nil, err
	}
	var made []executor.Value
	for _, l := range p.Listeners {
		fd, err := give(b, l, w.ahead, p.Seal)
		if err != nil {
			return nil, fmt.Errorf("listen on %s %s: %w", l.Network, l.Address, err)
		}
		made = append(made, fd)
	}
	for slot := slotListeners; slot <= executor.LastSlot && slot < slotListeners+len(w.ahead); slot++ {
		drop(b, slot)
	}
	if p.Hostname != "" {
		b.Doing("set the host name")
		b.Do(unix.SYS_SETHOSTNAME, b.Bytes([]byte(p.Hostname)), num(len(p.Hostname)))
	}
	if err := hold(b, p, made); err != nil {
		return nil, err
	}
	enter(b)
	if c != nil {
		if err := w.park(b, c, b.Answer().At(oomSize), b.Answer(), oom); err != nil {
			return nil, err
		}
		w.begin()
	}
	enclose(b, p.Seal, w.begun.UID != p.Seal.UserUID, p.Door != nil, w.limits)
	if p.Door != nil {
		executor.Door(b.Script, slotDoor) // the last: until then it ends with its connection
	}
	answer, files, err := w.run(b.Script, fds...)
	if err != nil {
		if c == nil {
			return nil, err
		}
		return nil, errors.Join(err, w.adopt(nil))
	}
	w.listeners, w.lasts = p.Listeners, p.Door != nil
	w.oomOwn = string(bytes.TrimRight(answer[:oomSize], "\x00"))
	listeners := files[:len(p.Listeners)]
	if c != nil {
		if err := w.have(c, answer[oomSize:], files[len(listeners):]); err != nil {
			guestd.CloseAll(listeners)
			return nil, err
		}
	}
	return listeners, w.check(listeners)
}

// hold keeps the door, the listeners and what else is to stay open.
func hold(b *build.Builder, p guest.Bind, listeners []executor.Value) error {
	if p.Door == nil {
		return nil
	}
	b.Doing("hold descriptors")
	for i, n := range append([]int{*p.Door}, p.Hold...) {
		fd, err := b.Given(n)
		if err != nil {
			return err
		}
		b.Keep(fd, slotDoor+i)
	}
	for i, fd := range listeners {
		b.Keep(fd, slotListeners+i)
	}
	return nil
}

// Listeners implements guestd.Holder.
func (w *world) Listeners() ([]*os.File, error) {
	if !w.lasts {
		return nil, errEnds
	}
	s := executor.New(0, 0)
	for i := range w.listeners {
		s.Give(num(slotListeners + i))
	}
	_, listeners, err := w.run(s)
	if err != nil {
		return nil, err
	}
	return listeners, w.check(listeners)
}

// Socket implements guestd.Holder.
func (w *world) Socket() (*os.File, error) {
	s := executor.New(0, 0)
	s.Doing("make a socket")
	s.Give(s.Call(unix.SYS_SOCKET, num(unix.AF_INET6), num(unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK),
		num(0)))
	_, files, err := w.run(s)
	if err != nil {
		return nil, err
	}
	if err := netconnect.Check(files[0]); err != nil {
		guestd.CloseAll(files)
		return nil, w.violated("a socket to connect: %v", err)
	}
	return files[0], nil
}

var errEnds = &guest.Failure{Kind: guest.FailState, Message: "the sandbox ends with its connection"}

// check refuses what is no listener, and ends the executor then.
func (w *world) check(listeners []*os.File) error {
	for i, f := range listeners {
		l := w.listeners[i]
		if err := checkListener(f, l); err != nil {
			guestd.CloseAll(listeners)
			return w.violated("a listener for %s %s: %v", l.Network, l.Address, err)
		}
	}
	return nil
}

// own opens what the executor needs of its own /proc, which only a process that may be dumped has.
//
// Start raises the OOM score for a moment, and restores the present value, not zero: systemd starts user sessions with
// 100 or 200, and only root outside may go below (oom_score_adj_min).
func own(b *build.Builder, oom executor.Value) (size executor.Value) {
	b.Doing("open the executor's own /proc")
	b.Do(unix.SYS_PRCTL, num(unix.PR_SET_DUMPABLE), num(1), num(0), num(0), num(0))
	open := func(name string, flags int) executor.Value {
		return b.Call(unix.SYS_OPENAT, executor.CWD, b.Text("/proc/self/"+name), num(flags|unix.O_CLOEXEC), num(0))
	}
	end := b.Label()
	io := open("io", unix.O_RDONLY)
	b.On(unix.ENOENT, end) // on kernels without task accounting
	b.Keep(io, slotIO)
	b.Here(end)
	fd := open("oom_score_adj", unix.O_RDWR)
	size = b.Call(unix.SYS_READ, fd, oom, num(15))
	b.Keep(fd, slotOOM)
	return size
}

// give gives a listening socket to the host, which may have been made ahead.
func give(b *build.Builder, l guest.Listen, ahead map[guest.Listen]int,
	seal guest.Seal) (fd executor.Value, err error) {
	slot, made := ahead[l]
	switch {
	case made:
		fd = num(slot)
	case l.FD != nil:
		fd, err = b.Given(*l.FD)
	case l.Network == guest.UnixNetwork:
		fd, err = b.ListenUnix(l, seal, slotPlace)
	default:
		fd, err = b.Listen(l)
	}
	if err == nil && made { // what is given is open until the answer has been sent
		fd = b.Call(unix.SYS_FCNTL, fd, num(unix.F_DUPFD_CLOEXEC), num(0))
	}
	b.Give(fd)
	return fd, err
}

// checkListener refuses a descriptor that is not a socket of a listener's kind.
func checkListener(f *os.File, l guest.Listen) error {
	fd := int(f.Fd())
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return err
	}
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return err
	}
	listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return err
	}
	want := map[string][3]int{guest.UnixNetwork: {unix.AF_UNIX, unix.SOCK_STREAM, 1},
		"tcp4": {unix.AF_INET, unix.SOCK_STREAM, 1}, "tcp6": {unix.AF_INET6, unix.SOCK_STREAM, 1},
		"udp4": {unix.AF_INET, unix.SOCK_DGRAM, 0}, "udp6": {unix.AF_INET6, unix.SOCK_DGRAM, 0}}[l.Network]
	if is := [3]int{domain, kind, listens}; is != want {
		return fmt.Errorf("the socket is of the kind %d, want %d", is, want)
	}
	return nil
}

// enter makes the root that was built the executor's.
func enter(b *build.Builder) {
	b.Doing("enter the root")
	root := b.Call(unix.SYS_OPENAT, num(slotStaging), b.Text(guest.Root[1:]),
		num(unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC), num(0))
	b.Do(unix.SYS_FCHDIR, root)
	b.Do(unix.SYS_PIVOT_ROOT, b.Text("."), b.Text("."))
	// The old root is mounted on top of the new one now (pivot_root(2)).
	b.Do(unix.SYS_UMOUNT2, b.Text("."), num(unix.MNT_DETACH))
	b.Do(unix.SYS_CHDIR, b.Text("/"))
	b.Close(root)
	drop(b, slotStaging)
	b.Do(unix.SYS_UMASK, num(0o022))
}

// enclose drops all privileges, in an order in which each step is still permitted: the filter is loaded without
// no_new_privs while the executor may still do that, for root inside. The drop is irreversible. What an executor that
// lasts has beyond the user is inheritable, for the keepers that it starts.
// A copy does the same by sealCopy.
func enclose(b *build.Builder, s guest.Seal, ownID, lasts bool, hard map[int]uint64) {
	b.Doing("not dumpable")
	b.Do(unix.SYS_PRCTL, num(unix.PR_SET_DUMPABLE), num(0), num(0), num(0), num(0))
	b.Doing("drop capabilities")
	header := b.Bytes(executor.Structure(unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}))
	var data [2]unix.CapUserData
	if lasts { // before the bounding set is empty, which bounds what can be made inheritable
		data[0].Inheritable = forKeepers(ownID)
		all := b.Space(int(unsafe.Sizeof(data)))
		b.Do(unix.SYS_CAPGET, header, all)
		b.Store(all.At(int(unsafe.Offsetof(data[0].Inheritable))), 4, num(int(data[0].Inheritable)))
		b.Do(unix.SYS_CAPSET, header, all)
	}
	dropped := b.Label()
	for c := range build.LastCapability + 1 {
		if s.Capabilities>>c&1 != 0 {
			continue
		}
		b.Do(unix.SYS_PRCTL, num(unix.PR_CAPBSET_DROP), num(c), num(0), num(0), num(0))
		b.On(unix.EINVAL, dropped) // beyond the kernel's last
	}
	b.Here(dropped)
	b.Do(unix.SYS_PRCTL, num(unix.PR_CAP_AMBIENT), num(unix.PR_CAP_AMBIENT_CLEAR_ALL), num(0), num(0), num(0))
	held := uint32(s.Capabilities)
	if ownID {
		held = build.Kept
	}
	held |= data[0].Inheritable
	data[0].Permitted, data[0].Effective = held, held
	b.Doing("set the resource limits") // Start sets that of open files
	set(b.Script, limits(s, hard)...)
	b.Doing("load the seccomp filter")
	if s.Capabilities == 0 {
		b.Do(unix.SYS_PRCTL, num(unix.PR_SET_NO_NEW_PRIVS), num(1), num(0), num(0), num(0))
	}
	program := b.Words(num(len(s.Filter)/8), b.Bytes(s.Filter)) // struct sock_fprog
	b.Do(unix.SYS_SECCOMP, num(unix.SECCOMP_SET_MODE_FILTER), num(0), program)
	b.Doing("drop the rest")
	b.Do(unix.SYS_CAPSET, header, b.Bytes(executor.Structure(data)))
}

// forKeepers are the capabilities that a keeper has beyond the user's programs.
func forKeepers(ownID bool) uint32 {
	if ownID {
		return build.Kept | build.Guard
	}
	return build.Guard
}

// rlimit is a limit of a resource.
type rlimit struct {
	resource int
	value    uint64
}

func (l rlimit) both() unix.Rlimit { return unix.Rlimit{Cur: l.value, Max: l.value} }

// limits returns the limits of the executor and its children, where hard are those that it began with: a limit that is
// lower stays, for raising needs a privilege on the host. openFiles is another one, of its children alone.
func limits(s guest.Seal, hard map[int]uint64) (all []rlimit) {
	add := func(resource int, value uint64) {
		all = append(all, rlimit{resource, min(value, hard[resource])})
	}
	for _, resource := range build.Halved {
		add(resource, hard[resource]/2)
	}
	// 1 is smaller than any core file, and the one value with which the kernel does not start the host's crash handler
	// (fs/coredump.c); 0 applies to files only. The seccomp policy preserves it.
	add(unix.RLIMIT_CORE, 1)
	if s.FileSize > 0 {
		add(unix.RLIMIT_FSIZE, uint64(s.FileSize))
	}
	add(unix.RLIMIT_MEMLOCK, 64<<10)
	return all
}

func (w *world) openFiles() rlimit {
	files := w.limits[unix.RLIMIT_NOFILE]
	if w.seal.OpenFiles > 0 {
		files = min(files, uint64(w.seal.OpenFiles))
	}
	return rlimit{unix.RLIMIT_NOFILE, files}
}

// set appends the calls that set limits.
func set(s *executor.Script, all ...rlimit) {
	for _, l := range all {
		s.Do(unix.SYS_PRLIMIT64, num(0), num(l.resource), s.Bytes(executor.Structure(l.both())), num(0))
	}
}

// run has a script executed, with descriptors.
func (w *world) run(s *executor.Script, files ...*os.File) ([]byte, []*os.File, error) {
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	answer, given, err := w.executor.Run(context.Background(), s, fds...)
	if errors.Is(err, executor.ErrGone) {
		<-w.left // the end of the connection says why
	}
	return answer, given, build.Explain(err)
}

// violated ends an executor that gives what no script asks for.
func (w *world) violated(format string, args ...any) error {
	v := &executor.Violation{Reason: fmt.Sprintf(format, args...)}
	w.executor.Break(v)
	<-w.left
	return v
}

var _ guestd.Wall = (*world)(nil)
