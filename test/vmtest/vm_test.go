package vmtest

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/test/vmtest/protocol"
)

var accounts = []protocol.Account{protocol.Root, protocol.Delegated, protocol.Undelegated, protocol.Service,
	protocol.NoRange, protocol.Partial}

// TestSelf shows that the VM is what the suites count on, and that what goes wrong inside is told outside.
func TestSelf(t *testing.T) {
	vm := Boot(t, Config{Packages: []string{"test/vmtest/selftest"}})
	for _, as := range accounts {
		t.Run(string(as), func(t *testing.T) {
			vm.Test(t, Test{Package: "test/vmtest/selftest", As: as})
		})
	}
	t.Run("exit code and output", func(t *testing.T) {
		got := vm.Run(t, protocol.Step{Args: []string{"/bin/sh", "-c", "id -u; echo oops >&2; exit 7"},
			As: protocol.Delegated})
		if got.ExitCode != 7 || got.Output != "1000\noops\n" || len(got.Left) != 0 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("leftovers", func(t *testing.T) {
		got := vm.Run(t, protocol.Step{As: protocol.Root, Args: []string{"/bin/sh", "-c",
			"mkdir /sys/fs/cgroup/forgotten; mount -t tmpfs none /mnt; setsid sleep 1000 & exit 0"}})
		all := strings.Join(got.Left, "\n")
		for _, want := range []string{"sleep 1000", "/sys/fs/cgroup/forgotten", "/mnt"} {
			if !strings.Contains(all, want) {
				t.Errorf("%q is not told of in\n%s", want, all)
			}
		}
		if again := vm.Run(t, protocol.Step{Args: []string{"/bin/true"}, As: protocol.Root}); len(again.Left) != 0 {
			t.Errorf("not removed: %v", again.Left)
		}
	})
	t.Run("timeout", func(t *testing.T) {
		if err := vm.send(protocol.Step{Args: []string{"/bin/sleep", "1000"}, As: protocol.Root,
			Timeout: time.Second}); err != nil {
			t.Fatal(err)
		}
		event, err := vm.next(time.Minute)
		if err != nil || event.Done == nil || !event.Done.TimedOut {
			t.Errorf("got %+v, %v", event, err)
		}
	})
}

// TestLostMachine loses machines in the middle of a step, and looks at what is told about it.
func TestLostMachine(t *testing.T) {
	for _, c := range []struct {
		name   string
		script string          // run inside; says "here"
		lose   func(*VM) error // when that was heard
		wait   time.Duration
		atOnce bool // it may be lost with what was said, before that is heard
		want   []string
	}{
		{"killed", "echo here; sleep 1000", func(vm *VM) error { return vm.process.Kill() }, time.Minute, false,
			[]string{"QEMU has ended: signal: killed", "Run /init as init process"}},
		{"panic", "echo here; echo c > /proc/sysrq-trigger", nil, time.Minute, true,
			[]string{"QEMU has ended: exit status 0", "Kernel panic - not syncing: sysrq triggered crash"}},
		{"silent", "echo here; sleep 1000", nil, time.Second, false,
			[]string{"nothing was heard in 1s; QEMU says VM status: running", "Kernel panic - not syncing: NMI",
				"backtrace for cpu"}},
		{"stuck", "echo here; sleep 1000", func(vm *VM) error { return vm.process.Signal(syscall.SIGSTOP) }, time.Second,
			false,
			[]string{"nothing was heard in 1s; nor does QEMU answer", "Run /init as init process"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			vm := Boot(t, Config{})
			if err := vm.send(protocol.Step{As: protocol.Root, Args: []string{"/bin/sh", "-c", c.script},
				Timeout: time.Hour}); err != nil {
				t.Fatal(err)
			}
			event, err := vm.next(time.Minute)
			if err == nil && string(event.Output) != "here\n" || err != nil && !c.atOnce {
				t.Fatalf("got %+v, %v", event, err)
			}
			if c.lose != nil {
				if err := c.lose(vm); err != nil {
					t.Fatal(err)
				}
			}
			if err == nil {
				event, err = vm.next(c.wait)
			}
			if err == nil {
				t.Fatalf("not lost: %+v", event)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in\n%v", want, err)
				}
			}
		})
	}
}
