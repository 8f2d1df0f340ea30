package daemon

import (
	"bufio"
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// restInterval is how often a server finds out whether it is at rest.
const restInterval = 10 * time.Second

// giveBack returns memory to the kernel whenever no request is served, until ctx ends: free parts of the heap and, the
// first time, the code that only the start needed.
func (d *Daemon) giveBack(ctx context.Context) {
	returned, started := uint64(0), false
	for {
		select {
		case <-time.After(restInterval):
		case <-ctx.Done():
			return
		}
		load := d.executions.Load()
		if load.Running+load.Waiting > 0 || d.api.Requests() > 0 || collections() == returned {
			continue
		}
		if !started {
			started = true
			if err := unmapCode(); err != nil {
				d.log.Debug("the code of the start stays mapped", "error", err)
			}
		}
		debug.FreeOSMemory()
		returned = collections()
	}
}

// collections returns how many garbage collections there have been.
func collections() uint64 {
	s := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// unmapCode has the kernel map the pages of the program again as they are used. Nothing was written to them.
func unmapCode() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		begin, end, ok := codeOf(program, lines.Text())
		if !ok {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, begin, end-begin, unix.MADV_DONTNEED); errno != 0 {
			return os.NewSyscallError("madvise", errno)
		}
	}
	return nil
}

// codeOf returns the addresses of a mapping of a program that cannot be written, from a line of /proc/PID/maps.
func codeOf(program, line string) (begin, end uintptr, ok bool) {
	fields := strings.Fields(line) // addresses, permissions, offset, device, inode, path
	if len(fields) < 6 || !strings.HasSuffix(line, " "+program) || !strings.HasPrefix(fields[1], "r-") {
		return 0, 0, false
	}
	from, to, _ := strings.Cut(fields[0], "-")
	a, errA := strconv.ParseUint(from, 16, 64)
	b, errB := strconv.ParseUint(to, 16, 64)
	return uintptr(a), uintptr(b), errA == nil && errB == nil
}
