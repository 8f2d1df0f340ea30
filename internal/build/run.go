package build

import (
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/image"
	"github.com/cove-sandbox/cove/internal/image/dockerfile"
	"github.com/cove-sandbox/cove/internal/image/layer"
)

// Command is a command to run over a tree.
type Command struct {
	Tree    string // directory
	Layer   string // of engine.MakeLayer, for what it changes
	Args    []string
	Env     []string // to which a way out adds its own
	Dir     string
	Mounts  []Mount
	Script  *Script
	Offline bool      // it has no network, whatever the build may reach
	Out     io.Writer // both of its streams
}

// Script is a program by its content, which is placed at Path.
type Script struct {
	Path string
	Data []byte
}

// run makes the layer of a RUN, or finds it.
func (b *builder) run(ctx context.Context, number int, s *stage, step dockerfile.Step) (l image.Layer, err error) {
	r := *step.Run
	binds, keys, err := b.binds(ctx, number, r.Mounts)
	if err != nil {
		return l, err
	}
	if b.request.Root {
		r.User = ""
	}
	s.key = keyOf(s.key, "run", r, keys)
	if l, ok := b.find(s.key); ok {
		return l, nil
	}
	c := Command{Tree: s.tree, Layer: b.fresh(), Args: r.Args, Env: r.Env, Dir: r.Dir, Offline: r.Offline, Out: b.says}
	if r.Script != "" {
		c.Script = &Script{Path: path.Join(scriptDir, path.Base(r.Args[0])), Data: []byte(r.Script)}
		c.Args = append([]string{c.Script.Path}, r.Args[1:]...)
	}
	if err := as(&c, r.User); err != nil {
		return l, err
	}
	if err := engine.MakeLayer(c.Layer); err != nil {
		return l, err
	}
	done, err := b.mount(ctx, number, &c, r.Mounts, binds)
	if err != nil {
		return l, err
	}
	code, err := b.Runner.Run(ctx, c)
	if err = errors.Join(err, done()); err != nil {
		return l, err
	}
	if code != 0 {
		return l, cove.Errorf(cove.InvalidArgument, "the command ended with exit code %d: %.300s", code, step.Text)
	}
	places := append(stubs(c.Mounts), ownPlaces...)
	if err := layer.Discard(engine.Changes(c.Layer), s.tree, ownFiles, places); err != nil {
		return l, err
	}
	return b.keep(ctx, s.key, c.Layer)
}

// scriptDir is a directory of the sandbox's own.
const scriptDir = "/run/build"

// ownFiles are of every sandbox, and no change by a command; ownPlaces are where it mounts something.
var (
	ownFiles  = []string{"etc/hostname", "etc/hosts", "etc/resolv.conf"}
	ownPlaces = []string{"etc", "proc", "sys", "dev", "run"}
)

// as has a command run as a user of its tree: root itself, or another by a program of the tree's.
func as(c *Command, name string) error {
	user, err := layer.UserOf(c.Tree, name)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(c.Env, func(kv string) bool { return strings.HasPrefix(kv, "HOME=") }) {
		c.Env = append(slices.Clip(c.Env), "HOME="+user.Home)
	}
	if user.Owner == (layer.Owner{}) {
		return nil
	}
	for _, program := range []string{"/usr/bin/setpriv", "/bin/setpriv"} {
		if place, info, ok := layer.Find(c.Tree, program); ok && info.Mode().IsRegular() && path.Base(place) == "setpriv" {
			groups := "--clear-groups"
			if user.Name != "" {
				groups = "--init-groups"
			}
			c.Args = append([]string{program, "--reuid=" + strconv.Itoa(user.UID), "--regid=" + strconv.Itoa(user.GID), groups,
				"--"}, c.Args...)
			return nil
		}
	}
	return cove.Errorf(cove.Unsupported, "RUN as the user %.80q is not supported in an image without setpriv", name).
		WithHint("have the image's util-linux installed, or run the command before USER")
}

// now is the time of what is made.
func (b *builder) now() time.Time {
	if b.request.Epoch != nil {
		return b.request.Epoch.UTC()
	}
	return b.Clock.Now().UTC()
}
