//go:build linux

package local

import (
	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/forkserver"
)

// OpenProgram opens cove-guest. Errors: Unavailable (it is not there), Overloaded (no descriptor is left).
func OpenProgram(path string) (*forkserver.Program, error) {
	p, err := forkserver.OpenProgram(path)
	if err != nil {
		return nil, NoGuest(err)
	}
	return p, nil
}

// NoGuest returns the error of a guest program that cannot be opened.
func NoGuest(err error) error {
	if full := cove.OutOfFiles(err); cove.ErrorCode(full) == cove.Overloaded {
		return full
	}
	return cove.Errorf(cove.Unavailable, "the guest program is missing: %w", err).
		WithHint("install cove-guest beside cove, or set COVE_GUEST; \"make build\" builds both")
}
