package process

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/guest"
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
