//go:build linux

package remote

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/guestd"
	"github.com/cove-sandbox/cove/internal/guest/stream"
	"github.com/cove-sandbox/cove/internal/linux/executor"
)

var _ guestd.Spawner = (*world)(nil)

type child struct {
	world  *world
	pid    int
	stdin  io.WriteCloser
	stdout *stream.Output
	stderr *stream.Output // nil for a terminal
	master *os.File       // of a terminal
	exited chan struct{}
	status unix.WaitStatus // set before exited is closed
}

// sigSetmask is SIG_SETMASK.
const sigSetmask = 2

// The parts of a start, in errors.
const (
	doingStart = "start"
	doingFind  = "find the program"
)

// Start implements guestd.Spawner.
func (w *world) Start(spec guest.ProcessSpec) (guestd.Process, error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	if w.lasts {
		return nil, &guest.Failure{Kind: guest.FailState, Message: "the processes of this sandbox have a keeper"}
	}
	if c, err := w.take(spec); err != nil {
		return nil, err
	} else if c != nil {
		return c, nil
	}
	w.begin()
	answer, files, err := w.run(w.startScript(spec))
	if err != nil {
		if lie := w.adopt(nil); lie != nil {
			return nil, w.violated("%v", lie)
		}
		return nil, explainStart(err, spec.Args[0])
	}
	c := &child{world: w, exited: make(chan struct{})}
	err = check(files, spec.TTY)
	if pid := binary.NativeEndian.Uint64(answer); err == nil && (pid <= 1 || pid > math.MaxInt32) {
		err = fmt.Errorf("a process of the id %d", int64(pid))
	} else {
		c.pid = int(pid)
	}
	if err == nil {
		err = w.adopt(c)
	}
	if err != nil {
		guestd.CloseAll(files)
		return nil, w.violated("%v", err)
	}
	if spec.TTY {
		c.master = files[0]
		c.stdin, c.stdout = stream.Keyboard{Terminal: c.master}, stream.NewOutput(c.master)
	} else {
		c.stdout, c.stderr = stream.NewPipeOutput(files[0]), stream.NewPipeOutput(files[1])
		if spec.Stdin {
			c.stdin = files[2]
		}
	}
	return c, nil
}

// check refuses streams that are none, or lead into the other direction, which could keep a reader for ever.
func check(files []*os.File, terminal bool) error {
	for i, f := range files {
		conn, err := f.SyscallConn()
		if err != nil {
			return err
		}
		failed := conn.Control(func(fd uintptr) {
			if terminal {
				_, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
				return
			}
			want := unix.O_RDONLY
			if i == 2 {
				want = unix.O_WRONLY
			}
			err = checkPipe(int(fd), want)
		})
		if err = errors.Join(failed, err); err != nil {
			return fmt.Errorf("stream %d: %w", i, err)
		}
		if err := f.SetDeadline(time.Time{}); err != nil {
			return fmt.Errorf("stream %d blocks", i)
		}
	}
	return nil
}

func checkPipe(fd, want int) error {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err != nil {
		return err
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err == nil && flags&unix.O_ACCMODE != want {
		err = errors.New("it leads into the other direction")
	}
	return err
}

func explainStart(err error, program string) error {
	failure, ok := errors.AsType[*executor.Error](err)
	switch {
	case errors.Is(err, executor.ErrTooLarge):
		return &os.PathError{Op: doingStart, Path: program, Err: unix.E2BIG}
	case !ok:
		return err
	case failure.Doing == doingFind:
		return &guest.Failure{Kind: guest.FailNotFound, Message: fmt.Sprintf("%s: not found in PATH", program)}
	}
	return &os.PathError{Op: failure.Doing, Path: program, Err: failure.Errno}
}

// begin announces a call of adopt.
func (w *world) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.starting++
}

// adopt takes up a child whose end may have been told already; nil is one that has not been started. The error is a lie
// of the executor's.
func (w *world) adopt(c *child) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.starting--
	if c != nil {
		status, over := w.early[c.pid]
		switch {
		case over:
			delete(w.early, c.pid)
			c.end(status)
		case w.children == nil:
			c.end(killed)
		case w.children[c.pid] != nil:
			return fmt.Errorf("the process %d is started twice", c.pid)
		default:
			w.children[c.pid] = c
		}
	}
	if len(w.early) > w.starting {
		return errUnknown
	}
	return nil
}

var errUnknown = errors.New("the end of a process that was not started")

// killed is the status of a process that was killed.
const killed = unix.WaitStatus(unix.SIGKILL)

func (c *child) end(status unix.WaitStatus) {
	c.status = status
	close(c.exited)
}

// ended is told of the end of a child. An error is a lie.
func (w *world) ended(pid int, status unix.WaitStatus) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, twice := w.early[pid]
	switch c := w.children[pid]; {
	case !status.Exited() && !status.Signaled():
		return &executor.Violation{Reason: fmt.Sprintf("a process ends with the status %#x", uint32(status))}
	case c != nil:
		delete(w.children, pid)
		c.end(status)
	case twice || len(w.early) >= w.starting:
		return &executor.Violation{Reason: errUnknown.Error()}
	default:
		w.early[pid] = status
	}
	return nil
}

// abandon ends the children of an executor that has gone: the kernel has killed them.
func (w *world) abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.children {
		c.end(killed)
	}
	w.children = nil
}

// userScore is the OOM score of the user's processes.
const userScore = "1000"

// startScript starts a process and gives the host's ends of its streams: output, errors, and input if there is one; or
// its terminal.
func (w *world) startScript(spec guest.ProcessSpec) *executor.Script {
	s := executor.New(8, 0)
	s.Doing(doingFind)
	program := find(s, spec.Args[0], spec.Env)
	s.Doing("make the streams")
	var ends [3]executor.Value
	if spec.TTY {
		slave := w.terminal(s, spec)
		ends = [3]executor.Value{slave, slave, slave}
	} else {
		w.asUser(s) // who may open them by the names in /dev
		ends = streams(s, spec.Stdin)
		w.asGuest(s)
	}
	s.Doing(doingStart)
	// The child inherits the score, so that memory runs out for the user's processes before it does for PID 1.
	score := func(value string) {
		s.Do(unix.SYS_PWRITE64, num(slotOOM), s.Bytes([]byte(value)), num(len(value)), num(0))
		s.Unless(executor.AnyError)
	}
	score(userScore)
	s.Store(s.Answer(), 8, s.Fork(func() { w.child(s, spec, program, ends) }))
	s.Finally(func() {
		score(w.oomOwn)
		w.asGuest(s) // if it was the user meanwhile
	})
	return s
}

// child appends the calls of a new process before it is the program.
func (w *world) child(s *executor.Script, spec guest.ProcessSpec, program executor.Value, ends [3]executor.Value) {
	s.Do(unix.SYS_SETSID)
	if w.begun.UID != w.seal.UserUID {
		s.Do(unix.SYS_SETGROUPS, num(len(w.seal.UserGroups)), s.Bytes(groupList(w.seal.UserGroups)))
		s.Do(unix.SYS_SETRESGID, num(w.seal.UserGID), num(w.seal.UserGID), num(w.seal.UserGID))
		s.Do(unix.SYS_SETRESUID, num(w.seal.UserUID), num(w.seal.UserUID), num(w.seal.UserUID))
		// Until it is the program it has the memory and the descriptors of the executor, also where fs.suid_dumpable is 1.
		s.Do(unix.SYS_PRCTL, num(unix.PR_SET_DUMPABLE), num(0), num(0), num(0), num(0))
	}
	if spec.Dir != "" {
		s.Do(unix.SYS_CHDIR, s.Text(spec.Dir))
	}
	for i, fd := range ends {
		s.Do(unix.SYS_DUP3, fd, num(i), num(0))
	}
	if spec.TTY {
		s.Do(unix.SYS_IOCTL, num(0), num(unix.TIOCSCTTY), num(0))
	}
	w.prepare(s)
	s.Do(unix.SYS_EXECVE, program, words(s, spec.Args), words(s, spec.Env))
}

// prepare gives a new process its limit of open files and its signals.
func (w *world) prepare(s *executor.Script) {
	set(s, w.openFiles())
	s.Do(unix.SYS_RT_SIGPROCMASK, num(sigSetmask), s.Bytes(make([]byte, 8)), num(0), num(8))
}

// words are strings as execve takes them.
func words(s *executor.Script, texts []string) executor.Value {
	var all []executor.Value
	for _, t := range texts {
		all = append(all, s.Text(t))
	}
	return s.Words(append(all, num(0))...)
}

// find is the path of a program, found as execvp would, in the environment's own PATH.
func find(s *executor.Script, name string, env []string) executor.Value {
	if strings.Contains(name, "/") {
		return s.Text(name)
	}
	search := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = v
		}
	}
	found, st, program := s.Label(), s.Space(int(unsafe.Sizeof(unix.Stat_t{}))), s.Var()
	for dir := range strings.SplitSeq(search, ":") {
		if !strings.HasPrefix(dir, "/") {
			continue
		}
		s.Scope(func() {
			next, file := s.Label(), s.Text(path.Join(dir, name))
			s.Do(sysFstatat, executor.CWD, file, st, num(0))
			s.On(executor.AnyError, next)
			mode := s.Load(st.At(int(unsafe.Offsetof(unix.Stat_t{}.Mode))), 4)
			s.JumpUnless(mode, unix.S_IFMT, unix.S_IFREG, next)
			s.Set(program, file)
			for _, x := range []uint64{0o100, 0o010, 0o001} {
				not := s.Label()
				s.JumpUnless(mode, x, x, not)
				s.Jump(found)
				s.Here(not)
			}
			s.Here(next)
		})
	}
	s.Fail(num(unix.ENOENT))
	s.Here(found)
	return program
}

// streams makes pipes, and returns the process's ends. Only the host's ends do not block.
func streams(s *executor.Script, input bool) (ends [3]executor.Value) {
	make := func(i, theirs int) (ours executor.Value) {
		p := s.Space(8)
		s.Do(unix.SYS_PIPE2, p, num(unix.O_CLOEXEC))
		ends[i], ours = s.Load(p.At(4*theirs), 4), s.Load(p.At(4*(1-theirs)), 4)
		how := unix.O_RDONLY
		if theirs == 0 {
			how = unix.O_WRONLY
		}
		s.Do(unix.SYS_FCNTL, ours, num(unix.F_SETFL), num(how|unix.O_NONBLOCK))
		return ours
	}
	s.Give(make(1, 1))
	s.Give(make(2, 1))
	if input {
		s.Give(make(0, 0))
		return ends
	}
	ends[0] = s.Call(unix.SYS_OPENAT, executor.CWD, s.Text("/dev/null"), num(unix.O_RDONLY|unix.O_CLOEXEC), num(0))
	return ends
}

// terminal gives the host a new pseudo-terminal that the user owns, and returns the process's end.
func (w *world) terminal(s *executor.Script, spec guest.ProcessSpec) executor.Value {
	s.Doing("open a terminal")
	w.asUser(s)
	master := s.Call(unix.SYS_OPENAT, executor.CWD, s.Text("/dev/ptmx"),
		num(unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK), num(0))
	s.Do(unix.SYS_IOCTL, master, num(unix.TIOCSPTLCK), s.Bytes(make([]byte, 4)))
	slave := s.Call(unix.SYS_IOCTL, master, num(unix.TIOCGPTPEER), num(unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY))
	w.asGuest(s)
	size := windowSize(spec.Rows, spec.Cols)
	s.Do(unix.SYS_IOCTL, master, num(unix.TIOCSWINSZ), s.Bytes(executor.Structure(size)))
	s.Give(master)
	return slave
}

func windowSize(rows, cols uint16) unix.Winsize {
	rows, cols = guestd.WindowSize(rows, cols)
	return unix.Winsize{Row: rows, Col: cols}
}

// groupList returns ids as setgroups(2) reads them; it reads none of an empty list.
func groupList(ids []int) []byte {
	list := make([]byte, 0, 4*len(ids)+4)
	for _, id := range ids {
		list = binary.NativeEndian.AppendUint32(list, uint32(id))
	}
	return append(list, 0, 0, 0, 0)
}

// joined returns ids as the arguments of a keeper have them.
func joined(ids []int) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = strconv.Itoa(id)
	}
	return strings.Join(texts, ",")
}

// asUser gives the executor the user's file-system ids, so that it cannot be tricked into reading or writing files that
// the user may not. The calls return the old value and no error, so another verifies them.
func (w *world) asUser(s *executor.Script) { setFSIDs(s, w.seal.UserUID, w.seal.UserGID) }

func (w *world) asGuest(s *executor.Script) { setFSIDs(s, w.begun.UID, w.begun.GID) }

func setFSIDs(s *executor.Script, uid, gid int) {
	s.Scope(func() {
		for _, set := range []struct{ call, id int }{{unix.SYS_SETFSGID, gid}, {unix.SYS_SETFSUID, uid}} {
			s.Do(set.call, num(set.id))
			s.FailUnless(s.Call(set.call, num(math.MaxUint32)), math.MaxUint32, uint64(set.id), num(unix.EPERM))
		}
	})
}

// signalScript signals processes, of which there may be none.
func signalScript(s *executor.Script, pid int, sig syscall.Signal) {
	s.Doing("signal")
	s.Do(unix.SYS_KILL, num(pid), num(int(sig)))
	s.Unless(unix.ESRCH)
}

// SignalAll implements guestd.Spawner: kill(-1) spares only the caller.
func (w *world) SignalAll(sig syscall.Signal) error {
	s := executor.New(0, 0)
	signalScript(s, -1, sig)
	_, _, err := w.run(s)
	return err
}

const statfsSize = int(unsafe.Sizeof(unix.Statfs_t{}))

// Stats implements guestd.Spawner.
func (w *world) Stats() (stats guest.Stats) {
	const ioSize = 512
	s := executor.New(statfsSize+ioSize, 0)
	s.Do(unix.SYS_FSTATFS, num(slotScratch), s.Answer())
	s.Unless(executor.AnyError)
	s.Do(unix.SYS_PREAD64, num(slotIO), s.Answer().At(statfsSize), num(ioSize), num(0))
	s.Unless(executor.AnyError)
	answer, _, err := w.run(s)
	if err != nil {
		return stats
	}
	var fs unix.Statfs_t
	executor.Load(&fs, answer)
	stats.DiskSize, stats.InodesSize = int64(fs.Blocks)*fs.Bsize, int64(fs.Files)
	stats.DiskUsed, stats.InodesUsed = stats.DiskSize-int64(fs.Bfree)*fs.Bsize, stats.InodesSize-int64(fs.Ffree)
	stats.Exhausted = stats.Full()
	stats.BytesWritten = guestd.Number(answer[statfsSize:], "wchar: ")
	return stats
}

func (c *child) PID() int              { return c.pid }
func (c *child) Stdin() io.WriteCloser { return c.stdin }
func (c *child) Stdout() guestd.Output { return c.stdout }

func (c *child) Stderr() guestd.Output {
	if c.stderr == nil {
		return nil
	}
	return c.stderr
}

// Signal signals the process's group; setsid made the process its leader. Its id is its own until it is collected.
func (c *child) Signal(sig syscall.Signal) error {
	select {
	case <-c.exited:
		return nil
	default:
	}
	s := executor.New(0, 0)
	collected := s.Label()
	s.Do(unix.SYS_WAITID, num(unix.P_PID), num(c.pid), num(0), num(unix.WEXITED|unix.WNOHANG|unix.WNOWAIT), num(0))
	s.On(unix.ECHILD, collected)
	signalScript(s, -c.pid, sig)
	s.Here(collected)
	_, _, err := c.world.run(s)
	return err
}

func (c *child) Resize(rows, cols uint16) error {
	if c.master == nil {
		return &guest.Failure{Kind: guest.FailInvalid, Message: "the process has no terminal"}
	}
	size := windowSize(rows, cols)
	conn, err := c.master.SyscallConn()
	if err != nil {
		return err
	}
	failed := conn.Control(func(fd uintptr) { err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &size) })
	return errors.Join(failed, err)
}

func (c *child) Wait() (int, syscall.Signal) {
	<-c.exited
	if c.status.Signaled() {
		return 0, c.status.Signal()
	}
	return c.status.ExitStatus(), 0
}

var _ guestd.Holder = (*world)(nil)

// Keep implements guestd.Holder: the keeper is a child of PID 1, sealed as that is. Of what PID 1 holds it has the
// descriptors of the request, and that of everything writable. The program that was given is started, whatever lies
// in the sandbox.
func (w *world) Keep(k guest.Keep, files []*os.File) error {
	if !w.lasts {
		return errEnds
	}
	if len(files) != 3 {
		return &guest.Failure{Kind: guest.FailInvalid, Message: "a keeper has three descriptors"}
	}
	if err := w.readLimits(); err != nil {
		return err
	}
	w.begin()
	answer, _, err := w.run(w.keepScript(k), files...)
	if err != nil {
		if lie := w.adopt(nil); lie != nil {
			return w.violated("%v", lie)
		}
		return err
	}
	c := &child{world: w, exited: make(chan struct{})}
	pid := binary.NativeEndian.Uint64(answer)
	if pid <= 1 || pid > math.MaxInt32 {
		return w.violated("a process of the id %d", int64(pid))
	}
	c.pid = int(pid)
	if err := w.adopt(c); err != nil {
		return w.violated("%v", err)
	}
	return nil
}

// readLimits reads what Begin has read for another host.
func (w *world) readLimits() error {
	w.mu.Lock()
	known := w.limits != nil
	w.mu.Unlock()
	if known {
		return nil
	}
	s := executor.New(rlimitSize, 0)
	s.Doing("read the limits")
	s.Do(unix.SYS_PRLIMIT64, num(0), num(unix.RLIMIT_NOFILE), num(0), s.Answer())
	answer, _, err := w.run(s)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limits = map[int]uint64{unix.RLIMIT_NOFILE: binary.NativeEndian.Uint64(answer[8:])}
	return nil
}

// firstOfKeeper is the first descriptor of a keeper after its standard streams: its connection, the listening socket,
// and the file system of everything writable.
const firstOfKeeper = 3

func (w *world) keepScript(k guest.Keep) *executor.Script {
	s := executor.New(8, 3)
	s.Doing("end the keeper before")
	s.Do(unix.SYS_PIDFD_SEND_SIGNAL, num(slotKeeper), num(int(unix.SIGKILL)), num(0), num(0))
	s.Unless(unix.ESRCH, unix.EBADF) // it has ended, or there was none
	s.Doing("start the keeper of processes")
	pid := s.Fork(func() {
		s.Do(unix.SYS_SETSID)
		for kept := forKeepers(w.begun.UID != w.seal.UserUID); kept != 0; kept &= kept - 1 {
			s.Do(unix.SYS_PRCTL, num(unix.PR_CAP_AMBIENT), num(unix.PR_CAP_AMBIENT_RAISE), num(bits.TrailingZeros32(kept)),
				num(0), num(0))
			s.Unless(unix.EPERM) // PID 1 was started by an earlier version, and has it not
		}
		for fd := range firstOfKeeper {
			s.Do(unix.SYS_FCNTL, num(fd), num(unix.F_SETFD), num(0))
		}
		for i, from := range []executor.Value{s.File(0), s.File(1), num(slotScratch)} {
			s.Do(unix.SYS_DUP3, from, num(firstOfKeeper+i), num(0))
		}
		w.prepare(s)
		s.Do(unix.SYS_EXECVEAT, s.File(2), s.Text(""), words(s, []string{"cove-guest", "--keeper",
			strconv.Itoa(w.seal.UserUID), strconv.Itoa(w.seal.UserGID), joined(w.seal.UserGroups)}), words(s, k.Env),
			num(unix.AT_EMPTY_PATH))
	})
	s.Store(s.Answer(), 8, pid)
	s.Keep(s.Call(unix.SYS_PIDFD_OPEN, pid, num(0)), slotKeeper)
	return s
}
