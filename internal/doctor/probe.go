package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/seccomp"
	"github.com/cove-sandbox/cove/internal/linux/seccomp/load"
)

// probes are the trials of a child. They may change the child at will, since it ends afterwards.
var probes = map[string]func(args []string) (found string){
	"nothing":             func([]string) string { return "" },
	"capability":          probeCapability,
	"nested":              probeNested,
	"proc":                probeProc,
	"overlay":             probeOverlay,
	"overlay-directories": probeOverlayDirectories,
	"overlay-idmapped":    probeOverlayIDMapped,
	"tmpfs-bytes":         probeTmpfsBytes,
	"tmpfs-inodes":        probeTmpfsInodes,
	"mount-api":           probeMountAPI,
	"seccomp":             probeSeccomp,
	"wait":                probeWait,
	"memory":              probeMemory,
	"pids":                probePIDs,
	"cpu":                 probeCPU,
	"sockets":             probeSockets,
	"watches":             probeWatches,
	"terminals":           probeTerminals,
	"signals":             probeSignals,
	"connect":             probeConnect,
}

// RunProbe is the child's side of a check: the hidden subcommand of Options.Probe calls it and exits with its result.
func RunProbe(args []string) int {
	runtime.LockOSThread()
	if len(args) == 0 || probes[args[0]] == nil {
		fmt.Fprintln(os.Stderr, "this command is for \"cove doctor\" itself")
		return 2
	}
	json.NewEncoder(os.Stdout).Encode(report(probes[args[0]], args[1:]))
	return 0
}

// report makes a trial, up to the first step that fails.
func report(trial func([]string) string, args []string) (a answer) {
	defer func() {
		switch failed := recover().(type) {
		case nil:
		case answer:
			a = failed
		default:
			panic(failed)
		}
	}()
	return answer{Found: trial(args)}
}

// place returns a directory that exists everywhere, to mount on in the child's own mount namespace.
func place() string { return os.TempDir() }

// at returns a path in what is mounted there.
func at(name string) string { return filepath.Join(place(), name) }

// ownTmpfs makes the mounts private and mounts a tmpfs on the place.
func ownTmpfs(data string) {
	step("make the mounts private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	step("mount a tmpfs", unix.Mount("tmpfs", place(), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data))
}

// probeCapability uses a capability in its namespaces: restricted user namespaces can be made but grant none.
func probeCapability([]string) string {
	ownTmpfs("size=64k")
	return ""
}

// probeNested becomes another user and then makes namespaces as that user. Its arguments are the user's id and this
// program's command for a probe.
func probeNested(args []string) string {
	id, err := strconv.Atoi(args[0])
	step("probe", err)
	step(fmt.Sprintf("become uid %d", id),
		errors.Join(syscall.Setgroups(nil), syscall.Setresgid(id, id, id), syscall.Setresuid(id, id, id)))
	// The change of ids gave /proc/self to root, but the id map is written there.
	step("become dumpable", unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0))
	cmd := exec.Command("/proc/self/exe", args[1:]...)
	cmd.SysProcAttr = attributes(unix.CLONE_NEWUSER | unix.CLONE_NEWNS)
	found, err := ask(cmd)
	step("probe", err)
	return found
}

// probeProc mounts /proc as the first process of a pid namespace.
func probeProc([]string) string {
	step("make the mounts private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	step("mount proc", unix.Mount("proc", place(), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	if self, err := os.Readlink(at("self")); err != nil || self != "1" {
		step("find itself as pid 1", fmt.Errorf("%q, %v", self, err))
	}
	return ""
}

// layers makes a tmpfs with the directories of an overlay, and others.
func layers(more ...string) {
	ownTmpfs("size=1m")
	for _, dir := range append([]string{"lower", "upper", "work", "merged"}, more...) {
		step("make "+dir, os.Mkdir(at(dir), 0o755))
	}
}

func mountOverlay() {
	data := "userxattr,lowerdir=" + at("lower") + ",upperdir=" + at("upper") + ",workdir=" + at("work")
	step("mount an overlay", unix.Mount("overlay", at("merged"), "overlay", unix.MS_NOSUID|unix.MS_NODEV, data))
}

// ownOverlay makes an overlay over a lower directory with a file and a directory.
func ownOverlay() {
	layers("lower/dir")
	for _, file := range []string{"lower/file", "lower/dir/file"} {
		step("write "+file, os.WriteFile(at(file), []byte("lower"), 0o644))
	}
	mountOverlay()
}

// probeOverlay changes a file through an overlay; the lower one must be unchanged.
func probeOverlay([]string) string {
	ownOverlay()
	step("write through the overlay", os.WriteFile(at("merged/file"), []byte("upper"), 0o644))
	lower, err := os.ReadFile(at("lower/file"))
	if err != nil || string(lower) != "lower" {
		step("keep the lower file", fmt.Errorf("it reads %q, %v", lower, err))
	}
	step("remove through the overlay", os.Remove(at("merged/file")))
	return ""
}

// probeOverlayDirectories removes a directory through an overlay and makes it again: both need an extended attribute on
// the overlay's own directory, which hides the lower one.
func probeOverlayDirectories([]string) string {
	ownOverlay()
	step("remove a directory", os.RemoveAll(at("merged/dir")))
	step("make it anew", os.Mkdir(at("merged/dir"), 0o755))
	entries, err := os.ReadDir(at("merged/dir"))
	if err == nil && len(entries) != 0 {
		err = fmt.Errorf("it has %v", entries)
	}
	step("find it empty", err)
	return ""
}

// probeOverlayIDMapped mounts an overlay over a given idmapped mount, as for an image when root runs Cove.
func probeOverlayIDMapped([]string) string {
	layers()
	step("attach the mount", unix.MoveMount(3, "", unix.AT_FDCWD, at("lower"), unix.MOVE_MOUNT_F_EMPTY_PATH))
	mountOverlay()
	return ""
}

func probeTmpfsBytes([]string) string {
	const size = 1 << 20
	ownTmpfs("size=" + strconv.Itoa(size))
	f, err := os.Create(at("file"))
	step("make a file", err)
	n, err := f.Write(make([]byte, 2*size))
	if !errors.Is(err, unix.ENOSPC) {
		step("be stopped at 1 MiB", fmt.Errorf("wrote %d bytes, %v", n, err))
	}
	if n > size {
		step("be stopped at 1 MiB", fmt.Errorf("stopped after %d bytes", n))
	}
	return fmt.Sprintf("stopped after %d of %d bytes", n, 2*size)
}

// probeWatches limits the inotify instances of its user namespace, and makes more.
func probeWatches([]string) string {
	const most = 4
	step("limit them", os.WriteFile("/proc/sys/user/max_inotify_instances", []byte(strconv.Itoa(most)), 0))
	for i := range 2 * most {
		_, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if errors.Is(err, unix.EMFILE) {
			return fmt.Sprintf("stopped after %d of %d instances", i, 2*most)
		}
		step("make an instance", err)
	}
	step("be stopped at 4 instances", fmt.Errorf("made %d", 2*most))
	return ""
}

// probeTerminals limits the terminals of a devpts, and opens more.
func probeTerminals([]string) string {
	const most = 4
	step("make the mounts private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	step("mount devpts", unix.Mount("devpts", place(), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC,
		"newinstance,ptmxmode=0666,max="+strconv.Itoa(most)))
	for i := range 2 * most {
		_, err := unix.Open(at("ptmx"), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOSPC) {
			return fmt.Sprintf("stopped after %d of %d terminals", i, 2*most)
		}
		step("open a terminal", err)
	}
	step("be stopped at 4 terminals", fmt.Errorf("opened %d", 2*most))
	return ""
}

// probeSignals limits pending signals and the bytes of message queues, and makes more.
func probeSignals([]string) string {
	const signals, queue, message = 8, 8, 1024
	limit := func(resource int, value uint64) {
		step("set a limit", unix.Setrlimit(resource, &unix.Rlimit{Cur: value, Max: value}))
	}
	set := unix.Sigset_t{Val: [16]uint64{1 << (realtime - 1)}}
	step("block a signal", unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil))
	limit(unix.RLIMIT_SIGPENDING, signals)
	queued := 0
	for ; queued < 2*signals; queued++ {
		info := unix.Siginfo{Signo: realtime, Code: queuedCode}
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(unix.Getpid()), uintptr(unix.Gettid()), realtime,
			uintptr(unsafe.Pointer(&info)), 0, 0)
		if errno == unix.EAGAIN {
			break
		}
		if errno != 0 {
			step("queue a signal", errno)
		}
	}
	if queued > signals {
		step("be stopped at 8 signals", fmt.Errorf("%d wait", queued))
	}
	limit(unix.RLIMIT_MSGQUEUE, 4*queue*message)
	made := 0
	for ; made < 8; made++ {
		name, err := unix.BytePtrFromString("cove-doctor-" + strconv.Itoa(made))
		step("name a message queue", err)
		attr := [8]int64{1: queue, 2: message} // mq_attr: flags, most messages, bytes of one
		_, _, errno := unix.RawSyscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_CREAT|unix.O_RDWR, 0o600,
			uintptr(unsafe.Pointer(&attr)), 0, 0)
		if errno == unix.EMFILE {
			break
		}
		if errno != 0 {
			step("make a message queue", errno)
		}
	}
	if made == 0 || made == 8 {
		step("be stopped at the bytes of 4 queues", fmt.Errorf("made %d", made))
	}
	return fmt.Sprintf("stopped after %d of %d signals, and %d of 8 queues", queued, 2*signals, made)
}

// realtime is a signal of which several wait, and queuedCode is SI_QUEUE.
const (
	realtime   = 40
	queuedCode = -1
)

// probeConnect connects to a socket, and waits until that is closed.
func probeConnect(args []string) string {
	conn, err := net.Dial("unix", args[0])
	step("connect", err)
	io.Copy(io.Discard, conn)
	return ""
}

func probeTmpfsInodes([]string) string {
	const inodes = 16
	ownTmpfs("size=1m,nr_inodes=" + strconv.Itoa(inodes))
	for i := range 2 * inodes {
		f, err := os.Create(at(strconv.Itoa(i)))
		if errors.Is(err, unix.ENOSPC) {
			return fmt.Sprintf("stopped after %d of %d files", i, 2*inodes)
		}
		step("make a file", err)
		f.Close()
	}
	step("be stopped at 16 inodes", fmt.Errorf("made %d files", 2*inodes))
	return ""
}

// probeMountAPI makes a mount by descriptors, and copies one.
func probeMountAPI([]string) string {
	step("make the mounts private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	step("fsopen", err)
	step("fsconfig", unix.FsconfigSetString(fs, "size", "64k"))
	step("fsconfig create", unix.FsconfigCreate(fs))
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID)
	step("fsmount", err)
	step("move_mount", unix.MoveMount(mount, "", unix.AT_FDCWD, place(), unix.MOVE_MOUNT_F_EMPTY_PATH))
	tree, err := unix.OpenTree(unix.AT_FDCWD, place(), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	step("open_tree", err)
	readOnly := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	step("mount_setattr", unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, readOnly))
	return "fsopen, fsmount, move_mount, open_tree, mount_setattr"
}

// probeSeccomp loads the policy for snippets and makes refused calls, and an allowed one.
func probeSeccomp([]string) string {
	filter, err := seccomp.Filter(seccomp.Processes{User: cove.CodeUser})
	step("compile the filter", err)
	step("load the filter", load.Filter(filter, unix.SECCOMP_FILTER_FLAG_TSYNC))
	for _, c := range []struct {
		name     string
		number   uintptr
		argument uintptr
		want     syscall.Errno
	}{
		{"unshare", unix.SYS_UNSHARE, 0, unix.EPERM},
		{"clone3", unix.SYS_CLONE3, 0, unix.ENOSYS},
		{"socket(AF_VSOCK)", unix.SYS_SOCKET, unix.AF_VSOCK, unix.EPERM},
		{"close, which is allowed,", unix.SYS_CLOSE, ^uintptr(0), unix.EBADF},
	} {
		if _, _, errno := unix.RawSyscall(c.number, c.argument, 0, 0); errno != c.want {
			step("have the filter decide", fmt.Errorf("%s ends with %v, not %v", c.name, errno, c.want))
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	step("read /proc/self/status", err)
	for _, line := range []string{"NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(string(status), line) {
			step("be under the filter", fmt.Errorf("no %q in /proc/self/status", line))
		}
	}
	return fmt.Sprintf("%d instructions", len(filter)/8)
}

func probeWait([]string) string {
	_, err := io.Copy(io.Discard, os.Stdin)
	step("probe", err)
	return ""
}

// probeMemory uses the number of bytes in its argument, and should be killed.
func probeMemory(args []string) string {
	n, err := strconv.Atoi(args[0])
	step("probe", err)
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	step("map memory", err)
	for i := 0; i < n; i += 4096 {
		mem[i] = byte(i>>12) | 1
	}
	return fmt.Sprintf("used %d MiB", n>>20)
}

// probeSockets sends the number of bytes in its argument to sockets that do not read, and reports how many arrived: UDP
// drops what does not fit.
func probeSockets(args []string) string {
	n, err := strconv.Atoi(args[0])
	step("probe", err)
	datagram := make([]byte, 32<<10)
	var full []*net.UDPConn
	for sent := 0; sent < n; {
		to, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		step("listen", err)
		full = append(full, to)
		step("enlarge its buffer", to.SetReadBuffer(2<<20))
		from, err := net.DialUDP("udp4", nil, to.LocalAddr().(*net.UDPAddr))
		step("connect", err)
		for room := receiveBuffer(to); room > 0; room -= len(datagram) {
			from.Write(datagram) // one that is refused counts as sent
			sent += len(datagram)
		}
		from.Close()
	}
	arrived := 0
	for _, to := range full {
		step("drain it", to.SetReadDeadline(time.Now().Add(time.Millisecond)))
		for {
			k, err := to.Read(datagram)
			if err != nil {
				break
			}
			arrived += k
		}
	}
	return strconv.Itoa(arrived)
}

// receiveBuffer returns the bytes that fit into a socket: half of what the kernel says, which includes its own part.
func receiveBuffer(c *net.UDPConn) (n int) {
	raw, err := c.SyscallConn()
	step("probe", err)
	step("probe", raw.Control(func(fd uintptr) {
		n, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
	}))
	step("probe", err)
	return n / 2
}

// probePIDs starts the number of processes in its first argument; the others are this program's command for a probe.
func probePIDs(args []string) string {
	n, err := strconv.Atoi(args[0])
	step("probe", err)
	var waiting []*exec.Cmd
	defer func() {
		for _, cmd := range waiting {
			cmd.Process.Kill()
			cmd.Wait()
		}
	}()
	for i := range n {
		cmd := exec.Command("/proc/self/exe", args[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		_, err := cmd.StdinPipe()
		step("probe", err)
		if err = cmd.Start(); errors.Is(err, unix.EAGAIN) {
			return fmt.Sprintf("stopped after %d processes", i)
		}
		step("start a process", err)
		waiting = append(waiting, cmd)
	}
	return fmt.Sprintf("started %d processes", n)
}

// probeCPU uses the CPU time in its argument, and reports the elapsed time.
func probeCPU(args []string) string {
	want, err := time.ParseDuration(args[0])
	step("probe", err)
	base, start := cpuTime(), time.Now()
	for cpuTime()-base < want {
		for i, x := 0, 1; i < 100_000; i++ {
			x = x*31 + i
		}
	}
	return time.Since(start).String()
}

func cpuTime() time.Duration {
	var usage unix.Rusage
	step("probe", unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
