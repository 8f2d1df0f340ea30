package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// exhaustion are attempts to take more than one's share (C3 to C8). Each stops
// at a bound, so that it harms no host on which no limit holds.
func exhaustion() map[string]attempt {
	return map[string]attempt{
		"fork_bomb":    forkBomb,
		"thread_bomb":  threadBomb,
		"zombies":      zombies,
		"mem_anon":     memAnon,
		"mem_file":     memFile,
		"mem_maps":     memMaps,
		"mem_lock":     memLock,
		"mem_pipes":    memPipes,
		"mem_sockets":  memSockets,
		"mem_network":  memNetwork,
		"mem_dentries": memDentries,
		"mem_cache":    memCache,
		"mem_children": memChildren,
		"disk_fill":    diskFill,
		"inode_fill":   inodeFill,
		"dir_deep":     dirDeep,
		"dir_fan":      dirFan,
		"sparse":       sparse,
		"spin":         spin,
		"open_many":    openMany,
		"lock_many":    lockMany,
		"lease":        lease,
		"pass_many":    passMany,
		"lock_ofd":     simple(lockOFD),
		"share_files":  simple(shareFiles),
		"mem_files":    memFiles,
		"mem_epoll":    memEpoll,
		"mem_sems":     memSems,
		"tcp_many":     tcpMany,
		"filter_many":  filterMany,
		"flood":        flood,
		"one_line":     oneLine,
		"bytes":        everyByte,
		"lock_memory":  simple(func() error { return unix.Mlockall(unix.MCL_FUTURE | unix.MCL_CURRENT) }),
		"set_pipe":     setPipe,
	}
}

// count parses args[i], or gives a default.
func count(args []string, i int, other int64) (int64, error) {
	if i >= len(args) {
		return other, nil
	}
	return strconv.ParseInt(args[i], 10, 64)
}

// forkBomb forks in every process it has until BOUND exist, then waits to be
// killed. The number is kept in memory that all of them share.
func forkBomb(args []string) (report, error) {
	bound, err := count(args, 0, 500)
	if err != nil {
		return report{}, err
	}
	page, err := unix.MmapPtr(-1, 0, nil, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return report{}, err
	}
	alive := (*atomic.Int64)(page)
	refused := (*atomic.Int64)(unsafe.Add(page, 8))
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return report{}, errno
	}
	if pid == 0 {
		for { // parents and children alike; no runtime from here on
			if alive.Load() >= bound {
				unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
				continue
			}
			p, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
			switch {
			case e != 0:
				refused.Add(1)
			case p == 0:
				alive.Add(1)
			}
		}
	}
	// The runtime may start a thread for a call that blocks, and ends the program where it cannot.
	pause := func(of time.Duration) {
		t := unix.NsecToTimespec(of.Nanoseconds())
		unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&t)), 0, 0)
	}
	for end := time.Now().Add(30 * time.Second); refused.Load() == 0 && alive.Load() < bound && time.Now().Before(end); {
		pause(10 * time.Millisecond)
	}
	r := report{count: alive.Load(), detail: fmt.Sprintf("%d forks refused", refused.Load())}
	how := error(nil)
	if refused.Load() > 0 {
		how = unix.EAGAIN
	}
	said := line(result("fork_bomb", r, how))
	unix.RawSyscall(unix.SYS_WRITE, 1, uintptr(unsafe.Pointer(&said[0])), uintptr(len(said)))
	pause(time.Hour)
	return r, nil
}

// threadBomb makes N threads. When one is refused the Go runtime ends the program, which says so on its standard error.
func threadBomb(args []string) (report, error) {
	n, err := count(args, 0, 1000)
	if err != nil {
		return report{}, err
	}
	fds := make([]int, 2)
	if err := unix.Pipe2(fds, unix.O_CLOEXEC); err != nil {
		return report{}, err
	}
	var started atomic.Int64
	for range n {
		go func() {
			runtime.LockOSThread()
			started.Add(1)
			var b [1]byte
			unix.Syscall(unix.SYS_READ, uintptr(fds[0]), at(&b), 1) // not a raw one: the runtime has to hand the processor on
		}()
	}
	for range 1000 {
		if started.Load() == n {
			return report{count: n}, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return report{count: started.Load()}, unix.EAGAIN
}

// zombies makes N children that exit and are never waited for.
func zombies(args []string) (report, error) {
	n, err := count(args, 0, 500)
	if err != nil {
		return report{}, err
	}
	var made int64
	for range n {
		if _, errno := exiting(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0); errno != 0 {
			return report{count: made}, errno
		}
		made++
	}
	return report{count: made}, nil
}

const mib = 1 << 20

// touch writes one byte of every page.
func touch(b []byte) {
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
}

// memAnon takes MIB of memory, and says so when it has them.
func memAnon(args []string) (report, error) {
	n, err := count(args, 0, 512)
	if err != nil {
		return report{}, err
	}
	for i := range n {
		b, err := unix.Mmap(-1, 0, mib, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return report{count: i}, err
		}
		touch(b)
	}
	return report{count: n}, nil
}

// memFile writes MIB into file PATH and keeps it.
func memFile(args []string) (report, error) {
	n, err := count(args, 1, 512)
	if err != nil {
		return report{}, err
	}
	return fill(filepath.Join(args[0], "fill"), n, true)
}

// fill writes n MiB into path.
func fill(path string, n int64, keep bool) (report, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return report{}, err
	}
	defer f.Close()
	if !keep {
		defer os.Remove(path)
	}
	var written int64
	block := make([]byte, 64<<10)
	for i := range block {
		block[i] = byte(i * 7)
	}
	for written < n*mib {
		k, err := f.Write(block)
		written += int64(k)
		if err != nil {
			return report{count: written}, err
		}
	}
	return report{count: written}, nil
}

// memMaps makes N mappings of one page, each its own kernel structure.
func memMaps(args []string) (report, error) {
	n, err := count(args, 0, 200_000)
	if err != nil {
		return report{}, err
	}
	for i := range n {
		prot := unix.PROT_READ | unix.PROT_WRITE*int(i&1) // neighbours differ, so that they do not merge
		if _, err := unix.MmapPtr(-1, 0, nil, 4096, prot, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE); err != nil {
			return report{count: i}, err
		}
	}
	return report{count: n}, nil
}

// memLock locks MIB into memory.
func memLock(args []string) (report, error) {
	n, err := count(args, 0, 64)
	if err != nil {
		return report{}, err
	}
	b, err := unix.Mmap(-1, 0, int(n*mib), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return report{}, err
	}
	return report{count: n}, unix.Mlock(b)
}

// memPipes fills pipes with what nobody reads until MIB are in the kernel.
func memPipes(args []string) (report, error) {
	n, err := count(args, 0, 512)
	if err != nil {
		return report{}, err
	}
	return fillKernel(n, func() (int, error) {
		fds := make([]int, 2)
		if err := unix.Pipe2(fds, unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
			return -1, err
		}
		unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, mib)
		return fds[1], nil
	})
}

// memSockets does it with socket pairs.
func memSockets(args []string) (report, error) {
	n, err := count(args, 0, 512)
	if err != nil {
		return report{}, err
	}
	return fillKernel(n, func() (int, error) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 4*mib)
		return fds[0], nil
	})
}

// memNetwork sends MIB to sockets of its own that do not read, over NETWORK (tcp or udp) on loopback, and keeps them
// full until standard input ends.
func memNetwork(args []string) (report, error) {
	n, err := count(args, 1, 256)
	if err != nil {
		return report{}, err
	}
	block := make([]byte, 32<<10)
	var total int64
	for taken := int64(0); taken < n*mib; {
		var fd, each int
		if fd, each, err = loopback(args[0]); err != nil {
			break
		}
		taken += int64(each)
		for sent := 0; sent < each; sent += len(block) { // UDP drops what is beyond, without an error
			if _, err := unix.Write(fd, block); err != nil {
				break
			}
			total += int64(len(block))
		}
	}
	r := report{detail: "full", count: total / mib}
	emit(result("mem_network", r, err))
	io.Copy(io.Discard, os.Stdin)
	return r, err
}

// loopback returns a socket whose peer does not read, and how much fits into the peer's buffer.
func loopback(network string) (from, room int, err error) {
	kind := unix.SOCK_DGRAM
	if network == "tcp" {
		kind = unix.SOCK_STREAM
	}
	to, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, 0, err
	}
	unix.SetsockoptInt(to, unix.SOL_SOCKET, unix.SO_RCVBUF, 4*mib)
	if err := unix.Bind(to, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return -1, 0, err
	}
	if network == "tcp" {
		if err := unix.Listen(to, 1); err != nil {
			return -1, 0, err
		}
	}
	at, err := unix.Getsockname(to)
	if err != nil {
		return -1, 0, err
	}
	from, err = unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, 0, err
	}
	unix.SetsockoptInt(from, unix.SOL_SOCKET, unix.SO_SNDBUF, 4*mib)
	if err := unix.Connect(from, at); err != nil {
		return -1, 0, err
	}
	if room, err = unix.GetsockoptInt(to, unix.SOL_SOCKET, unix.SO_RCVBUF); err != nil {
		return -1, 0, err
	}
	if network == "tcp" {
		if _, _, err := unix.Accept4(to, unix.SOCK_CLOEXEC); err != nil {
			return -1, 0, err
		}
		unix.Close(to)
	}
	return from, room / 2, unix.SetNonblock(from, true) // the kernel doubles what is asked for, for its own part
}

// fillKernel opens buffers and writes each full until n MiB are taken.
func fillKernel(n int64, open func() (int, error)) (report, error) {
	block := make([]byte, 64<<10)
	var total int64
	for total < n*mib {
		fd, err := open()
		if err != nil {
			return report{count: total / mib}, err
		}
		for total < n*mib {
			k, err := unix.Write(fd, block)
			if err != nil || k <= 0 {
				break
			}
			total += int64(k)
		}
	}
	return report{count: total / mib}, nil
}

// memDentries asks for N names that do not exist in DIR; the kernel remembers each.
func memDentries(args []string) (report, error) {
	n, err := count(args, 0, 500_000)
	if err != nil {
		return report{}, err
	}
	dir := args[1]
	pad := strings.Repeat("n", 150)
	var st unix.Stat_t
	for i := range n {
		if err := unix.Stat(fmt.Sprintf("%s/%s%d", dir, pad, i), &st); !errors.Is(err, unix.ENOENT) {
			return report{count: i}, err
		}
	}
	return report{count: n}, nil
}

// memCache reads files below ROOT until MIB have been read.
func memCache(args []string) (report, error) {
	n, err := count(args, 1, 256)
	if err != nil {
		return report{}, err
	}
	var total int64
	block := make([]byte, 256<<10)
	err = walkFiles(args[0], func(path string, st *unix.Stat_t) {
		if st.Mode&unix.S_IFMT != unix.S_IFREG || total >= n*mib {
			return
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		defer unix.Close(fd)
		for total < n*mib {
			k, err := unix.Read(fd, block)
			if err != nil || k <= 0 {
				return
			}
			total += int64(k)
		}
	})
	return report{count: total / mib}, err
}

// memChildren takes MIB in each of N children: no one of them is large.
func memChildren(args []string) (report, error) {
	n, err := count(args, 0, 8)
	if err != nil {
		return report{}, err
	}
	size, err := count(args, 1, 32)
	if err != nil {
		return report{}, err
	}
	fds := make([]int, 2)
	if err := unix.Pipe2(fds, 0); err != nil {
		return report{}, err
	}
	var pids []int
	for range n {
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			return report{}, errno
		}
		if pid == 0 {
			p, _, e := unix.RawSyscall6(unix.SYS_MMAP, 0, uintptr(size*mib), unix.PROT_READ|unix.PROT_WRITE,
				unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE, all, 0)
			if e == 0 && p != 0 {
				unix.RawSyscall(unix.SYS_WRITE, uintptr(fds[1]), p, 1)
			}
			for {
				unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			}
		}
		pids = append(pids, int(pid))
	}
	defer func() {
		for _, pid := range pids {
			unix.Kill(pid, unix.SIGKILL)
		}
	}()
	unix.Close(fds[1])
	var got int64
	deadline := time.Now().Add(time.Minute)
	unix.SetNonblock(fds[0], true)
	b := make([]byte, 1)
	for got < n && time.Now().Before(deadline) {
		var status unix.WaitStatus
		if k, _ := unix.Read(fds[0], b); k == 1 {
			got++
		} else if pid, _ := unix.Wait4(-1, &status, unix.WNOHANG, nil); pid > 0 {
			break // killed: there is not enough for all of them
		} else {
			time.Sleep(5 * time.Millisecond)
		}
	}
	if got < n {
		return report{count: got}, unix.ENOMEM
	}
	return report{count: got}, nil
}

// spin burns CPU with N threads for MILLISECONDS.
func spin(args []string) (report, error) {
	n, err := count(args, 0, 2)
	if err != nil {
		return report{}, err
	}
	ms, err := count(args, 1, 1000)
	if err != nil {
		return report{}, err
	}
	end := time.Now().Add(time.Duration(ms) * time.Millisecond)
	done := make(chan uint64)
	for range n {
		go func() {
			var x uint64
			for time.Now().Before(end) {
				for range 10_000 {
					x = x*6364136223846793005 + 1442695040888963407
				}
			}
			done <- x
		}()
	}
	for range n {
		<-done
	}
	var usage unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &usage)
	return report{count: (usage.Utime.Nano() + usage.Stime.Nano()) / 1e6}, nil
}
