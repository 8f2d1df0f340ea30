package vmtest

import (
	"errors"
	"os"
	"os/exec"
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
		done, err := vm.step(protocol.Step{Args: []string{"/bin/sleep", "1000"}, As: protocol.Root, Timeout: time.Second},
			func([]byte) {})
		if err != nil || !done.TimedOut {
			t.Errorf("got %+v, %v", done, err)
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
		{"talkative", "while echo here; do sleep 0.1; done", nil, time.Second, false,
			[]string{"still running after 1s, and last heard of ", "; QEMU says VM status: running",
				"Kernel panic - not syncing: NMI", "backtrace for cpu"}},
		{"stuck", "echo here; sleep 1000", func(vm *VM) error { return vm.process.Signal(syscall.SIGSTOP) }, time.Second,
			false,
			[]string{"still running after 1s, and last heard of ", "; nor does QEMU answer", "Run /init as init process"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			vm := Boot(t, Config{})
			step := protocol.Step{As: protocol.Root, Args: []string{"/bin/sh", "-c", c.script}, Timeout: time.Hour}
			if err := vm.send(step); err != nil {
				t.Fatal(err)
			}
			event, err := vm.next(time.Minute, func() string { return "nothing was heard" })
			if err == nil && !strings.HasPrefix(string(event.Output), "here\n") || err != nil && !c.atOnce {
				t.Fatalf("got %+v, %v", event, err)
			}
			if c.lose != nil {
				if err := c.lose(vm); err != nil {
					t.Fatal(err)
				}
			}
			if err == nil {
				_, err = vm.wait(step, c.wait, func([]byte) {})
			}
			if err == nil {
				t.Fatal("not lost")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in\n%v", want, err)
				}
			}
		})
	}
}

// TestLostInTheMiddle: of tests whose machine is lost, those that have ended are reported as they did, and what came
// after says why. The machine is made of what one has told.
func TestLostInTheMiddle(t *testing.T) {
	if os.Getenv("COVE_TEST_LOST") != "" {
		vm := lostMachine(t)
		for _, name := range []string{"first", "second"} {
			t.Run(name, func(t *testing.T) { vm.Test(t, Test{Package: "some", Timeout: time.Minute}) })
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestLostInTheMiddle$", "-test.v")
	cmd.Env = append(os.Environ(), "COVE_TEST_LOST=1")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Error("it passes")
	}
	for _, want := range []string{"--- PASS: TestLostInTheMiddle/first/TestEnds",
		"--- FAIL: TestLostInTheMiddle/first/TestGoesOn",
		"did not end:\n        x_test.go:1: a word", "the VM is lost: QEMU has ended: at midnight",
		"the VM was lost before this step: QEMU has ended: at midnight"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// lostMachine is a machine that is lost as soon as it has told of one test that has ended, and of another.
func lostMachine(t *testing.T) *VM {
	t.Helper()
	process := exec.Command("true")
	monitor, err := os.Open(os.DevNull)
	if err = errors.Join(err, process.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Wait() })
	vm := &VM{events: make(chan protocol.Event, 1), end: "at midnight", monitor: monitor, process: process.Process,
		console: os.DevNull, steps: monitor}
	vm.events <- protocol.Event{Output: []byte("\x16=== RUN   TestEnds\n\x16--- PASS: TestEnds (0.00s)\n" +
		"\x16=== RUN   TestGoesOn\n    x_test.go:1: a word\n")}
	close(vm.events)
	return vm
}
