package image

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/image/files"
	"github.com/cove-sandbox/cove/internal/image/unpack"
)

// ImportOptions configure Import.
type ImportOptions struct {
	Progress Progress // may be nil
	Platform string   // of an OCI layout with several: "linux/arm64"; empty is this machine's
}

// add adds a content to the store, unless it exists, and then runs tag while the image cannot be removed.
func (s *Store) add(ctx context.Context, c *content, source string, report Progress,
	tag func(*index)) (string, error) {
	unpackIt := func() error {
		t, err := s.newTemp()
		if err != nil {
			return err
		}
		defer s.discard(t)
		img, err := s.fill(ctx, t, c, source, report)
		if err != nil {
			return err
		}
		return s.publish(t, img)
	}
	tagIt := func() error { return s.update(ctx, func(i *index) error { tag(i); return nil }) }
	return c.digest, s.withImage(ctx, c.digest, unpackIt, tagIt)
}

// fill unpacks a content into a temporary directory, with its record.
func (s *Store) fill(ctx context.Context, to *temp, c *content, source string, report Progress) (*Image, error) {
	packed := int64(0)
	for i := range c.layers {
		packed += max(0, c.layers[i].size)
	}
	room, err := s.grow(ctx, to, packed)
	if err != nil {
		return nil, err
	}
	defer room.end()
	rootfs := filepath.Join(to.dir, rootfsName)
	if err := os.Mkdir(rootfs, 0o700); err != nil {
		return nil, storage(err, "make a root filesystem")
	}
	if c.begin != nil {
		ctx, cancel := context.WithCancel(ctx)
		t, err := s.newTemp() // for downloads; not in the one that will be published
		if err != nil {
			cancel()
			return nil, err
		}
		end := c.begin(ctx, t.dir)
		defer func() { cancel(); end(); s.discard(t) }()
	}
	grow := func(bytes, step int64) error { return room.to(ctx, bytes, step) }
	stats, err := unpackLayers(ctx, s, rootfs, c, grow, report)
	if err == nil {
		err = room.to(ctx, stats.Bytes, 0)
	}
	if err != nil {
		return nil, err
	}
	if c.plain {
		root, err := os.OpenRoot(rootfs)
		if err != nil {
			return nil, storage(err, "open the root filesystem")
		}
		defer root.Close()
		if err := looksLikeRoot(root); err != nil {
			return nil, err
		}
	}
	if c.raw != nil {
		if err := os.WriteFile(filepath.Join(to.dir, configName), c.raw, 0o600); err != nil {
			return nil, storage(err, "write the image's configuration")
		}
	}
	return &Image{
		Digest: c.digest, Source: source, Created: c.config.Created.UTC(), Added: time.Now().UTC().Truncate(time.Second),
		Platform: cmp.Or(c.platform().String(), hostPlatform().String()),
		Size:     stats.Bytes, Files: stats.Files, Skipped: stats.Skipped,
		Config: runtimePart(c.config.Config),
	}, nil
}

// runtimePart returns what the store's record has of an image's configuration.
func runtimePart(c v1.Config) Config {
	return Config{Env: environment(c.Env), WorkingDir: c.WorkingDir, User: c.User, Entrypoint: c.Entrypoint, Cmd: c.Cmd,
		Health: health(c), Ports: ports(c.ExposedPorts), StopSignal: c.StopSignal}
}

// health returns an image's check of its program, as a command. It is pure.
func health(c v1.Config) engine.Health {
	h := c.Healthcheck
	if h == nil || len(h.Test) < 2 { // one word says that there is none
		return engine.Health{}
	}
	of := engine.Health{Interval: h.Interval, Timeout: h.Timeout, Start: h.StartPeriod}
	switch h.Test[0] {
	case "CMD":
		of.Args = h.Test[1:]
	case "CMD-SHELL":
		shell := c.Shell
		if len(shell) == 0 {
			shell = []string{"/bin/sh", "-c"}
		}
		of.Args = append(slices.Clip(shell), h.Test[1])
	}
	return of
}

// ports returns the TCP ports among those that an image exposes, PORT or PORT/PROTOCOL. It is pure.
func ports(exposed map[string]struct{}) (all []uint16) {
	for _, text := range slices.Sorted(maps.Keys(exposed)) {
		port, protocol, _ := strings.Cut(text, "/")
		n, err := strconv.ParseUint(port, 10, 16)
		if err == nil && n > 0 && (protocol == "" || protocol == "tcp") {
			all = append(all, uint16(n))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// environment drops malformed variables.
func environment(env []string) []string {
	var kept []string
	for _, e := range env {
		if key, _, ok := strings.Cut(e, "="); ok && key != "" && strings.IndexByte(e, 0) < 0 {
			kept = append(kept, e)
		}
	}
	return kept
}

func unpackLayers(ctx context.Context, s *Store, rootfs string, c *content,
	room func(bytes, step int64) error, report Progress) (unpack.Stats, error) {
	tree, err := s.files.Unpack(ctx, rootfs, s.limits, room)
	if err != nil {
		return unpack.Stats{}, err
	}
	defer tree.Close()
	for i := range c.layers {
		report(c.unpacking(i)) // announces all layers at the beginning
	}
	for i := range c.layers {
		if err := applyLayer(ctx, tree, c, i, report); err != nil {
			return unpack.Stats{}, storage(err, "unpack the image")
		}
	}
	return tree.Finish()
}

// unpacking returns the first progress event of a layer.
func (c *content) unpacking(i int) Event {
	l := &c.layers[i]
	return Event{Stage: Unpack, Layer: i, Layers: len(c.layers), Digest: l.name(), Total: l.size}
}

// applyLayer applies one layer and checks both of its digests. The remains of a failure are in a temporary directory,
// and are removed with it.
func applyLayer(ctx context.Context, tree files.Tree, c *content, i int, report Progress) error {
	l := &c.layers[i]
	rc, err := l.open(ctx)
	if err != nil {
		return err
	}
	defer rc.Close()
	var r io.Reader = rc
	if l.digest != "" {
		r = verify(rc, "layer", l.digest, l.size)
	}
	r = report.reader(r, c.unpacking(i))
	diffID, err := tree.Apply(ctx, r, l.kind)
	if err != nil && cove.ErrorCode(err) != cove.InvalidArgument {
		return err
	}
	// A decompressor may stop early. The rest is read so that the digest of a malformed layer is checked too.
	if _, e := io.Copy(io.Discard, r); e != nil && (err == nil || cove.ErrorCode(e) == cove.Corrupt) {
		return e
	}
	if err != nil {
		return err
	}
	diffID = "sha256:" + diffID
	if l.diffID != "" && l.diffID != diffID {
		return mismatch("unpacked layer", l.diffID, diffID)
	}
	l.diffID = diffID
	return nil
}

func (l *layer) name() string {
	if l.digest != "" {
		return l.digest
	}
	return l.diffID
}

// publish writes the record, syncs all, and renames the directory. The caller must hold the digest's exclusive lock.
func (s *Store) publish(t *temp, img *Image) error {
	data, err := json.MarshalIndent(img, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(t.dir, recordName), append(data, '\n'), 0o600); err != nil {
		return storage(err, "write the image's record")
	}
	if s.files.Apart() {
		if err := os.WriteFile(filepath.Join(t.dir, ownedName), nil, 0o600); err != nil {
			return storage(err, "write the image's record")
		}
	}
	if err := atomicfile.SyncAll(t.dir); err != nil {
		return storage(err, "write the image to disk")
	}
	if err := os.Rename(t.dir, s.imageDir(img.Digest)); err != nil {
		return storage(err, "publish the image")
	}
	return nil
}

// looksLikeRoot refuses a directory that no program could run in.
func looksLikeRoot(root *os.Root) error {
	has := func(name string) bool { _, err := root.Lstat(name); return err == nil }
	if has("bin") || has("usr") || has("sbin") {
		return nil
	}
	e := cove.Errorf(cove.InvalidArgument, "not a root filesystem: neither bin nor usr in it")
	switch {
	case has("manifest.json"), has("repositories"):
		return e.WithHint("it is the archive of an image: write docker-archive:PATH")
	case has("oci-layout"), has("index.json"):
		return e.WithHint("it is an OCI layout: write oci:PATH")
	}
	return e.WithHint("give the directory or archive whose top has bin, etc, lib and usr")
}

// withImage runs then while an image exists and cannot be removed, after making it if it is missing.
func (s *Store) withImage(ctx context.Context, digest string, make, then func() error) error {
	if err := s.ensure(); err != nil {
		return err
	}
	lock, err := lockFile(ctx, s.digestLock(digest), filelock.Shared) // shared: the image may be in use
	if err != nil {
		return err
	}
	_, err = s.image(digest)
	if err == nil {
		err = then()
	}
	lock.Close()
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if lock, err = lockFile(ctx, s.digestLock(digest), filelock.Exclusive); err != nil {
		return err
	}
	defer lock.Close()
	if _, err = s.image(digest); errors.Is(err, fs.ErrNotExist) { // no other process has made it meanwhile
		err = make()
	}
	if err != nil {
		return err
	}
	return then()
}
