//go:build linux

package doctor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/seccomp"
)

// probeSeccomp loads the policy for snippets and makes refused calls, and an allowed one.
func probeSeccomp([]string) (string, error) {
	filter, err := seccomp.Filter(cove.CodeUser)
	if err != nil {
		return "", step("compile the filter", err)
	}
	if err := seccomp.Load(filter); err != nil {
		return "", step("load the filter", err)
	}
	for _, c := range []struct {
		name     string
		number   uintptr
		argument uintptr
		want     syscall.Errno
	}{
		{"unshare", unix.SYS_UNSHARE, 0, unix.EPERM},
		{"clone3", unix.SYS_CLONE3, 0, unix.ENOSYS},
		{"socket(AF_VSOCK)", unix.SYS_SOCKET, unix.AF_VSOCK, unix.EPERM},
		{"close, which is allowed,", unix.SYS_CLOSE, ^uintptr(0), unix.EBADF},
	} {
		if _, _, errno := unix.RawSyscall(c.number, c.argument, 0, 0); errno != c.want {
			return "", step("have the filter decide", fmt.Errorf("%s ends with %v, not %v", c.name, errno, c.want))
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "", step("read /proc/self/status", err)
	}
	for _, line := range []string{"NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(string(status), line) {
			return "", step("be under the filter", fmt.Errorf("no %q in /proc/self/status", line))
		}
	}
	return fmt.Sprintf("%d instructions", len(filter)/8), nil
}

// probeWait waits until its standard input ends.
func probeWait([]string) (string, error) {
	_, err := io.Copy(io.Discard, os.Stdin)
	return "", err
}

// probeMemory uses the number of bytes in its argument, and should be killed.
func probeMemory(args []string) (string, error) {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return "", err
	}
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return "", step("map memory", err)
	}
	for i := 0; i < n; i += 4096 {
		mem[i] = byte(i>>12) | 1
	}
	return fmt.Sprintf("used %d MiB", n>>20), nil
}

// probePIDs starts the number of processes in its first argument; the others are this program's command for a probe.
func probePIDs(args []string) (string, error) {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return "", err
	}
	var waiting []*exec.Cmd
	defer func() {
		for _, cmd := range waiting {
			cmd.Process.Kill()
			cmd.Wait()
		}
	}()
	for i := range n {
		cmd := exec.Command("/proc/self/exe", args[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if _, err := cmd.StdinPipe(); err != nil {
			return "", err
		}
		if err := cmd.Start(); errors.Is(err, unix.EAGAIN) {
			return fmt.Sprintf("stopped after %d processes", i), nil
		} else if err != nil {
			return "", step("start a process", err)
		}
		waiting = append(waiting, cmd)
	}
	return fmt.Sprintf("started %d processes", n), nil
}

// probeCPU uses the CPU time in its argument, and reports the elapsed time.
func probeCPU(args []string) (string, error) {
	want, err := time.ParseDuration(args[0])
	if err != nil {
		return "", err
	}
	base, err := cpuTime()
	start := time.Now()
	for used := time.Duration(0); err == nil && used < want; {
		for i, x := 0, 1; i < 100_000; i++ {
			x = x*31 + i
		}
		var now time.Duration
		now, err = cpuTime()
		used = now - base
	}
	return time.Since(start).String(), err
}

func cpuTime() (time.Duration, error) {
	var usage unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), err
}
