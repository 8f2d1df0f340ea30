package seccomp

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/seccomp/load"
)

// childVar makes the test binary a child that first loads a filter: "calls" makes the calls of forbidden() and does
// ordinary work, "control" does so without a filter, "exec" executes the program of its arguments.
const childVar = "COVE_TEST_SECCOMP_CHILD"

func TestMain(m *testing.M) {
	child := os.Getenv(childVar)
	if child == "" {
		os.Exit(m.Run())
	}
	os.Unsetenv(childVar)
	filter, err := Filter(Processes{User: cove.CodeUser})
	if err == nil && child != "control" {
		err = load.Filter(filter, unix.SECCOMP_FILTER_FLAG_TSYNC)
	}
	if err == nil {
		if child == "exec" {
			err = syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
		} else {
			err = json.NewEncoder(os.Stdout).Encode(report{Calls: makeCalls(), Work: work()})
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(125)
	}
	os.Exit(0)
}

type report struct {
	Calls map[string]string
	Work  map[string]string
}

// forbidden returns calls that must fail before the kernel looks at their arguments. Unfiltered, the arguments would
// fail with another error, listed in unfiltered.
func forbidden() []struct {
	name string
	nr   uintptr
	args [6]uintptr
	want string
} {
	const none = ^uintptr(0)
	return []struct {
		name string
		nr   uintptr
		args [6]uintptr
		want string
	}{
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, [6]uintptr{}, "EPERM"},
		{"bpf", unix.SYS_BPF, [6]uintptr{none}, "EPERM"},
		{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, [6]uintptr{}, "EPERM"},
		{"userfaultfd", unix.SYS_USERFAULTFD, [6]uintptr{none}, "EPERM"},
		{"keyctl", unix.SYS_KEYCTL, [6]uintptr{none}, "EPERM"},
		{"ptrace", unix.SYS_PTRACE, [6]uintptr{none, none}, "EPERM"},
		{"process_vm_readv", unix.SYS_PROCESS_VM_READV, [6]uintptr{none}, "EPERM"},
		{"unshare", unix.SYS_UNSHARE, [6]uintptr{0}, "EPERM"},
		{"setns", unix.SYS_SETNS, [6]uintptr{none}, "EPERM"},
		{"mount", unix.SYS_MOUNT, [6]uintptr{}, "EPERM"},
		{"fsopen", unix.SYS_FSOPEN, [6]uintptr{}, "EPERM"},
		{"memfd_create", unix.SYS_MEMFD_CREATE, [6]uintptr{}, "EPERM"},
		{"clone with a user namespace", unix.SYS_CLONE, [6]uintptr{unix.CLONE_NEWUSER | unix.CLONE_FS}, "EPERM"},
		{"clone3", unix.SYS_CLONE3, [6]uintptr{}, "ENOSYS"},
		{"AF_VSOCK", unix.SYS_SOCKET, [6]uintptr{unix.AF_VSOCK, unix.SOCK_STREAM}, "EPERM"},
		{"AF_ALG", unix.SYS_SOCKET, [6]uintptr{unix.AF_ALG, unix.SOCK_SEQPACKET}, "EPERM"},
		{"AF_PACKET", unix.SYS_SOCKET, [6]uintptr{unix.AF_PACKET, unix.SOCK_RAW}, "EPERM"},
		{"netlink audit", unix.SYS_SOCKET, [6]uintptr{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, "EPERM"},
		{"raw socket", unix.SYS_SOCKET, [6]uintptr{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, "EPERM"},
		{"TIOCSTI", unix.SYS_IOCTL, [6]uintptr{none, unix.TIOCSTI}, "EPERM"},
		{"TIOCSTI behind garbage", unix.SYS_IOCTL, [6]uintptr{none, 1<<32 | unix.TIOCSTI}, "EPERM"},
		{"control: another ioctl", unix.SYS_IOCTL, [6]uintptr{none, unix.TIOCGWINSZ}, "EBADF"},
		{"a lease", unix.SYS_FCNTL, [6]uintptr{none, unix.F_SETLEASE, unix.F_WRLCK}, "EPERM"},
		{"notifications", unix.SYS_FCNTL, [6]uintptr{none, unix.F_NOTIFY, 1}, "EPERM"},
		{"a hint", unix.SYS_FCNTL, [6]uintptr{none, unix.F_SET_RW_HINT}, "EPERM"},
		{"control: another command", unix.SYS_FCNTL, [6]uintptr{none, unix.F_GETFD}, "EBADF"},
		{"PR_SET_PTRACER", unix.SYS_PRCTL, [6]uintptr{unix.PR_SET_PTRACER}, "EPERM"},
		{"READ_IMPLIES_EXEC", unix.SYS_PERSONALITY, [6]uintptr{0x0400000}, "EPERM"},
		{"control: asking for the personality", unix.SYS_PERSONALITY, [6]uintptr{0xffffffff}, "ok"},
		{"control: asking for the limit of core dumps", unix.SYS_PRLIMIT64, [6]uintptr{0, unix.RLIMIT_CORE}, "ok"},
		{"control: a limit from nowhere", unix.SYS_PRLIMIT64, [6]uintptr{0, unix.RLIMIT_NOFILE, 1}, "EFAULT"},
		{"a limit of core dumps from nowhere", unix.SYS_PRLIMIT64, [6]uintptr{0, unix.RLIMIT_CORE, 1}, "ok"},
		{"a number nobody has", 2000, [6]uintptr{}, "ENOSYS"},
		{"control: close of nothing", unix.SYS_CLOSE, [6]uintptr{none}, "EBADF"},
	}
}

func makeCalls() map[string]string {
	out := map[string]string{}
	for _, c := range forbidden() {
		_, _, errno := unix.RawSyscall6(c.nr, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], c.args[5])
		out[c.name] = "ok"
		if errno != 0 {
			out[c.name] = unix.ErrnoName(errno)
		}
	}
	return out
}

// work returns ordinary work of a Go program such as the guest.
func work() map[string]string {
	out := map[string]string{}
	try := func(name string, f func() error) {
		out[name] = "ok"
		if err := f(); err != nil {
			out[name] = err.Error()
		}
	}
	try("threads and garbage", func() error {
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				runtime.LockOSThread() // so that each needs a thread of its own
				_ = make([]byte, 1<<20)
				runtime.Gosched()
			})
		}
		wg.Wait()
		runtime.GC()
		return nil
	})
	try("processes", func() error {
		b, err := exec.Command("/bin/sh", "-c", "echo $((6*7)) | cat").Output()
		if err == nil && string(b) != "42\n" {
			err = fmt.Errorf("said %q", b)
		}
		return err
	})
	try("processes as another user", func() error {
		if os.Getuid() != 0 {
			return nil
		}
		cmd := exec.Command("/bin/sh", "-c", "id -u")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Setsid: true,
			Pdeathsig: syscall.SIGKILL}
		b, err := cmd.Output()
		if err == nil && string(b) != "65534\n" {
			err = fmt.Errorf("is %q", b)
		}
		return err
	})
	try("TCP", func() error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close()
		go func() {
			if c, err := l.Accept(); err == nil {
				io.WriteString(c, "hello")
				c.Close()
			}
		}()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return err
		}
		defer c.Close()
		b, err := io.ReadAll(c)
		if err == nil && string(b) != "hello" {
			err = fmt.Errorf("said %q", b)
		}
		return err
	})
	try("network interfaces", func() error { _, err := net.Interfaces(); return err })
	try("Unix sockets", func() error {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		unix.Close(fds[0])
		return unix.Close(fds[1])
	})
	try("files", func() error {
		dir, err := os.MkdirTemp("", "seccomp")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		root, err := os.OpenRoot(dir)
		if err != nil {
			return err
		}
		defer root.Close()
		if err := root.WriteFile("f", []byte("x"), 0o600); err != nil {
			return err
		}
		return errors.Join(root.Chmod("f", 0o644), root.Symlink("f", "l"), root.Rename("l", "m"),
			unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	})
	return out
}

func childCommand(t *testing.T, kind string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), childVar+"="+kind)
	return cmd
}

func askChild(t *testing.T, kind string) report {
	t.Helper()
	b, err := childCommand(t, kind).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	var got report
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return got
}

func TestKernelKeepsThePolicy(t *testing.T) {
	got, control := askChild(t, "calls"), askChild(t, "control")
	refused := 0
	for _, c := range forbidden() {
		if got.Calls[c.name] != c.want {
			t.Errorf("%s: %s, want %s", c.name, got.Calls[c.name], c.want)
		}
		switch {
		case c.want != "EPERM":
		case control.Calls[c.name] == c.want:
			t.Logf("not tested: %s is %s without the filter, too", c.name, c.want)
		default:
			refused++
		}
	}
	if refused < 10 {
		t.Errorf("the filter made a difference to %d calls only", refused)
	}
	if len(got.Work) < 5 {
		t.Errorf("too little work done: %v", got.Work)
	}
	for name, outcome := range got.Work {
		if outcome != "ok" {
			t.Errorf("%s: %s", name, outcome)
		}
	}
}

// TestPrograms runs the installed interpreters under the filter.
func TestPrograms(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"sh", []string{"sh", "-c", "echo $((6*7))"}, "42"},
		{"bash",
			[]string{"bash", "-c", "x=$(seq 3 | sort -r | head -1); mkfifo -m 600 /dev/shm/cove-$$ && rm /dev/shm/cove-$$ && " +
				"echo $x; (sleep 0.01 & wait)"}, "3"},
		{"python3", []string{"/usr/bin/python3", "-c", `
import threading, subprocess, socket, tempfile, asyncio, os, time
from concurrent.futures import ThreadPoolExecutor, ProcessPoolExecutor
def square(x): return x * x
if __name__ == "__main__":
    with ThreadPoolExecutor(8) as pool: assert sum(pool.map(square, range(4))) == 14
    import multiprocessing as mp
    with mp.get_context("fork").Pool(2) as pool: assert pool.map(square, [3]) == [9]
    assert subprocess.run(["echo", "x"], capture_output=True, text=True).stdout == "x\n"
    async def main():
        p = await asyncio.create_subprocess_exec("echo", "y", stdout=asyncio.subprocess.PIPE)
        assert (await p.communicate())[0] == b"y\n"
    asyncio.run(main())
    socket.create_server(("127.0.0.1", 0)).close()
    with tempfile.TemporaryFile() as f: f.write(b"z"); f.flush(); os.fsync(f.fileno())
    print(42)
`}, "42"},
		{"node", []string{"node", "-e", `
const {execFileSync} = require("child_process"), {Worker} = require("worker_threads"), fs = require("fs");
if (execFileSync("echo", ["x"]).toString() !== "x\n") throw "exec";
fs.promises.readFile("/proc/self/status").then(() => require("net").createServer().listen(0, "127.0.0.1", function () {
  this.close();
  new Worker("require('worker_threads').parentPort.postMessage(42)", {eval: true}).on("message", console.log);
}));`}, "42"},
		{"perl", []string{"perl", "-MSocket", "-e",
			`socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, 0) or die; my $x = qx(echo 42); print $x`}, "42"},
		{"ruby", []string{"ruby", "-rsocket", "-e",
			"TCPServer.new('127.0.0.1', 0).close; puts Thread.new { `echo 42` }.value"}, "42"},
		{"java", []string{"java", "-version"}, ""},
		{"go", []string{"go", "version"}, "go version"},
		{"go build", []string{"go", "list", "-deps", "fmt"}, "runtime"},
		{"gcc", []string{"gcc", "-xc", "-o", "/dev/null", "-pipe", "/dev/null", "-shared"}, ""},
		{"git", []string{"git", "--version"}, "git version"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path, err := exec.LookPath(test.args[0])
			if err != nil {
				t.Skipf("%s is not installed", test.args[0])
			}
			cmd := childCommand(t, "exec", append([]string{path}, test.args[1:]...)...)
			b, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(b), test.want) {
				t.Errorf("%v: %s", err, b)
			}
		})
	}
}

// TestOtherABIs calls the kernel through the two ABIs that a filter by number alone would misjudge.
func TestOtherABIs(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("int 0x80 and x32 are of x86-64")
	}
	closeNothing := []byte{0xbb, 0xff, 0xff, 0xff, 0xff, 0xbf, 0xff, 0xff, 0xff, 0xff} // mov ebx, -1; mov edi, -1
	exitWithErrno := []byte{
		0xf7, 0xd8, // neg eax
		0x89, 0xc7, // mov edi, eax
		0xb8, 60, 0, 0, 0, // mov eax, exit
		0x0f, 0x05, // syscall
	}
	program := func(middle ...byte) string {
		path := filepath.Join(t.TempDir(), "program")
		code := append(append(append([]byte{}, closeNothing...), middle...), exitWithErrno...)
		if err := os.WriteFile(path, elf(code), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, test := range []struct {
		name, path string
		unfiltered []syscall.Errno
		filtered   syscall.Errno
	}{
		{"control", program(0xb8, 3, 0, 0, 0, 0x0f, 0x05), []syscall.Errno{syscall.EBADF}, syscall.EBADF},
		{"int 0x80", program(0xb8, 6, 0, 0, 0, 0xcd, 0x80), []syscall.Errno{syscall.EBADF}, syscall.EPERM},
		{"x32", program(0xb8, 3, 0, 0, 0x40, 0x0f, 0x05), []syscall.Errno{syscall.EBADF, syscall.ENOSYS}, syscall.EPERM},
	} {
		t.Run(test.name, func(t *testing.T) {
			plain := exec.Command(test.path).Run()
			known := false
			for _, e := range test.unfiltered {
				known = known || exitErrno(plain) == e
			}
			if !known {
				t.Skipf("without a filter it ends with %v: this kernel has no such ABI", plain)
			}
			if err := childCommand(t, "exec", test.path).Run(); exitErrno(err) != test.filtered {
				t.Errorf("under the filter it ends with %v, want exit status %d", err, test.filtered)
			}
		})
	}
}

func exitErrno(err error) syscall.Errno {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return syscall.Errno(exit.ExitCode())
	}
	return 0
}

// elf wraps machine code in the smallest x86-64 program.
func elf(code []byte) []byte {
	const base, header = 0x400000, 64 + 56
	var b bytes.Buffer
	for _, v := range []any{
		[16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1},
		uint16(2), uint16(62), uint32(1), uint64(base + header), uint64(64), uint64(0),
		uint32(0), uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0),
		uint32(1), uint32(5), uint64(0), uint64(base), uint64(base),
		uint64(header + len(code)), uint64(header + len(code)), uint64(0x1000),
		code,
	} {
		binary.Write(&b, binary.LittleEndian, v)
	}
	return b.Bytes()
}

// BenchmarkLoad loads the filter into threads of their own, which then end.
func BenchmarkLoad(b *testing.B) {
	filter, err := Filter(Processes{User: cove.CodeUser})
	if err != nil {
		b.Fatal(err)
	}
	var total time.Duration
	for b.Loop() {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
			start := time.Now()
			err := load.Filter(filter, 0)
			total += time.Since(start)
			done <- err
		}()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(total.Nanoseconds())/float64(b.N), "ns/load")
}
