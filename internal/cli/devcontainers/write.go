package devcontainers

import (
	"context"
	"os"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/devcontainer"
)

// Write returns the dev container of a checkout as another program is to start it. Its files lie below Cove's home,
// where no program of the container writes. Where there is no file, image makes one.
func (o *Options) Write(ctx context.Context, sess *session.Session, top, image string, limits *api.Limits,
	debuggers bool) (*devcontainer.Written, error) {
	c, err := o.context(ctx, sess, top)
	if err == nil {
		err = over(ctx, sess, &c, api.SandboxRequest{Spec: api.Spec{Limits: limits}})
	}
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(top)
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "cannot open %s: %w", top, ui.Cause(err))
	}
	defer root.Close()
	f, err := devcontainer.Find(root.FS(), o.name())
	switch {
	case image != "" && err == nil:
		return nil, cove.Errorf(cove.Conflict, "%s is there, and says the image", f.Path).
			WithHint("leave --image out, or name the image there")
	case image != "" && cove.ErrorCode(err) == cove.NotFound && o.name() == "":
		f, err = devcontainer.OfImage(image), nil
	case cove.ErrorCode(err) == cove.NotFound && o.name() == "":
		err = cove.Errorf(cove.NotFound, "%s", cove.ErrorMessage(err)).WithHint("name an image: --image IMAGE")
	}
	if err != nil {
		return nil, err
	}
	found, err := judge(root.FS(), f, c)
	if err != nil {
		return nil, err
	}
	confine, filter, err := session.Confinement(ctx, sess, top, debuggers)
	if err != nil {
		return nil, err
	}
	id := devcontainer.Identity(top, f.Path)
	if confine.Dir, err = sess.InHome("devcontainers", "written", id[len(id)-16:]); err != nil {
		return nil, err
	}
	c.Checkout = root.FS()
	w, err := devcontainer.Write(f, found.Effective, found.Files, c, confine)
	if err == nil {
		w.Files[confine.Seccomp] = filter
	}
	return w, err
}
