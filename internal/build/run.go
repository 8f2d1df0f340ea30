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
	"github.com/cove-sandbox/cove/internal/build/tools"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/image"
	"github.com/cove-sandbox/cove/internal/image/dockerfile"
	"github.com/cove-sandbox/cove/internal/image/files"
	"github.com/cove-sandbox/cove/internal/image/layer"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Command is a command to run over the files of a stage.
type Command struct {
	Stack    rootfs.Stack
	Layer    string // of engine.MakeLayer, for what it changes
	Disk     string // a directory of the disk that no command may fill
	FileSize int64  // most bytes of one file, within the limit of the sandbox
	Args     []string
	Env      []string // to which a way out adds its own
	Dir      string
	Mounts   []Mount
	Script   *Script
	Offline  bool      // it has no network, whatever the build may reach
	Out      io.Writer // both of its streams
}

// Script is a program by its content, which is placed at Path.
type Script struct {
	Path string
	Data []byte
}

// Failed is a command that has failed, and a shell in its place.
type Failed struct {
	Text  string // the instruction
	Code  int
	Shell Command // over the files before it, with its environment, directory, user and mounts
}

// run makes the layer of a RUN, or finds it.
func (b *builder) run(ctx context.Context, s *stage, step dockerfile.Step) (l image.Layer, err error) {
	r := *step.Run
	if b.request.Root {
		r.User = ""
	}
	if project := b.request.ToolCaches; project != "" {
		user, err := layer.UserOf(s.stack, r.User)
		if err != nil {
			return l, err
		}
		r.Mounts = append(slices.Clip(r.Mounts), tools.Caches(project, s.base.Digest, user, r, ownPlaces)...)
	}
	binds, keys, err := b.binds(ctx, s, r.Mounts)
	if err != nil {
		return l, err
	}
	s.key = keyOf(s.key, "run", r, keys)
	if !b.request.Fresh {
		made, err := b.alone(ctx, s.key)
		if err != nil {
			return l, err
		}
		defer made()
	}
	if l, ok := b.find(s, s.key); ok {
		return l, nil
	}
	c := Command{Stack: s.stack, Disk: b.room, Args: r.Args, Env: r.Env, Dir: r.Dir, Offline: r.Offline, Out: s.part}
	if r.Script != "" {
		c.Script = &Script{Path: path.Join(scriptDir, path.Base(r.Args[0])), Data: []byte(r.Script)}
		c.Args = append([]string{c.Script.Path}, r.Args[1:]...)
	}
	prefix, err := as(ctx, b.files, &c, r.User)
	if err != nil {
		return l, err
	}
	c.Args = append(prefix, c.Args...)
	draft, err := b.Store.Draft(ctx, b.fresh())
	if err != nil {
		return l, err
	}
	defer b.ending.Go(func() { _ = draft.End() }) // otherwise the end of the room removes it
	c.Layer, c.FileSize = draft.Layer, draft.FileSize
	done, err := b.mount(ctx, s, &c, r.Mounts, binds)
	if err != nil {
		return l, err
	}
	end, err := b.command(ctx, c)
	if err == nil {
		err = draft.Check()
	}
	if err == nil && end.Code != 0 {
		err = b.inspect(ctx, s, Failed{Text: step.Text, Code: end.Code, Shell: c}, prefix)
	}
	if err = errors.Join(err, done()); err != nil {
		return l, err
	}
	if end.Code != 0 {
		return l, cove.Errorf(cove.InvalidArgument, "the command ended with exit code %d: %.300s", end.Code, step.Text).
			WithHint("%s", end.Hint)
	}
	places := append(stubs(c.Mounts), ownPlaces...)
	if err := b.files.Discard(ctx, engine.Changes(c.Layer), s.stack, ownFiles, places); err != nil {
		return l, err
	}
	dir := b.fresh()
	if err := draft.Take(ctx, dir); err != nil {
		return l, errors.Join(err, b.files.Remove(dir))
	}
	return b.keep(ctx, s.key, dir)
}

// command runs a command, as one of a few at once.
func (b *builder) command(ctx context.Context, c Command) (Ended, error) {
	if err := b.commands.Acquire(ctx, 1); err != nil {
		return Ended{}, err
	}
	defer b.commands.Release(1)
	return b.Runner.Run(ctx, c)
}

// scriptDir is a directory of the sandbox's own.
const scriptDir = "/run/build"

// ownFiles are of every sandbox, and no change by a command; ownPlaces are where it mounts something.
var (
	ownFiles  = []string{"etc/hostname", "etc/hosts", "etc/resolv.conf"}
	ownPlaces = []string{"etc", "proc", "sys", "dev", "run"}
)

// inspect has the user look into the state before a command that has failed.
func (b *builder) inspect(ctx context.Context, s *stage, f Failed, prefix []string) (err error) {
	if b.Inspect == nil {
		return nil
	}
	shell := ""
	for _, program := range []string{"/bin/bash", "/bin/sh"} {
		found, err := b.files.Find(ctx, f.Shell.Stack, program)
		if err != nil {
			return err
		}
		if found.Dir != "" && shell == "" {
			shell = program
		}
	}
	if shell == "" {
		s.part.Line("the image has no shell to look into it with")
		return nil
	}
	draft, err := b.Store.Draft(ctx, b.fresh())
	if err != nil {
		return err
	}
	defer b.ending.Go(func() { _ = draft.End() })
	f.Shell.Args, f.Shell.Layer, f.Shell.FileSize = append(slices.Clip(prefix), shell), draft.Layer, draft.FileSize
	s.part.Line("the command ended with exit code %d", f.Code)
	b.says.Pause()
	return b.Inspect(ctx, f)
}

// as finds how a command runs as a user of its image: root itself, or another by a program of the image's, which comes
// before its arguments.
func as(ctx context.Context, f *files.Files, c *Command, name string) (prefix []string, err error) {
	user, err := layer.UserOf(c.Stack, name)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(c.Env, func(kv string) bool { return strings.HasPrefix(kv, "HOME=") }) {
		c.Env = append(slices.Clip(c.Env), "HOME="+user.Home)
	}
	if user.Owner == (layer.Owner{}) {
		return nil, nil
	}
	for _, program := range []string{"/usr/bin/setpriv", "/bin/setpriv"} {
		found, err := f.Find(ctx, c.Stack, program)
		if err != nil {
			return nil, err
		}
		if found.Dir != "" && found.Mode.IsRegular() && path.Base(found.Name) == "setpriv" {
			groups := "--clear-groups"
			if user.Name != "" {
				groups = "--init-groups"
			}
			return []string{program, "--reuid=" + strconv.Itoa(user.UID), "--regid=" + strconv.Itoa(user.GID), groups,
				"--"}, nil
		}
	}
	return nil, cove.Errorf(cove.Unsupported, "RUN as the user %.80q is not supported in an image without setpriv", name).
		WithHint("have the image's util-linux installed, or run the command before USER")
}

// now is the time of what is made.
func (b *builder) now() time.Time {
	if b.request.Epoch != nil {
		return b.request.Epoch.UTC()
	}
	return b.Clock.Now().UTC()
}
