package image

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/filelock"
)

// Resolve returns the root filesystem for a user's image string:
//
//	"" or "host"                the host's own toolchain
//	dir:/path                   a directory, used where it is
//	tar:/path                   a root filesystem's archive, plain, gzip or zstd
//	oci:/path[:tag]             an OCI layout, a directory or an archive of one
//	docker-archive:/path[:tag]  an archive of "docker save"
//	name[:tag], name@sha256:…   an image in the store
//	sha256:…                    the same by its own digest, or 12 digits of it
//
// Archives and layouts are unpacked into the store the first time and after a change. Resolve never pulls. It finds an
// existing image without reading its tree. Callers that run the image must hold it with [Store.Hold].
//
// Errors: InvalidArgument, Forbidden (a path), NotFound (a path), ImageMissing, and those of Import.
func (s *Store) Resolve(ctx context.Context, ref string) (engine.Rootfs, error) {
	root, err := resolve(ctx, s, ref)
	if err != nil || root.Digest == "" || !s.files.Apart() {
		return root, err
	}
	if _, e := os.Lstat(filepath.Join(s.imageDir(root.Digest), ownedName)); e == nil {
		root.Flat, err = flat(ctx, s, root)
	}
	return root, err
}

// flatName is the directory of an image with its tree flattened.
const flatName = "flat"

// flat returns the tree of an image in which all files are the store's owner's, and makes it the first time.
func flat(ctx context.Context, s *Store, root engine.Rootfs) (string, error) {
	place := filepath.Join(s.imageDir(root.Digest), flatName)
	tree := filepath.Join(place, "tree")
	if _, err := os.Lstat(place); err == nil {
		return tree, nil
	}
	release, err := s.Hold(ctx, root.Digest)
	if err != nil {
		return "", err
	}
	defer release()
	t, err := s.newTemp()
	if err != nil {
		return "", err
	}
	defer s.discard(t)
	made := filepath.Join(t.dir, flatName)
	if err := os.Mkdir(made, 0o700); err != nil {
		return "", storage(err, "make a root filesystem")
	}
	if err := s.files.Flatten(ctx, root.Stack(), filepath.Join(made, filepath.Base(tree))); err != nil {
		return "", storage(err, "make a root filesystem")
	}
	err = os.Rename(made, place)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		err = nil // another process was first
	}
	return tree, storage(err, "make a root filesystem")
}

// resolve is Resolve without Rootfs.Flat.
func resolve(ctx context.Context, s *Store, ref string) (engine.Rootfs, error) {
	t, err := parse(ref)
	if err != nil {
		return engine.Rootfs{}, err
	}
	switch t.kind {
	case fromHost:
		return engine.Rootfs{Kind: engine.RootfsHost}, nil
	case fromDir:
		return s.resolveDir(t)
	case fromTar, fromLayout, fromDocker:
		return s.resolveFile(ctx, t)
	}
	digest, err := s.find(t)
	if err != nil {
		return engine.Rootfs{}, err
	}
	root, err := s.rootfs(t, digest)
	if idx, e := s.index(); err == nil && e == nil && (t.kind == fromDigest || idx.Names[t.ref].Implied) {
		s.asked(digest)
	}
	return root, err
}

// Hold keeps an image from being removed until release is called or the process ends. Callers that run an image hold
// it.
func (s *Store) Hold(ctx context.Context, digest string) (release func(), err error) {
	if !validDigest(digest) {
		return nil, cove.Errorf(cove.InvalidArgument, "%.80q is not a digest", digest)
	}
	t := target{kind: fromDigest, ref: digest}
	if _, err := s.image(digest); err != nil {
		return nil, missing(t)
	}
	f, err := lockFile(ctx, s.digestLock(digest), filelock.Shared)
	if errors.Is(err, unix.EROFS) {
		return func() {}, nil // it cannot be removed
	}
	if err != nil {
		return nil, err
	}
	if _, err := s.image(digest); err != nil {
		f.Close()
		return nil, missing(t)
	}
	s.use(digest)
	return func() { s.use(digest); f.Close() }, nil
}

func (s *Store) rootfs(t target, digest string) (engine.Rootfs, error) {
	img, err := s.image(digest)
	if errors.Is(err, fs.ErrNotExist) {
		return engine.Rootfs{}, missing(t)
	}
	if err != nil {
		return engine.Rootfs{}, storage(err, "look for the image")
	}
	dirs, err := stackOf(s, img)
	if err != nil {
		return engine.Rootfs{}, cove.Errorf(cove.Corrupt, "files of the image %s are gone: %w",
			short(digest), err).
			WithHint("build it again")
	}
	return engine.Rootfs{Kind: engine.RootfsDir, Dir: dirs[0], Layers: dirs[1:], Digest: digest,
		Env: img.Config.Env, User: img.Config.User, WorkDir: img.Config.WorkingDir,
		Entrypoint: img.Config.Entrypoint, Cmd: img.Config.Cmd, Health: img.Config.Health, Ports: img.Config.Ports,
		StopSignal: img.Config.StopSignal}, nil
}

func (s *Store) resolveDir(t target) (engine.Rootfs, error) {
	path, err := s.userPath(t.path)
	if err != nil {
		return engine.Rootfs{}, err
	}
	if path == "/" {
		return engine.Rootfs{}, cove.Errorf(cove.Forbidden, "dir:/ is the whole host").WithHint("use the image \"host\"")
	}
	root, err := openRoot(path)
	if err != nil {
		return engine.Rootfs{}, err
	}
	defer root.Close()
	if err := looksLikeRoot(root); err != nil {
		return engine.Rootfs{}, about(t.String(), err)
	}
	return engine.Rootfs{Kind: engine.RootfsDir, Dir: path}, nil
}

// resolveFile returns the image of a file's last reading, and reads the file again if it changed.
func (s *Store) resolveFile(ctx context.Context, t target) (engine.Rootfs, error) {
	f, err := s.locate(t)
	if err != nil {
		return engine.Rootfs{}, err
	}
	idx, err := s.index()
	if err != nil {
		return engine.Rootfs{}, err
	}
	if known, ok := idx.Files[f.key()]; ok {
		if now, err := stampOf(f.stamped()); err == nil && now == known.Stamp {
			if r, err := s.rootfs(t, known.Digest); cove.ErrorCode(err) != cove.ImageMissing {
				return r, err
			}
		}
	}
	digest, err := s.importFile(ctx, f, "", true, ImportOptions{})
	if err != nil {
		return engine.Rootfs{}, err
	}
	return s.rootfs(t, digest)
}
