package build

import (
	"context"
	"io/fs"
	"os"
	"strconv"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/image"
	"github.com/cove-sandbox/cove/internal/image/dockerfile"
	"github.com/cove-sandbox/cove/internal/image/layer"
)

// step does one step of a stage.
func (b *builder) step(ctx context.Context, number int, s *stage, step dockerfile.Step) error {
	done := image.Step{Text: step.History}
	if step.Layer() {
		kept, missing, err := b.layer(ctx, number, s, step)
		if err != nil {
			return err
		}
		if !missing {
			if err := layer.Apply(engine.Changes(kept.Dir), s.tree); err != nil {
				return err
			}
			done.Layer, s.latest = kept.DiffID, kept.Created
		}
	}
	done.Created = s.latest // so that the same layers make the same image
	s.steps = append(s.steps, done)
	return nil
}

// layer returns the layer of a step; none says that it changes nothing after all.
func (b *builder) layer(ctx context.Context, number int, s *stage, step dockerfile.Step) (l image.Layer, none bool,
	err error) {
	if step.Run != nil {
		l, err = b.run(ctx, number, s, step)
		return l, false, err
	}
	dir := b.fresh()
	if err := engine.MakeLayer(dir); err != nil {
		return l, false, err
	}
	changes := engine.Changes(dir)
	if step.Copy != nil {
		err = b.copy(ctx, number, s, *step.Copy, changes)
	} else {
		var missing bool
		missing, err = layer.MakeDirectory(changes, s.tree, step.Dir)
		none = !missing
	}
	if err != nil || none {
		return l, none, err
	}
	content, err := layer.Content(ctx, changes)
	if err != nil {
		return l, false, err
	}
	s.key = keyOf(s.key, step.History, content)
	if l, ok := b.find(s.key); ok {
		return l, false, nil
	}
	l, err = b.keep(ctx, s.key, dir)
	return l, false, err
}

// find returns the layer of an earlier build.
func (b *builder) find(key string) (image.Layer, bool) {
	if b.request.Fresh {
		return image.Layer{}, false
	}
	l, err := b.Store.Find(key)
	if err != nil {
		return l, false
	}
	b.says.cached()
	return l, true
}

// keep keeps a layer that is complete.
func (b *builder) keep(ctx context.Context, key, dir string) (l image.Layer, err error) {
	l = image.Layer{Dir: dir, Created: b.now()}
	if err := engine.SealLayer(dir); err != nil {
		return l, err
	}
	if at := b.request.Epoch; at != nil {
		if err := layer.Clamp(engine.Changes(dir), *at); err != nil {
			return l, err
		}
	}
	if l.DiffID, err = layer.DiffID(ctx, engine.Changes(dir)); err != nil || b.request.Fresh {
		return l, err
	}
	return b.Store.Keep(key, l)
}

// copy makes the layer of a COPY or ADD.
func (b *builder) copy(ctx context.Context, number int, s *stage, c dockerfile.Copy, changes string) error {
	if err := unsupportedCopy(c); err != nil {
		return err
	}
	does := layer.Copy{From: b.request.Context, Words: c.Sources, Dest: c.Dest,
		Whole: !c.Add || c.Unpack != nil && !*c.Unpack}
	for _, f := range c.Inline {
		does.Inline = append(does.Inline, layer.Inline(f))
	}
	if !c.From.Context() {
		tree, _, err := b.origin(ctx, number, c.From)
		if err != nil {
			return err
		}
		if does.From, err = layer.OpenTree(tree); err != nil {
			return err
		}
		defer does.From.Close()
	}
	var err error
	if c.Chown != "" {
		if does.Owner, err = layer.OwnerOf(s.tree, c.Chown); err != nil {
			return err
		}
	}
	if c.Chmod != "" {
		mode, err := strconv.ParseUint(c.Chmod, 8, 12)
		if err != nil {
			return cove.Errorf(cove.Unsupported, "--chmod=%.40s is not supported", c.Chmod).
				WithHint("write the mode as an octal number, such as 755")
		}
		does.Mode = new(fileMode(uint32(mode)))
	}
	return does.Into(ctx, changes, s.tree)
}

// fileMode returns the mode that permission bits of the kernel's say.
func fileMode(bits uint32) fs.FileMode {
	mode := fs.FileMode(bits & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			mode |= flag
		}
	}
	return mode
}

// origin returns the tree of a stage or an image, with a key of its content.
func (b *builder) origin(ctx context.Context, number int, from dockerfile.Source) (tree, key string, err error) {
	if from.Stage < 0 {
		base, err := b.image(ctx, from.Image)
		if err == nil && base.Tree == "" {
			empty := b.fresh()
			return empty, "", os.Mkdir(empty, 0o755)
		}
		return base.Tree, base.Digest, err
	}
	if from.Stage >= number {
		return "", "", cove.Errorf(cove.InvalidArgument, "a stage takes files from itself, or from a later one")
	}
	other, err := b.stage(ctx, from.Stage)
	if err != nil {
		return "", "", err
	}
	return other.tree, other.key, nil
}

// unsupportedCopy refuses what COPY and ADD of Docker do and Cove does not.
func unsupportedCopy(c dockerfile.Copy) error {
	word := "COPY"
	if c.Add {
		word = "ADD"
	}
	refuse := func(what, instead string) error {
		return cove.Errorf(cove.Unsupported, "%s %s is not supported", word, what).WithHint("%s", instead)
	}
	switch {
	case len(c.Exclude) > 0:
		return refuse("--exclude", "leave files out with .dockerignore")
	case c.Parents:
		return refuse("--parents", "copy each directory to its place")
	case c.Unpack != nil && *c.Unpack:
		return refuse("--unpack", "copy the archive with COPY, and unpack it with RUN")
	}
	if c.Add {
		for _, source := range c.Sources {
			if dockerfile.Remote(source) {
				return refuse("of "+source, "fetch it with RUN, under the policy of the build, such as --allow HOST")
			}
		}
	}
	return nil
}
