package daemon

import (
	"errors"
	"io/fs"
	"os"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/profile"
)

// Profiles reads the named configurations. It is asked at each use, so that a
// change counts at once.
func Profiles(cfg *config.Config) ([]api.Profile, error) {
	file := cfg.ProfilesFile()
	data, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && cfg.Profiles == "":
		return nil, nil // nobody has written one
	case err != nil:
		return nil, cove.Errorf(cove.InvalidArgument, "profiles: %w", err)
	}
	return profile.Parse(file, data)
}
