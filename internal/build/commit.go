package build

import (
	"context"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/image"
	"github.com/cove-sandbox/cove/internal/image/dockerfile"
	"github.com/cove-sandbox/cove/internal/image/files"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Commit says what image to make of the changes of a sandbox.
type Commit struct {
	Name    string   // of the image; empty: none
	Changes []string // instructions of a Dockerfile that change the configuration alone
	Text    string   // of the image's history
}

// Changed are the changes of a sandbox.
type Changed struct {
	Base   string   // digest of its image
	Layer  string   // of engine.MakeLayer
	Places []string // where it has mounts, absolute, beside those that every sandbox has
}

// MakeCommit makes an image of what a sandbox has changed: its image with one more layer. hold calls its argument with
// the changes, in which nothing runs until that returns. Errors: those of hold, of the store and of layer.Take;
// InvalidArgument for an instruction.
func MakeCommit(ctx context.Context, o Options, c Commit, hold func(func(Changed) error) error) (img image.Image,
	err error) {
	name := ""
	if c.Name != "" {
		if name, err = o.Store.Name(c.Name); err != nil {
			return img, err
		}
	}
	room, done, err := o.Store.Room(ctx)
	if err != nil {
		return img, err
	}
	defer done()
	b := newBuilder(o, room)
	defer b.release()
	s := &stage{}
	dir := b.fresh()
	err = hold(func(of Changed) error {
		if s.base, err = b.image(ctx, nil, of.Base, ""); err != nil {
			return err
		}
		if s.config, err = changed(s.base.Config.Config, c.Changes); err != nil {
			return err
		}
		if err := engine.MakeLayer(dir); err != nil {
			return err
		}
		changes := engine.Changes(dir)
		if err := b.files.Take(ctx, engine.Changes(of.Layer), changes, o.Store.Most()); err != nil {
			return err
		}
		places := append(within(ctx, b.files, s.base.Stack, of.Places), ownPlaces...)
		return b.files.Discard(ctx, changes, s.base.Stack, ownFiles, places)
	})
	if err != nil {
		return img, err
	}
	files, err := b.files.DiffID(ctx, engine.Changes(dir))
	if err != nil {
		return img, err
	}
	l, err := b.keep(ctx, keyOf("commit", s.base.Digest, files), dir)
	if err != nil {
		return img, err
	}
	defer l.Release()
	steps, layers := []image.Step{{Text: c.Text, Created: b.now(), Layer: l.DiffID}}, []image.Layer{l}
	return o.Store.Publish(ctx, image.Built{Base: s.base, Config: s.config, Steps: steps, Layers: layers, Kept: layers,
		Stack: append(slices.Clone(s.base.Stack), engine.Changes(l.Dir)), Name: name})
}

// within returns places as an image has them, without the links on the way, and the directories above them.
func within(ctx context.Context, f *files.Files, in rootfs.Stack, places []string) []string {
	var mounts []Mount
	for _, place := range places {
		if real, err := f.Resolve(ctx, in, place); err == nil {
			mounts = append(mounts, Mount{Target: "/" + real})
		}
	}
	return stubs(mounts)
}

// changed returns a configuration after some instructions.
func changed(config dockerfile.Config, instructions []string) (dockerfile.Config, error) {
	if len(instructions) == 0 {
		return config, nil
	}
	for _, text := range instructions {
		if strings.ContainsAny(text, "\n\r") {
			return config, cove.Errorf(cove.InvalidArgument, "the change %.200q has several lines", text)
		}
	}
	text := "FROM " + image.Scratch + "\n" + strings.Join(instructions, "\n") + "\n"
	file, err := dockerfile.Parse([]byte(text), dockerfile.Options{})
	if err != nil {
		return config, err
	}
	if file.Target() != 0 {
		return config, cove.Errorf(cove.InvalidArgument, "FROM is no change: the image stays on that of the sandbox")
	}
	triggers := config.OnBuild // which a build would run
	config.OnBuild = nil
	steps, config, _, err := file.Steps(file.Target(), config, nil)
	if err != nil {
		return config, err
	}
	for _, step := range steps {
		if step.Run != nil || step.Copy != nil {
			return config, cove.Errorf(cove.InvalidArgument, "the change %.200q changes files", step.Text).
				WithHint("do that in the sandbox; a change is ENV, CMD, ENTRYPOINT, USER, WORKDIR, LABEL, EXPOSE, VOLUME, " +
					"STOPSIGNAL, HEALTHCHECK, SHELL or ONBUILD")
		}
	}
	config.OnBuild = append(triggers, config.OnBuild...)
	return config, nil
}
