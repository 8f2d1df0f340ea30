package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// serve makes the attempts that standard input asks for, one a line, so that many of them do not take a process each.
// Each has a thread of its own, with which goes what it changed there: namespaces, ids, filters, directories,
// priorities. An attempt that changes the whole process has to be run alone. With the argument "mounts" each has a
// mount namespace of its own as well.
func serve(args []string) (report, error) {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20) // what is to be said may be long
	for lines.Scan() {
		onThread(func() {
			if slices.Contains(args, "mounts") {
				if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
					emit(result(lines.Text(), report{}, fmt.Errorf("no mount namespace of its own: %v", err)))
					return
				}
			}
			emit(attempted(strings.Fields(lines.Text())))
		})
	}
	return report{}, lines.Err()
}

// onThread runs f on a fresh thread that ends with it, and is not the one whose state /proc/self shows.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // until the goroutine's end, which is the thread's
		if unix.Gettid() == unix.Getpid() {
			onThread(f) // on another, as this one is taken meanwhile
			runtime.UnlockOSThread()
			return
		}
		f()
	}()
	<-done
}
