package session

import (
	"context"
	"io"
	"path/filepath"
	"slices"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/daemon"
	"github.com/cove-sandbox/cove/internal/egress/github"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/httpapi"
	"github.com/cove-sandbox/cove/internal/image"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/repos"
)

// This file and here_other.go have what a command does on this machine itself, which is Linux here and nothing there.

// Here returns nil: sandboxes can run on this machine.
func Here() error { return nil }

const instanceDir = instance.Dir

func (sess *Session) inProcess(ctx context.Context, warm bool) (*Backend, error) {
	cfg, err := sess.Config()
	if err != nil {
		return nil, err
	}
	sess.Warn(cfg)
	d, err := daemon.New(ctx, daemon.Options{Config: cfg, Log: sess.QuietLogger(cfg), Warm: warm})
	if err != nil {
		return nil, err
	}
	closing := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseTimeout)
		defer cancel()
		return d.Close(ctx)
	}
	c, err := d.Client()
	if err != nil {
		closing()
		return nil, err
	}
	return &Backend{Client: c, Close: func() error { c.Close(); return closing() }}, nil
}

// ProfilesHere returns the profiles that the configuration of this machine describes.
func ProfilesHere(cfg *config.Config) ([]api.Profile, error) { return daemon.Profiles(cfg) }

// GitHubHere returns the servers of GitHub that the configuration of this machine names.
func GitHubHere(cfg *config.Config) (github.Servers, error) { return daemon.GitHub(cfg.Gateway) }

// MachineHere returns the facts about this machine that policies need.
func MachineHere(ctx context.Context, cfg *config.Config) (policy.Machine, error) {
	return daemon.Machine(ctx, cfg.Gateway)
}

// AbsoluteImage makes the path in an image string absolute: a server of this machine has another working directory.
func AbsoluteImage(s, dir string) string { return image.Absolute(s, dir) }

// ServerPath returns a path for a server, which knows no current directory.
func ServerPath(path string) (string, error) { return filepath.Abs(path) }

// ApplyHere applies work that a server of another machine sends to a directory of this one.
func ApplyHere(ctx context.Context, sess *Session, sent io.Reader, req api.ApplyRequest) (api.AppliedWork, error) {
	cfg, err := sess.Config()
	if err != nil {
		return api.AppliedWork{}, err
	}
	store, err := repos.Open(repos.Options{Home: cfg.Home, Log: sess.QuietLogger(cfg)})
	if err != nil {
		return api.AppliedWork{}, err
	}
	of, style, err := httpapi.ApplyStyle(req)
	if err != nil {
		return api.AppliedWork{}, err
	}
	done, err := store.ApplySent(ctx, sent, of.Paths, req.Directory, style)
	if err != nil {
		return api.AppliedWork{}, err
	}
	return httpapi.AppliedWork(done), nil
}

// Origin returns the address that a sandbox of the repository around a directory of this machine pushes to.
func Origin(ctx context.Context, dir string) (string, error) { return repos.Origin(ctx, dir) }

// Branch is a branch of a repository of this machine.
type Branch = repos.Branch

// RemovableBranch returns a branch of a repository of this machine, if it can be removed.
func RemovableBranch(ctx context.Context, dir, name, except string, insist bool) (*Branch, error) {
	return repos.RemovableBranch(ctx, dir, name, except, insist)
}

// ImageNames lists the names of the images in the store, for completion; none when it cannot be read.
func ImageNames(sess *Session) (all []string) {
	cfg, err := sess.Config()
	if err != nil {
		return nil
	}
	store, err := daemon.OpenImages(cfg, sess.QuietLogger(cfg))
	if err != nil {
		return nil
	}
	images, _ := store.List(context.Background()) // completion cannot show an error
	for _, i := range images {
		all = append(all, i.Names...)
	}
	slices.Sort(all)
	return all
}

// ProviderNames lists the model providers that the configuration describes, for completion.
func ProviderNames(sess *Session) (all []string) {
	cfg, err := sess.Config()
	if err != nil {
		return nil
	}
	providers, _ := daemon.Providers(cfg)
	for _, p := range providers {
		all = append(all, p.Name)
	}
	return all
}
