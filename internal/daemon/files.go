package daemon

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"os"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/agent/fit"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/profile"
)

// Profiles reads the named configurations. It is asked at each use, so that a change counts at once.
func Profiles(cfg *config.Config) ([]api.Profile, error) {
	file := cfg.ProfilesFile()
	data, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && cfg.Profiles == "":
		return nil, nil // there is none
	case err != nil:
		return nil, cove.Errorf(cove.InvalidArgument, "profiles: %w", err)
	}
	return profile.Parse(file, data, func(p api.Profile) error {
		if err := fit.CheckProfile(p); err != nil || p.Network == nil || p.Network.Budget == nil {
			return err
		}
		providers, err := config.Providers(cfg)
		return cmp.Or(err, fit.JudgeProfile(p, providers))
	})
}

// reading is a file with descriptions, as it was read last.
type reading[T any] struct {
	mu     sync.Mutex
	text   []byte
	parsed []T
}

// of returns what the file of a setting describes; nothing if it is not set. Errors: InvalidArgument.
func (r *reading[T]) of(setting, file string, parse func(file string, text []byte) ([]T, error)) ([]T, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "%s: %w", setting, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.text != nil && bytes.Equal(r.text, text) {
		return r.parsed, nil
	}
	parsed, err := parse(file, text)
	if err != nil {
		return nil, err
	}
	r.text, r.parsed = text, parsed
	return parsed, nil
}
