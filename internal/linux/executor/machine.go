//go:build linux

package executor

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// registers is how many results a script can hold at a time.
const (
	registers = 1024
	lastErrno = registers - 1 // the register of Errno
)

// control is the first part of an executor's memory.
type control struct {
	in        header
	out       message
	msg       msghdr
	iov       [2]uint64
	oob       [16 + maxFiles*4 + 8]byte
	given     [maxFiles]int32
	givenN    uint64
	childPipe uint64 // in a child: the descriptor on which it tells an error, or 0
	failed    uint64 // the op that failed
	errno     uint64
	status    uint64
	door      uint64 // the slot of the listening socket at which the next connection arrives; 0 is none
	lost      uint64 // 1: the connection has ended, and the next one is waited for
	zero      [64]byte
	chld      uint64 // a signal set
	polled    [2]pollfd
	info      [128]byte
	files     [4]int32 // of a new executor
	registers [registers]uint64
	children  [maxChildren]uint32 // whose ends are told
}

// maxChildren bounds the children whose ends are told.
const maxChildren = 1024

type pollfd struct {
	fd              int32
	events, revents int16
}

type msghdr struct {
	name       uint64
	namelen    uint32
	_          uint32
	iov        uint64
	iovlen     uint64
	control    uint64
	controllen uint64
	flags      uint32
	_          uint32
}

// The functions below run in a fork of a Go program, whose runtime is not there. They must not grow the stack, nor
// allocate, nor panic: they are all nosplit, and use neither slices nor pointers to Go's memory.

//go:nosplit
//go:norace
func call(nr, a, b, c, d, e, f uintptr) (uintptr, uintptr) {
	r, _, errno := syscall.RawSyscall6(nr, a, b, c, d, e, f)
	return r, uintptr(errno)
}

//go:nosplit
//go:norace
func exit(code uintptr) {
	for {
		call(unix.SYS_EXIT_GROUP, code, 0, 0, 0, 0, 0)
	}
}

//go:nosplit
//go:norace
func addr(c *control, p unsafe.Pointer) uintptr {
	return base + (uintptr(p) - uintptr(unsafe.Pointer(c)))
}

//go:nosplit
//go:norace
func at(c *control, address uint64) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(c), uintptr(address)-base)
}

// live is the life of an executor.
//
//go:nosplit
//go:norace
func live(c *control) {
	enter(c)
	call(unix.SYS_SETSID, 0, 0, 0, 0, 0, 0)
	for i := uintptr(0); i < 4; i++ {
		fd := *(*int32)(unsafe.Add(unsafe.Pointer(&c.files), 4*i))
		if _, errno := call(unix.SYS_DUP3, uintptr(fd), i, unix.O_CLOEXEC, 0, 0, 0); errno != 0 {
			exit(errno)
		}
	}
	for i := uintptr(4); i < firstTemporary; i++ {
		if _, errno := call(unix.SYS_DUP3, 0, i, unix.O_CLOEXEC, 0, 0, 0); errno != 0 {
			exit(errno)
		}
	}
	dropTemporary()
	for i := uintptr(1); i <= 64; i++ {
		call(unix.SYS_RT_SIGACTION, i, addr(c, unsafe.Pointer(&c.zero)), 0, 8, 0, 0)
	}
	c.chld = 1 << (unix.SIGCHLD - 1)
	fd, errno := call(unix.SYS_SIGNALFD4, ^uintptr(0), addr(c, unsafe.Pointer(&c.chld)), 8, unix.SFD_CLOEXEC, 0, 0)
	if errno != 0 {
		exit(errno)
	}
	call(unix.SYS_DUP3, fd, signals, unix.O_CLOEXEC, 0, 0, 0)
	dropTemporary()
	for {
		wait(c)
	}
}

// enter puts the executor into the groups whose files it has been given. A process that moves itself is not waited for;
// one that another process moves is, for an RCU grace period.
//
//go:nosplit
//go:norace
func enter(c *control) {
	c.info[0] = '0' // itself
	for i := uintptr(0); i < uintptr(c.givenN); i++ {
		fd := *(*int32)(unsafe.Add(unsafe.Pointer(&c.given), 4*i))
		if _, errno := call(unix.SYS_WRITE, uintptr(fd), addr(c, unsafe.Pointer(&c.info)), 1, 0, 0, 0); errno != 0 {
			exit(errno)
		}
	}
}

//go:nosplit
//go:norace
func dropTemporary() { call(unix.SYS_CLOSE_RANGE, firstTemporary, 0xffffffff, 0, 0, 0, 0) }

// wait waits for a script or a child's end, and sees to both.
//
//go:nosplit
//go:norace
func wait(c *control) {
	first, second := (*pollfd)(unsafe.Pointer(&c.polled)), (*pollfd)(unsafe.Add(unsafe.Pointer(&c.polled), 8))
	first.fd, first.events, first.revents = socket, unix.POLLIN, 0
	if c.lost != 0 {
		first.fd = int32(c.door)
	}
	second.fd, second.events, second.revents = signals, unix.POLLIN, 0
	if _, errno := call(unix.SYS_PPOLL, addr(c, unsafe.Pointer(&c.polled)), 2, 0, 0, 8, 0); errno != 0 {
		return // an interruption, by a debugger
	}
	if second.revents != 0 {
		call(unix.SYS_READ, signals, addr(c, unsafe.Pointer(&c.info)), 128, 0, 0, 0)
		reap(c)
	}
	switch {
	case first.revents == 0:
	case c.lost != 0:
		accept(c)
	case take(c):
		run(c)
		tell(c)
	}
}

// lose ends the connection, and with it an executor that has no door. Nothing is told of children that it knew.
//
//go:nosplit
//go:norace
func lose(c *control) {
	if c.door == 0 {
		exit(0)
	}
	c.lost = 1
	call(unix.SYS_DUP3, 0, socket, unix.O_CLOEXEC, 0, 0, 0)
	for i := uintptr(0); i < maxChildren; i++ {
		*(*uint32)(unsafe.Add(unsafe.Pointer(&c.children), 4*i)) = 0
	}
	dropTemporary()
}

// accept takes the connection that has arrived at the door.
//
//go:nosplit
//go:norace
func accept(c *control) {
	fd, errno := call(unix.SYS_ACCEPT4, uintptr(c.door), 0, 0, unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return // it has ended meanwhile
	}
	call(unix.SYS_DUP3, fd, socket, unix.O_CLOEXEC, 0, 0, 0)
	dropTemporary()
	c.lost = 0
}

// reap collects all children that have ended, also those that the kernel gave to PID 1.
//
//go:nosplit
//go:norace
func reap(c *control) {
	for {
		pid, errno := call(unix.SYS_WAIT4, ^uintptr(0), addr(c, unsafe.Pointer(&c.status)), unix.WNOHANG, 0, 0, 0)
		if errno != 0 || pid == 0 {
			return
		}
		if uint8(c.status) == stopped {
			release(pid, uintptr(c.status>>8)&0xff)
			continue
		}
		if forget(c, uint32(pid)) {
			c.out.kind, c.out.pid, c.out.status, c.out.size = messageExit, uint32(pid), uint32(c.status), 0
			send(c, uint64(addr(c, unsafe.Pointer(&c.out))), uint64(unsafe.Sizeof(c.out)), 0)
		}
	}
}

// stopped ends the status of a process that has stopped: it has made its parent its tracer, by PTRACE_TRACEME.
const stopped = 0x7f

// release lets a process go on that has stopped with a signal for its tracer, which an executor is not. It fails where
// the process has been killed meanwhile.
//
//go:nosplit
//go:norace
func release(pid, signal uintptr) {
	if signal == uintptr(unix.SIGTRAP) { // it executes a program
		signal = 0
	}
	call(unix.SYS_PTRACE, unix.PTRACE_DETACH, pid, 0, signal, 0, 0)
}

// take reads a script, and reports whether there is one.
//
//go:nosplit
//go:norace
func take(c *control) bool {
	h := &c.msg
	c.iov[0], c.iov[1] = uint64(addr(c, unsafe.Pointer(&c.in))), uint64(unsafe.Sizeof(c.in))
	h.name, h.namelen, h.flags = 0, 0, 0
	h.iov, h.iovlen = uint64(addr(c, unsafe.Pointer(&c.iov))), 1
	h.control, h.controllen = uint64(addr(c, unsafe.Pointer(&c.oob))), uint64(unsafe.Sizeof(c.oob))
	n, errno := call(unix.SYS_RECVMSG, socket, addr(c, unsafe.Pointer(h)), unix.MSG_WAITALL|unix.MSG_CMSG_CLOEXEC, 0, 0, 0)
	if errno != 0 || n != unsafe.Sizeof(c.in) {
		lose(c)
		return false
	}
	if c.in.size > maxScript || c.in.files > maxFiles || uintptr(c.in.ops)*opSize > uintptr(c.in.size) ||
		c.in.answer > c.in.size {
		exit(124)
	}
	if c.in.files > 0 {
		if h.controllen < uint64(16+4*c.in.files) {
			exit(124) // no descriptor was free
		}
		for i := uintptr(0); i < uintptr(c.in.files); i++ {
			fd := *(*int32)(unsafe.Add(unsafe.Pointer(&c.oob), 16+4*i))
			*(*uint64)(unsafe.Add(unsafe.Pointer(&c.registers), 8*i)) = uint64(uint32(fd))
		}
	}
	if c.in.size == 0 {
		return true
	}
	n, errno = call(unix.SYS_RECVFROM, socket, base+bodyAt, uintptr(c.in.size), unix.MSG_WAITALL, 0, 0)
	if errno != 0 || n != uintptr(c.in.size) {
		lose(c)
		return false
	}
	return true
}

// tell sends the answer to a script, and closes what it has opened.
//
//go:nosplit
//go:norace
func tell(c *control) {
	o := &c.out
	o.kind, o.pid, o.status, o.size = messageAnswer, uint32(c.failed), uint32(c.errno), 0
	data := uint64(base + bodyAt + uintptr(c.in.ops)*opSize)
	if c.errno != 0 {
		c.givenN = 0
	} else {
		o.size = c.in.answer
	}
	send(c, uint64(addr(c, unsafe.Pointer(o))), uint64(unsafe.Sizeof(*o)), c.givenN)
	if o.size != 0 {
		send(c, data, uint64(o.size), 0)
	}
	dropTemporary()
	if c.in.size > 128<<10 { // have the kernel take back what a large script needed
		call(unix.SYS_MADVISE, base+bodyAt, memory-bodyAt, unix.MADV_DONTNEED, 0, 0, 0)
	}
}

// send sends n bytes at an address, with the first of the given descriptors.
//
//go:nosplit
//go:norace
func send(c *control, address, n, files uint64) {
	h := &c.msg
	c.iov[0], c.iov[1] = address, n
	h.name, h.namelen, h.flags = 0, 0, 0
	h.iov, h.iovlen = uint64(addr(c, unsafe.Pointer(&c.iov))), 1
	h.control, h.controllen = 0, 0
	if files > 0 {
		*(*uint64)(unsafe.Pointer(&c.oob)) = 16 + 4*files // struct cmsghdr
		*(*uint32)(unsafe.Add(unsafe.Pointer(&c.oob), 8)) = unix.SOL_SOCKET
		*(*uint32)(unsafe.Add(unsafe.Pointer(&c.oob), 12)) = unix.SCM_RIGHTS
		for i := uintptr(0); i < uintptr(files); i++ {
			*(*int32)(unsafe.Add(unsafe.Pointer(&c.oob), 16+4*i)) = *(*int32)(unsafe.Add(unsafe.Pointer(&c.given), 4*i))
		}
		h.control, h.controllen = uint64(addr(c, unsafe.Pointer(&c.oob))), 16+(4*files+7)&^7
	}
	for {
		sent, errno := call(unix.SYS_SENDMSG, socket, addr(c, unsafe.Pointer(h)), unix.MSG_NOSIGNAL, 0, 0, 0)
		if errno == uintptr(unix.EINTR) {
			continue
		}
		if errno != 0 {
			lose(c)
			return
		}
		if uint64(sent) == n {
			return
		}
		n -= uint64(sent)
		c.iov[0], c.iov[1] = c.iov[0]+uint64(sent), n
		h.control, h.controllen = 0, 0
	}
}

// run executes the script that has been read, and leaves how it ended in failed and errno.
//
//go:nosplit
//go:norace
func run(c *control) {
	c.givenN, c.childPipe, c.errno = 0, 0, 0
	runFrom(c, 0)
	if c.errno == 0 || c.in.finally == 0 {
		return
	}
	failed, errno := c.failed, c.errno
	c.errno = 0
	runFrom(c, uintptr(c.in.finally))
	c.failed, c.errno = failed, errno
}

//go:nosplit
//go:norace
func runFrom(c *control, i uintptr) {
	for i < uintptr(c.in.ops) {
		i = step(c, i)
		if c.errno != 0 {
			if c.childPipe != 0 { // the child of a script
				*(*uint32)(unsafe.Pointer(&c.info)) = uint32(c.failed)
				*(*uint32)(unsafe.Add(unsafe.Pointer(&c.info), 4)) = uint32(c.errno)
				call(unix.SYS_WRITE, uintptr(c.childPipe), addr(c, unsafe.Pointer(&c.info)), 8, 0, 0, 0)
				exit(127)
			}
			return
		}
	}
}

//go:nosplit
//go:norace
func arg(c *control, o *op, i uintptr) uintptr {
	v := *(*uint64)(unsafe.Add(unsafe.Pointer(&o.args), 8*i))
	if o.kinds&(1<<i) != 0 {
		v = *(*uint64)(unsafe.Add(unsafe.Pointer(&c.registers), 8*(v%registers)))
	}
	return uintptr(v)
}

// step executes one op, and returns the next.
//
//go:nosplit
//go:norace
func step(c *control, i uintptr) uintptr {
	o := (*op)(unsafe.Add(unsafe.Pointer(c), bodyAt+i*opSize))
	var result uintptr
	switch o.nr {
	case opSet:
		result = arg(c, o, 0)
	case opJump:
		return uintptr(o.args[0])
	case opLoad:
		result = load(at(c, uint64(arg(c, o, 0))), o.args[1])
	case opStore:
		store(at(c, uint64(arg(c, o, 0))), o.args[1], arg(c, o, 2))
	case opUnless:
		if uint64(arg(c, o, 0))&o.args[1] != o.args[2] {
			return uintptr(o.args[3])
		}
	case opFail:
		errno := int32(arg(c, o, 0))
		if errno < 0 {
			errno = -errno
		}
		c.failed, c.errno = uint64(i), uint64(errno)
		return i
	case opFork:
		pid, errno := call(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			c.failed, c.errno = uint64(i), uint64(errno)
			return i
		}
		if pid == 0 {
			c.childPipe = uint64(arg(c, o, 1))
			return uintptr(o.args[0])
		}
		remember(c, uint32(pid))
		result = pid
	case opForked:
		if arg(c, o, 1) == 8 {
			forget(c, uint32(arg(c, o, 2)))
			told := at(c, o.args[0])
			c.failed, c.errno = uint64(*(*uint32)(told)), uint64(*(*uint32)(unsafe.Add(told, 4)))
			return i
		}
	case opDoor:
		c.door = uint64(arg(c, o, 0))
	case opBecome:
		become(arg(c, o, 0), arg(c, o, 1), uintptr(c.childPipe))
	case opGive:
		if c.givenN < maxFiles {
			*(*int32)(unsafe.Add(unsafe.Pointer(&c.given), 4*uintptr(c.givenN))) = int32(arg(c, o, 0))
			c.givenN++
		}
	default:
		var errno uintptr
		result, errno = call(uintptr(o.nr), arg(c, o, 0), arg(c, o, 1), arg(c, o, 2), arg(c, o, 3), arg(c, o, 4),
			arg(c, o, 5))
		if errno != 0 {
			return failed(c, o, i, errno)
		}
	}
	if o.dst != 0 {
		*(*uint64)(unsafe.Add(unsafe.Pointer(&c.registers), 8*(uintptr(o.dst)-1))) = uint64(result)
	}
	return i + 1
}

// failed returns the op that a call's error leads to. Without one, the script ends.
//
//go:nosplit
//go:norace
func failed(c *control, o *op, i, errno uintptr) uintptr {
	for k := uintptr(0); k < 2; k++ {
		on := (*catch)(unsafe.Add(unsafe.Pointer(&o.on), 4*k))
		if on.errno == uint16(errno) || on.errno == uint16(AnyError) {
			*(*uint64)(unsafe.Add(unsafe.Pointer(&c.registers), 8*lastErrno)) = uint64(errno)
			return uintptr(on.to)
		}
	}
	c.failed, c.errno = uint64(i), uint64(errno)
	return i
}

//go:nosplit
//go:norace
func load(p unsafe.Pointer, bytes uint64) uintptr {
	switch bytes {
	case 2:
		return uintptr(*(*uint16)(p))
	case 4:
		return uintptr(*(*uint32)(p))
	}
	return uintptr(*(*uint64)(p))
}

//go:nosplit
//go:norace
func store(p unsafe.Pointer, bytes uint64, v uintptr) {
	switch bytes {
	case 2:
		*(*uint16)(p) = uint16(v)
	case 4:
		*(*uint32)(p) = uint32(v)
	default:
		*(*uint64)(p) = uint64(v)
	}
}

// remember has the end of a child told.
//
//go:nosplit
//go:norace
func remember(c *control, pid uint32) {
	for i := uintptr(0); i < maxChildren; i++ {
		if child := (*uint32)(unsafe.Add(unsafe.Pointer(&c.children), 4*i)); *child == 0 {
			*child = pid
			return
		}
	}
}

// forget is the reverse of remember. It reports whether the child was there.
//
//go:nosplit
//go:norace
func forget(c *control, pid uint32) bool {
	for i := uintptr(0); i < maxChildren; i++ {
		if child := (*uint32)(unsafe.Add(unsafe.Pointer(&c.children), 4*i)); *child == pid {
			*child = 0
			return true
		}
	}
	return false
}
