//go:build linux

package pid1

import (
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/guestd"
	"github.com/cove-sandbox/cove/internal/guest/stream"
)

type child struct {
	world          *world
	pid            int
	stdin          io.WriteCloser
	stdout, stderr *stream.Output
	master         *os.File // of a terminal
	exited         chan struct{}
	status         unix.WaitStatus // set before exited is closed
}

func (w *world) Start(spec guest.ProcessSpec) (guestd.Process, error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	program, err := lookPath(spec.Args[0], spec.Env)
	if err != nil {
		return nil, err
	}
	c := &child{world: w, exited: make(chan struct{})}
	ends, err := w.streams(c, spec)
	if err == nil {
		err = w.fork(c, program, spec, ends)
	}
	guestd.CloseAll(ends)
	if err != nil {
		c.closeStreams()
		return nil, err
	}
	return c, nil
}

// fork starts the process on the main thread. Meanwhile the guest raises its own OOM score, which the child inherits,
// so that memory runs out for the user's processes before it does for the guest.
func (w *world) fork(c *child, program string, spec guest.ProcessSpec, ends []*os.File) error {
	attr := &syscall.ProcAttr{Dir: spec.Dir, Env: spec.Env, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: spec.TTY}}
	for _, f := range ends {
		attr.Files = append(attr.Files, f.Fd())
	}
	if w.mortal {
		attr.Sys.Pdeathsig = syscall.SIGKILL
	}
	if unix.Getuid() != w.seal.UserUID {
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(w.seal.UserUID), Gid: uint32(w.seal.UserGID)}
		for _, id := range w.seal.UserGroups {
			attr.Sys.Credential.Groups = append(attr.Sys.Credential.Groups, uint32(id))
		}
	}
	return w.main.do(func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.oom.WriteString("1000")
		defer w.oom.WriteString(w.oomOwn)
		pid, err := syscall.ForkExec(program, spec.Args, attr)
		if err != nil {
			return &os.PathError{Op: "start", Path: spec.Args[0], Err: err}
		}
		c.pid = pid
		w.children[pid] = c
		w.anyChild.Signal()
		return nil
	})
}

// startReaping starts the reaper before the first child exists.
func (w *world) startReaping() {
	w.children = map[int]*child{}
	w.anyChild.L = &w.mu
	go w.reap()
}

// reap collects every process that ends, including the sandbox's orphans. It first waits without collecting: under mu,
// a process id cannot be collected and given to a new child in between.
func (w *world) reap() {
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		w.mu.Lock()
		if err == unix.ECHILD {
			for len(w.children) == 0 {
				w.anyChild.Wait()
			}
		}
		var stopped []stop
		for {
			var status unix.WaitStatus
			pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
			if status.Stopped() {
				stopped = append(stopped, stop{pid, status.StopSignal()})
				continue
			}
			if c := w.children[pid]; c != nil {
				delete(w.children, pid)
				c.status = status
				close(c.exited)
			}
		}
		w.mu.Unlock()
		for _, s := range stopped {
			w.release(s)
		}
	}
}

// stop is a process that has stopped with a signal for its tracer.
type stop struct {
	pid    int
	signal syscall.Signal
}

// release lets a process go on that has made its parent its tracer, by PTRACE_TRACEME, which a guest is not. The
// thread that traces is the one that has started it. It fails where the process has been killed meanwhile.
func (w *world) release(s stop) {
	if s.signal == syscall.SIGTRAP { // it executes a program
		s.signal = 0
	}
	w.main.do(func() error {
		unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(s.pid), 0, uintptr(s.signal), 0, 0)
		return nil
	})
}

// SignalAll implements guestd.Spawner: kill(-1) spares only the caller.
func (w *world) SignalAll(sig syscall.Signal) error { return kill(-1, sig) }

// kill signals processes, of which there may be none.
func kill(pid int, sig syscall.Signal) error {
	err := unix.Kill(pid, sig)
	if err == unix.ESRCH {
		return nil
	}
	return err
}

func (w *world) Stats() guest.Stats {
	var s guest.Stats
	var fs unix.Statfs_t
	for _, fd := range w.scratch {
		if unix.Fstatfs(fd, &fs) != nil {
			continue
		}
		place := guest.Stats{DiskSize: int64(fs.Blocks) * fs.Bsize, InodesSize: int64(fs.Files)}
		place.DiskUsed, place.InodesUsed = place.DiskSize-int64(fs.Bfree)*fs.Bsize, place.InodesSize-int64(fs.Ffree)
		s.Exhausted = s.Exhausted || place.Full()
		s.DiskSize, s.DiskUsed = s.DiskSize+place.DiskSize, s.DiskUsed+place.DiskUsed
		s.InodesSize, s.InodesUsed = s.InodesSize+place.InodesSize, s.InodesUsed+place.InodesUsed
	}
	if w.io != nil {
		buf := make([]byte, 512)
		n, _ := w.io.ReadAt(buf, 0)
		s.BytesWritten = guestd.Number(buf[:n], "wchar: ")
	}
	return s
}

// lookPath finds a program as execvp would, in the environment's own PATH.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	search := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = v
		}
	}
	for dir := range strings.SplitSeq(search, ":") {
		if !strings.HasPrefix(dir, "/") {
			continue
		}
		p := path.Join(dir, name)
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", &guest.Failure{Kind: guest.FailNotFound, Message: fmt.Sprintf("%s: not found in PATH", name)}
}

// streams makes the process's ends of its streams, 0, 1, 2, and stores the guest's in c. The caller closes both.
func (w *world) streams(c *child, spec guest.ProcessSpec) (ends []*os.File, err error) {
	if spec.TTY {
		return w.terminal(c, spec)
	}
	// As the user, who may then open them by their names in /dev.
	err = w.files.do(func() (err error) {
		ends, err = pipes(c, spec)
		return err
	})
	return ends, err
}

func pipes(c *child, spec guest.ProcessSpec) (ends []*os.File, err error) {
	var in *os.File
	if spec.Stdin {
		var ours *os.File
		if in, ours, err = stream.Pipe(false); err == nil {
			c.stdin = ours
		}
	} else {
		in, err = os.Open("/dev/null")
	}
	if err != nil {
		return nil, err
	}
	ends = append(ends, in)
	for _, ours := range []**stream.Output{&c.stdout, &c.stderr} {
		theirs, mine, err := stream.Pipe(true)
		if err != nil {
			return ends, err
		}
		*ours = stream.NewOutput(mine)
		ends = append(ends, theirs)
	}
	return ends, nil
}

// terminal gives the process a new pseudo-terminal that the user owns.
func (w *world) terminal(c *child, spec guest.ProcessSpec) ([]*os.File, error) {
	var slave int
	err := w.files.do(func() error {
		master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		c.master = os.NewFile(uintptr(master), "ptmx")
		c.stdout = stream.NewOutput(c.master)
		if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
		if err == nil {
			slave, err = unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	c.stdin = stream.Keyboard{Terminal: c.master}
	c.Resize(spec.Rows, spec.Cols)
	ends := []*os.File{stream.BlockingFile(slave)}
	for range 2 {
		fd, err := unix.FcntlInt(uintptr(slave), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return ends, err
		}
		ends = append(ends, stream.BlockingFile(fd))
	}
	return ends, nil
}

func (c *child) closeStreams() {
	if c.stdin != nil && c.master == nil {
		c.stdin.Close()
	}
	if c.stdout != nil {
		c.stdout.Close()
	}
	if c.stderr != nil {
		c.stderr.Close()
	}
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

// Signal signals the process's group; setsid made the process its leader.
func (c *child) Signal(sig syscall.Signal) error {
	select {
	case <-c.exited:
		return nil
	default:
		return kill(-c.pid, sig)
	}
}

func (c *child) Resize(rows, cols uint16) error {
	if c.master == nil {
		return &guest.Failure{Kind: guest.FailInvalid, Message: "the process has no terminal"}
	}
	rows, cols = guestd.WindowSize(rows, cols)
	return unix.IoctlSetWinsize(int(c.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
}

func (c *child) Wait() (int, syscall.Signal) {
	<-c.exited
	if c.status.Signaled() {
		return 0, c.status.Signal()
	}
	return c.status.ExitStatus(), 0
}
