// Package vmtest runs tests and programs of this repository in a small virtual machine: Debian's kernel, control groups
// v2, root and unprivileged accounts with and without a delegated subtree. It is how a suite that passes on one machine
// is shown to pass on those of users. docs/testing.md says how to use it by hand.
//
//	vm := vmtest.Boot(t, vmtest.Config{Packages: []string{"internal/linux/cgroup"}})
//	vm.Test(t, vmtest.Test{Package: "internal/linux/cgroup", As: protocol.Root})
//	result := vm.Run(t, protocol.Step{Args: []string{"/cove/bin/cove", "version"}, As: protocol.Delegated})
//
// The VM is emulated, so that it needs no /dev/kvm; it boots in a few seconds and runs about ten times slower than the
// machine it is on. It has no network.
package vmtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/test/inner"
	"github.com/cove-sandbox/cove/test/vmtest/protocol"
)

// Enabled is the environment variable that a run which may take minutes, and
// download a kernel the first time, is asked for with.
const Enabled = "COVE_TEST_VM"

// payloadDir is where the VM has what Config names, laid out as the
// repository is: packages with their testdata and test binaries, and bin.
const payloadDir = "/cove"

const (
	bootTimeout = 2 * time.Minute
	// An emulated kernel that patches its own code while another processor runs it
	// hangs now and then before there is a first program.
	bootTries   = 3
	stepTimeout = 5 * time.Minute
	// grace is what the test binary inside has beyond its timeout to print its stacks.
	grace = 15 * time.Second
	// patience is what the machine has beyond that to end the step and to say so. Beside other work it is far behind,
	// and a machine that is given up is lost for all who come after.
	patience = 3 * grace
)

// Config says what the VM has to have.
type Config struct {
	// Packages are those whose tests are built: paths in this module, without its name.
	Packages []string
	// Programs are main packages, built into bin.
	Programs []string
}

// Test is one package's tests, run once.
type Test struct {
	Package string // one of Config.Packages
	As      protocol.Account
	Args    []string // further flags: "-test.run=…"
	Env     []string
	Timeout time.Duration // 5 minutes when zero
	// MayLeave are substrings of what may be left behind; anything else that is left fails the test.
	MayLeave []string
}

// Result is how a step ended.
type Result struct {
	Output   string // standard output and error
	ExitCode int
	Left     []string // processes, control groups and mounts left behind
}

// Boot starts a VM that ends with t. It skips t when [Enabled] is not set.
func Boot(t *testing.T, config Config) *VM {
	t.Helper()
	if os.Getenv(Enabled) == "" {
		t.Skipf("boots a virtual machine, which takes minutes: set %s=1 to run", Enabled)
	}
	repo := repository(t)
	dir := t.TempDir()
	payload, err := makePayload(repo, dir, config)
	if err != nil {
		t.Fatal(err)
	}
	initramfs := filepath.Join(dir, "initramfs")
	image := prepareImage(t, repo)
	if err := makeInitramfs(repo, image, dir, initramfs); err != nil {
		t.Fatal(err)
	}
	for try := 1; ; try++ {
		vm, err := start(machine{image: image, initramfs: initramfs, payload: payload,
			console: filepath.Join(dir, fmt.Sprintf("console%d", try))})
		if err != nil {
			t.Fatal(err)
		}
		event, err := vm.next(bootTimeout, func() string { return fmt.Sprintf("nothing was heard in %s", bootTimeout) })
		if err == nil {
			t.Cleanup(vm.stop)
			t.Logf("VM is up after %s: Linux %s", time.Since(vm.started).Round(100*time.Millisecond), event.Kernel)
			return vm
		}
		vm.stop()
		if try == bootTries {
			t.Fatalf("no VM comes up: %v", err)
		}
		t.Logf("no VM comes up, and nothing of Cove has run: trying again: %v", err)
	}
}

// Run runs one step. It fails t when the step cannot be run or does not end in
// time; an exit code is the caller's to judge.
func (vm *VM) Run(t *testing.T, step protocol.Step) Result {
	t.Helper()
	var output strings.Builder
	done, err := vm.do(t, step, func(data []byte) { output.Write(data) })
	if err != nil {
		t.Fatalf("%v\noutput:\n%s", err, output.String())
	}
	return Result{Output: output.String(), ExitCode: done.ExitCode, Left: done.Left}
}

// Test runs the tests of a package and reports each as a subtest of t.
func (vm *VM) Test(t *testing.T, test Test) {
	t.Helper()
	step := protocol.Step{
		Args: slices.Concat([]string{testBinary(payloadDir, test.Package)}, inner.Args, test.Args),
		Env:  test.Env,
		Dir:  filepath.Join(payloadDir, test.Package),
		As:   test.As,
	}
	// The binary's own timeout comes first, because it prints every stack.
	limit := timeout(t, test.Timeout)
	step.Args = append(step.Args, fmt.Sprintf("-test.timeout=%s", limit))
	step.Timeout = limit + grace

	output, err := inner.NewOutput()
	if err != nil {
		t.Fatal(err)
	}
	done, lost := vm.do(t, step, func(part []byte) { _, _ = output.Write(part) }) // Report tells
	if lost != nil {
		done.ExitCode = -1
	}
	output.Report(t, done.ExitCode) // what came before it was lost, too
	if lost != nil {
		t.Fatal(lost)
	}
	for _, left := range done.Left {
		if !containsAny(left, test.MayLeave) {
			t.Errorf("left behind: %s", left)
		}
	}
}

// timeout is how long a step may take: what was asked for or the usual, and no longer than t itself lasts.
func timeout(t *testing.T, asked time.Duration) time.Duration {
	if asked == 0 {
		asked = stepTimeout
	}
	if deadline, ok := t.Deadline(); ok {
		asked = min(asked, time.Until(deadline)-2*patience)
	}
	if asked < grace {
		t.Fatal("no time is left for this step: give \"go test\" a longer -timeout")
	}
	return asked
}

// do runs a step and hands its output on. It fails t when the step does not end in time. An error is [VM.step]'s.
func (vm *VM) do(t *testing.T, step protocol.Step, output func([]byte)) (protocol.Done, error) {
	t.Helper()
	if step.Timeout == 0 {
		step.Timeout = timeout(t, 0)
	}
	began := time.Now()
	done, err := vm.step(step, output)
	if done.TimedOut {
		t.Errorf("%v: still running after %s, %s by this machine's clock", step.Args, step.Timeout,
			time.Since(began).Round(time.Second))
	}
	return done, err
}

// step runs a step to its end. An error says that it could not be run, or how the machine was lost.
func (vm *VM) step(step protocol.Step, output func([]byte)) (protocol.Done, error) {
	_ = vm.send(step) // where it does not arrive, the next event tells why
	return vm.wait(step, step.Timeout+patience, output)
}

// wait hands on the output of a step that was sent, until it ends or has taken too long.
func (vm *VM) wait(step protocol.Step, most time.Duration, output func([]byte)) (protocol.Done, error) {
	began := time.Now()
	heard := began
	late := func() string {
		return fmt.Sprintf("%v: still running after %s, and last heard of %s ago", step.Args, most,
			time.Since(heard).Round(time.Second))
	}
	for {
		event, err := vm.next(time.Until(began.Add(most)), late)
		if err != nil {
			return protocol.Done{}, err
		}
		heard = time.Now()
		output(event.Output)
		switch done := event.Done; {
		case done == nil:
		case done.Error != "":
			return *done, fmt.Errorf("%v: %s", step.Args, done.Error)
		default:
			return *done, nil
		}
	}
}

func containsAny(s string, substrings []string) bool {
	for _, sub := range substrings {
		if strings.Contains(s, sub) {
			return true
		}
	}
	return false
}
