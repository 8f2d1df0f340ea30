package process

import (
	"errors"
	"runtime"
	"strings"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/guest"
)

// Foreign returns the error for a program that the kernel does not know to run, as one of another architecture; nil of
// other errors.
func Foreign(program string, err error) error {
	failure, ok := errors.AsType[*guest.Failure](err)
	if !ok || !strings.HasSuffix(failure.Message, syscall.ENOEXEC.Error()) {
		return nil
	}
	return cove.Errorf(cove.RuntimeMissing, "%.200q is no program for this machine (linux/%s): it is one of another "+
		"architecture, or a script without a first line that names its program", program, runtime.GOARCH).
		WithHint("use an image of linux/%s, or register an emulator with binfmt_misc (Debian's qemu-user-static)",
			runtime.GOARCH)
}
