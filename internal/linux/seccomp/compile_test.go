package seccomp

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/cove-sandbox/cove"
)

// attempt is one system call in the filter's view.
type attempt struct {
	audit  uint32
	number uint32
	args   [6]uint64
}

// run runs a filter on an attempt in a BPF machine.
func run(t testing.TB, filter []byte, c attempt) (action uint32) {
	t.Helper()
	vm, err := bpf.NewVM(decode(t, filter))
	if err != nil {
		t.Fatal(err)
	}
	// The machine loads big-endian words, the kernel its own: each word of
	// seccomp_data is laid out for the machine, in the kernel's order.
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[0:], c.number)
	binary.BigEndian.PutUint32(data[4:], c.audit)
	for i, v := range c.args {
		binary.BigEndian.PutUint32(data[16+8*i:], uint32(v))
		binary.BigEndian.PutUint32(data[20+8*i:], uint32(v>>32))
	}
	out, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(out)
}

// decode parses the bytes as the kernel does.
func decode(t testing.TB, filter []byte) []bpf.Instruction {
	t.Helper()
	if len(filter) == 0 || len(filter)%8 != 0 {
		t.Fatalf("%d bytes are not a filter", len(filter))
	}
	var raw []bpf.RawInstruction
	for b := filter; len(b) > 0; b = b[8:] {
		raw = append(raw, bpf.RawInstruction{Op: binary.LittleEndian.Uint16(b), Jt: b[2], Jf: b[3],
			K: binary.LittleEndian.Uint32(b[4:])})
	}
	code, all := bpf.Disassemble(raw)
	if !all {
		t.Fatal("the filter has an instruction that does not exist")
	}
	return code
}

// decide evaluates the policy itself, without compiling it.
func decide(t testing.TB, p Policy, arch Arch, c attempt) uint32 {
	t.Helper()
	target, err := arch.abi()
	if err != nil {
		t.Fatal(err)
	}
	if c.audit != target.audit || arch == AMD64 && c.number >= x32Bit {
		return retFor(syscall.EPERM)
	}
	i := slices.IndexFunc(calls(), func(k call) bool { return int64(target.number(k)) == int64(c.number) })
	if i < 0 {
		return retFor(syscall.ENOSYS)
	}
	name := calls()[i].name
	for _, g := range p.Allowed {
		if slices.Contains(g.Calls, name) {
			return unix.SECCOMP_RET_ALLOW
		}
	}
	for _, g := range p.Refused {
		if slices.Contains(g.Calls, name) {
			return retFor(g.errno())
		}
	}
	holds := func(m Match) bool { return m.holds(c) }
	for _, r := range p.Conditional {
		switch {
		case r.Call != name:
		case slices.ContainsFunc(r.AnyOf, holds):
			return unix.SECCOMP_RET_ALLOW
		case slices.ContainsFunc(r.Ignored, holds):
			return retIgnore
		case slices.ContainsFunc(r.Unknown, holds):
			return retFor(syscall.EPROTONOSUPPORT)
		}
	}
	return retFor(syscall.EPERM)
}

func (m Match) holds(c attempt) bool {
	for _, t := range m {
		is := slices.Contains(t.In, uint32(c.args[t.Arg])&t.Mask)
		if t.Pointer {
			is = c.args[t.Arg] == 0
		}
		if is == t.Not {
			return false
		}
	}
	return true
}

func compiled(t testing.TB, p Policy, arch Arch) []byte {
	t.Helper()
	prog, err := p.Compile(arch)
	if err != nil {
		t.Fatal(err)
	}
	return prog.Bytes()
}

func number(t testing.TB, arch Arch, name string) uint32 {
	t.Helper()
	target, err := arch.abi()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range calls() {
		if c.name == name && target.number(c) != absent {
			return uint32(target.number(c))
		}
	}
	t.Fatalf("no %s on %s", name, arch)
	return 0
}

func show(action uint32) string {
	switch {
	case action == unix.SECCOMP_RET_ALLOW:
		return "allow"
	case action == retIgnore:
		return "ignore"
	case action == retFor(syscall.EPROTONOSUPPORT):
		return "EPROTONOSUPPORT"
	case action == retFor(syscall.EPERM):
		return "EPERM"
	case action == retFor(syscall.EINVAL):
		return "EINVAL"
	case action == retFor(syscall.ENOSYS):
		return "ENOSYS"
	}
	return fmt.Sprintf("%#x", action)
}

func arches() []Arch { return []Arch{AMD64, ARM64} }

func allPolicies() []Policy {
	var all []Policy
	for _, policy := range policies() {
		all = append(all, policy())
	}
	return all
}

// TestDebuggers: with debuggers a process may trace others, and nothing else that it may not without them.
func TestDebuggers(t *testing.T) {
	more := map[string][]uint64{"ptrace": nil, "process_vm_readv": nil, "process_vm_writev": nil,
		"prctl": {unix.PR_SET_PTRACER}, "personality": {addrNoRandomize}}
	for _, u := range []cove.User{cove.CodeUser, cove.AgentUser, cove.RootUser} {
		without, with := For(Processes{User: u}), For(Processes{User: u, Debuggers: true})
		for _, arch := range arches() {
			target, _ := arch.abi()
			verdict := func(p Policy, call string, args ...uint64) string {
				c := attempt{audit: target.audit, number: number(t, arch, call)}
				copy(c.args[:], args)
				return show(run(t, compiled(t, p, arch), c))
			}
			for call, args := range more {
				if was, is := verdict(without, call, args...), verdict(with, call, args...); was != "EPERM" || is != "allow" {
					t.Errorf("%s: %s on %s: %s without, %s with", u.Name, call, arch, was, is)
				}
			}
			if is := verdict(with, "personality", 0x0400000); is != "EPERM" {
				t.Errorf("%s: READ_IMPLIES_EXEC on %s: %s", u.Name, arch, is)
			}
			if is := verdict(with, "prctl", unix.PR_SET_MM); is != "EPERM" {
				t.Errorf("%s: PR_SET_MM on %s: %s", u.Name, arch, is)
			}
		}
		before, err := without.resolve()
		after, aerr := with.resolve()
		if err != nil || aerr != nil {
			t.Fatal(err, aerr)
		}
		for call, v := range after {
			was := before[call]
			if _, changed := more[call]; !changed && (v.errno != was.errno || (v.rule == nil) != (was.rule == nil)) {
				t.Errorf("%s: %s changes", u.Name, call)
			}
		}
	}
}

// TestOwnFilters: an agent's program may put a filter on itself, and a snippet none.
func TestOwnFilters(t *testing.T) {
	for _, test := range []struct {
		name, call     string
		args           []uint64
		snippet, agent string
	}{
		{"own filter", "seccomp", []uint64{1, 1}, "EINVAL", "allow"},
		{"own filter with a listener", "seccomp", []uint64{1, 8}, "EINVAL", "EPERM"},
		{"own filter without SSBD", "seccomp", []uint64{1, 4}, "EINVAL", "EPERM"},
		{"listener sizes", "seccomp", []uint64{3, 0}, "EINVAL", "EPERM"},
		{"own filter by prctl", "prctl", []uint64{22, 2}, "EPERM", "allow"},
		{"asking for the mode", "prctl", []uint64{21}, "allow", "allow"},
	} {
		for p, want := range map[string]string{"snippet": test.snippet, "agent": test.agent} {
			for _, arch := range arches() {
				target, _ := arch.abi()
				c := attempt{audit: target.audit, number: number(t, arch, test.call)}
				copy(c.args[:], test.args)
				policy := map[string]Policy{"snippet": Snippet(), "agent": Agent()}[p]
				if got := show(run(t, compiled(t, policy, arch), c)); got != want {
					t.Errorf("%s, %s on %s: %s, want %s", test.name, p, arch, got, want)
				}
			}
		}
	}
}

// TestRootInside: root inside changes its root directory and makes setuid files, where no directory of the host is
// written; and has nothing else that another user has not.
func TestRootInside(t *testing.T) {
	for _, test := range []struct {
		call                string
		args                []uint64
		agent, root, shared string
	}{
		{"chroot", nil, "EPERM", "allow", "allow"},
		{"fchmodat", []uint64{0, 0, 0o4755}, "EPERM", "allow", "EPERM"},
		{"openat", []uint64{0, 0, unix.O_CREAT, 0o2755}, "EPERM", "allow", "EPERM"},
		{"mknodat", []uint64{0, 0, unix.S_IFREG | 0o4755}, "EPERM", "allow", "EPERM"},
		{"mknodat", []uint64{0, 0, unix.S_IFIFO | 0o600}, "allow", "allow", "allow"},
		{"mknodat", []uint64{0, 0, unix.S_IFCHR | 0o600}, "EPERM", "EPERM", "EPERM"},
		{"mknodat", []uint64{0, 0, unix.S_IFBLK | 0o4600}, "EPERM", "EPERM", "EPERM"},
		{"mount", nil, "EPERM", "EPERM", "EPERM"},
		{"unshare", nil, "EPERM", "EPERM", "EPERM"},
		{"ptrace", nil, "EPERM", "EPERM", "EPERM"},
		{"setuid", nil, "allow", "allow", "allow"},
		{"socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW | unix.SOCK_CLOEXEC, unix.NETLINK_AUDIT}, "EPERM",
			"EPROTONOSUPPORT", "EPROTONOSUPPORT"},
		{"sethostname", nil, "EPERM", "EPERM", "EPERM"},
	} {
		for u, want := range map[struct {
			cove.User
			shared bool
		}]string{{cove.AgentUser, false}: test.agent, {cove.AgentUser, true}: test.agent, {cove.RootUser, false}: test.root,
			{cove.RootUser, true}: test.shared} {
			for _, arch := range arches() {
				target, _ := arch.abi()
				c := attempt{audit: target.audit, number: number(t, arch, test.call)}
				copy(c.args[:], test.args)
				if got := show(run(t, compiled(t, For(Processes{User: u.User, Shared: u.shared}), arch), c)); got != want {
					t.Errorf("%s(%#x) of %s, shared %v, on %s: %s, want %s", test.call, test.args, u.Name, u.shared, arch, got, want)
				}
			}
		}
	}
}

func TestVerdicts(t *testing.T) {
	const (
		newUser     = 0x10000000
		clonesFiles = 0x400
		high        = 0xdead_beef_0000_0000
		cloexec     = 0o2000000
		nonblock    = 0o4000
		thread      = 0x3d0f00 // what Go and glibc make threads with
		vfork       = 0x4111   // CLONE_VFORK|CLONE_VM|SIGCHLD
	)
	for _, test := range []struct {
		name, call string
		args       []uint64
		want       string
	}{
		{"read", "read", nil, "allow"},
		{"execve", "execve", nil, "allow"},
		{"thread", "clone", []uint64{thread}, "allow"},
		{"vfork", "clone", []uint64{vfork}, "allow"},
		{"pidfd of a child", "clone", []uint64{vfork | 0x1000}, "allow"},
		{"clone with a user namespace", "clone", []uint64{newUser | 17}, "EPERM"},
		{"clone with a mount namespace", "clone", []uint64{0x20000 | 17}, "EPERM"},
		{"clone with a cgroup namespace", "clone", []uint64{0x02000000}, "EPERM"},
		{"clone3", "clone3", nil, "ENOSYS"},
		{"unshare", "unshare", nil, "EPERM"},
		{"setns", "setns", nil, "EPERM"},
		{"a process with the descriptors of another", "clone", []uint64{clonesFiles | 17}, "EPERM"},
		{"lock of a process", "fcntl", []uint64{3, 6}, "allow"},
		{"flags", "fcntl", []uint64{3, 4}, "allow"},
		{"own descriptors", "fcntl", []uint64{3, 1030}, "allow"},
		{"room of a pipe", "fcntl", []uint64{3, 1031}, "allow"},
		{"a lease", "fcntl", []uint64{3, 1024}, "EPERM"},
		{"a lease behind garbage", "fcntl", []uint64{3, high | 1024}, "EPERM"},
		{"notifications", "fcntl", []uint64{3, 1026}, "EPERM"},
		{"a hint", "fcntl", []uint64{3, 1036}, "EPERM"},
		{"a hint for an open file", "fcntl", []uint64{3, 1038}, "EPERM"},
		{"a command that no kernel has yet", "fcntl", []uint64{3, 1050}, "EPERM"},
		{"lock of an open file", "fcntl", []uint64{3, 37}, "EPERM"},
		{"lock of an open file, waiting", "fcntl", []uint64{3, 38}, "EPERM"},
		{"lock of an open file behind garbage", "fcntl", []uint64{3, high | 37}, "EPERM"},
		{"asking for locks of an open file", "fcntl", []uint64{3, 36}, "EPERM"},

		{"TCP", "socket", []uint64{2, 1, 0}, "allow"},
		{"TCP with flags", "socket", []uint64{10, 1 | cloexec | nonblock, 6}, "allow"},
		{"UDP", "socket", []uint64{2, 2 | cloexec, 17}, "allow"},
		{"Unix stream", "socket", []uint64{1, 1, 0}, "allow"},
		{"garbage above 32 bits", "socket", []uint64{high | 1, high | 1, high}, "allow"},
		{"SCTP", "socket", []uint64{2, 1, 132}, "EPERM"},
		{"MPTCP", "socket", []uint64{2, 1, 262}, "EPERM"},
		{"ping", "socket", []uint64{2, 2, 1}, "EPERM"},
		{"raw IPv4", "socket", []uint64{2, 3, 1}, "EPERM"},
		{"raw IPv6 with flags", "socket", []uint64{10, 3 | cloexec, 58}, "EPERM"},
		{"raw Unix", "socket", []uint64{1, 3, 0}, "EPERM"},
		{"SEQPACKET over IP", "socket", []uint64{2, 5, 0}, "EPERM"},
		{"unknown type flags", "socket", []uint64{2, 1 | 0x100, 0}, "EPERM"},
		{"netlink route", "socket", []uint64{16, 3 | cloexec, 0}, "allow"},
		{"netlink audit", "socket", []uint64{16, 3, 9}, "EPERM"},
		{"netlink netfilter", "socket", []uint64{16, 3, 12}, "EPERM"},
		{"AF_KEY", "socket", []uint64{15, 3, 2}, "EPERM"},
		{"AF_PACKET", "socket", []uint64{17, 3, 0x300}, "EPERM"},
		{"AF_ALG", "socket", []uint64{38, 5, 0}, "EPERM"},
		{"AF_VSOCK", "socket", []uint64{40, 1, 0}, "EPERM"},
		{"AF_XDP", "socket", []uint64{44, 3, 0}, "EPERM"},
		{"AF_TIPC", "socket", []uint64{30, 5, 0}, "EPERM"},
		{"AF_VSOCK behind garbage", "socket", []uint64{high | 40, 1, 0}, "EPERM"},
		{"Unix pair", "socketpair", []uint64{1, 1 | cloexec, 0}, "allow"},
		{"TIPC pair", "socketpair", []uint64{30, 5, 0}, "EPERM"},

		{"TCGETS", "ioctl", []uint64{0, 0x5401}, "allow"},
		{"TIOCSCTTY", "ioctl", []uint64{0, 0x540e}, "allow"},
		{"FICLONE", "ioctl", []uint64{0, 0x40049409}, "allow"},
		{"TIOCSTI", "ioctl", []uint64{0, 0x5412}, "EPERM"},
		{"TIOCSTI behind garbage", "ioctl", []uint64{0, 0x1_0000_5412}, "EPERM"},
		{"TIOCLINUX", "ioctl", []uint64{0, high | 0x541c}, "EPERM"},
		{"TIOCSETD", "ioctl", []uint64{0, 0x5423}, "EPERM"},

		{"PR_SET_NAME", "prctl", []uint64{15}, "allow"},
		{"PR_SET_VMA", "prctl", []uint64{0x53564d41}, "allow"},
		{"PR_SET_NO_NEW_PRIVS", "prctl", []uint64{38, 1}, "allow"},
		{"PR_SET_MM", "prctl", []uint64{35}, "EPERM"},
		{"PR_SET_PTRACER", "prctl", []uint64{0x59616d61}, "EPERM"},
		{"PR_SET_MEMORY_MERGE", "prctl", []uint64{67}, "EPERM"},
		{"PR_SET_SPECULATION_CTRL", "prctl", []uint64{53}, "EPERM"},
		{"PR_SET_MM behind garbage", "prctl", []uint64{high | 35}, "EPERM"},

		{"asking for the personality", "personality", []uint64{0xffffffff}, "allow"},
		{"asking, sign-extended", "personality", []uint64{0xffffffffffffffff}, "allow"},
		{"READ_IMPLIES_EXEC", "personality", []uint64{0x0400000}, "EPERM"},
		{"ADDR_NO_RANDOMIZE", "personality", []uint64{0x0040000}, "EPERM"},

		{"mkfifo", "mknodat", []uint64{0, 0, 0o010644, 0}, "allow"},
		{"mknod of a file", "mknodat", []uint64{0, 0, 0o644, 0}, "allow"},
		{"mknod of a setuid file", "mknodat", []uint64{0, 0, 0o104755, 0}, "EPERM"},
		{"sticky directory", "fchmodat", []uint64{0, 0, 0o1777}, "allow"},
		{"setuid", "fchmodat", []uint64{0, 0, 0o4755}, "EPERM"},
		{"setgid of a descriptor", "fchmod", []uint64{3, 0o2755}, "EPERM"},
		{"setuid behind garbage", "fchmodat2", []uint64{0, 0, high | 0o4755, 0}, "EPERM"},
		{"open", "openat", []uint64{0, 0, 0, 0}, "allow"},
		{"open with garbage for a mode", "openat", []uint64{0, 0, cloexec, 0o7777}, "allow"},
		{"a new file", "openat", []uint64{0, 0, 0o101, 0o666}, "allow"},
		{"a new setuid file", "openat", []uint64{0, 0, 0o101, 0o4755}, "EPERM"},
		{"a nameless setuid file", "openat", []uint64{0, 0, 0o20200002, 0o4755}, "EPERM"},
		{"openat2", "openat2", nil, "ENOSYS"},
		{"block device", "mknodat", []uint64{0, 0, 0o060644, 0x800}, "EPERM"},
		{"character device", "mknodat", []uint64{0, 0, 0o020644, 0x101}, "EPERM"},

		{"SCHED_BATCH", "sched_setscheduler", []uint64{0, 3}, "allow"},
		{"SCHED_OTHER with reset on fork", "sched_setscheduler", []uint64{0, 0x40000000}, "allow"},
		{"SCHED_FIFO", "sched_setscheduler", []uint64{0, 1}, "EPERM"},
		{"SCHED_RR with reset on fork", "sched_setscheduler", []uint64{0, 0x40000002}, "EPERM"},

		{"limit of files", "setrlimit", []uint64{7, 0x1000}, "allow"},
		{"limit of core dumps", "setrlimit", []uint64{4, 0x1000}, "ignore"},
		{"limit of core dumps behind garbage", "setrlimit", []uint64{high | 4, 0x1000}, "ignore"},
		{"new limit of files", "prlimit64", []uint64{0, 7, 0x1000, 0}, "allow"},
		{"asking for the limit of core dumps", "prlimit64", []uint64{0, 4, 0, 0x1000}, "allow"},
		{"new limit of core dumps", "prlimit64", []uint64{0, 4, 0x1000, 0}, "ignore"},
		{"new limit of core dumps at a round address", "prlimit64", []uint64{0, 4, 0x1_0000_0000, 0}, "ignore"},

		{"io_uring_setup", "io_uring_setup", nil, "EPERM"},
		{"bpf", "bpf", nil, "EPERM"},
		{"perf_event_open", "perf_event_open", nil, "EPERM"},
		{"userfaultfd", "userfaultfd", nil, "EPERM"},
		{"connector", "socket", []uint64{unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_CONNECTOR}, "EPERM"},
		{"keyctl", "keyctl", nil, "EPERM"},
		{"ptrace", "ptrace", nil, "EPERM"},
		{"process_vm_readv", "process_vm_readv", nil, "EPERM"},
		{"mount", "mount", nil, "EPERM"},
		{"fsopen", "fsopen", nil, "EPERM"},
		{"open_by_handle_at", "open_by_handle_at", nil, "EPERM"},
		{"kexec_load", "kexec_load", nil, "EPERM"},
		{"finit_module", "finit_module", nil, "EPERM"},
		{"pidfd_getfd", "pidfd_getfd", nil, "EPERM"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tracing := []string{"ptrace", "process_vm_readv", "PR_SET_PTRACER", "ADDR_NO_RANDOMIZE"}
			for _, p := range allPolicies() {
				for _, arch := range arches() {
					target, _ := arch.abi()
					c := attempt{audit: target.audit, number: number(t, arch, test.call)}
					copy(c.args[:], test.args)
					want := test.want
					setID := strings.Contains(test.name, "setuid") || strings.Contains(test.name, "setgid")
					if setID && strings.TrimSuffix(p.Name, debuggers) == "root" {
						want = "allow"
					}
					if strings.HasSuffix(p.Name, debuggers) && slices.Contains(tracing, test.name) {
						want = "allow"
					}
					if strings.HasPrefix(p.Name, "root") && test.name == "netlink audit" {
						want = "EPROTONOSUPPORT"
					}
					if got := show(run(t, compiled(t, p, arch), c)); got != want {
						t.Errorf("%s on %s: %s, want %s", p.Name, arch, got, want)
					}
				}
			}
		})
	}
}

func TestOtherABIsAreRefused(t *testing.T) {
	const (
		auditI386 = 0x40000003
		auditARM  = 0x40000028
	)
	for _, p := range allPolicies() {
		amd64, arm64 := compiled(t, p, AMD64), compiled(t, p, ARM64)
		for _, test := range []struct {
			name   string
			filter []byte
			call   attempt
			want   string
		}{
			{"control: x86-64 read", amd64, attempt{audit: 0xc000003e, number: 0}, "allow"},
			{"control: arm64 read", arm64, attempt{audit: 0xc00000b7, number: 63}, "allow"},
			{"int 0x80 write", amd64, attempt{audit: auditI386, number: 4}, "EPERM"},
			{"int 0x80 socketcall", amd64, attempt{audit: auditI386, number: 102}, "EPERM"},
			{"x32 read", amd64, attempt{audit: 0xc000003e, number: x32Bit}, "EPERM"},
			{"x32 execve", amd64, attempt{audit: 0xc000003e, number: x32Bit | 520}, "EPERM"},
			{"minus one", amd64, attempt{audit: 0xc000003e, number: 0xffffffff}, "EPERM"},
			{"32-bit ARM", arm64, attempt{audit: auditARM, number: 3}, "EPERM"},
			{"x86-64 on arm64", arm64, attempt{audit: 0xc000003e, number: 0}, "EPERM"},
			{"beyond the table", amd64, attempt{audit: 0xc000003e, number: 472}, "ENOSYS"},
			{"in a gap of the table", amd64, attempt{audit: 0xc000003e, number: 400}, "ENOSYS"},
			{"beyond the table, arm64", arm64, attempt{audit: 0xc00000b7, number: 9999}, "ENOSYS"},
		} {
			if got := show(run(t, test.filter, test.call)); got != test.want {
				t.Errorf("%s, %s: %s, want %s", p.Name, test.name, got, test.want)
			}
		}
	}
}

func TestMemfdAndInotifyAreForAgents(t *testing.T) {
	for _, arch := range arches() {
		for name, want := range map[string]string{"memfd_create": "EPERM", "inotify_init1": "ENOSYS",
			"inotify_add_watch": "ENOSYS"} {
			target, _ := arch.abi()
			c := attempt{audit: target.audit, number: number(t, arch, name)}
			if got := show(run(t, compiled(t, Snippet(), arch), c)); got != want {
				t.Errorf("snippet on %s: %s is %s, want %s", arch, name, got, want)
			}
			if got := show(run(t, compiled(t, Agent(), arch), c)); got != "allow" {
				t.Errorf("agent on %s: %s is %s", arch, name, got)
			}
		}
	}
}

// TestCompiledIsThePolicy compares the program with the policy it was made of.
func TestCompiledIsThePolicy(t *testing.T) {
	for _, p := range allPolicies() {
		for _, arch := range arches() {
			t.Run(p.Name+"/"+string(arch), func(t *testing.T) {
				filter := compiled(t, p, arch)
				target, _ := arch.abi()
				draws := attempts(t, p, arch)
				rapid.Check(t, func(rt *rapid.T) {
					c := draws.Draw(rt, "call")
					if got, want := run(t, filter, c), decide(t, p, arch, c); got != want {
						rt.Fatalf("%+v: %s, policy says %s", c, show(got), show(want))
					}
				})
				for n := range uint32(1024) { // and every number there is
					c := attempt{audit: target.audit, number: n}
					if got, want := run(t, filter, c), decide(t, p, arch, c); got != want {
						t.Fatalf("number %d: %s, policy says %s", n, show(got), show(want))
					}
				}
			})
		}
	}
}

// attempts generates calls close to the distinctions of the policy.
func attempts(t testing.TB, p Policy, arch Arch) *rapid.Generator[attempt] {
	target, err := arch.abi()
	if err != nil {
		t.Fatal(err)
	}
	edges := []uint64{0, 1, uint64(all32)}
	var conditional []uint32
	for _, r := range p.Conditional {
		for _, m := range slices.Concat(r.AnyOf, r.Ignored, r.Unknown) {
			for _, test := range m {
				for _, v := range test.In {
					edges = append(edges, uint64(v), uint64(v)|uint64(^test.Mask), uint64(v)+1, uint64(v)-1)
				}
			}
		}
		for _, c := range calls() {
			if c.name == r.Call && target.number(c) != absent {
				conditional = append(conditional, uint32(target.number(c)))
			}
		}
	}
	return rapid.Custom(func(rt *rapid.T) attempt {
		c := attempt{audit: target.audit}
		c.number = rapid.OneOf(rapid.SampledFrom(conditional), rapid.Uint32Range(0, 500), rapid.Uint32()).Draw(rt, "number")
		if rapid.IntRange(0, 15).Draw(rt, "foreign") == 0 {
			c.audit = rapid.Uint32().Draw(rt, "audit")
		}
		for i := range c.args {
			low := rapid.OneOf(rapid.SampledFrom(edges), rapid.Uint64()).Draw(rt, "arg")
			high := rapid.SampledFrom([]uint64{0, 0, 1 << 32, 0xffffffff << 32}).Draw(rt, "high")
			c.args[i] = low ^ high
		}
		return c
	})
}

// TestShape checks the package's promises about the program's cost.
func TestShape(t *testing.T) {
	for _, p := range allPolicies() {
		for _, arch := range arches() {
			code := decode(t, compiled(t, p, arch))
			constant, conditional := deepest(code, false), deepest(code, true)
			t.Logf("%s on %s: %d instructions; at most %d for a call without condition, %d for one with", p.Name, arch,
				len(code), constant, conditional)
			if len(code) > 270 || constant > 12 || conditional > 48 {
				t.Errorf("%s on %s: %d instructions, at most %d and %d", p.Name, arch, len(code), constant, conditional)
			}
		}
	}
}

// deepest returns the largest number of instructions that any call takes, with or without the conditions on arguments.
func deepest(code []bpf.Instruction, conditions bool) int {
	const never = -1 << 20
	longest := make([]int, len(code))
	for i, ins := range slices.Backward(code) {
		switch ins := ins.(type) {
		case bpf.RetConstant:
			longest[i] = 1
		case bpf.Jump:
			longest[i] = 1 + longest[i+1+int(ins.Skip)]
		case bpf.JumpIf:
			longest[i] = 1 + max(longest[i+1+int(ins.SkipTrue)], longest[i+1+int(ins.SkipFalse)])
		case bpf.LoadAbsolute:
			longest[i] = 1 + longest[i+1]
			if ins.Off >= offsetArgs && !conditions {
				longest[i] = never
			}
		default:
			longest[i] = 1 + longest[i+1]
		}
	}
	return longest[0]
}

func TestCompileRefuses(t *testing.T) {
	allow := func(names ...string) Policy { return Policy{Name: "test", Allowed: []Group{{Calls: names}}} }
	rule := func(r Rule) Policy { return Policy{Name: "test", Conditional: []Rule{r}} }
	for _, test := range []struct {
		name   string
		policy Policy
		arch   Arch
	}{
		{"an unknown architecture", Snippet(), "riscv64"},
		{"an unknown call", allow("open_sesame"), AMD64},
		{"two verdicts", allow("read", "read"), AMD64},
		{"a rule without alternatives", rule(Rule{Call: "clone"}), AMD64},
		{"an empty alternative", rule(Rule{Call: "clone", AnyOf: []Match{{}}}), AMD64},
		{"a seventh argument", rule(Rule{Call: "clone", AnyOf: []Match{{{Arg: 6, Mask: 1, In: []uint32{0}}}}}), AMD64},
		{"a value outside its mask", rule(Rule{Call: "clone", AnyOf: []Match{{{Mask: 1, In: []uint32{2}}}}}), AMD64},
		{"a test against nothing", rule(Rule{Call: "clone", AnyOf: []Match{{{Mask: 1}}}}), AMD64},
		{"a pointer with values", rule(Rule{Call: "clone", AnyOf: []Match{{{Pointer: true, Mask: 1, In: []uint32{1}}}}}),
			AMD64},
		{"an empty match to ignore", rule(Rule{Call: "clone", AnyOf: []Match{{{Pointer: true}}}, Ignored: []Match{{}}}),
			AMD64},
		{"an argument tested twice",
			rule(Rule{Call: "clone", AnyOf: []Match{{{Mask: 1, In: []uint32{0}}, {Mask: 2, In: []uint32{0}}}}}), AMD64},
	} {
		t.Run(test.name, func(t *testing.T) {
			if prog, err := test.policy.Compile(test.arch); err == nil {
				t.Errorf("compiled to %d instructions", len(prog))
			}
		})
	}
}

// TestEmptyPolicyRefusesEverything: the default is to refuse, also for calls that no group lists.
func TestEmptyPolicyRefusesEverything(t *testing.T) {
	filter := compiled(t, Policy{Name: "empty"}, AMD64)
	for _, name := range []string{"read", "execve", "clone"} {
		if got := show(run(t, filter, attempt{audit: 0xc000003e, number: number(t, AMD64, name)})); got != "EPERM" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := Snippet().Compile(AMD64); err != nil {
			b.Fatal(err)
		}
	}
}
