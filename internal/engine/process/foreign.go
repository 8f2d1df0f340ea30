package process

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/binfmt"
)

// Foreign returns the error for a program that the kernel does not know to run, as one of another architecture, and for
// one whose emulator it may not have found in the sandbox; nil of other errors.
func Foreign(program string, err error) error {
	return foreign(program, err, func() []binfmt.Emulator { return binfmt.Emulators(binfmt.Dir) })
}

func foreign(program string, err error, emulators func() []binfmt.Emulator) error {
	failure, ok := errors.AsType[*guest.Failure](err)
	switch {
	case !ok:
		return nil
	case strings.HasSuffix(failure.Message, syscall.ENOEXEC.Error()):
		return cove.Errorf(cove.RuntimeMissing, "%.200q is no program for this machine (linux/%s): it is one of another "+
			"architecture, or a script without a first line that names its program", program, runtime.GOARCH).
			WithHint("use an image of linux/%s, or register an emulator with binfmt_misc (Debian's qemu-user-static)",
				runtime.GOARCH)
	case !strings.HasSuffix(failure.Message, syscall.ENOENT.Error()): // "not found in PATH", which starts nothing
		return nil
	}
	all := emulators()
	late := slices.IndexFunc(all, func(e binfmt.Emulator) bool { return !e.Fixed })
	if late < 0 {
		return nil
	}
	return cove.Errorf(cove.RuntimeMissing, "%.200q cannot be started: it, the directory to run it in, or what runs it, "+
		"as an emulator of its architecture, is not in the sandbox", program).
		WithHint("for a program of another architecture: the emulator %s is registered with binfmt_misc without the flag F, "+
			"so that %s is looked up inside; register one with the flag (Debian's qemu-user-static)", all[late].Name,
			all[late].Interpreter)
}
