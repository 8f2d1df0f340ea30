package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Fuzz makes system calls in generated sequences, each in a process of its own.
//
//	probe fuzz SEED SEQUENCES
//
// The arguments are descriptors, among them those that earlier calls have returned, buffers with paths and
// structures, sizes and flags. A sequence ends after callsOfSequence calls, or when its process dies or has had its
// time.
func fuzz(args []string) (report, error) {
	if len(args) != 2 {
		return report{}, errors.New("fuzz SEED SEQUENCES")
	}
	seed, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return report{}, err
	}
	sequences, err := strconv.Atoi(args[1])
	if err != nil {
		return report{}, err
	}
	if err := confined(); err != nil {
		return report{}, err
	}
	var r report
	for i := range uint64(sequences) {
		r.count += fuzzed(seed + i)
	}
	return r, nil
}

const (
	callsOfSequence = 10000
	timeOfSequence  = time.Second
	lastCall        = 470 // of the numbers that the kernel knows, and some beyond
)

// confined is an error where calls at random could harm a machine: without a filter, or as a user who may do more.
func confined() error {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for _, line := range []string{"\nSeccomp:\t2\n", "\nNoNewPrivs:\t1\n", "\nCapEff:\t0000000000000000\n"} {
		if !strings.Contains(string(b), line) {
			return fmt.Errorf("not confined: no line %q", strings.TrimSpace(line))
		}
	}
	return nil
}

// fuzzed runs one sequence in a child, and returns how many calls it has made.
func fuzzed(seed uint64) int64 {
	counter, counts, err := os.Pipe()
	if err != nil {
		return 0
	}
	defer counter.Close()
	c := exec.Command("/proc/self/exe", "fuzz-child", strconv.FormatUint(seed, 10))
	c.ExtraFiles = []*os.File{counts}
	c.WaitDelay = time.Second
	err = c.Start()
	counts.Close()
	if err != nil {
		return 0
	}
	defer time.AfterFunc(timeOfSequence, func() { c.Process.Kill() }).Stop()
	defer counter.SetReadDeadline(time.Now())
	c.Wait()
	counter.SetReadDeadline(time.Now().Add(time.Second)) // a child of the child may hold the other end
	var made int64
	b := make([]byte, 4096)
	for {
		n, err := counter.Read(b)
		if made += int64(n); err != nil {
			return made * callsOfMark
		}
	}
}

const callsOfMark = 50 // one byte in the pipe stands for so many calls

// fuzzChild makes the calls of one sequence. It does not return where a call ends it.
func fuzzChild(args []string) (report, error) {
	if len(args) != 1 {
		return report{}, errors.New("fuzz-child SEED")
	}
	seed, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return report{}, err
	}
	if err := confined(); err != nil {
		return report{}, err
	}
	newFuzzer(seed).run()
	os.Exit(0)
	return report{}, nil
}

// fuzzer generates the calls of a sequence. A call that does not come back is left to its thread.
type fuzzer struct {
	mu sync.Mutex
	*rand.Rand
	fds     []uintptr
	buffers [][]byte
	made    int
}

const threadsOfSequence = 24

// run makes the calls, on another thread whenever the latest ones do not come back.
func (f *fuzzer) run() {
	for before, threads := -1, 0; ; time.Sleep(3 * time.Millisecond) {
		f.mu.Lock()
		made := f.made
		f.mu.Unlock()
		if made == callsOfSequence {
			return
		}
		if threads < threadsOfSequence && (made == before || threads == 0) {
			threads++
			go f.calls()
		}
		before = made
	}
}

func (f *fuzzer) calls() {
	runtime.LockOSThread()
	for f.call() {
	}
}

// ending are calls that end or stop a sequence, and are made seldom.
var ending = map[uintptr]bool{unix.SYS_EXIT: true, unix.SYS_EXIT_GROUP: true, unix.SYS_RT_SIGRETURN: true,
	unix.SYS_MUNMAP: true, unix.SYS_MREMAP: true, unix.SYS_RT_SIGSUSPEND: true, unix.SYS_EXECVE: true,
	unix.SYS_EXECVEAT: true, unix.SYS_RT_SIGACTION: true, unix.SYS_RT_SIGPROCMASK: true, unix.SYS_FUTEX: true,
	unix.SYS_KILL: true, unix.SYS_TKILL: true, unix.SYS_TGKILL: true, unix.SYS_BRK: true, unix.SYS_SIGALTSTACK: true}

// fuzzPaths are what sequences name: places of their own, and doors that must be shut.
var fuzzPaths = []string{"/tmp/a", "/tmp/b", "/tmp", "/", ".", "/proc/self/mem", "/proc/1/root", "/proc/1/mem",
	"/proc/self/ns/mnt", "/proc/self/fd/0", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/kcore",
	"/dev/ptmx", "/dev/shm/x", "/dev/null", "/sys/kernel", "/etc/passwd", "/sys/fs/cgroup", "/proc/self/attr/current", "x",
	"tmpfs", "proc", "user.name", "security.capability", "/usr/bin/python3", "/../../etc/shadow", ""}

func newFuzzer(seed uint64) *fuzzer {
	f := &fuzzer{Rand: rand.New(rand.NewPCG(seed, seed^0x5bd1e995))}
	for _, path := range []string{"/tmp", "/", "/proc/self", "/dev/null", "/dev/ptmx", "/proc/self/maps"} {
		if fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
			f.fds = append(f.fds, uintptr(fd))
		}
	}
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET} {
		if pair, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_NONBLOCK, 0); err == nil {
			f.fds = append(f.fds, uintptr(pair[0]), uintptr(pair[1]))
		}
	}
	for _, path := range fuzzPaths {
		f.buffers = append(f.buffers, append([]byte(path), make([]byte, 64)...))
	}
	for range 24 {
		b := make([]byte, 4096)
		for i := 0; i < 256; i += 8 { // like structures: small numbers, descriptors, addresses
			v := f.value()
			for j := range 8 {
				b[i+j] = byte(v >> (8 * j))
			}
		}
		f.buffers = append(f.buffers, b)
	}
	return f
}

// call makes one call, and keeps what looks like a new descriptor. It returns false at the end of the sequence.
func (f *fuzzer) call() bool {
	f.mu.Lock()
	if f.made == callsOfSequence {
		f.mu.Unlock()
		return false
	}
	nr := uintptr(f.IntN(lastCall))
	for ending[nr] && f.IntN(200) > 0 {
		nr = uintptr(f.IntN(lastCall))
	}
	var a [6]uintptr
	for i := range a {
		a[i] = f.value()
	}
	if f.made++; f.made%callsOfMark == 0 {
		unix.Write(3, []byte{'.'})
	}
	f.mu.Unlock()
	r, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	f.mu.Lock()
	defer f.mu.Unlock()
	if errno == 0 && r > 3 && r < 1024 && len(f.fds) < 200 {
		f.fds = append(f.fds, r)
	}
	return true
}

// value returns one argument.
func (f *fuzzer) value() uintptr {
	switch f.IntN(8) {
	case 0, 1:
		if len(f.buffers) > 0 {
			b := f.buffers[f.IntN(len(f.buffers))]
			return uintptr(unsafe.Pointer(&b[f.IntN(2)*f.IntN(32)]))
		}
	case 2, 3:
		if len(f.fds) > 0 {
			return f.fds[f.IntN(len(f.fds))]
		}
	case 4:
		return 1 << f.IntN(33) // a flag
	case 5:
		special := []uintptr{0, 1, all, all - 99, 4096, 1 << 31, 1 << 47, uintptr(os.Getpid()), 0x7fffffff}
		return special[f.IntN(len(special))]
	}
	return uintptr(f.IntN(128))
}
