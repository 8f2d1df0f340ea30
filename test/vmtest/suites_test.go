package vmtest

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/test/vmtest/protocol"
)

// self is where a service that makes control groups of its own has moved itself; it cannot leave that again.
var self = []string{"test.service/self"}

// TestCgroup runs the tests of control groups on version 2, by every way a process may have come by one.
func TestCgroup(t *testing.T) {
	const pkg = "internal/linux/cgroup"
	vm := Boot(t, Config{Packages: []string{pkg}})
	for _, as := range accounts {
		if as == protocol.NoRange && !everything { // whose groups are as those of delegated
			continue
		}
		t.Run(string(as), func(t *testing.T) {
			test := Test{Package: pkg, As: as, MayLeave: self}
			if as != protocol.Delegated { // long ones, of groups that are made; who has handed them over is no matter to them
				test.Args = []string{skip("^$", "^Test(PlaceIsSafeToUse|PIDsInSum|MemoryLimit)$")}
			}
			vm.Test(t, test)
		})
	}
}

// everything says that nothing is left out.
var everything = os.Getenv(Enabled) == "all"

// skip returns the flag that leaves out what the machine outside has run and what neither another kernel nor version 2
// of control groups can change: emulation makes it ten times as long. [Enabled] = "all" leaves out nothing of it.
func skip(patterns string, same string) string {
	if !everything {
		patterns += "|" + same
	}
	return "-test.skip=" + patterns
}

// TestNative runs the native engine's tests, the conformance suite among them, for each way of mapping ids; and, for
// each way of coming by a control group, those for which it makes a difference.
func TestNative(t *testing.T) {
	const pkg = "internal/engine/native"
	// What the guest does by itself: it is the same program on every kernel.
	const guests = "streams|terminal|refusals"
	vm := Boot(t, Config{Packages: []string{pkg}, Programs: []string{"cmd/cove-guest"}})
	for _, as := range accounts {
		t.Run(string(as), func(t *testing.T) {
			test := Test{Package: pkg, As: as, MayLeave: self, Timeout: 10 * time.Minute}
			same, tests := guests, "^$"
			switch as {
			case protocol.Root: // as the machine outside; delegated has the older kernel's mounts
				same += "|processes|files|crowd|binding|wall"
				tests = "^Test(Users|UsersAlone|PoolKeepsNetworksApart|Layers|ImageDirectories)$" // delegated has these
			case protocol.Delegated:
				same += "|processes|crowd"
			case protocol.NoRange: // maps ids in another way than delegated does
				same += "|processes|crowd|lasting|pausing|lifecycle|limits"
			default: // the control groups are made in the same way
				test.Args = []string{"-test.run=^TestRefuses|^TestConformance$/^limits$/^(CPU|memory|processes)$"}
			}
			test.Args = append(test.Args, skip("^TestAdversary$|^TestAdversaryOf", "^TestConformance$/^("+same+")$|"+tests))
			vm.Test(t, test)
		})
	}
}

// TestAdversary attacks sandboxes on another kernel, with control groups of
// version 2. Nobody else is there, so settings of the machine may be changed.
func TestAdversary(t *testing.T) {
	const pkg = "internal/engine/native"
	// Neighbours, places of mounts, races for a file of the host, floods of output, owners of files in an image, and most
	// moments at which an owner is killed; and of what control groups count, most rows, which
	// TestAdversaryWithoutRoot has.
	const same = `^TestAdversary$/^(C2\.|C8\.|C10\.|F4\.|F5\.|F6\.|F8\.|H4\.|K5\.|X10\.|` +
		`X1\.(anywhere|bound|destroying|filling|flooding|stubborn)|C3\.(threads|zombies)|` +
		`C4\.(children|dentries|epoll|files|maps|mlock|page_cache|pipes|semaphores|shm|sockets|tmpfs|udp)|` +
		`C7\.(connections|descriptors|file_table|filters|locks|pipes|signals))`
	vm := Boot(t, Config{Packages: []string{pkg}, Programs: []string{"cmd/cove-guest", "test/adversary/cmd/probe"}})
	vm.Test(t, Test{Package: pkg, As: protocol.Root, Args: []string{"-test.run=^TestAdversary$", skip("^$", same)},
		Env: []string{"COVE_ADVERSARY_ALONE=1"}, Timeout: 25 * time.Minute})
}

// TestAdversaryWithoutRoot attacks sandboxes of an ordinary user where control groups are of version 2: what is counted,
// and what is seen of others.
func TestAdversaryWithoutRoot(t *testing.T) {
	const pkg = "internal/engine/native"
	vm := Boot(t, Config{Packages: []string{pkg}, Programs: []string{"cmd/cove-guest", "test/adversary/cmd/probe"}})
	vm.Test(t, Test{Package: pkg, As: protocol.Delegated, Args: []string{"-test.run=^TestAdversary$/^(C3|C4|C7|P1|P2)\\."},
		Env: []string{"COVE_ADVERSARY_USER=1"}, MayLeave: self, Timeout: 15 * time.Minute})
}

// TestZygotes compares processes of zygotes with started ones on another kernel: what it maps into each differs.
func TestZygotes(t *testing.T) {
	const pkg = "test/parked"
	vm := Boot(t, Config{Packages: []string{pkg}, Programs: []string{"cmd/cove-guest"}})
	vm.Test(t, Test{Package: pkg, As: protocol.Root, Args: []string{"-test.run=^TestZygotes$|^TestSealedAlike$"},
		Timeout: 10 * time.Minute})
}

// TestDisk mounts images with an older kernel, whose root may let them grow in use.
func TestDisk(t *testing.T) {
	const pkg = "internal/linux/disk"
	vm := Boot(t, Config{Packages: []string{pkg}})
	vm.Test(t, Test{Package: pkg, As: protocol.Root})
}

// TestSeccomp loads the policy into an older kernel.
func TestSeccomp(t *testing.T) {
	const pkg = "internal/linux/seccomp"
	vm := Boot(t, Config{Packages: []string{pkg}})
	for as, tests := range map[protocol.Account]string{protocol.Root: "KernelKeeps|OtherABIs",
		protocol.Undelegated: "KernelKeeps|OtherABIs|Programs"} {
		t.Run(string(as), func(t *testing.T) { vm.Test(t, Test{Package: pkg, As: as, Args: []string{"-test.run=" + tests}}) })
	}
}

// TestDoctor has every kind of user examined, each of whom can enforce something else.
func TestDoctor(t *testing.T) {
	const pkg = "internal/doctor"
	vm := Boot(t, Config{Packages: []string{pkg}, Programs: []string{"cmd/cove-guest"}})
	for _, as := range accounts {
		t.Run(string(as), func(t *testing.T) {
			vm.Test(t, Test{Package: pkg, As: as, MayLeave: self})
		})
	}
}

// TestReal has Cove's state where it is by default, as those may who can have limits. What the doctor finds is
// TestDoctor's: emulated, its checks of a whole machine at once run out of time.
func TestReal(t *testing.T) {
	const pkg = "test/real"
	vm := Boot(t, Config{Packages: []string{pkg},
		Programs: []string{"cmd/cove", "cmd/cove-server", "cmd/cove-guest", "cmd/cove-worker"}})
	for _, as := range []protocol.Account{protocol.Root, protocol.Delegated, protocol.NoRange} {
		t.Run(string(as), func(t *testing.T) {
			same := "^$"
			switch as {
			case protocol.Root: // as the machine outside; delegated is the user
				same = "^TestPolicy$|^TestServer$|^TestDefaults$/^user$|^TestDefaults$/^root$/^(agent|in_the_home)$"
			case protocol.NoRange: // the account delegated runs these, and only its ids differ
				same = "^TestDefaults$/^user$/^(agent|in_the_home|worktree|stopped)$"
			}
			vm.Test(t, Test{Package: pkg, As: as, Args: []string{skip("TestDefaults/.*/doctor$", same)},
				Timeout: 10 * time.Minute})
		})
	}
}

// TestRun runs code by the command line, as everybody who may: by a shell, and past a limit. That a language runs is
// seen as one account; Node.js, which compiles while it runs and so takes thirty times as long when emulated, runs
// outside.
func TestRun(t *testing.T) {
	vm := Boot(t, Config{Programs: []string{"cmd/cove", "cmd/cove-server", "cmd/cove-guest"}})
	one := []protocol.Account{protocol.Delegated}
	fewer := func(some, all []protocol.Account) []protocol.Account {
		if everything {
			return all
		}
		return some
	}
	for _, c := range []struct {
		name   string
		args   string
		exit   int
		output string
		as     []protocol.Account
	}{
		{"python", `python -c 'print(6*7)'`, 0, "42\n", fewer(one, accounts)},
		{"node", `node -c 'console.log(6*7)'`, 0, "42\n", fewer(nil, accounts[:2])},
		{"bash", `bash -c 'echo $((6*7)); exit 3'`, 3, "42\n", accounts},
		{"input", `perl -c 'print uc <STDIN>' <<<hello`, 0, "HELLO\n", fewer(one, accounts[:2])},
		{"time", `--timeout 2s bash -c 'sleep 100'`, 124, "", accounts[:2]},
		{"memory", `--memory 64M python -c 'x = b"x" * (1 << 28); print("here")'`, 137, "", accounts},
		{"no network", `python -c 'import socket; print(socket.socket().connect_ex(("1.1.1.1", 80)) != 0)'`, 0, "True\n",
			accounts[:2]},
	} {
		t.Run(c.name, func(t *testing.T) {
			if len(c.as) == 0 {
				t.Skipf("the machine outside runs it: set %s=all", Enabled)
			}
			for _, as := range c.as {
				t.Run(string(as), func(t *testing.T) { runCode(t, vm, as, c.args, c.exit, c.output) })
			}
		})
	}
}

// runCode runs "cove run" with args, or sees it refused where the account cannot have the limits.
func runCode(t *testing.T, vm *VM, as protocol.Account, args string, exit int, output string) {
	// Emulated, and beside other tests, node takes seconds to start; the last --timeout counts.
	got := vm.Run(t, protocol.Step{As: as, Args: []string{"/bin/bash", "-c",
		"/cove/bin/cove run --timeout 60s " + args + " 2>~/errors; code=$?; cat ~/errors; exit $code"}})
	for _, left := range got.Left {
		if !containsAny(left, self) {
			t.Errorf("left behind: %s", left)
		}
	}
	fix := map[protocol.Account]string{protocol.Undelegated: "systemd-run --user --scope",
		protocol.Partial: "Delegate=cpu memory pids"}[as]
	if fix != "" {
		if got.ExitCode != 126 || !strings.Contains(got.Output, fix) {
			t.Errorf("code %d, output %q; want 126 and %q", got.ExitCode, got.Output, fix)
		}
		return
	}
	if got.ExitCode != exit || !strings.HasPrefix(got.Output, output) {
		t.Errorf("code %d, output %q; want %d and %q", got.ExitCode, got.Output, exit, output)
	}
}
