//go:build linux && amd64

package zygote

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// prepares is what a hostile program of an image may do before it waits for its code, and the reason of the refusal;
// none where a copy can be made.
var prepares = []struct{ name, code, refusal string }{
	{"much memory", `
m = libc.mmap(None, 300 << 20, 3, 0x22, -1, 0)
for n in range(0, 300 << 20, 4096): ctypes.c_char.from_address(m + n).value = b"x"`, "too much memory"},
	{"a huge mapping", `assert libc.mmap(None, 1 << 45, 0, 0x4022, -1, 0)`, "mapped too much"},
	{"many large mappings", `
for n in range(2000): libc.mmap(None, 60 << 20, n % 2, 0x4022, -1, 0)`, "mapped too much"},
	{"many small ones", `for n in range(20000): libc.mmap(None, 4096, 1 + 2 * (n % 2), 0x22, -1, 0)`, "mapped too much"},
	{"long names", `
for n in range(5): os.mkdir(dir + "d" * 250); dir += "d" * 250 + "/"
for n in range(1000): mapfile("long")`, "longer"},
	{"a line break in a name", `mapfile("a\nb")`, "mapped"},
	{"a name like another line", `mapfile("x\n7f0000000000-7f0000001000 rwxp 00000000 00:00 0 [vdso]")`, "mapped"},
	{"a file that is deleted", `mapfile("gone"); os.unlink(dir + "gone")`, "no such file"},
	{"another one with its name", `
mapfile("one"); os.unlink(dir + "one"); mapfile("one (deleted)")`, "replaced"},
	{"a link with its name", `
mapfile("two"); os.unlink(dir + "two"); os.symlink("/etc/passwd", dir + "two (deleted)")`, "no file"},
	{"a name as if it were deleted", `mapfile("kept (deleted)")`, ""},
	{"a file without a name", `
f = tempfile.TemporaryFile(); f.write(bytes(4096)); f.flush(); keep(f.fileno(), 2); f.close()`, "no such file"},
	{"a shared file to write", `mapfile("three", 1)`, "mapped"},
	{"shared memory", `libc.mmap(None, 4096, 3, 0x21, -1, 0)`, "mapped"},
	{"many files", `for n in range(250): mapfile("many%d" % n)`, "200 files"},
	{"all places of the calls", `
for at in range(0x10000000, 0x1f000000, 1 << 20): libc.mmap(at, 4096, 0, 0x100022, -1, 0)`, "no room"},
	{"the first place of the calls", `assert libc.mmap(0x10000000, 4096, 3, 0x100022, -1, 0) == 0x10000000`, ""},
	{"the lowest place", `libc.mmap(65536, 4096, 3, 0x100022, -1, 0)`, ""},
	{"another descriptor", `os.open("/dev/null", os.O_RDONLY)`, "descriptor"},
	{"a child", `os.fork() or time.sleep(1000)`, "children"},
	{"a thread", `threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()`, "threads"},
	{"another pipe", `os.rename(fifo, fifo + "2"); fifo += "2"`, "does not wait"},
	{"a name of its own", `libc.prctl(15, b") R 1 1\n", 0, 0, 0)`, ""},
	{"a moved heap", `libc.sbrk(1 << 20)`, ""},
	{"signals", `[signal.signal(s, signal.SIG_IGN) for s in range(1, 32) if s not in (9, 17, 19)]`, ""},
}

const prelude = `
import ctypes, os, signal, sys, tempfile, threading, time
libc = ctypes.CDLL(None)
libc.mmap.restype = libc.sbrk.restype = ctypes.c_void_p
libc.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
fifo = sys.argv[1]
dir = os.path.dirname(fifo) + "/"
def keep(fd, flags): assert libc.mmap(None, 4096, 3 if flags == 1 else 1, flags, fd, 0) != ctypes.c_void_p(-1).value
def mapfile(name, flags=2):
    fd = os.open(dir + name, os.O_RDWR | os.O_CREAT)
    os.write(fd, bytes(4096))
    keep(fd, flags)
    os.close(fd)
`

// waits is what the program does then.
const waits = `
fd = os.open(fifo, os.O_RDONLY)
exec(os.read(fd, 4096))
`

// TestHostile: a program that prepares its own memory is refused, or copied as it is, within a bound of memory; and
// nothing of it runs in a copy before the calls that drop privileges.
func TestHostile(t *testing.T) {
	for _, tt := range prepares {
		t.Run(tt.name, func(t *testing.T) { hostile(t, tt.code, tt.refusal) })
	}
}

func hostile(t *testing.T, code, refusal string) {
	m, pipe := start(t), fifo(t)
	script := filepath.Join(filepath.Dir(pipe.Name()), "script")
	if err := os.WriteFile(script, []byte(prelude+code+waits), 0o600); err != nil {
		t.Fatal(err)
	}
	pid, _ := waiting(t, m, script, pipe.Name())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	image, err := Take(pid, pipe.Name(), func(p *Program) { p.Do(unix.SYS_SETRESUID, 65534, 65534, 65534) })
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 256<<20 {
		t.Errorf("the image of it took %d MiB", grown>>20)
	}
	if refusal != "" {
		if err == nil {
			image.Close()
		}
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), refusal) {
			t.Errorf("%v, want that it says %q", err, refusal)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	for _, seal := range []string{"write", "grow"} {
		if _, err := image.WriteAt([]byte{1}, map[string]int64{"write": 0, "grow": 1 << 40}[seal]); err == nil {
			t.Errorf("the image can be changed: %s", seal)
		}
	}
	m, again := start(t), again(t, pipe.Name())
	out, err := m.become(t, image, again)
	if err != nil {
		t.Fatal(err)
	}
	say(t, again, "print(os.getresuid())\n")
	text, err := io.ReadAll(out)
	if string(text) != "(65534, 65534, 65534)\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}
