package devcontainers

import (
	"context"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/devcontainer"
)

// beside adds the services of a dev container to a request, with their images built where they are. A service of the
// command line takes the place of one with its name.
func (e *Found) beside(ctx context.Context, sess *session.Session, req *api.SandboxRequest) error {
	for _, s := range e.Services {
		if slices.ContainsFunc(req.Services, func(given api.ServiceRequest) bool { return given.Name == s.Name }) {
			continue
		}
		image, err := e.imageOf(ctx, sess, s, req)
		if err != nil {
			return err
		}
		of := api.ServiceRequest{Name: s.Name, Image: image, Args: s.Args, Env: s.Env, Ports: s.Ports,
			Volumes: apispec.VolumesOf(s.Volumes)}
		if l := s.Limits; l != (cove.Limits{}) {
			of.Limits = &api.Limits{CPUs: l.CPUs, PIDs: l.PIDs}
			if l.Memory > 0 {
				of.Limits.MemoryMB = max(l.Memory>>20, 1)
			}
		}
		req.Services = append(req.Services, of)
	}
	return nil
}

// BuildBeside builds or pulls the images of the services beside, unless they are there.
func (e *Found) BuildBeside(ctx context.Context, sess *session.Session, network *api.NetworkPermission) error {
	return e.beside(ctx, sess, &api.SandboxRequest{Network: network})
}

// imageOf returns the image of a service: built where it has a build or says more than its image, else pulled, unless
// it is there.
func (e *Found) imageOf(ctx context.Context, sess *session.Session, s devcontainer.Service,
	req *api.SandboxRequest) (name string, err error) {
	plain := s.Build == nil && len(s.Over) == 0
	switch {
	case plain && sess.Far():
		return s.Image, nil
	case plain:
		return s.Image, session.FetchImage(ctx, sess, s.Image)
	case sess.Far():
		return "", cove.Errorf(cove.Unsupported, "%s has the image of %s built, which is done on the server's machine alone",
			e.File, s.Name).WithHint("--no-devcontainer leaves the file alone")
	}
	name = s.Image
	if s.Build != nil {
		name, err = e.buildDockerfile(ctx, sess, imageName(e)+"-"+s.Name, *s.Build, req.Network, nil)
	}
	if err != nil || len(s.Over) == 0 {
		return name, err
	}
	return session.EnsureImage(ctx, sess, session.NewBuild{Name: imageName(e) + "-" + s.Name + "-service",
		Text: s.Instructions(name), Network: req.Network, Files: devcontainer.Files{}, Pull: true})
}
