package devcontainers

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/devcontainer"
)

// Write returns the dev container of a checkout as another program is to start it: its devcontainer.json, and what a
// sandbox would take of the file. Where there is no file, image makes one.
func (o *Options) Write(ctx context.Context, sess *session.Session, dir, image string, limits *api.Limits,
	confine devcontainer.Confinement) (*devcontainer.Written, *devcontainer.Effective, error) {
	c, err := o.context(ctx, sess, dir)
	if err == nil {
		err = over(ctx, sess, &c, api.SandboxRequest{Spec: api.Spec{Limits: limits}})
	}
	if err != nil {
		return nil, nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, cove.Errorf(cove.InvalidArgument, "cannot open %s: %w", dir, ui.Cause(err))
	}
	defer root.Close()
	f, err := devcontainer.Find(root.FS(), o.name())
	switch {
	case image != "" && err == nil:
		return nil, nil, cove.Errorf(cove.Conflict, "%s is there, and says the image", f.Path).
			WithHint("leave --image out, or name the image there")
	case image != "" && cove.ErrorCode(err) == cove.NotFound && o.name() == "":
		f, err = devcontainer.OfImage(image), nil
	case cove.ErrorCode(err) == cove.NotFound && o.name() == "":
		err = cove.Errorf(cove.NotFound, "%s", cove.ErrorMessage(err)).WithHint("name an image: --image IMAGE")
	}
	if err != nil {
		return nil, nil, err
	}
	e, err := devcontainer.Evaluate(f, c)
	if err == nil {
		_, err = devcontainer.AddFeatures(root.FS(), e, c)
	}
	if err != nil {
		return nil, nil, err
	}
	w, err := devcontainer.Write(f, e, c, confine)
	return w, e, err
}

// SayWritten names what of a file a written one has not, one line each, and what its programs wish to reach.
func SayWritten(sess *session.Session, w *devcontainer.Written, e *devcontainer.Effective) {
	for _, l := range w.Changed {
		sess.Say.Line("%s, line %d: %s is left out: %s", e.File, l.Line, l.Key, l.Why)
	}
	if hosts := slices.Concat(e.Network.Asked, e.Network.PassThrough); len(hosts) > 0 {
		sess.Say.Line("%s wishes to reach %s, which the gateway lets it: --allow HOST", e.File, strings.Join(hosts, ", "))
	}
}
