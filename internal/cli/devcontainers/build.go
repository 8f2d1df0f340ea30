package devcontainers

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/devcontainer"
)

// build has the image of a request built or pulled, unless the request names another one, or it is there.
// Its commands may reach what the request's sandbox may. What is built is what the user has agreed to: the
// instructions are not read again.
func (e *Found) build(ctx context.Context, sess *session.Session, req *api.SandboxRequest) error {
	switch {
	case !e.Builds() && (req.Image != e.Image || sess.Far()):
		return nil
	case req.Image != "" && req.Image != e.Image:
		sess.Say.Line("the image of %s is not built: %s takes its place", e.File, req.Image)
		return nil
	}
	name, err := e.BuildImage(ctx, sess, req.Network, req.Limits)
	req.Image = name
	return err
}

// Builds reports whether the image of a dev container is built.
func (e *Found) Builds() bool { return e.Build != nil || len(e.Features) > 0 }

// BuildImage builds the image of a dev container with a build or features, or pulls that of another one, unless it is
// there, and returns its name.
func (e *Found) BuildImage(ctx context.Context, sess *session.Session, network *api.NetworkPermission,
	limits *api.Limits) (name string, err error) {
	if sess.Far() {
		return "", cove.Errorf(cove.Unsupported, "%s has its image built, which is done on the server's machine alone",
			e.File).WithHint("build it there, and name it in \"image\"; --no-devcontainer leaves the file alone")
	}
	name = e.Image
	if e.Build != nil {
		if name, err = e.buildDockerfile(ctx, sess, imageName(e), *e.Build, network, limits); err != nil {
			return "", err
		}
	}
	if len(e.Features) == 0 {
		if e.Build == nil {
			err = session.FetchImage(ctx, sess, name)
		}
		return name, err
	}
	text, files := devcontainer.Instructions(name, e.User, e.Features, e.Files)
	return session.EnsureImage(ctx, sess, session.NewBuild{Name: imageName(e) + "-features", Files: files, Text: text,
		Network: network, Limits: limits, Pull: true})
}

func (e *Found) buildDockerfile(ctx context.Context, sess *session.Session, name string, of devcontainer.Build,
	network *api.NetworkPermission, limits *api.Limits) (string, error) {
	text, ok := e.Files[of.Dockerfile]
	if !ok {
		return "", cove.Errorf(cove.NotFound, "%s: there is no %s", e.File, of.Dockerfile)
	}
	b := session.NewBuild{Name: name, Context: e.Dir, Below: of.Context, Text: append([]byte{}, text...),
		Args: of.Args, Target: of.Target, Network: network, Limits: limits, Pull: true}
	for _, name := range of.Ignores() {
		if ignore, ok := e.Files[name]; ok {
			b.Ignore = ignore
			break
		}
	}
	return session.EnsureImage(ctx, sess, b)
}

// imageName is the name of the image of a dev container, without a tag: one for each file of each checkout.
func imageName(e *Found) string {
	safe := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(filepath.Base(e.Dir)))
	for strings.Contains(safe, "--") {
		safe = strings.ReplaceAll(safe, "--", "-")
	}
	id := devcontainer.Identity(e.Dir, e.File)
	return strings.Trim("devcontainer-"+safe, "-") + "-" + id[len(id)-12:]
}
