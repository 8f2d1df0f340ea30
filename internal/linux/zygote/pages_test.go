//go:build linux && amd64

package zygote

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// keeps has more memory than malloc has on its heap, each page of which is known.
const keeps = prelude + `
kept = bytearray(b"z" * (1 << 20))
at = ctypes.addressof(ctypes.c_char.from_buffer(kept))
page = (at + 0x20000) & ~4095
` + waits

// attacks tries to reach the image by the pages that the copy has of it, and says what became of each attempt.
const attacks = `
import errno
tries = ctypes.CDLL(None, use_errno=True)
tries.mremap.restype = ctypes.c_void_p
def call(f, *args):
    ctypes.set_errno(0)
    f(*args)
    return errno.errorcode.get(ctypes.get_errno(), "done")
areas = [l.split() for l in open("/proc/self/maps") if "/memfd:zygote" in l]
bounds = [[int(x, 16) for x in a[0].split("-")] for a in areas]
print("of the image", any(f <= page < t for f, t in bounds), {a[1] for a in areas} <= {"rw-p", "r--p"})
def link(area):
    try: return os.open("/proc/self/map_files/" + area, os.O_RDWR)
    except OSError as e: return errno.errorcode[e.errno]
links = {link(a[0]) for a in areas}
print("opened", links - {"ENOENT"}) # of an area that has changed since
print("removed", {call(tries.madvise, ctypes.c_void_p(f), ctypes.c_size_t(4096), 9) for f, t in bounds}) # MADV_REMOVE
print("moved and grown", call(tries.mremap, ctypes.c_void_p(at & ~4095), 1 << 20, 1 << 24, 1))
mem = os.open("/proc/self/mem", os.O_RDWR)
os.pwrite(mem, b"a", page + 4096)
libc.mprotect(ctypes.c_void_p(page + 8192), 4096, 1)
os.pwrite(mem, b"b", page + 8192 + 100) # which writes to read-only pages
ctypes.memset(page, ord("c"), 4096)
if os.fork() == 0: ctypes.memset(page + 12288, ord("d"), 4096); os._exit(0)
os.wait()
print("written", bytes(kept[page + 4096 - at: page + 8192 - at]).strip(b"z"), sorted(set(kept)))
kept.extend(bytes(1 << 24))
print("grown", kept.count(b"z"), kept.count(0))
`

const attacked = `of the image True True
opened {'EPERM'}
removed {'EACCES'}
moved and grown EFAULT
written b'a' [97, 98, 99, 122]
grown 1044478 16777216
`

// TestSharedPages: a copy that shares pages with its image and others changes its own alone, and its memory grows as
// that of a process which was started.
func TestSharedPages(t *testing.T) {
	m, pipe := start(t), fifo(t)
	script := filepath.Join(filepath.Dir(pipe.Name()), "script")
	if err := os.WriteFile(script, []byte(keeps), 0o600); err != nil {
		t.Fatal(err)
	}
	pid, _ := waiting(t, m, script, pipe.Name())
	image, err := Take(pid, pipe.Name(), func(p *Program) {
		p.Do(unix.SYS_SETRESUID, 65534, 65534, 65534)
		p.Do(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	content := func() []byte {
		b, err := io.ReadAll(io.NewSectionReader(image, 0, 1<<40))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	before := content()
	for _, sparse := range []bool{true, false} {
		for _, do := range []struct{ code, want string }{
			{attacks, attacked}, {"print(set(kept), len(kept))\n", "{122} 1048576\n"}} {
			m, pipe := start(t), again(t, pipe.Name())
			out, err := m.copy(t, image, pipe, sparse)
			if err != nil {
				t.Fatal(err)
			}
			say(t, pipe, do.code)
			if text, err := io.ReadAll(out); string(text) != do.want || err != nil {
				t.Errorf("sparse %v: %q, %v, want %q", sparse, text, err, do.want)
			}
			<-m.ended
		}
	}
	if !bytes.Equal(before, content()) {
		t.Error("the image has changed")
	}
}

// TestSparse: a sparse copy has few pages of its own, which another has before it runs.
func TestSparse(t *testing.T) {
	m, pipe := start(t), fifo(t)
	pid, _ := parked(t, m, pipe)
	image, err := Take(pid, pipe.Name(), func(*Program) {})
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	own := func(sparse bool) int { // KiB
		m, pipe := start(t), again(t, pipe.Name())
		out, err := m.copy(t, image, pipe, sparse)
		if err != nil {
			t.Fatal(err)
		}
		say(t, pipe, `print(open("/proc/self/smaps_rollup").read().split("Private_Dirty:")[1].split()[0])`+"\n")
		text, err := io.ReadAll(out)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	sparse, whole := own(true), own(false)
	if t.Logf("%d KiB, %d KiB", sparse, whole); sparse > whole-512 {
		t.Errorf("a sparse copy has %d KiB of its own, another %d", sparse, whole)
	}
}
