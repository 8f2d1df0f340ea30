package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/model"
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
	return profile.Parse(file, data)
}

// credentials returns the credentials that the configuration describes.
func credentials(g config.Gateway) ([]credential.Credential, error) {
	if g.Credentials == "" {
		return nil, nil
	}
	data, err := os.ReadFile(g.Credentials)
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "gateway.credentials: %w", err)
	}
	return credential.Parse(g.Credentials, data)
}

// providers returns the providers of models.
func providers(g config.Gateway) ([]model.Provider, error) {
	if g.Providers == "" {
		return model.Known()
	}
	data, err := os.ReadFile(g.Providers)
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "gateway.providers: %w", err)
	}
	return model.Parse(g.Providers, data)
}

// lockDirectory makes this process the only server or gateway (kind) of a directory. The hints follow from an unusable
// directory, and from another process that uses it.
func lockDirectory(dir, kind, unusable, used string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, kind+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, cove.Errorf(cove.StorageFull, "cannot use %s: %w", dir, err).WithHint("%s", unusable)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, cove.Errorf(cove.Conflict, "another %s uses %s", kind, dir).WithHint("%s", used)
	}
	return f, nil
}
