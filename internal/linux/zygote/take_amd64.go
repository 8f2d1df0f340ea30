//go:build linux

package zygote

import (
	"encoding/binary"
	"errors"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Supported says that zygotes can be made on this architecture.
const Supported = true

const (
	pageSize    = 4096
	programSize = 64 << 10
	restart     = ^uint64(512) + 1 // -ERESTARTSYS, the result of a call that a stop has interrupted
	redZone     = 128              // below the stack pointer
	topOfMemory = 1<<47 - pageSize
	imageFD     = 99 // of a copy, while it becomes one
	firstFileFD = 100
	maxFiles    = 200
	maxPages    = 64 << 20 / pageSize
	maxMapped   = 1 << 30 // bytes of addresses
	maxMappings = programSize / 64
	setFS       = 0x1002 // ARCH_SET_FS
	atRandom    = 25     // AT_RANDOM
	randomSize  = 16     // bytes
)

// Take returns an image of a process that waits at the named pipe of a path. It has one thread, no child, and no other
// descriptor but its standard streams. The process goes on afterwards. Seal appends the calls that drop the privileges
// of a copy, before it runs. Errors: ErrUnsupported.
func Take(pid int, fifo string, seal func(*Program)) (f *os.File, err error) {
	taken := make(chan struct{})
	go func() {
		defer close(taken)
		// The tracer is a thread, which ends with this goroutine: a process that is killed meanwhile cannot be detached from,
		// and stays for its parent to collect as long as its tracer does.
		runtime.LockOSThread()
		f, err = take(pid, fifo, seal)
	}()
	<-taken
	return f, err
}

func take(pid int, fifo string, seal func(*Program)) (*os.File, error) {
	t := tracee{process: process{"/proc/" + strconv.Itoa(pid)}, pid: pid}
	if err := t.settle(fifo); err != nil {
		return nil, err
	}
	if err := unix.PtraceSeize(pid); err != nil {
		return nil, unsupported("ptrace: %v", err)
	}
	defer unix.PtraceDetach(pid)
	if err := unix.PtraceInterrupt(pid); err != nil {
		return nil, os.NewSyscallError("ptrace", err)
	}
	if err := t.stopped(); err != nil {
		return nil, err
	}
	f, err := t.take(fifo, seal)
	if err != nil && !errors.Is(err, ErrUnsupported) {
		err = unsupported("%v", err) // what the process has done may be the reason of any
	}
	return f, err
}

// tracee is a process that this thread has stopped.
type tracee struct {
	process
	pid  int
	regs unix.PtraceRegs // while it waits
	maps []mapping
}

// settle waits until the process waits in a read from the pipe.
func (t *tracee) settle(fifo string) error {
	for until := time.Now().Add(settleTime); ; time.Sleep(time.Millisecond) {
		text, err := t.read("syscall")
		if err != nil {
			return unsupported("%v", err)
		}
		call := strings.Fields(string(text))
		if len(call) > 1 && call[0] == strconv.Itoa(unix.SYS_READ) {
			fd, err := strconv.ParseUint(call[1], 0, 31)
			if err != nil {
				return err
			}
			if at, _ := os.Readlink(path.Join(t.dir, "fd", strconv.FormatUint(fd, 10))); at == fifo {
				return nil
			}
		}
		if time.Now().After(until) {
			return unsupported("it does not wait at %s", fifo)
		}
	}
}

// settleTime is how long a program may take to start.
const settleTime = 5 * time.Second

func (t *tracee) stopped() error {
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(t.pid, &status, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return os.NewSyscallError("wait4", err)
		case !status.Stopped():
			return unsupported("it has ended")
		default:
			return nil
		}
	}
}

// call has the process make a system call, at the instruction of the one that it waits in.
func (t *tracee) call(number int, args ...uint64) (uint64, error) {
	regs := t.regs
	regs.Orig_rax, regs.Rax, regs.Rip = ^uint64(0), uint64(number), t.regs.Rip-2
	for i, to := range []*uint64{&regs.Rdi, &regs.Rsi, &regs.Rdx, &regs.R10}[:len(args)] {
		*to = args[i]
	}
	if err := unix.PtraceSetRegs(t.pid, &regs); err != nil {
		return 0, os.NewSyscallError("ptrace", err)
	}
	err := unix.PtraceSingleStep(t.pid)
	if err == nil {
		err = t.stopped()
	}
	if err == nil {
		err = unix.PtraceGetRegs(t.pid, &regs)
	}
	err = errors.Join(err, unix.PtraceSetRegs(t.pid, &t.regs))
	if err == nil && regs.Rax > ^uint64(4095) {
		return 0, unix.Errno(-regs.Rax)
	}
	return regs.Rax, err
}

// ask is call with memory for the answer, in which the process has nothing: below its stack.
func (t *tracee) ask(size int, call func(at uint64) error) ([]byte, error) {
	at := t.regs.Rsp - 2*pageSize
	if err := call(at); err != nil {
		return nil, err
	}
	return t.memory(at, size)
}

func (t *tracee) memory(at uint64, size int) ([]byte, error) {
	mem, err := os.Open(path.Join(t.dir, "mem"))
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	b := make([]byte, size)
	_, err = mem.ReadAt(b, int64(at))
	return b, err
}

// suits refuses what more than a copy of memory would be needed for.
func (t *tracee) suits() error {
	if t.regs.Orig_rax != unix.SYS_READ || t.regs.Rax != restart {
		return unsupported("it does not wait in a read")
	}
	threads, err := t.status("Threads")
	if err != nil {
		return err
	}
	children, err := t.read(path.Join("task", strconv.Itoa(t.pid), "children"))
	if err != nil {
		return err
	}
	if threads != "1" || len(children) > 0 {
		return unsupported("it has %s threads, and the children %s", threads, children)
	}
	if features, _ := t.status("x86_Thread_features"); strings.Contains(features, "shstk") {
		return unsupported("it has a shadow stack")
	}
	var sum uint64
	for _, m := range t.maps {
		if sum += m.To - m.From; sum > maxMapped || len(t.maps) > maxMappings {
			return unsupported("it has mapped too much")
		}
		special := strings.HasPrefix(m.Name, "[") && !m.own() && m.Name != "[heap]" && m.Name != "[stack]"
		if special || m.Shared && (!m.File() || m.Prot&unix.PROT_WRITE != 0) || strings.Contains(m.Name, `\`) ||
			m.File() && !strings.HasPrefix(m.Name, "/") {
			return unsupported("it has mapped %q", m.Name)
		}
	}
	return nil
}

func (t *tracee) take(fifo string, seal func(*Program)) (f *os.File, err error) {
	if err := unix.PtraceGetRegs(t.pid, &t.regs); err != nil {
		return nil, os.NewSyscallError("ptrace", err)
	}
	text, err := t.read("maps")
	if err != nil {
		return nil, err
	}
	if t.maps, err = mapped(text); err != nil {
		return nil, err
	}
	if err := t.suits(); err != nil {
		return nil, err
	}
	i := &Image{Size: programSize, Base: t.place()}
	if i.Base == 0 {
		return nil, unsupported("its memory leaves no room")
	}
	if i.Pipe, i.Flags, err = t.descriptors(fifo); err != nil {
		return nil, err
	}
	if i.Pipe >= imageFD {
		return nil, unsupported("the pipe is the descriptor %d", i.Pipe)
	}
	ids, err := t.status("NSpid")
	if err == nil {
		i.PID, err = strconv.Atoi(ids[strings.LastIndexAny(ids, "\t ")+1:])
	}
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("zygote", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f = os.NewFile(uintptr(fd), "zygote")
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	p := &Program{base: i.Base, data: slices.Clone(instructions)}
	p.Bytes(nil)
	if err = t.replace(i, p); err != nil {
		return nil, err
	}
	if err = t.fill(i, p, f); err != nil {
		return nil, err
	}
	if err = t.attributes(i, p); err != nil {
		return nil, err
	}
	seal(p)
	p.Do(unix.SYS_CLOSE_RANGE, uint64(i.Pipe)+1, 0xffffffff, 0)
	if i.Pipe > 3 {
		p.Do(unix.SYS_CLOSE_RANGE, 3, uint64(i.Pipe)-1, 0)
	}
	if err = t.goOn(i, p, f); err != nil {
		return nil, err
	}
	return f, i.write(f, p)
}

// place finds room for the program, where neither the process nor an executor has memory.
func (t *tracee) place() uint64 {
	const from, to = 0x1000_0000, 0x1f00_0000
	for at := uint64(from); at < to; at += 1 << 20 {
		if !slices.ContainsFunc(t.maps, func(m mapping) bool { return m.From < at+programSize && at < m.To }) {
			return at
		}
	}
	return 0
}

// replace removes the memory of the process that becomes a copy. What the kernel has mapped into it is moved: Become
// fills in where that lies.
func (t *tracee) replace(i *Image, p *Program) error {
	p.Do(unix.SYS_MUNMAP, 0, i.Base)
	i.Below = len(p.calls)
	p.Do(unix.SYS_MUNMAP, i.Base+i.Size, 0)
	i.Above = len(p.calls)
	p.Do(unix.SYS_MUNMAP, 0, 0)
	for _, m := range t.maps {
		if m.own() {
			i.Own = append(i.Own, m.area())
			i.Moves = append(i.Moves, len(p.calls))
			p.Want(m.From, unix.SYS_MREMAP, 0, m.To-m.From, m.To-m.From, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED, m.From)
		}
	}
	return nil
}

const (
	// leastShared is the shortest run of pages that is mapped, as a shorter one takes less time to copy.
	leastShared = 8 * pageSize
	// mostGap is the longest part of a run that has not changed.
	mostGap = 4 * pageSize
	// mostShared is the longest mapping of pages beside the heap. Malloc moves blocks of 128 KiB and more by mremap, which
	// would grow such a mapping beyond the image; it refuses a block in two mappings, and malloc copies it.
	mostShared = 31 * pageSize
)

// fill maps the memory of a copy. Pages that the process has changed are mapped from the image, and become the copy's
// own when it writes to them, or all before it runs; short runs are copied.
func (t *tracee) fill(i *Image, p *Program, f *os.File) error {
	exe, err := os.Readlink(path.Join(t.dir, "exe"))
	if err != nil {
		return err
	}
	if _, err = t.index(i, exe, 0); err != nil {
		return err
	}
	mem, err := os.Open(path.Join(t.dir, "mem"))
	if err != nil {
		return err
	}
	defer mem.Close()
	pages := &pages{from: mem, to: f, at: programSize}
	for _, m := range t.maps {
		if m.own() {
			continue
		}
		runs, err := t.changed(m)
		if err != nil {
			return err
		}
		shared, copied := t.parts(m, runs)
		flags, fd, prot := uint64(unix.MAP_PRIVATE|unix.MAP_FIXED), ^uint64(0), m.Prot
		if m.Shared {
			flags = unix.MAP_SHARED | unix.MAP_FIXED
		}
		if m.File() {
			n, err := t.index(i, m.Name, m.Inode)
			if err != nil {
				return err
			}
			fd = uint64(firstFileFD + n)
		} else {
			flags |= unix.MAP_ANONYMOUS
		}
		if m.Name == "[stack]" {
			flags |= unix.MAP_GROWSDOWN | unix.MAP_STACK
		}
		if len(copied) > 0 {
			prot |= unix.PROT_WRITE
		}
		p.Want(m.From, unix.SYS_MMAP, m.From, m.To-m.From, uint64(prot), flags, fd, m.Offset)
		for _, r := range shared {
			for _, piece := range pieces(m, r) {
				place, err := pages.add(piece)
				if err != nil {
					return err
				}
				p.Want(piece.From, unix.SYS_MMAP, piece.From, piece.To-piece.From, uint64(m.Prot),
					unix.MAP_PRIVATE|unix.MAP_FIXED, imageFD, place)
			}
			if m.Prot&unix.PROT_WRITE != 0 && populates() {
				i.Shared = append(i.Shared, len(p.calls))
				p.Do(unix.SYS_MADVISE, r.From, r.To-r.From, unix.MADV_POPULATE_WRITE)
			}
		}
		for _, r := range copied {
			place, err := pages.add(r)
			if err != nil {
				return err
			}
			p.Want(r.To-r.From, unix.SYS_PREAD64, imageFD, r.From, r.To-r.From, place)
		}
		if prot != m.Prot {
			p.Do(unix.SYS_MPROTECT, m.From, m.To-m.From, uint64(m.Prot))
		}
	}
	return nil
}

// parts divides the changed pages of a mapping into runs that are mapped, and those that are copied.
func (t *tracee) parts(m mapping, runs []Area) (shared, copied []Area) {
	if m.Name == "[stack]" || m.Prot&unix.PROT_EXEC != 0 {
		return nil, runs
	}
	frames := t.frames()
	var joined []Area
	for _, r := range runs {
		if n := len(joined); n > 0 && r.From-joined[n-1].To <= mostGap {
			joined[n-1].To = r.To
		} else {
			joined = append(joined, r)
		}
	}
	for _, r := range joined {
		if r.To-r.From < leastShared || r.From < frames.To && frames.From < r.To {
			copied = append(copied, r)
		} else {
			shared = append(shared, r)
		}
	}
	return shared, copied
}

// pieces divides a run that is mapped. The last is the first, so that the kernel does not join two of them.
func pieces(m mapping, r Area) (all []Area) {
	size := r.To - r.From
	if m.Name != "[heap]" && !m.File() {
		size = min(size, mostShared)
	}
	for r.From < r.To {
		from := max(r.From, r.To-size)
		all = append(all, Area{From: from, To: r.To})
		r.To = from
	}
	return all
}

// populates reports whether the kernel makes pages a process's own before it writes to them (5.14).
var populates = sync.OnceValue(func() bool {
	page, err := unix.Mmap(-1, 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return false
	}
	defer unix.Munmap(page)
	return unix.Madvise(page, unix.MADV_POPULATE_WRITE) == nil
})

// pages copies those of a process into an image.
type pages struct {
	from, to *os.File
	at       uint64
}

// add appends a run, and returns its place.
func (p *pages) add(r Area) (place uint64, err error) {
	place, p.at = p.at, p.at+r.To-r.From
	if p.at > maxPages*pageSize {
		return 0, unsupported("it has too much memory")
	}
	b := make([]byte, r.To-r.From)
	if _, err := p.from.ReadAt(b, int64(r.From)); err != nil {
		return 0, err
	}
	_, err = p.to.WriteAt(b, int64(place))
	return place, err
}

// index finds a mapped file among those of the image.
func (t *tracee) index(i *Image, name string, inode uint64) (int, error) {
	n := slices.IndexFunc(i.Files, func(f File) bool { return f.Path == name })
	if n < 0 {
		file, err := t.file(name)
		if err != nil {
			return 0, err
		}
		if n = len(i.Files); n == maxFiles {
			return 0, unsupported("it has mapped %d files", n)
		}
		i.Files = append(i.Files, file)
	}
	if inode != 0 && i.Files[n].Inode != inode {
		return 0, unsupported("%s has been replaced", name)
	}
	return n, nil
}

// changed returns the runs of pages in a mapping that a new one does not have: pages of the process's own.
func (t *tracee) changed(m mapping) (runs []Area, err error) {
	const present, swapped, ofFile = 1 << 63, 1 << 62, 1 << 61
	if m.Shared {
		return nil, nil
	}
	f, err := os.Open(path.Join(t.dir, "pagemap"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, (m.To-m.From)/pageSize*8)
	if _, err := f.ReadAt(b, int64(m.From/pageSize*8)); err != nil {
		return nil, err
	}
	frames := t.frames()
	for at := m.From; at < m.To; at += pageSize {
		page := binary.NativeEndian.Uint64(b[(at-m.From)/pageSize*8:])
		mine := page&(present|swapped) != 0 && page&ofFile == 0 || at < frames.To && frames.From < at+pageSize
		if n := len(runs); !mine {
			continue
		} else if n > 0 && runs[n-1].To == at {
			runs[n-1].To += pageSize
		} else {
			runs = append(runs, Area{From: at, To: at + pageSize})
		}
	}
	return runs, nil
}

func (t *tracee) ptrace(request int, address uintptr, data unsafe.Pointer) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(t.pid), address, uintptr(data), 0, 0)
	if errno != 0 {
		return unsupported("ptrace: %v", errno)
	}
	return nil
}
