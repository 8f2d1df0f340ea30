//go:build linux

package local

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

func TestProgramMissing(t *testing.T) {
	_, err := OpenProgram(filepath.Join(t.TempDir(), "cove-guest"))
	if !errors.Is(err, fs.ErrNotExist) || cove.ErrorCode(err) != cove.Unavailable || cove.ErrorHint(err) == "" {
		t.Errorf("%v", err)
	}
}

// TestProgramWithoutDescriptors: a limit of open files that is too low is said, and what to do about it.
func TestProgramWithoutDescriptors(t *testing.T) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &was) })
	const few = 64
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: few, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	_, err := OpenProgram("/bin/true")
	if cove.ErrorCode(err) != cove.Overloaded || cove.ErrorHint(err) == "" {
		t.Errorf("with %d descriptors: %v", few, err)
	}
}
