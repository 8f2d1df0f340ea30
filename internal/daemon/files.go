package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/agent/fit"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/profile"
)

// newAgents makes the agents of this machine.
func (d *Daemon) newAgents() *fit.Agents {
	return fit.New(fit.Options{
		Executions: d.executions, Store: d.vault, Dir: filepath.Join(d.cfg.Home, "agents"),
		Beside: filepath.Dir(GuestPath(d.cfg)), Agents: agent.Merge(d.cfg.Agents), Configuration: files{d.cfg},
	})
}

// files reads the files that the configuration names, anew at each call.
type files struct{ cfg *config.Config }

// Profiles implements fit.Configuration.
func (f files) Profiles() ([]api.Profile, error) { return Profiles(f.cfg) }

// Providers implements fit.Configuration.
func (f files) Providers() ([]model.Provider, error) { return providers(f.cfg.Gateway) }

// Credentials implements fit.Configuration.
func (f files) Credentials() ([]credential.Credential, error) { return credentials(f.cfg.Gateway) }

// Machine implements fit.Configuration.
func (f files) Machine(ctx context.Context) (policy.Machine, error) {
	return Machine(ctx, f.cfg.Gateway)
}

// Profiles reads the named configurations. It is asked at each use, so that a
// change counts at once.
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
