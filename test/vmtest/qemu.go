package vmtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove/test/vmtest/protocol"
)

// machine is what a VM is started from.
type machine struct {
	image     string // directory made by scripts/vm-image.sh
	initramfs string
	payload   string
	console   string // file for what the kernel prints
}

func (m machine) args() []string {
	drive := func(path, extra string) string {
		return "if=virtio,format=raw,file=" + strings.ReplaceAll(path, ",", ",,") + extra
	}
	return []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-nic", "none", "-no-reboot",
		"-machine", "q35", "-accel", "tcg,thread=multi",
		"-cpu", "max,la57=off", // five-level page tables only make emulation slower
		// With two processors, emulation takes half as long again in all, for locks and for waiting.
		"-smp", "1", "-m", "2048",
		"-kernel", filepath.Join(m.image, "vmlinuz"),
		"-initrd", m.initramfs,
		// Without "quiet": what the kernel says is shown when a VM is lost. A
		// non-maskable interrupt makes it say what every processor is doing.
		// The clock is QEMU's: its TSC is this machine's counter, which may
		// jump where this machine is a virtual one, and then all timers inside
		// have run out.
		"-append",
		"console=ttyS0 panic=-1 unknown_nmi_panic panic_print=0x40 mitigations=off random.trust_cpu=on " +
			"clocksource=hpet tsc=unstable",
		"-serial", "file:" + m.console,
		"-drive", drive(filepath.Join(m.image, "root.ext4"), ",snapshot=on"),
		"-drive", drive(m.payload, ",readonly=on"),
		"-chardev", "stdio,id=host,signal=off",
		"-device", "virtio-serial",
		"-device", "virtserialport,chardev=host,name=cove",
		"-chardev", "socket,id=monitor,fd=3", "-mon", "chardev=monitor",
	}
}

// VM is a running virtual machine. Its methods are for one goroutine.
type VM struct {
	console string
	started time.Time
	steps   io.WriteCloser
	monitor *os.File            // QEMU's
	events  chan protocol.Event // closed when QEMU has ended
	process *os.Process
	end     string // how it has ended, once events is closed
	was     string // how it was lost
	stopped sync.Once
}

func start(m machine) (*VM, error) {
	cmd := exec.Command("qemu-system-x86_64", m.args()...)
	// The scratch copy of the root disk goes beside the other files.
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(m.console))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	steps, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	monitor, theirs := os.NewFile(uintptr(pair[0]), "monitor"), os.NewFile(uintptr(pair[1]), "monitor")
	defer theirs.Close()
	cmd.ExtraFiles = []*os.File{theirs}
	vm := &VM{console: m.console, started: time.Now(), steps: steps, monitor: monitor,
		events: make(chan protocol.Event, 64)}

	failed := make(chan error)
	go func() {
		// The signal at the parent's death is that of the thread that started the process, so this thread stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(vm.events)
		err := cmd.Start()
		vm.process = cmd.Process
		failed <- err
		if err != nil {
			return
		}
		events := json.NewDecoder(stdout)
		for {
			var event protocol.Event
			if err := events.Decode(&event); err != nil {
				break
			}
			vm.events <- event
		}
		_ = cmd.Wait() // the state tells
		vm.end = strings.TrimSpace(cmd.ProcessState.String() + "\n" + stderr.String())
	}()
	if err := <-failed; err != nil {
		return nil, fmt.Errorf("start qemu: %w", err)
	}
	return vm, nil
}

func (vm *VM) send(step protocol.Step) error {
	return json.NewEncoder(vm.steps).Encode(step)
}

// next is what the machine tells next. An error says how it was lost: late says it after the timeout.
func (vm *VM) next(timeout time.Duration, late func() string) (protocol.Event, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case event, ok := <-vm.events:
		if !ok {
			return event, vm.lost("QEMU has ended: " + vm.end)
		}
		return event, nil
	case <-timer.C:
		return protocol.Event{}, vm.lost(late() + "; " + vm.interrupt())
	}
}

// interrupt asks QEMU how the machine is, and has its kernel tell, if it still can, what it is doing, which ends it.
func (vm *VM) interrupt() string {
	const patience = 10 * time.Second
	_ = vm.monitor.SetDeadline(time.Now().Add(patience))
	_, _ = vm.monitor.WriteString("info status\nnmi\n") // the answer tells
	for lines := bufio.NewScanner(vm.monitor); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), "VM status: ") {
			continue
		}
		timer := time.NewTimer(patience)
		defer timer.Stop()
		for ended := false; !ended; {
			select {
			case _, more := <-vm.events:
				ended = !more
			case <-timer.C:
				ended = true
			}
		}
		return "QEMU says " + strings.TrimSpace(lines.Text())
	}
	return "nor does QEMU answer"
}

// stop ends the VM and waits until it has gone. It holds nothing worth a shutdown.
func (vm *VM) stop() {
	vm.stopped.Do(func() {
		_ = vm.process.Kill()
		for range vm.events { // closed after the process has been waited for
		}
		_ = vm.monitor.Close()
	})
}

// lost says how the machine was lost, with the end of what its kernel and its init have printed. It is not used again:
// what it tells now would be taken for the next step's.
func (vm *VM) lost(how string) error {
	if vm.was != "" {
		return fmt.Errorf("the VM was lost before this step: %s", vm.was)
	}
	vm.was = how
	vm.stop()
	console, err := os.ReadFile(vm.console)
	if err != nil {
		console = []byte(err.Error())
	}
	const tail = 12 << 10
	return fmt.Errorf("the VM is lost: %s\nconsole:\n%s", how, console[max(0, len(console)-tail):])
}
