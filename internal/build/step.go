package build

import (
	"cmp"
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/build/origin"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/image"
	"github.com/cove-sandbox/cove/internal/image/dockerfile"
	"github.com/cove-sandbox/cove/internal/image/layer"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// step does one step of a stage.
func (b *builder) step(ctx context.Context, s *stage, step dockerfile.Step) error {
	done := image.Step{Text: step.History}
	if step.Layer() {
		kept, missing, err := b.layer(ctx, s, step)
		if err != nil {
			return err
		}
		b.mu.Lock()
		b.kept = append(b.kept, kept)
		b.mu.Unlock()
		if !missing {
			if err := s.push(ctx, b, kept); err != nil {
				return err
			}
			done.Layer, s.latest = kept.DiffID, kept.Created
		}
	}
	done.Created = s.latest // so that the same layers make the same image
	s.steps = append(s.steps, done)
	return nil
}

// push puts a layer on top of a stage's files.
func (s *stage) push(ctx context.Context, b *builder, l image.Layer) error {
	if len(s.stack) > engine.MaxLayers {
		tree := b.fresh()
		if err := b.files.Clone(ctx, s.stack, tree); err != nil {
			return err
		}
		s.stack = rootfs.Stack{tree}
	}
	s.stack, s.layers = append(s.stack, engine.Changes(l.Dir)), append(s.layers, l)
	return nil
}

// layer returns the layer of a step; none says that it changes nothing after all.
func (b *builder) layer(ctx context.Context, s *stage, step dockerfile.Step) (l image.Layer, none bool,
	err error) {
	if step.Run != nil {
		l, err = b.run(ctx, s, step)
		return l, false, err
	}
	known := ""
	if c := step.Copy; c != nil && c.Checksum != "" { // it need not be fetched
		if err := origin.CheckSum(c.Checksum); err != nil {
			return l, false, err
		}
		known = keyOf(s.key, step.History, c)
		if l, ok := b.find(s, known); ok {
			s.key = known
			return l, false, nil
		}
	}
	below := s.content()
	n := noteOf(ctx, b, s, below, step)
	if l, ok := noted(b, s, n); ok {
		return l, false, nil
	}
	if l, none, err = makeLayer(ctx, b, s, step, known); err == nil {
		writeNote(ctx, b, s, below, step, n)
	}
	return l, none, err
}

// makeLayer makes the layer of a COPY, ADD or WORKDIR, unless an earlier build has made the same one. known is its key;
// empty: its content decides.
func makeLayer(ctx context.Context, b *builder, s *stage, step dockerfile.Step, known string) (l image.Layer, none bool,
	err error) {
	dir := b.fresh()
	if err := engine.MakeLayer(dir); err != nil {
		return l, false, err
	}
	changes := engine.Changes(dir)
	if step.Copy != nil {
		err = b.copy(ctx, s, *step.Copy, changes)
	} else {
		var missing bool
		missing, err = b.files.MakeDirectory(ctx, changes, s.stack, step.Dir)
		none = !missing
	}
	if err != nil || none {
		return l, none, err
	}
	content, err := b.files.Content(ctx, changes)
	if err != nil {
		return l, false, err
	}
	s.key = cmp.Or(known, keyOf(s.key, step.History, content))
	if l, ok := b.find(s, s.key); ok {
		return l, false, nil
	}
	l, err = b.keep(ctx, s.key, dir)
	return l, false, err
}

// find returns the layer of an earlier build.
func (b *builder) find(s *stage, key string) (image.Layer, bool) {
	if b.request.Fresh {
		return image.Layer{}, false
	}
	l, err := b.Store.Find(key)
	if err != nil {
		return l, false
	}
	s.part.Cached()
	return l, true
}

// keep keeps a layer that is complete.
func (b *builder) keep(ctx context.Context, key, dir string) (l image.Layer, err error) {
	l = image.Layer{Dir: dir, Created: b.now()}
	if err := b.files.Seal(ctx, dir); err != nil {
		return l, err
	}
	if at := b.request.Epoch; at != nil {
		if err := b.files.Clamp(ctx, engine.Changes(dir), *at); err != nil {
			return l, err
		}
	}
	if l.DiffID, err = b.files.DiffID(ctx, engine.Changes(dir)); err != nil || b.request.Fresh {
		return l, err
	}
	return b.Store.Keep(ctx, key, l)
}

// copy makes the layer of a COPY or ADD.
func (b *builder) copy(ctx context.Context, s *stage, c dockerfile.Copy, changes string) error {
	does := layer.Copy{From: b.request.Context, Words: c.Sources, Dest: c.Dest,
		Whole: !c.Add || c.Unpack != nil && !*c.Unpack, Room: b.room,
		Exclude: c.Exclude, Parents: c.Parents}
	for _, f := range c.Inline {
		does.Inline = append(does.Inline, layer.Inline(f))
	}
	if !c.From.Context() {
		files, _, err := b.origin(ctx, s, c.From)
		if err != nil {
			return err
		}
		if does.From, err = layer.OpenStack(files); err != nil {
			return err
		}
		defer does.From.Close()
	}
	var err error
	if c.Chown != "" {
		if does.Owner, err = layer.OwnerOf(s.stack, c.Chown); err != nil {
			return err
		}
	}
	if c.Chmod != "" {
		if does.Mode, err = layer.ParseChmod(c.Chmod); err != nil {
			return err
		}
	}
	return b.take(ctx, c, does, changes, s.stack)
}

// take copies and fetches the sources of a COPY or ADD.
func (b *builder) take(ctx context.Context, c dockerfile.Copy, does layer.Copy, changes string,
	below rootfs.Stack) error {
	var remotes []string
	does.Words = nil
	for _, source := range c.Sources {
		if !c.Add || !dockerfile.Remote(source) {
			does.Words = append(does.Words, source)
			continue
		}
		if err := origin.Check(source); err != nil {
			return err
		}
		remotes = append(remotes, source)
	}
	if len(remotes) > 0 && len(c.Sources)+len(c.Inline) > 1 && !strings.HasSuffix(c.Dest, "/") {
		return cove.Errorf(cove.InvalidArgument, "several files are added to %.200q, which is no directory", c.Dest).
			WithHint("write a slash at its end")
	}
	if len(does.Words)+len(does.Inline) > 0 {
		if err := b.files.Copy(ctx, does, changes, below); err != nil {
			return err
		}
	}
	for _, source := range remotes {
		if err := b.add(ctx, c, source, does, changes, below); err != nil {
			return err
		}
	}
	return nil
}

// add fetches a URL and puts it into a layer.
func (b *builder) add(ctx context.Context, c dockerfile.Copy, source string, does layer.Copy, changes string,
	below rootfs.Stack) (err error) {
	name := origin.Name(source)
	if name == "" {
		if name = path.Base(c.Dest); strings.HasSuffix(c.Dest, "/") {
			return cove.Errorf(cove.InvalidArgument, "the URL %.200q names no file", source).
				WithHint("write the name at the end of the destination, instead of a directory")
		}
	}
	dir := b.fresh()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return cove.Errorf(cove.StorageFull, "make a directory for a file: %w", err)
	}
	if err := origin.Fetch(ctx, b.Origins, source, filepath.Join(dir, name), c.Checksum); err != nil {
		return err
	}
	if does.From, err = layer.OpenContext(dir, "", []byte{}); err != nil {
		return err
	}
	defer does.From.Close()
	does.Words, does.Inline, does.Whole = []string{literal(name)}, nil, c.Unpack == nil || !*c.Unpack
	return b.files.Copy(ctx, does, changes, below)
}

// origin returns the files of a stage or an image, with a key of them.
func (b *builder) origin(ctx context.Context, s *stage, from dockerfile.Source) (files rootfs.Stack, key string,
	err error) {
	if from.Stage < 0 {
		base, err := b.image(ctx, s.part, from.Image, b.request.Platform)
		if err == nil {
			files, err = filesOf(base, b.fresh)
		}
		return files, base.Digest, err
	}
	if from.Stage >= s.number {
		return nil, "", cove.Errorf(cove.InvalidArgument, "a stage takes files from itself, or from a later one")
	}
	other, err := b.stage(ctx, from.Stage)
	if err != nil {
		return nil, "", err
	}
	return other.stack, other.key, nil
}

// A COPY of the same files over the same stage makes the same layer. Files of the context are the same where their
// properties are, as git has it: then they are neither read nor copied, since a note of the store says which layer it
// was. A note is written where the files are known to be those that were read.

// settled is how old the last change of a file is at least then. A change within one step of the file system's clock,
// of which the longest are two seconds, leaves the times as they are.
const settled = 3 * time.Second

// note is a name for all that the layer of a COPY depends on; empty: there is none.
type note struct {
	name string
	firm bool // it can be written
}

// noteOf returns the note of a step of a stage with some content. Files whose properties cannot be read have none: the
// copy says why. Nor has a step that fetches files or keeps their directories.
func noteOf(ctx context.Context, b *builder, s *stage, content string, step dockerfile.Step) note {
	c := step.Copy
	if b.request.Fresh || c == nil || c.Parents || c.Add && slices.ContainsFunc(c.Sources, dockerfile.Remote) {
		return note{}
	}
	if !c.From.Context() {
		from, err := contentFrom(ctx, b, s, c.From)
		if err != nil {
			return note{}
		}
		return note{keyOf("note", content, step.History, c, from), true}
	}
	began := b.Clock.Now()
	files, changed, err := b.request.Context.Properties(ctx, c.Sources)
	if err != nil {
		return note{}
	}
	return note{keyOf("note", content, step.History, c, files), changed.Before(began.Add(-settled))}
}

// contentFrom identifies the files of a stage or an image.
func contentFrom(ctx context.Context, b *builder, s *stage, from dockerfile.Source) (string, error) {
	_, key, err := b.origin(ctx, s, from)
	if err != nil || from.Stage < 0 {
		return key, err
	}
	other, err := b.stage(ctx, from.Stage)
	if err != nil {
		return "", err
	}
	return other.content(), nil
}

// content identifies the files of a stage. Its key does not: a command may have made others, when it ran again.
func (s *stage) content() string {
	var layers []string
	for _, step := range s.steps {
		layers = append(layers, step.Layer)
	}
	return keyOf(s.key, s.base.Digest, layers)
}

// noted returns the layer that a note says, if it is kept.
func noted(b *builder, s *stage, n note) (l image.Layer, ok bool) {
	if n.name == "" {
		return l, false
	}
	key, err := b.Store.Noted(n.name)
	if err != nil {
		return l, false
	}
	if l, ok = b.find(s, key); ok {
		s.key = key
	}
	return l, ok
}

// writeNote writes a note of the layer that a stage has got, unless the files have changed since it was taken.
func writeNote(ctx context.Context, b *builder, s *stage, content string, step dockerfile.Step, n note) {
	if n.firm && noteOf(ctx, b, s, content, step) == n {
		_ = b.Store.Note(n.name, s.key) // the next build copies the files again
	}
}
