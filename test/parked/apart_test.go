//go:build linux

package parked

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// TestAtOnce: code that comes before the interpreter has reached its pipe runs as well.
func TestAtOnce(t *testing.T) {
	l := newLab(t)
	codes := map[string]string{"python": "print(__file__)", "node": "console.log(__filename)", "bash": "echo $0",
		"sh": "echo $0"}
	for _, language := range languages {
		p := program{language, "at_once", codes[language]}
		want := run(t, l.fresh, p)
		for range 8 {
			for _, s := range l.of(language) {
				if got := s.claim(t, p, func(int) bool { return true }); got != want || got.Exit != 0 {
					t.Errorf("%s in %s: %+v, fresh %+v", language, s.group, got, want)
				}
			}
		}
	}
}

// TestAge: an interpreter that has waited knows how long, and from nothing else.
func TestAge(t *testing.T) {
	l := newLab(t)
	const old = 2 // seconds; an interpreter counts from when it begins to run, which is later
	for _, tt := range []struct{ language, code, want string }{
		{"bash", `echo $(( SECONDS >= 1 ))`, "1\n"},
		{"node", `console.log(performance.now() >= 1000, process.uptime() >= 1, process.cpuUsage().user < 2e6)`,
			"true true true\n"},
		{"python", "import time\nprint(time.process_time() < 2, time.thread_time() < 2)", "True True\n"},
	} {
		p := program{tt.language, "age", tt.code}
		for _, s := range l.of(p.language) {
			aged := func(ready int) bool {
				all := s.atPipe(p.language)
				return len(all) >= ready && !slices.ContainsFunc(all, func(dir string) bool { return age(t, dir) < old })
			}
			if got := s.claim(t, p, aged); got.Output != tt.want {
				t.Errorf("%s in %s: %+v", tt.language, s.group, got)
			}
		}
	}
}

// age is how long ago a process was started, in seconds; 0 for one that is gone.
func age(t *testing.T, dir string) float64 {
	t.Helper()
	stat, _ := os.ReadFile(dir + "/stat")
	_, rest, ok := strings.Cut(string(stat), ") ")
	if !ok {
		return 0
	}
	now, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	ticks, _ := strconv.ParseFloat(strings.Fields(rest)[19], 64) // starttime
	up, _ := strconv.ParseFloat(strings.Fields(string(now))[0], 64)
	return up - ticks/100 // USER_HZ
}

// TestEntropy: what is drawn when a process starts, or from that, is another in each parked interpreter.
func TestEntropy(t *testing.T) {
	l := newLab(t)
	for _, tt := range []struct{ language, code string }{
		// AT_RANDOM has the canary of the stack and the key of the C library's pointers.
		{"python", `
import ctypes, random, uuid
libc = ctypes.CDLL(None)
libc.getauxval.restype = ctypes.c_ulong
print("AT_RANDOM", ctypes.string_at(libc.getauxval(25), 16).hex())
print("hash", hash("seed"))
print("bytes", hash(b"seed"))
print("order", "".join({chr(0x4e00 + i) for i in range(64)}))
print("random", random.random())
print("uuid", uuid.uuid4())
print("libc", ctypes.cast(libc.getpid, ctypes.c_void_p).value)
print("heap", id(object()))
print("stack", [l.split("-")[0] for l in open("/proc/self/maps") if "[stack]" in l][0])
print("vdso", [l.split("-")[0] for l in open("/proc/self/maps") if "[vdso]" in l][0])
`},
		{"node", `
const c = require('crypto');
console.log('bytes', c.randomBytes(16).toString('hex'));
console.log('uuid', c.randomUUID());
console.log('random', Math.random());
const maps = require('fs').readFileSync('/proc/self/maps', 'utf8').split('\n');
console.log('stack', maps.find(l => l.endsWith('[stack]')));
console.log('auxv', require('fs').readFileSync('/proc/self/auxv').toString('hex'));
`},
		{"bash", `echo random $RANDOM$RANDOM$RANDOM
echo strong $SRANDOM$SRANDOM
echo stack $(grep stack /proc/$$/maps)
echo id $(cat /proc/sys/kernel/random/uuid)
`},
		{"sh", `echo stack $(grep stack /proc/$$/maps)
echo heap $(grep heap /proc/$$/maps)
`},
	} {
		seen := map[string]bool{}
		for range 4 {
			got := l.pooled.parked(t, program{tt.language, "entropy", tt.code})
			if got.Exit != 0 || got.Output == "" {
				t.Fatalf("%s: %+v", tt.language, got)
			}
			for line := range strings.Lines(got.Output) {
				if seen[line] {
					t.Errorf("%s: two parked interpreters have the same %s", tt.language, line)
				}
				seen[line] = true
			}
		}
	}
}

// leave leaves a text in every place of a sandbox that it can reach, and in its own memory.
const leave = `
import ctypes, mmap, os, socket, sys
mark = "%s" "%s"
held = [mark * 100]
for d in ("/work", "/tmp", "/var/tmp", "/run", "/dev/shm", os.path.expanduser("~")):
    try:
        open(d + "/left", "w").write(mark)
        os.symlink(mark, d + "/link-" + mark)
    except OSError: pass
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
segment = libc.shmget(4711, 4096, 0o1666)
if segment >= 0: ctypes.memmove(libc.shmat(segment, None, 0), mark.encode(), len(mark))
s = socket.socket(socket.AF_UNIX); s.bind("\0" + mark); s.listen()
os.environ["LEFT"] = mark
if os.fork() == 0:
    os.setsid()
    os.execvpe("sleep", ["sleep", "1000"], dict(os.environ))
print("left", sorted(os.listdir("/tmp")))
`

// find looks for a text in everything that a program can see, and says besides what it sees.
const find = `
import os, sys
mark = ("%s" "%s").encode()
def holds(path, where):
    try:
        if mark in open(path, "rb").read(1 << 20): print("FOUND in", where)
    except OSError: pass
def memory():
    for line in open("/proc/self/maps"):
        f = line.split()
        if "r" not in f[1] or f[-1] in ("[vvar]", "[vsyscall]"): continue
        begin, end = (int(x, 16) for x in f[0].split("-"))
        try:
            m.seek(begin)
            yield f[-1], m.read(end - begin)
        except OSError: pass
for d in ("/work", "/tmp", "/var/tmp", "/run", "/dev/shm", os.path.expanduser("~")):
    for at, dirs, files in os.walk(d):
        print(at, sorted(dirs), sorted(files))
        for n in files: holds(at + "/" + n, at + "/" + n) if (at, n) != ("/work", "main.py") else None
for p in sorted(filter(str.isdigit, os.listdir("/proc"))):
    print(p, open("/proc/" + p + "/comm").read().strip())
    for n in ("environ", "cmdline", "mountinfo", "status", "maps"): holds("/proc/" + p + "/" + n, p + " " + n)
print(sorted(os.listdir("/proc/self/fd")))
for n in ("shm", "sem", "msg"): print(len(open("/proc/sysvipc/" + n).readlines()))
holds("/proc/net/unix", "sockets")
holds("/proc/self/auxv", "auxv")
m = open("/proc/self/mem", "rb", buffering=0)
reads, places = 0, []
for name, b in memory():
    reads += len(b)
    at = b.find(mark)
    while at >= 0:
        places.append(name); at = b.find(mark, at + 1)
print("memory is read", reads > 1 << 20)
# The search itself holds the text a few times, as a constant and as what it has read.
print("in memory", len(places) > %d)
`

// TestNothingIsLeft: a parked interpreter sees nothing of a run before, of a sandbox of another key, or of the server
// that has prepared it.
func TestNothingIsLeft(t *testing.T) {
	const head, tail = "cove-mark-", "5f1c9e"
	t.Setenv("COVE_TEST_PARKED", head+tail)
	l := newLab(t)
	for _, s := range []*pooled{l.pooled, l.copied} {
		t.Run(s.group, func(t *testing.T) { l.nothingIsLeft(t, s, head, tail) })
	}
}

// nothingIsLeft is TestNothingIsLeft for a server.
func (l *lab) nothingIsLeft(t *testing.T, s *pooled, head, tail string) {
	search := func(most int) program {
		return program{"python", "find", fmt.Sprintf(find, head, tail, most)}
	}
	want := run(t, l.fresh, search(20))
	if want.Exit != 0 || !strings.Contains(want.Output, "memory is read True") ||
		!strings.HasSuffix(want.Output, "in memory False\n") {
		t.Fatalf("fresh: %+v", want)
	}
	control := search(20)
	control.code = "held = [b'" + head + "' + bytes([n]) for n in b'x'] and [('" + head + "' + '" + tail +
		"') * 100, open('/tmp/left', 'w').write('" + head + "' + '" + tail + "')]\n" + control.code
	if got := s.parked(t, control); !strings.Contains(got.Output, "FOUND in /tmp/left") ||
		!strings.HasSuffix(got.Output, "in memory True\n") {
		t.Fatalf("the search finds nothing: %+v", got)
	}
	dirt := program{"python", "leave", fmt.Sprintf(leave, head, tail)}
	for range 3 {
		if got := s.parked(t, dirt); got.Exit != 0 || !strings.Contains(got.Output, "'left'") {
			t.Fatalf("%+v", got)
		}
		// Another key: an execution with a variable, and one of another language.
		if _, err := s.Execute(t.Context(), api.ExecuteRequest{Language: "python", Code: dirt.code,
			Spec: api.Spec{Env: map[string]string{"LEFT": head + tail}}}); err != nil {
			t.Fatal(err)
		}
		run(t, s.Client, program{"bash", "leave", "export LEFT=" + head + tail + "; echo $LEFT >/tmp/left; sleep 1000 &"})
		if got := s.parked(t, search(20)); got != want {
			t.Errorf("parked %+v\nfresh %+v", got, want)
		}
	}
	if kinds, err := client.PoolOf(s.Client).Status(t.Context()); err != nil || len(kinds.Kinds) < len(s.turns)+1 {
		t.Errorf("%+v, %v", kinds, err)
	}
}
