package sandbox

import (
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/guest"
)

// TestStartFailure: the caller's bytes and the guest's text are printable wherever an error repeats them.
func TestStartFailure(t *testing.T) {
	const name = "x\u202e\x1b[31m"
	for kind, code := range map[guest.FailureKind]cove.Code{guest.FailNotFound: cove.RuntimeMissing,
		guest.FailPermission: cove.InvalidArgument, guest.FailInvalid: cove.InvalidArgument, guest.FailOther: cove.Internal} {
		err := startFailure(guest.ProcessSpec{Args: []string{name}, Dir: name},
			&guest.Failure{Kind: kind, Message: `"` + name + `": not found in PATH`})
		if cove.ErrorCode(err) != code || strings.ContainsAny(err.Error(), "\u202e\x1b") ||
			!strings.Contains(err.Error(), `"x\u202e\x1b[31m": not found in PATH`) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	full := &guest.Failure{Kind: guest.FailNoSpace, Message: "open a terminal: no space left on device"}
	for tty, code := range map[bool]cove.Code{true: cove.Overloaded, false: cove.Internal} {
		if err := startFailure(guest.ProcessSpec{Args: []string{name}, TTY: tty}, full); cove.ErrorCode(err) != code {
			t.Errorf("no space, with a terminal %v: %v", tty, err)
		}
	}
}
