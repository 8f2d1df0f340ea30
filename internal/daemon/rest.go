package daemon

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/procmaps"
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
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	all, err := procmaps.Parse(text)
	if err != nil {
		return err
	}
	for _, m := range all {
		if !codeOf(program, m) {
			continue
		}
		at, size := uintptr(m.From), uintptr(m.To-m.From)
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, at, size, unix.MADV_DONTNEED); errno != 0 {
			return os.NewSyscallError("madvise", errno)
		}
	}
	return nil
}

// codeOf reports whether a mapping is one of a program, and cannot be written.
func codeOf(program string, m procmaps.Mapping) bool {
	return m.File() && m.Name == program && m.Prot&unix.PROT_READ != 0 && m.Prot&unix.PROT_WRITE == 0
}
