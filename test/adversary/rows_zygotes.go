package adversary

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// zygoteRows are attempts of an interpreter that was made from a zygote to reach it, or others of the same.
func zygoteRows() []row {
	return []row{
		{id: "Z1.image", invariant: "H1", what: "reach the memory file of the zygote", test: zygoteImage},
		{id: "Z2.memory", invariant: "H1", what: "read or write the memory of PID 1 or of another process",
			test: memoryOfOthers},
		{id: "Z3.tampering", invariant: "H1", what: "change what others of the same zygote compute", test: tampering},
		{id: "Z4.forgery", invariant: "H1", what: "write the output of another of the same zygote, or end it",
			test: forgery},
		{id: "Z5.pages", invariant: "H1", what: "change the pages of the zygote that it has mapped", test: pagesOfZygote},
	}
}

// python has the interpreter that waits in a sandbox run code.
func (b *box) python(c *trial, code string) *process {
	c.Helper()
	remote, err := b.release(c.Context(), code)
	must(c, err)
	p := &process{RemoteProcess: remote}
	p.read()
	return p
}

// says checks what code prints in the interpreter that waits in a sandbox.
func (b *box) says(c *trial, code, want string) {
	c.Helper()
	if r := b.python(c, code).wait(patience); r.stdout != want || r.exit.Code != 0 {
		c.Errorf("HOLE: %q %q, exit %d, want %q", r.stdout, r.stderr, r.exit.Code, want)
	}
}

// zygoteFiles are the memory files of zygotes that this process has open.
func zygoteFiles() (found []string) {
	all, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range all {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "/memfd:zygote") {
			found = append(found, fd)
		}
	}
	return found
}

// reaching lists what of a memory file a program can find.
const reaching = `
import os, glob
print(sorted(map(int, os.listdir("/proc/self/fd")))[:-1])
for path in glob.glob("/proc/[0-9]*/fd/*") + glob.glob("/proc/[0-9]*/map_files/*") + glob.glob("/proc/[0-9]*/exe"):
    try:
        to = os.readlink(path)
        if "memfd" in to: os.close(os.open(path, os.O_RDONLY)) # what it has mapped has a name, too
    except OSError: continue
    if "memfd" in to: print("FOUND", path, to)
for path in glob.glob("/proc/[0-9]*/maps"):
    try: text = open(path).read()
    except OSError: continue
    for l in text.split("\n"):
        if "memfd" in l and " rw-p " not in l and " r--p " not in l: print("FOUND in", path)
`

// hasZygote makes a process one that has such a file, and maps it.
const hasZygote = `
import mmap, os
fd = os.memfd_create("zygote")
os.write(fd, bytes(4096))
held = mmap.mmap(fd, 4096)
`

func zygoteImage(c *trial) {
	control, err := exec.CommandContext(c.Context(), "/usr/bin/python3", "-c", hasZygote+reaching).CombinedOutput()
	if err != nil || !bytes.Contains(control, []byte("FOUND /proc")) || !bytes.Contains(control, []byte("FOUND in")) {
		c.Errorf("not tested: %q, %v", control, err)
	}
	c.fresh(boxOptions{}).says(c, reaching, "[0, 1, 2]\n")
	files := zygoteFiles()
	if len(files) == 0 {
		c.Fatal("not tested: the host has no zygote")
	}
	for _, path := range files {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		must(c, err)
		defer f.Close()
		for what, err := range map[string]error{"write": second(f.WriteAt([]byte{1}, 0)), "truncate": f.Truncate(0),
			"grow": f.Truncate(1 << 40), "seal": second(unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL))} {
			if err == nil {
				c.Errorf("HOLE: %s succeeded on the memory file of a zygote", what)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

// attempts on the memory of processes: of PID 1, of another one of the sandbox, and of its own, as a control.
const onMemory = `
import ctypes, errno, os, subprocess
libc = ctypes.CDLL(None, use_errno=True)
class Part(ctypes.Structure): _fields_ = [("at", ctypes.c_void_p), ("n", ctypes.c_size_t)]
mine = ctypes.create_string_buffer(8)
part = Part(ctypes.addressof(mine), 8)
def call(f, *args):
    ctypes.set_errno(0)
    f(*args)
    return errno.errorcode.get(ctypes.get_errno(), "done")
def file(pid):
    try: os.pwrite(os.open("/proc/%d/mem" % pid, os.O_RDWR), b"x", ctypes.addressof(mine))
    except OSError as e: return errno.errorcode[e.errno]
    return "done"
other = subprocess.Popen(["sleep", "1000"])
print("own", file(os.getpid()))
for pid in 1, other.pid:
    print("ptrace", call(libc.ptrace, 0x4206, pid, 0, 0)) # PTRACE_SEIZE
    print("writev", call(libc.process_vm_writev, pid, ctypes.byref(part), 1, ctypes.byref(part), 1, 0))
    print("readv", call(libc.process_vm_readv, pid, ctypes.byref(part), 1, ctypes.byref(part), 1, 0))
print("file", file(1))
other.kill()
`

func memoryOfOthers(c *trial) {
	refused := strings.Repeat("ptrace EPERM\nwritev EPERM\nreadv EPERM\n", 2)
	c.fresh(boxOptions{}).says(c, onMemory, "own done\n"+refused+"file ENOENT\n")
}

// alters changes the number 256 and the text of a function of the C library, and says where both are.
const alters = `
import ctypes, mmap
libc = ctypes.CDLL(None)
at = ctypes.cast(libc.abs, ctypes.c_void_p).value
print(id(256), at)
page = at & ~4095
if libc.mprotect(ctypes.c_void_p(page), 8192, 7) == 0:
    ctypes.memmove(at, b"\xb8\x07\0\0\0\xc3", 6) # return 7
ctypes.c_uint32.from_address(id(256) + 24).value = 666
print(int("256"), libc.abs(-1))
`

const unaltered = `
import ctypes
libc = ctypes.CDLL(None)
print(id(256), ctypes.cast(libc.abs, ctypes.c_void_p).value)
print(int("256"), libc.abs(-1))
`

func tampering(c *trial) {
	waits := c.fresh(boxOptions{}) // while another one of its zygote tampers
	before := digests(c)
	r := c.fresh(boxOptions{}).python(c, alters).wait(patience)
	places, altered, _ := strings.Cut(r.stdout, "\n")
	if altered != "666 7\n" {
		c.Fatalf("not tested: %q %q", r.stdout, r.stderr)
	}
	want := places + "\n256 1\n" // in the same places, which shows that they are of one zygote
	waits.says(c, unaltered, want)
	c.fresh(boxOptions{}).says(c, unaltered, want)
	if after := digests(c); !bytes.Equal(before, after) {
		c.Error("HOLE: the memory file of a zygote has changed")
	}
}

// digests are of the zygotes' memory files.
func digests(c *trial) []byte {
	sum := sha256.New()
	for _, path := range zygoteFiles() {
		text, err := os.ReadFile(path)
		must(c, err)
		fmt.Fprint(sum, path, sha256.Sum256(text))
	}
	return sum.Sum(nil)
}

// forges writes a word to every descriptor that it can reach, and ends what it can.
const forges = `
import os, glob, signal
word = b"%s\n"
for fd in range(1024):
    try: os.write(fd, word)
    except OSError: pass
for path in glob.glob("/proc/[0-9]*/fd/*"):
    try: os.write(os.open(path, os.O_WRONLY | os.O_NONBLOCK), word)
    except OSError: pass
for pid in range(2, 4096):
    if pid != os.getpid():
        try: os.kill(pid, signal.SIGKILL)
        except OSError: pass
`

func forgery(c *trial) {
	victim, attacker := c.fresh(boxOptions{}), c.fresh(boxOptions{})
	word := token()
	runs := victim.python(c, "import os, sys\nprint('began', os.getpid(), flush=True)\n"+
		"while not os.path.exists('/tmp/end'): os.sched_yield()\nprint('ended'); sys.exit(5)\n")
	if !runs.said("began") {
		c.Fatal("not tested: the victim does not begin")
	}
	forged := attacker.python(c, fmt.Sprintf(forges, word)+"print(os.getpid())").wait(patience)
	if !strings.Contains(forged.stdout, word) || !strings.Contains(forged.stderr, word) {
		c.Errorf("not tested: %q %q", forged.stdout, forged.stderr)
	}
	lines := strings.Fields(forged.stdout)
	want := "began " + lines[len(lines)-1] + "\nended\n" // with the same id, as both have that of the zygote
	must(c, victim.sandbox.Guest().WriteFile(c.Context(), "/tmp/end", 0o644, nil))
	if r := runs.wait(time.Minute); r.stdout != want || r.stderr != "" || r.exit.Code != 5 {
		c.Errorf("HOLE: %q %q, %+v, want %q", r.stdout, r.stderr, r.exit, want)
	}
}

// onPages says what becomes of attempts on the pages of memory files that a process has mapped: to write beyond them,
// to remove them from the file, and to open that.
const onPages = `
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
said = set()
def call(f, *args):
    ctypes.set_errno(0)
    f(*args)
    return errno.errorcode.get(ctypes.get_errno(), "done")
for area in [l.split() for l in open("/proc/self/maps") if "/memfd:zygote" in l]:
    at, to = (int(x, 16) for x in area[0].split("-"))
    said.add(("mapped", area[1][3]))
    said.add(("removed", call(libc.madvise, ctypes.c_void_p(at), ctypes.c_size_t(4096), 9))) # MADV_REMOVE
    try: os.open("/proc/self/map_files/" + area[0], os.O_RDWR)
    except OSError as e:
        if e.errno == errno.ENOENT: continue # the area has changed since
        said.add(("opened", errno.errorcode[e.errno]))
    else: said.add(("opened", "done"))
print(*sorted(said))
`

func pagesOfZygote(c *trial) {
	control, err := exec.CommandContext(c.Context(), "/usr/bin/python3", "-c", hasZygote+onPages).CombinedOutput()
	if want := "('mapped', 's') ('opened', 'done') ('removed', 'done')\n"; string(control) != want || err != nil {
		c.Errorf("not tested: %q, %v", control, err)
	}
	c.fresh(boxOptions{}).says(c, onPages, "('mapped', 'p') ('opened', 'EPERM') ('removed', 'EACCES')\n")
}
