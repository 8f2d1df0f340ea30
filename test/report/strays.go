//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// strayGrace is how long processes that tests have started may take to end after the tests have.
const strayGrace = 5 * time.Second

// tests is the test command, under way. Whatever it leaves running becomes a
// child of this process, so that nothing is left without being seen.
type tests struct {
	cmd     *exec.Cmd
	output  *os.File
	adopted chan struct{} // closed when adopt has ended
}

func startTests(args []string) (*tests, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("cannot adopt what tests leave: %w", err)
	}
	// A pipe of our own: one that exec makes would be waited for as long as anybody holds it.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		r.Close()
		return nil, err
	}
	t := &tests{cmd: cmd, output: r, adopted: make(chan struct{})}
	go t.adopt()
	return t, nil
}

// adopt collects processes that tests have left and that end meanwhile, as init would, until the command itself ends:
// what nobody collects looks like something left behind.
func (t *tests) adopt() {
	defer close(t.adopted)
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		pid := endedPID(&info)
		if pid == t.cmd.Process.Pid {
			return // Wait's
		}
		syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	}
}

// endedPID is the process that a Siginfo of waitid(2) is about: si_pid follows
// three ints, and on 64-bit machines padding.
func endedPID(info *unix.Siginfo) int {
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), 16)))
}

// end waits for the command itself, then for what it left, which is ended and
// listed when it does not end. Once ctx has ended, so must everything.
func (t *tests) end(ctx context.Context) (left []string, err error) {
	ended := false
	select {
	case <-t.adopted:
	case <-ctx.Done():
	}
	asked, killed := map[int]bool{}, map[int]bool{}
	for deadline := time.Now().Add(strayGrace); ; time.Sleep(50 * time.Millisecond) {
		select {
		case <-t.adopted:
			if !ended {
				ended, err = true, t.cmd.Wait()
			}
			collect()
		default:
		}
		pids := children()
		if len(pids) == 0 {
			return left, err
		}
		for _, pid := range pids { // their children come next round
			if ctx.Err() != nil && !asked[pid] {
				asked[pid] = true
				syscall.Kill(pid, syscall.SIGTERM)
			}
			if time.Now().After(deadline) && !killed[pid] {
				killed[pid] = true
				left = append(left, describe(pid))
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		// A process in a frozen control group of version 1 does not die.
		if ended && time.Now().After(deadline.Add(strayGrace)) {
			return left, err
		}
	}
}

// collect takes the exit status of adopted processes that have ended.
func collect() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 || err != nil {
			return
		}
	}
}

// children are the processes whose parent is this one.
func children() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if status, err := os.ReadFile("/proc/" + e.Name() + "/status"); err == nil &&
			strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func describe(pid int) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(line) == 0 {
		line, _ = os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	}
	return fmt.Sprintf("process %d: %.200q", pid, strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " ")))
}
