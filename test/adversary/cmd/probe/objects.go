package main

// Attempts to take more of the kernel's objects than one's share (C4, C7).

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openMany opens descriptors until one is refused, at most N; KIND is file, socket, pipe, event,
// epoll, pty, wide (a pipe of 1 MiB), or what the kernel counts for a user: watch, queue, timer, signal.
// With "hold" it keeps them until standard input ends.
func openMany(args []string) (report, error) {
	n, err := count(args, 1, 100_000)
	if err != nil {
		return report{}, err
	}
	open := map[string]func() error{
		"pty":    func() error { _, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0); return err },
		"file":   func() error { _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); return err },
		"socket": func() error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
		"pipe":   func() error { return unix.Pipe2(make([]int, 2), 0) },
		"event":  func() error { _, err := unix.Eventfd(0, 0); return err },
		"epoll":  func() error { _, err := unix.EpollCreate1(0); return err },
		"watch":  func() error { _, err := unix.InotifyInit1(0); return err },
		"queue":  openQueue,
		"timer":  makeTimer,
		"wide":   widePipe,
		"signal": pendSignal,
	}[args[0]]
	r := report{count: n}
	for i := range n {
		if err = open(); err != nil {
			r.count = i
			break
		}
	}
	if len(args) > 2 { // "hold"
		emit(result("open_many", r, err))
		io.Copy(io.Discard, os.Stdin)
	}
	return r, err
}

// lockMany locks N single bytes of files in /tmp, and holds them until standard input ends.
func lockMany(args []string) (report, error) {
	n, err := count(args, 0, 10_000)
	if err != nil {
		return report{}, err
	}
	const each = 500 // of a file, whose list the kernel walks
	var file *os.File
	r := report{}
	for ; r.count < n; r.count++ {
		at := r.count % each
		if at == 0 {
			if file, err = os.CreateTemp("", "locks"); err != nil {
				break
			}
			defer os.Remove(file.Name())
		}
		lock := unix.Flock_t{Type: unix.F_WRLCK, Start: 2 * (each - at), Len: 1} // not beside one another
		if err = unix.FcntlFlock(file.Fd(), unix.F_SETLK, &lock); err != nil {
			break
		}
	}
	emit(result("lock_many", r, err))
	io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(file)
	return r, err
}

// lockOFD locks a byte for an open file.
func lockOFD() error {
	file, err := os.CreateTemp("", "locks")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	return unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Len: 1})
}

// shareFiles makes a process that shares this one's descriptors.
func shareFiles() error {
	return reap(exiting(unix.SYS_CLONE, uintptr(unix.SIGCHLD|unix.CLONE_FILES), 0))
}

// memFiles opens N files in each of as many processes as it gets, at most 200, until one is refused.
func memFiles(args []string) (report, error) {
	n, err := count(args, 0, 1<<20)
	if err != nil {
		return report{}, err
	}
	page, err := unix.MmapPtr(-1, 0, nil, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return report{}, err
	}
	opened := (*atomic.Int64)(page)
	done, refused := (*atomic.Int64)(unsafe.Add(page, 8)), (*atomic.Int64)(unsafe.Add(page, 16))
	name, err := unix.BytePtrFromString("/dev/null")
	if err != nil {
		return report{}, err
	}
	var pids []int
	defer func() {
		for _, pid := range pids {
			unix.Kill(pid, unix.SIGKILL)
		}
	}()
	for refused.Load() == 0 && len(pids) < 200 {
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			return report{count: opened.Load()}, errno
		}
		if pid == 0 { // no runtime from here on
			for range n {
				_, _, e := unix.RawSyscall6(unix.SYS_OPENAT, all, uintptr(unsafe.Pointer(name)), unix.O_RDONLY, 0, 0, 0)
				if e == unix.EMFILE {
					break
				}
				if e != 0 {
					refused.Store(int64(e))
					break
				}
				opened.Add(1)
			}
			done.Add(1)
			for {
				unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0) // for good
			}
		}
		pids = append(pids, int(pid))
		for end := time.Now().Add(time.Minute); done.Load() < int64(len(pids)) && time.Now().Before(end); {
			var status unix.WaitStatus
			if gone, _ := unix.Wait4(-1, &status, unix.WNOHANG, nil); gone > 0 {
				return report{count: opened.Load(), detail: "a process was killed"}, unix.ENOMEM
			}
			time.Sleep(time.Millisecond)
		}
	}
	if e := refused.Load(); e != 0 {
		return report{count: opened.Load()}, unix.Errno(e)
	}
	return report{count: opened.Load()}, nil
}

// filterMany puts large filters on a thread of its own until one is refused.
func filterMany([]string) (report, error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return report{}, err
	}
	code := make([]unix.SockFilter, 4000)
	for i := range code {
		code[i] = unix.SockFilter{Code: unix.BPF_LD | unix.BPF_IMM, K: uint32(i)}
	}
	code[len(code)-1] = unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW}
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	for n := int64(0); ; n++ {
		_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
		switch {
		case errno == unix.ENOMEM && n > 0: // the kernel's bound of one thread's filters together
			return report{count: n}, nil
		case errno != 0:
			return report{count: n}, errno
		}
	}
}

// memEpoll has N epolls watch N descriptors each.
func memEpoll(args []string) (report, error) {
	n, err := count(args, 0, 500)
	if err != nil {
		return report{}, err
	}
	var watched []int
	for range n {
		fd, err := unix.Eventfd(0, 0)
		if err != nil {
			return report{}, err
		}
		watched = append(watched, fd)
	}
	r := report{}
	for range n {
		epoll, err := unix.EpollCreate1(0)
		if err != nil {
			return r, err
		}
		for _, fd := range watched {
			if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Fd: int32(fd)}); err != nil {
				return r, err
			}
			r.count++
		}
	}
	return r, nil
}

// memSems makes N sets of 16,000 System V semaphores.
func memSems(args []string) (report, error) {
	n, err := count(args, 0, 200)
	if err != nil {
		return report{}, err
	}
	for i := range n {
		if err := call(unix.SYS_SEMGET, unix.IPC_PRIVATE, 16_000, 0o600); err != nil {
			return report{count: i}, err
		}
	}
	return report{count: n}, nil
}

// tcpMany makes N connections on loopback, one after another, and leaves them to the kernel.
func tcpMany(args []string) (report, error) {
	n, err := count(args, 0, 1000)
	if err != nil {
		return report{}, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return report{}, err
	}
	defer listener.Close()
	for i := range n {
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			return report{count: i}, err
		}
		there, err := listener.Accept()
		if err != nil {
			return report{count: i}, err
		}
		c.Close()
		there.Close()
	}
	return report{count: n}, nil
}

// makeTimer makes a timer that is never set.
func makeTimer() error {
	var id int32
	return call(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, 0, at(&id))
}

// widePipe makes a pipe of 1 MiB.
func widePipe() error {
	fds := make([]int, 2)
	if err := unix.Pipe2(fds, unix.O_CLOEXEC); err != nil {
		return err
	}
	_, err := unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, mib)
	return err
}

// openQueue opens a message queue without a name.
func openQueue() error {
	name, err := unix.BytePtrFromString("probe") // without the C library's slash
	if err != nil {
		return err
	}
	_, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR,
		0o600, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	if _, _, errno := unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(name)), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// pendSignal queues a real-time signal for this thread, which blocks it.
func pendSignal() error {
	const number = 50
	runtime.LockOSThread() // for good
	blocked := unix.Sigset_t{}
	blocked.Val[0] = 1 << (number - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &blocked, nil); err != nil {
		return err
	}
	info := struct {
		signo, errno, code int32
		_                  [116]byte
	}{signo: number, code: -1} // SI_QUEUE
	_, _, errno := unix.Syscall6(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(unix.Getpid()), uintptr(unix.Gettid()), number,
		uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// setPipe asks for a pipe of BYTES.
func setPipe(args []string) (report, error) {
	n, err := count(args, 0, mib)
	if err != nil {
		return report{}, err
	}
	fds := make([]int, 2)
	if err := unix.Pipe2(fds, 0); err != nil {
		return report{}, err
	}
	_, err = unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, int(n))
	unix.Close(fds[0])
	unix.Close(fds[1])
	return report{}, err
}

// lease asks for a lease on FILE, of both kinds, to be told what happens in its directory, and for a hint that stays
// with its data. Each call that succeeds is a line.
func lease(args []string) (report, error) {
	file, err := os.Open(args[0])
	if err != nil {
		return report{}, err
	}
	defer file.Close()
	dir, err := os.Open(filepath.Dir(args[0]))
	if err != nil {
		return report{}, err
	}
	defer dir.Close()
	const notifyOfRenames, extremelyLong = 0x10, 5
	hint := uint64(extremelyLong)
	var r report
	for _, a := range []struct {
		what string
		err  error
	}{
		{"write lease", call(unix.SYS_FCNTL, file.Fd(), unix.F_SETLEASE, unix.F_WRLCK)},
		{"read lease", call(unix.SYS_FCNTL, file.Fd(), unix.F_SETLEASE, unix.F_RDLCK)},
		{"notification", call(unix.SYS_FCNTL, dir.Fd(), unix.F_NOTIFY, notifyOfRenames)},
		{"hint", call(unix.SYS_FCNTL, file.Fd(), unix.F_SET_RW_HINT, at(&hint))},
	} {
		if a.err == nil {
			r.lines = append(r.lines, a.what)
		} else {
			err = a.err
		}
	}
	if len(r.lines) > 0 {
		return r, nil
	}
	return r, err
}

// passMany passes descriptors to itself until one is refused, at most N, and does not receive them. With "hold" it
// keeps them on their way until standard input ends.
func passMany(args []string) (report, error) {
	n, err := count(args, 0, 100_000)
	if err != nil {
		return report{}, err
	}
	const most = 253 // of a message
	fds := make([]int, most)
	var r report
	for ; r.count < n && err == nil; r.count += most {
		var pair [2]int
		if pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			break
		}
		if err = unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(fds...), nil, 0); err != nil {
			break
		}
	}
	if len(args) > 1 { // "hold"
		emit(result("pass_many", r, err))
		io.Copy(io.Discard, os.Stdin)
	}
	return r, err
}
