package process

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/binfmt"
)

func TestForeign(t *testing.T) {
	err := Foreign("/arm", &guest.Failure{Kind: guest.FailOther, Message: "start /arm: exec format error"})
	said := cove.ErrorMessage(err) + cove.ErrorHint(err)
	if cove.ErrorCode(err) != cove.RuntimeMissing || !strings.Contains(said, "binfmt_misc") ||
		!strings.Contains(said, "linux/"+runtime.GOARCH) {
		t.Errorf("%s", said)
	}
	for _, err := range []error{nil, errors.New("exec format error"),
		&guest.Failure{Kind: guest.FailNotFound, Message: "exec format error: not found in PATH"}} {
		if got := Foreign("x", err); got != nil {
			t.Errorf("%v is %v", err, got)
		}
	}
}

// TestForeignUnseen: a program that is not there may lack its emulator, where one is registered without the flag F.
func TestForeignUnseen(t *testing.T) {
	fixed := binfmt.Emulator{Name: "qemu-arm", Interpreter: "/usr/bin/qemu-arm", Fixed: true}
	late := binfmt.Emulator{Name: "qemu-aarch64", Interpreter: "/usr/bin/qemu-aarch64"}
	const missing = "start /arm: no such file or directory"
	for _, c := range []struct {
		message   string
		emulators []binfmt.Emulator
		is        bool
	}{
		{missing, []binfmt.Emulator{fixed, late}, true},
		{missing, []binfmt.Emulator{fixed}, false},
		{missing, nil, false},
		{"arm: not found in PATH", []binfmt.Emulator{late}, false},
		{"start /arm: permission denied", []binfmt.Emulator{late}, false},
	} {
		err := foreign("/arm", &guest.Failure{Kind: guest.FailNotFound, Message: c.message},
			func() []binfmt.Emulator { return c.emulators })
		if (err != nil) != c.is {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if hint := cove.ErrorHint(err); c.is && (cove.ErrorCode(err) != cove.RuntimeMissing ||
			!strings.Contains(hint, "flag F") || !strings.Contains(hint, late.Interpreter)) {
			t.Errorf("%v: %s", err, hint)
		}
	}
}
