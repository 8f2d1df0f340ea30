package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Sweep asks for every system call number there could be, each with arguments that no call can use, and reports for
// each whether the kernel was reached. A number whose answer is EPERM or ENOSYS, or that killed its process, was not.
//
//	probe sweep ABI FROM TO     ABI is native, x32 or int80
//
// It works in batches in processes of its own, because a filter may kill and some calls do not come back.
func sweep(args []string) (report, error) {
	if len(args) != 3 {
		return report{}, fmt.Errorf("sweep ABI FROM TO")
	}
	from, err := strconv.Atoi(args[1])
	if err != nil {
		return report{}, err
	}
	to, err := strconv.Atoi(args[2])
	if err != nil {
		return report{}, err
	}
	var r report
	for from < to {
		done, lines := sweepBatch(args[0], from, to)
		r.lines = append(r.lines, lines...)
		if done < from {
			done = from // the number itself ended the batch
			r.lines = append(r.lines, fmt.Sprintf("%d gone", from))
		}
		from = done + 1
	}
	r.count = int64(len(r.lines))
	return r, nil
}

// sweepBatch runs numbers in a child until one does not come back; it returns the last number that was settled.
func sweepBatch(abi string, from, to int) (int, []string) {
	cmd := exec.Command("/proc/self/exe", "sweep-child", abi, strconv.Itoa(from), strconv.Itoa(to))
	cmd.WaitDelay = time.Second
	var out strings.Builder
	const patience = 10 * time.Second // with a call that does not come back
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	cmd.Stdout = writer(func(b []byte) (int, error) {
		timer.Reset(patience)
		return out.Write(b)
	})
	if err := cmd.Start(); err != nil {
		return from - 1, nil
	}
	cmd.Wait()
	timer.Stop()
	last := from - 1
	var lines []string
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSpace(line)
		nr, rest, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(nr)
		if err != nil {
			continue
		}
		if rest == "" { // announced, never answered
			last = n
			if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() && status.Signal() == unix.SIGSYS {
				rest = "SIGSYS"
			} else {
				rest = "gone"
			}
			if !answered(out.String(), n) {
				lines = append(lines, fmt.Sprintf("%d %s", n, rest))
			}
			continue
		}
		last = n
		lines = append(lines, line)
	}
	return last, lines
}

// writer is a function that takes what is written.
type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// answered reports whether number n has a line with an answer.
func answered(out string, n int) bool {
	return strings.Contains("\n"+out, fmt.Sprintf("\n%d ", n))
}

// unsweepable are calls whose success ends, blocks or multiplies the caller whatever the arguments.
func unsweepable(abi string) []int {
	if abi != "native" {
		return nil // not one may come through
	}
	return slices.Concat([]int{unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_RT_SIGRETURN,
		unix.SYS_RT_SIGSUSPEND, unix.SYS_SYNC,
		unix.SYS_VHANGUP, unix.SYS_RESTART_SYSCALL, unix.SYS_MUNLOCKALL}, archUnsweepable())
}

// sweepChild is the child: "N " announces, "N ERRNO" answers.
func sweepChild(args []string) (report, error) {
	abi := args[0]
	from, _ := strconv.Atoi(args[1])
	to, _ := strconv.Atoi(args[2])
	skip := unsweepable(abi)
	for n := from; n < to; n++ {
		if slices.Contains(skip, n) {
			continue
		}
		fmt.Fprintf(os.Stdout, "%d\n", n)
		fmt.Fprintf(os.Stdout, "%d %s\n", n, errnoWord(sweepCall(abi, n)))
	}
	os.Exit(0)
	return report{}, nil
}

func sweepCall(abi string, n int) error {
	switch abi {
	case "x32":
		return call(uintptr(n)|0x40000000, all, all, all, all, all, all)
	case "int80":
		return int80(uintptr(n), all, all, all, all, all)
	}
	return call(uintptr(n), all, all, all, all, all, all)
}

// errnoWord is one word for what a call answered.
func errnoWord(err error) string {
	if err == nil {
		return "OK"
	}
	var e unix.Errno
	if errors.As(err, &e) && unix.ErrnoName(e) != "" {
		return unix.ErrnoName(e)
	}
	return strings.ReplaceAll(err.Error(), " ", "-")
}
