package image

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/image/files"
	layerfiles "github.com/cove-sandbox/cove/internal/image/layer"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Builds serves builds of images: with bases, directories to work in and layers of earlier builds. It takes the images
// that they make. A layer that is kept is never written to again.
type Builds struct{ store *Store }

// BuildsOf returns the part of a store for builds.
func BuildsOf(s *Store) Builds { return Builds{s} }

// Base is an image that a build begins with.
type Base struct {
	Digest string       // empty: without any file
	Stack  rootfs.Stack // empty likewise
	Config v1.ConfigFile
}

// Step is a line of an image's history.
type Step struct {
	Text    string
	Created time.Time
	Layer   string // diff id; empty: it changed no file
}

// Built is an image that a build has made.
type Built struct {
	Base   Base
	Config v1.Config
	Steps  []Step
	Layers []Layer      // of those of Steps that have one
	Kept   []Layer      // by the build, with those of other stages
	Stack  rootfs.Stack // all files: those of Base, and of Layers
	Name   string       // empty: it has none
}

// Scratch is the name of the base without any file.
const Scratch = "scratch"

// Base finds an image that builds begin with, and holds it until release is called. Nothing is pulled. Errors:
// ImageMissing, Unsupported.
func (b Builds) Base(ctx context.Context, ref string) (base Base, release func(), err error) {
	if ref == Scratch {
		p := hostPlatform()
		return Base{Config: v1.ConfigFile{OS: p.OS, Architecture: p.Architecture}}, func() {}, nil
	}
	t, err := parse(ref)
	if err != nil {
		return base, nil, err
	}
	if t.kind != fromRef && t.kind != fromDigest {
		return base, nil, cove.Errorf(cove.Unsupported, "%.200q cannot be the base of a build", ref).
			WithHint("take it into the store first: cove image import SOURCE --name NAME")
	}
	root, err := resolve(ctx, b.store, ref)
	if err == nil {
		release, err = b.store.Hold(ctx, root.Digest)
	}
	if err != nil {
		return base, nil, err
	}
	img, err := b.store.image(root.Digest)
	if err == nil {
		base = Base{Digest: root.Digest, Stack: root.Stack()}
		base.Config, err = b.config(img)
	}
	if err != nil {
		release()
		return base, nil, storage(err, "read the base")
	}
	return base, release, nil
}

// For returns a base of a platform. Errors: InvalidArgument, Unsupported for an image of another.
func (base Base) For(platform string) (Base, error) {
	p, err := parsePlatform(platform)
	if err != nil {
		return base, err
	}
	c := &base.Config
	if base.Digest == "" {
		c.OS, c.Architecture, c.Variant = p.OS, p.Architecture, p.Variant
	}
	has := v1.Platform{OS: c.OS, Architecture: c.Architecture, Variant: c.Variant}
	if c.OS == "" || has.Satisfies(v1.Platform{OS: p.OS, Architecture: p.Architecture}) {
		return base, nil
	}
	return base, cove.Errorf(cove.Unsupported, "the base is an image for %s, and the stage for %s", has, p).
		WithHint("build for %s (--platform), or pull the image for %s (cove image pull --platform)", has, p)
}

// ParsePlatform reads "linux/arm64"; empty is this machine's. Errors: InvalidArgument.
func ParsePlatform(text string) (string, error) {
	p, err := parsePlatform(text)
	return p.String(), err
}

// config returns an image's configuration, from its record where it has none. One that names no platform is of this
// machine's.
func (b Builds) config(img *Image) (c v1.ConfigFile, err error) {
	data, err := os.ReadFile(filepath.Join(b.store.imageDir(img.Digest), configName))
	if err == nil {
		err = json.Unmarshal(data, &c)
		here := hostPlatform()
		c.OS, c.Architecture = cmp.Or(c.OS, here.OS), cmp.Or(c.Architecture, here.Architecture)
		return c, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	diffID, err := v1.NewHash(img.Digest)
	c = v1.ConfigFile{Created: v1.Time{Time: img.Created}, RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{diffID}}}
	c.OS, c.Architecture, _ = strings.Cut(img.Platform, "/")
	c.Architecture, c.Variant, _ = strings.Cut(c.Architecture, "/")
	c.Config = v1.Config{Env: img.Config.Env, WorkingDir: img.Config.WorkingDir, User: img.Config.User,
		Entrypoint: img.Config.Entrypoint, Cmd: img.Config.Cmd}
	return c, err
}

// Name returns a name for an image as the store has it. Errors: InvalidArgument.
func (b Builds) Name(as string) (string, error) {
	t, err := parse(as)
	if err != nil {
		return "", err
	}
	if _, ok := t.name.(name.Tag); !ok {
		return "", cove.Errorf(cove.InvalidArgument, "%.200q cannot be the name of an image", as).
			WithHint("write NAME or NAME:TAG")
	}
	return t.ref, nil
}

// Room returns an empty directory on the store's file system for a build. It goes with what is in it when done is
// called, or after the process has ended. Until then no layer that is kept goes.
func (b Builds) Room(ctx context.Context) (dir string, done func(), err error) {
	if err := b.store.ensure(); err != nil {
		return "", nil, err
	}
	lock, err := lockFile(ctx, b.kept()+lockSuffix, filelock.Shared)
	if err != nil {
		return "", nil, err
	}
	t, err := b.store.newTemp()
	if err != nil {
		lock.Close()
		return "", nil, err
	}
	return t.dir, func() { b.store.discard(t); lock.Close() }, nil
}

// Files does the work on the files of builds.
func (b Builds) Files() *files.Files { return b.store.files }

// CheckOwners refuses to make images of which the files would all have one owner. Errors: Unsupported.
func (b Builds) CheckOwners() error {
	if b.store.files.Owners() {
		return nil
	}
	return cove.Errorf(cove.Unsupported, "images cannot be made here: all of their files would have one owner").
		WithHint(`without root the owners are subordinate ids: install newuidmap (Debian package uidmap) and run "usermod ` +
			`--add-subuids 100000-165535 --add-subgids 100000-165535 $USER"`)
}

// Most is the most that an image may be.
func (b Builds) Most() layerfiles.Most {
	return layerfiles.Most{Bytes: b.store.limits.Bytes, Files: b.store.limits.Entries}
}

// Alone returns when no other process is between its own call with the same name and done.
func (b Builds) Alone(ctx context.Context, name string) (done func(), err error) {
	if err := b.store.ensure(); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(name))
	path := filepath.Join(b.store.dir, "locks", "build-"+hex.EncodeToString(sum[:]))
	lock, err := lockFile(ctx, path, filelock.Exclusive)
	if err != nil {
		return nil, err
	}
	return func() { os.Remove(path); lock.Close() }, nil
}

func (b Builds) kept() string { return keptIn(b.store) }

// Find returns the layer that a build has kept under a key, which stays until Release. One that may not be whole is
// removed. Errors: fs.ErrNotExist.
func (b Builds) Find(key string) (l Layer, err error) {
	l = Layer{Dir: filepath.Join(b.kept(), key)}
	if l.held, err = holdRecord(filepath.Join(l.Dir, layerRecord), filelock.Shared); err != nil {
		return l, err
	}
	now := time.Now()
	l.Files = unmeasured
	if json.NewDecoder(l.held).Decode(&l) != nil || !l.whole(b.store) {
		l.Release()
		_, err := removeLayer(b.store, l.Dir)
		return l, errors.Join(err, fs.ErrNotExist)
	}
	if err = os.Chtimes(l.held.Name(), now, now); err != nil {
		l.Release()
	}
	return l, err
}

// Keep takes a layer from a directory of Room, under a key. It returns the layer where it then is: that of another
// build, if that was first. It stays until Release, and is on the disk after Settle.
func (b Builds) Keep(ctx context.Context, key string, l Layer) (Layer, error) {
	size, err := b.store.files.Measure(ctx, engine.Changes(l.Dir))
	if most := b.Most(); size.Bytes > most.Bytes || size.Files > most.Files {
		return l, cove.Errorf(cove.TooLarge, "the layer has more than %d MiB or %d files", most.Bytes>>20, most.Files)
	}
	l.Bytes, l.Files, l.Boot = size.Bytes, size.Files, thisBoot()
	var data []byte
	if err == nil {
		data, err = json.Marshal(l)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(l.Dir, layerRecord), data, 0o600)
	}
	if err == nil && l.Boot == "" {
		err = atomicfile.SyncAll(l.Dir) // the record must not outlive the files
	}
	if err == nil {
		err = os.MkdirAll(b.kept(), 0o700)
	}
	if err == nil {
		l.held, err = holdRecord(filepath.Join(l.Dir, layerRecord), filelock.Shared)
	}
	if err != nil {
		return l, storage(err, "keep a layer")
	}
	if err := os.Rename(l.Dir, filepath.Join(b.kept(), key)); err != nil {
		l.Release()
		if other, e := b.Find(key); e == nil {
			return other, nil
		}
		return l, storage(err, "keep a layer")
	}
	l.Dir = filepath.Join(b.kept(), key)
	if err := b.shrink(); err != nil {
		l.Release()
		return l, err
	}
	return l, nil
}

// Settle has layers of Keep and Find on the disk.
func (b Builds) Settle(layers []Layer) error {
	if !slices.ContainsFunc(layers, func(l Layer) bool { return !l.synced() }) {
		return nil
	}
	if err := atomicfile.SyncAll(b.kept()); err != nil {
		return storage(err, "write layers to disk")
	}
	return storage(settled(layers), "write layers to disk")
}

// settled records that layers are on the disk.
func settled(layers []Layer) error {
	for _, l := range layers {
		if !l.synced() {
			if err := os.WriteFile(filepath.Join(l.Dir, layerSynced), nil, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// Noted returns the key of the layer that a step has made, by a name that stands for all that the step depends on.
// Errors: fs.ErrNotExist.
func (b Builds) Noted(name string) (key string, err error) { return notesOf(b.store).find(name) }

// Note records the key of the layer that a step has made. The notes that were used the longest ago make room.
func (b Builds) Note(name, key string) error {
	return storage(notesOf(b.store).write(name, key), "note a layer")
}

// Cache returns the directory of a cache, which fill fills if there is none yet. Until done is called no other build
// has it, if alone says so, and nothing removes it.
func (b Builds) Cache(ctx context.Context, id string, alone bool, fill func(dir string) error) (dir string,
	done func() error, err error) {
	all := cachesOf(b.store)
	place, kind := all.place(id), filelock.Shared
	if err := os.MkdirAll(all.dir, 0o700); err != nil {
		return "", nil, storage(err, "make a cache")
	}
	if alone {
		kind = filelock.Exclusive
	}
	lock, err := lockFile(ctx, place+lockSuffix, kind)
	if err != nil {
		return "", nil, err
	}
	if _, err := os.Lstat(place); errors.Is(err, fs.ErrNotExist) {
		t, err := b.store.newTemp()
		if err == nil {
			err = all.make(t.dir, id, fill)
			b.store.discard(t)
		}
		if err != nil {
			lock.Close()
			return "", nil, storage(err, "make a cache")
		}
	}
	return filepath.Join(place, cacheData), func() error {
		err := all.record(place, id)
		if lock.Close(); err != nil {
			return storage(err, "record a cache")
		}
		if layerfiles.Spare(place) != nil {
			_, err = all.remove(place)
			return storage(err, "remove a cache")
		}
		return b.shrink()
	}, nil
}

// shrink removes caches and layers while the store has more than its bound.
func (b Builds) shrink() error {
	for b.store.most > 0 {
		sum, err := b.store.taken(nil)
		if err != nil {
			return storage(err, "count the images")
		}
		if sum <= b.store.most {
			break
		}
		if gone, err := evictUsed(b.store); err != nil || !gone {
			return storage(err, "remove a cache")
		}
	}
	return nil
}

// Publish adds an image to the store, and gives it its name. The image's digest is that of its configuration.
func (b Builds) Publish(ctx context.Context, built Built) (Image, error) {
	raw, config, err := built.configuration()
	if err != nil {
		return Image{}, err
	}
	s := b.store
	t, err := s.newTemp()
	if err != nil {
		return Image{}, err
	}
	defer s.discard(t)
	img := &Image{Digest: hashOf(raw).String(), Source: "build", Created: config.Created.UTC(),
		Added: time.Now().UTC().Truncate(time.Second), Platform: config.Platform().String(),
		Config: runtimePart(config.Config)}
	size, err := built.measure(ctx, s)
	if err != nil {
		return Image{}, storage(err, "measure the image")
	}
	img.Size, img.Files = size.Bytes, size.Files
	built.describe(img)
	if img.Size > s.limits.Bytes || img.Files > s.limits.Entries {
		return Image{}, cove.Errorf(cove.TooLarge, "the image has %d bytes in %d files; at most %d in %d are allowed",
			img.Size, img.Files, s.limits.Bytes, s.limits.Entries)
	}
	room, err := s.grow(ctx, t, 0)
	if err != nil {
		return Image{}, err
	}
	defer room.end()
	if own := ownBytes(s, img); own > 0 {
		if err := room.to(ctx, own, 0); err != nil {
			return Image{}, err
		}
	}
	err = s.withImage(ctx, img.Digest, func() error {
		if err := os.WriteFile(filepath.Join(t.dir, configName), raw, 0o600); err != nil {
			return storage(err, "write the image's configuration")
		}
		if err := built.fill(ctx, img, s.files, t.dir); err != nil {
			return storage(err, "make the image")
		}
		if err := PinsOf(s).pinBelow(img); err != nil {
			return err
		}
		if err := s.publish(t, img); err != nil {
			return err
		}
		return storage(settled(built.Kept), "write layers to disk") // as the image is
	}, func() error {
		if built.Name == "" {
			return nil
		}
		return s.update(ctx, func(i *index) error { i.Names[built.Name] = named{Digest: img.Digest}; return nil })
	})
	if err == nil {
		err = b.Settle(built.Kept) // where the image was there
	}
	if err != nil {
		return Image{}, err
	}
	return s.Get(ctx, img.Digest)
}

// describe says on which image one was built, and with how many layers, unless it is to be one tree. It has the layers
// that builds keep, if they keep all.
func (built Built) describe(img *Image) {
	if len(built.Base.Stack)+len(built.Layers) > maxStack {
		return
	}
	img.Base, img.Layers = built.Base.Digest, len(built.Layers)
	if slices.ContainsFunc(built.Layers, func(l Layer) bool { return l.held == nil }) {
		return
	}
	for _, l := range built.Layers {
		img.Kept, img.KeptSize = append(img.Kept, l.key()), img.KeptSize+l.Bytes
	}
}

// fill gives an image in a temporary directory the files of a build.
func (built Built) fill(ctx context.Context, img *Image, by *files.Files, to string) error {
	if img.Base == "" && img.Layers == 0 {
		return by.Clone(ctx, built.Stack, filepath.Join(to, rootfsName))
	}
	if len(img.Kept) > 0 {
		return nil
	}
	if err := os.Mkdir(filepath.Join(to, stackedName), 0o700); err != nil {
		return err
	}
	for i, l := range built.Layers {
		if err := by.Link(ctx, engine.Changes(l.Dir), filepath.Join(to, stackedName, strconv.Itoa(i))); err != nil {
			return err
		}
	}
	return nil
}

// measure returns the size of what a build has made: of its base and each of its layers.
func (built Built) measure(ctx context.Context, s *Store) (size files.Size, err error) {
	if built.Base.Digest != "" {
		base, err := s.image(built.Base.Digest)
		if err != nil {
			return size, err
		}
		size = files.Size{Bytes: base.Size, Files: base.Files}
	}
	for _, l := range built.Layers {
		more := files.Size{Bytes: l.Bytes, Files: l.Files}
		if l.held == nil || l.Files == unmeasured {
			if more, err = s.files.Measure(ctx, engine.Changes(l.Dir)); err != nil {
				return size, err
			}
		}
		size.Bytes, size.Files = size.Bytes+more.Bytes, size.Files+more.Files
	}
	return size, nil
}

// configuration returns the configuration of an image, with its bytes.
func (built Built) configuration() ([]byte, v1.ConfigFile, error) {
	c := built.Base.Config
	c.Config, c.Container, c.DockerVersion = built.Config, "", ""
	c.RootFS.Type = "layers"
	c.RootFS.DiffIDs, c.History = append([]v1.Hash{}, c.RootFS.DiffIDs...), append([]v1.History{}, c.History...)
	for _, step := range built.Steps {
		at := v1.Time{Time: step.Created.UTC()}
		c.Created = at
		c.History = append(c.History, v1.History{Created: at, CreatedBy: step.Text, EmptyLayer: step.Layer == ""})
		if step.Layer == "" {
			continue
		}
		diffID, err := v1.NewHash(step.Layer)
		if err != nil {
			return nil, c, err
		}
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, diffID)
	}
	raw, err := json.Marshal(c)
	return raw, c, err
}
