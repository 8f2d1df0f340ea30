//go:build linux

package remote

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path"
	"reflect"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/build"
	"github.com/cove-sandbox/cove/internal/guest/guestd"
	"github.com/cove-sandbox/cove/internal/guest/stream"
	"github.com/cove-sandbox/cove/internal/linux/executor"
	"github.com/cove-sandbox/cove/internal/linux/zygote"
)

// Park implements guestd.Files. The pipe is open for both directions, so that its readers neither wait to open it nor
// find its end.
func (f files) Park(p string) error {
	_, err := f.on(p, 0, func(s *executor.Script) { parkAt(s, p) })
	return err
}

func parkAt(s *executor.Script, p string) {
	s.Do(unix.SYS_MKNODAT, executor.CWD, s.Text(p), num(unix.S_IFIFO|0o600), num(0))
	fd := s.Call(unix.SYS_OPENAT, executor.CWD, s.Text(p),
		num(unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC), num(0))
	s.Keep(fd, slotParked)
}

// Release implements guestd.Files. The file is complete before the reader goes on, which may open it.
func (f files) Release(w guest.WriteFile, data []byte) error {
	mode := w.Mode & uint32(fs.ModePerm)
	_, err := f.on(w.Path, 0, func(s *executor.Script) {
		made := path.Join(path.Dir(w.Path), guest.ReleaseName)
		fd := s.Call(unix.SYS_OPENAT, executor.CWD, s.Text(made),
			num(unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC), num(mode))
		s.Do(unix.SYS_FCHMOD, fd, num(mode))
		build.Write(s, fd, data)
		s.Do(unix.SYS_RENAMEAT, executor.CWD, s.Text(made), executor.CWD, s.Text(w.Path))
		build.Write(s, num(slotParked), data)
		s.Keep(num(0), slotParked)
	})
	return err
}

var _ guestd.Parent = (*child)(nil)

// Zygote implements guestd.Parent.
func (c *child) Zygote(fifo string) (*os.File, error) {
	pid, err := c.outside()
	if err != nil {
		return nil, err
	}
	return zygote.Take(pid, fifo, c.world.sealCopy)
}

// outside is the process's id in the namespace of this program.
func (c *child) outside() (int, error) {
	s := executor.New(0, 0)
	s.Give(s.Call(unix.SYS_PIDFD_OPEN, num(c.pid), num(0)))
	_, files, err := c.world.run(s)
	if err != nil {
		return 0, err
	}
	defer files[0].Close()
	text, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(int(files[0].Fd())))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if pid, ok := strings.CutPrefix(line, "Pid:"); ok {
			if n, err := strconv.Atoi(strings.TrimSpace(pid)); err == nil && n > 0 {
				return n, nil
			}
		}
	}
	return 0, c.world.violated("a process that is none")
}

// sealCopy appends what a process of the user's has been through when its program starts, as enclose and Start have it.
func (w *world) sealCopy(p *zygote.Program) {
	call := func(number int, args ...int) {
		all := make([]uint64, len(args))
		for i, a := range args {
			all[i] = uint64(a)
		}
		p.Do(number, all...)
	}
	for c := range build.LastCapability + 1 { // while it still may
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err != nil {
			break // beyond the kernel's last
		}
		call(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, int(c))
	}
	if uid, gid := w.seal.UserUID, w.seal.UserGID; w.begun.UID != uid {
		p.Do(unix.SYS_SETGROUPS, uint64(len(w.seal.UserGroups)), p.Bytes(groupList(w.seal.UserGroups)))
		call(unix.SYS_SETRESGID, gid, gid, gid)
		call(unix.SYS_SETRESUID, uid, uid, uid)
	}
	call(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL)
	header := p.Bytes(executor.Structure(unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}))
	p.Do(unix.SYS_CAPSET, header, p.Bytes(executor.Structure([2]unix.CapUserData{})))
	for _, l := range append(limits(w.seal, w.limits), w.openFiles()) {
		p.Do(unix.SYS_PRLIMIT64, 0, uint64(l.resource), p.Bytes(executor.Structure(l.both())), 0)
	}
	call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1)
	call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
	program := zygote.Words(uint64(len(w.seal.Filter)/8), p.Bytes(w.seal.Filter)) // struct sock_fprog
	p.Do(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, p.Bytes(program))
}

// copying is a copy that Bind makes.
type copying struct {
	guest.Copy
	image *zygote.Image
	file  *os.File
	own   []zygote.Area
}

// prepareCopy reads what a Bind needs to make its copy; nil for none.
func (w *world) prepareCopy(p guest.Bind, fds []*os.File) (*copying, error) {
	if p.Copy == nil {
		return nil, nil
	}
	if p.Copy.FD < 0 || p.Copy.FD >= len(fds) || p.Door != nil || p.Copy.Spec.TTY || p.Copy.Spec.Stdin ||
		p.Seal.Capabilities != 0 { // a copy has none
		return nil, &guest.Failure{Kind: guest.FailInvalid, Message: "no such copy can be made"}
	}
	c := &copying{Copy: *p.Copy, file: fds[p.Copy.FD]}
	var err error
	if c.image, err = zygote.Open(c.file); err != nil {
		return nil, err
	}
	const page = 4096 // what the kernel tells of its mappings at once
	s := executor.New(2*page, 0)
	s.Doing("read the layout of the executor's memory")
	s.Do(unix.SYS_PRCTL, num(unix.PR_SET_DUMPABLE), num(1), num(0), num(0), num(0)) // or its /proc is not its own
	fd := s.Call(unix.SYS_OPENAT, executor.CWD, s.Text("/proc/self/maps"), num(unix.O_RDONLY|unix.O_CLOEXEC), num(0))
	for i := range 2 {
		s.Do(unix.SYS_READ, fd, s.Answer().At(i*page), num(page))
	}
	answer, _, err := w.run(s)
	if err != nil {
		return nil, err
	}
	c.own, err = zygote.Layout(bytes.ReplaceAll(answer, []byte{0}, nil))
	return c, err
}

// park appends the calls that make the copy: before the executor gives up the privileges that they need, which the copy
// gives up itself before it runs. The id of its process goes to pid, and its output and errors to the host.
func (w *world) park(b *build.Builder, c *copying, pid, oom, oomSize executor.Value) error {
	b.Doing("make a copy of the zygote")
	w.asUser(b.Script)
	parkAt(b.Script, c.Path)
	ends := streams(b.Script, false)
	w.asGuest(b.Script)
	score := func(value, size executor.Value) {
		b.Do(unix.SYS_PWRITE64, num(slotOOM), value, size, num(0))
		b.Unless(executor.AnyError)
	}
	score(b.Bytes([]byte(userScore)), num(len(userScore)))
	var failed error
	b.Store(pid, 8, b.Fork(func() {
		b.Do(unix.SYS_SETSID)
		w.asUser(b.Script)
		b.Do(unix.SYS_CHDIR, b.Text(c.Spec.Dir))
		for i, fd := range ends {
			b.Do(unix.SYS_DUP3, fd, num(i), num(0))
		}
		pipe := b.Call(unix.SYS_OPENAT, executor.CWD, b.Text(c.Path), num(c.image.Flags), num(0))
		failed = c.image.Become(b.Script, b.File(c.FD), pipe, c.own, c.Sparse)
	}))
	score(oom, oomSize)
	return failed
}

// copied is a copy that runs, until a Start takes it.
type copied struct {
	spec    guest.ProcessSpec
	process *child
}

// have takes up the copy that a Bind has made.
func (w *world) have(c *copying, answer []byte, streams []*os.File) error {
	made := &child{world: w, exited: make(chan struct{}), pid: int(binary.NativeEndian.Uint64(answer))}
	err := check(streams, false)
	if err == nil && made.pid != c.image.PID {
		err = fmt.Errorf("a process of the id %d", made.pid)
	}
	if err == nil {
		err = w.adopt(made)
	}
	if err != nil {
		guestd.CloseAll(streams)
		return w.violated("%v", err)
	}
	made.stdout, made.stderr = stream.NewPipeOutput(streams[0]), stream.NewPipeOutput(streams[1])
	w.mu.Lock()
	defer w.mu.Unlock()
	w.copied = &copied{spec: c.Spec, process: made}
	return nil
}

// take returns the copy of a program, for the one Start that asks for it; nil for none. Another program would share the
// pipe at which the copy waits, and is refused.
func (w *world) take(spec guest.ProcessSpec) (*child, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	made := w.copied
	if made == nil {
		return nil, nil
	}
	if !reflect.DeepEqual(made.spec, spec) {
		return nil, &guest.Failure{Kind: guest.FailState, Message: "another program is parked in this sandbox"}
	}
	w.copied = nil
	return made.process, nil
}
