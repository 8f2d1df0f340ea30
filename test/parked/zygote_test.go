//go:build linux

package parked

import (
	"strings"
	"testing"
)

// state is a program that shows all that the kernel keeps of its process, but for what differs in each.
const state = `
import ctypes, os, re, resource, signal, socket, sys
own = ("Vm", "Rss", "voluntary", "nonvoluntary", "Threads", "SigQ", "NSpid", "x86", "THP")
for name in ("status", "limits", "mountinfo", "cgroup", "uid_map", "gid_map", "setgroups", "oom_score_adj", "personality",
             "coredump_filter", "timerslack_ns", "comm", "cmdline", "environ", "attr/current", "autogroup", "wchan"):
    try: text = open("/proc/self/" + name).read()
    except OSError as e: text = e.strerror
    lines = [l for l in text.split("\n") if not l.startswith(own) and "autogroup" not in l]
    if name == "mountinfo": lines = [re.sub("id=[0-9]+", "id", " ".join(l.split()[3:])) for l in lines]
    if name.endswith("d_map"): lines = [(l.split()[0], l.split()[2]) for l in lines if l]
    print(name, lines)
print([(fd, os.readlink("/proc/self/fd/%s" % fd).split(":")[0]) for fd in sorted(os.listdir("/proc/self/fd"), key=int)[:-1]])
print([open("/proc/self/fdinfo/%d" % fd).read().split("\n")[1] for fd in range(3)])
print(os.getpid(), os.getppid(), os.getpgrp(), os.getsid(0), os.getcwd(), os.umask(0), os.nice(0), os.getgroups())
print(os.sched_getaffinity(0), os.sched_getscheduler(0), resource.getrlimit(resource.RLIMIT_NOFILE))
libc = ctypes.CDLL(None, use_errno=True)
for n in list(range(1, 80)): # each option that only reads
    if n in (2, 3, 7, 11, 13, 16, 21, 23, 25, 27, 30, 34, 37, 39, 40, 42, 46, 66): print("prctl", n, libc.prctl(n, 0, 0, 0, 0))
print([(s, str(signal.getsignal(s))) for s in signal.valid_signals()], signal.pthread_sigmask(0, []), signal.getitimer(0))
print(os.path.realpath("/proc/self/exe"), os.path.realpath("/proc/self/root"))
maps = [l.split() for l in open("/proc/self/maps")]
print(sorted({(m[1], m[5]) for m in maps if len(m) > 5 and not m[5].endswith(".so") and "ffi" not in m[5]}))
code = [m for m in maps if "x" in m[1]]
print("no instructions without a file", [m for m in code if m[4] == "0" and m[5:] not in (["[vdso]"], ["[vsyscall]"])])
try: os.kill(1, 9); open("/proc/1/mem", "rb")
except OSError as e: print(e)
for number in (101, 272, 308, 165, 310, 321, 157): # ptrace, unshare, setns, mount, process_vm_readv, bpf, prctl
    print(number, libc.syscall(number, 35, 14, 0, 0, 0), ctypes.get_errno())
`

// TestSealedAlike: a process of a zygote is one that was started, as far as the kernel tells.
func TestSealedAlike(t *testing.T) {
	l := newLab(t)
	p := program{"python", "state", state}
	want := run(t, l.fresh, p)
	if want.Exit != 0 || !strings.Contains(want.Output, "no instructions without a file []") {
		t.Fatalf("fresh: %+v", want)
	}
	for range 3 {
		for _, s := range l.of(p.language) {
			got := s.parked(t, p)
			if found, err := differences(want, want, got); err != nil || len(found) > 0 {
				t.Errorf("%s: %v %s", s.group, err, strings.Join(found, "\n"))
			}
		}
	}
}

// shared is what processes of a zygote have in common, as they would not otherwise; drawn is what each has of its own.
const shared, drawn = `
import ctypes
print(hash("seed"), id(object()), ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value)
`, `
import ctypes, os, random, uuid
libc = ctypes.CDLL(None)
libc.getauxval.restype = ctypes.c_ulong
print("AT_RANDOM", ctypes.string_at(libc.getauxval(25), 16).hex())
print("random", random.random(), os.urandom(8).hex(), uuid.uuid4())
`

// TestZygotes: all processes but the first come from one zygote, and draw what they draw themselves.
func TestZygotes(t *testing.T) {
	l := newLab(t)
	common, apart := map[string]int{}, map[string]bool{}
	for range 6 {
		common[l.copied.parked(t, program{"python", "shared", shared}).Output]++
		got := l.copied.parked(t, program{"python", "drawn", drawn})
		if got.Exit != 0 {
			t.Fatalf("%+v", got)
		}
		for line := range strings.Lines(got.Output) {
			if apart[line] {
				t.Errorf("two processes have the same %s", line)
			}
			apart[line] = true
		}
	}
	most := 0
	for _, n := range common {
		most = max(most, n)
	}
	if most < 5 {
		t.Errorf("not all come from one zygote: %v", common)
	}
	other := map[string]bool{}
	for range 3 {
		other[l.pooled.parked(t, program{"python", "shared", shared}).Output] = true
	}
	if len(other) != 3 {
		t.Errorf("processes that were started have in common: %v", other)
	}
}
