//go:build linux

package docker

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Images that the engine imports itself, by what they contain: a cache, without which the next sandbox imports again.
const (
	hostImage = "cove/host"   // the empty tree on which the host's toolchain is shown
	dirImage  = "cove/rootfs" // an unpacked tree
)

// Resolve implements engine.Resolver.
func (e *Engine) Resolve(ctx context.Context, ref string) (engine.Rootfs, error) {
	img, err := e.find(ctx, ref)
	if err != nil {
		return engine.Rootfs{}, err
	}
	return engine.Rootfs{Kind: engine.RootfsImage, Image: ref, Digest: img.ID, Env: img.Env,
		WorkDir: img.WorkDir, Entrypoint: img.Entrypoint, Cmd: img.Cmd}, nil
}

// image finds or makes the image for a root filesystem, and the binds that belong to it.
func (e *Engine) image(ctx context.Context, r engine.Rootfs) (image, []bind, error) {
	switch r.Kind {
	case engine.RootfsImage:
		// By its id if it has been resolved before: what was asked for is what runs.
		img, err := e.find(ctx, cmp.Or(r.Digest, r.Image))
		return img, nil, err
	case engine.RootfsDir:
		img, err := e.importDir(ctx, r)
		return img, nil, err
	case engine.RootfsHost:
		if e.hostErr != nil {
			return image{}, nil, e.hostErr
		}
		img, err := e.importHost(ctx)
		return img, hostBinds(e.host, e.mountinfo), err
	}
	return image{}, nil, cove.Errorf(cove.Unsupported, "the docker engine knows no root filesystem of kind %q", r.Kind).
		WithHint("use the host's, a directory or an image")
}

// find looks an image up; it never pulls.
func (e *Engine) find(ctx context.Context, ref string) (img image, err error) {
	var missing bool
	err = e.api.do(ctx, "find image "+ref, func(ctx context.Context) error {
		r, err := e.api.c.ImageInspect(ctx, ref)
		// A reference that no image can have is missing too.
		if missing = cerrdefs.IsNotFound(err) || cerrdefs.IsInvalidArgument(err); missing {
			return nil
		}
		if err != nil {
			return err
		}
		img.ID = r.ID
		if r.Config != nil {
			img.Env, img.WorkDir = r.Config.Env, r.Config.WorkingDir
			img.Entrypoint, img.Cmd = r.Config.Entrypoint, r.Config.Cmd
			for v := range r.Config.Volumes {
				img.Volumes = append(img.Volumes, v)
			}
			slices.Sort(img.Volumes)
		}
		return nil
	})
	if err == nil && missing {
		return image{}, cove.Errorf(cove.ImageMissing, "the %s has no image %s", e.api.name(), ref).
			WithHint("get it with \"%s pull %s\"; Cove never pulls by itself", e.Name(), ref)
	}
	return img, err
}

// imported finds an image of our own by its tag, or makes it from what write writes: a tar archive.
func (e *Engine) imported(ctx context.Context, tag string,
	write func(context.Context, io.Writer) error) (image, error) {
	img, err := e.find(ctx, tag)
	if cove.ErrorCode(err) != cove.ImageMissing {
		return img, err
	}
	e.importing.Lock()
	defer e.importing.Unlock()
	if img, err = e.find(ctx, tag); cove.ErrorCode(err) != cove.ImageMissing {
		return img, err
	}
	if err := e.load(ctx, tag, write); err != nil {
		return image{}, err
	}
	return e.find(ctx, tag)
}

// load streams an archive to the daemon. It may take as long as ctx allows.
func (e *Engine) load(ctx context.Context, tag string, write func(context.Context, io.Writer) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := write(ctx, w)
		w.CloseWithError(err)
		written <- err
	}()
	err := e.send(ctx, tag, r)
	r.CloseWithError(errors.Join(err, io.ErrClosedPipe)) // whatever the daemon did not want
	if writeErr := <-written; writeErr != nil && !errors.Is(writeErr, io.ErrClosedPipe) && ctx.Err() == nil {
		return cove.Errorf(cove.ImageMissing, "the root filesystem cannot be read: %w", writeErr).
			WithHint("check the directory")
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return e.api.explain("import a root filesystem", err)
	}
	return nil
}

func (e *Engine) send(ctx context.Context, tag string, archive io.Reader) error {
	answer, err := e.api.c.ImageImport(ctx, client.ImageImportSource{Source: archive, SourceName: "-"}, tag,
		client.ImageImportOptions{Message: "imported by Cove"})
	if err != nil {
		return err
	}
	defer answer.Close()
	// A failure after the beginning is in the stream of progress messages.
	for messages := json.NewDecoder(answer); ; {
		var m struct{ Error string }
		err := messages.Decode(&m)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case m.Error != "":
			return errors.New(m.Error)
		}
	}
}

// importHost makes the tree on which the host's toolchain is shown.
func (e *Engine) importHost(ctx context.Context) (image, error) {
	var archive bytes.Buffer
	if err := writeHostTree(&archive, e.host); err != nil {
		return image{}, err
	}
	sum := sha256.Sum256(archive.Bytes())
	tag := hostImage + ":" + hex.EncodeToString(sum[:16])
	return e.imported(ctx, tag, func(_ context.Context, w io.Writer) error {
		_, err := w.Write(archive.Bytes())
		return err
	})
}

func (e *Engine) importDir(ctx context.Context, r engine.Rootfs) (image, error) {
	files := r.Stack()
	if r.Flat != "" {
		files = rootfs.Stack{r.Flat}
	}
	root, err := files.Open()
	if err != nil {
		return image{}, cove.Errorf(cove.ImageMissing, "the root filesystem %s cannot be used: %w", r.Dir, err).
			WithHint("give the path of an unpacked root filesystem")
	}
	defer root.Close()
	tag, err := dirTag(ctx, root, r)
	if err != nil {
		return image{}, err
	}
	return e.imported(ctx, tag, func(ctx context.Context, w io.Writer) error { return writeTree(ctx, w, root) })
}

// dirTag names a tree by its content: the digest that it was unpacked from, or the metadata of every entry.
func dirTag(ctx context.Context, root *rootfs.View, r engine.Rootfs) (string, error) {
	if r.Digest != "" {
		algorithm, sum, ok := strings.Cut(r.Digest, ":")
		if _, err := hex.DecodeString(sum); !ok || err != nil || algorithm != "sha256" || len(sum) != 64 {
			return "", cove.Errorf(cove.InvalidArgument, "%q is not a digest", r.Digest)
		}
		return fmt.Sprintf("%s:%s-%s", dirImage, algorithm, sum), nil
	}
	sum, err := fingerprint(ctx, root)
	if err != nil {
		return "", cove.Errorf(cove.ImageMissing, "the root filesystem %s cannot be read: %w", r.Dir, err).
			WithHint("check the directory")
	}
	return fmt.Sprintf("%s:dir-%s", dirImage, sum), nil
}

// resolver makes the files that say who and where a sandbox is: without a network the daemon leaves them empty. They
// are the same for every sandbox of a host name.
func (e *Engine) resolver(hostname string) ([]bind, error) {
	sum := sha256.Sum256([]byte(hostname))
	dir := filepath.Join(e.o.RunDir, "docker", hex.EncodeToString(sum[:8]))
	var binds []bind
	for _, f := range rootfs.Resolver(hostname) {
		if f.Name == "/etc/hostname" {
			continue // that one the daemon does make
		}
		file := filepath.Join(dir, path.Base(f.Name))
		if have, err := os.ReadFile(file); err != nil || string(have) != f.Data {
			err := os.MkdirAll(dir, 0o755)
			if err == nil {
				err = atomicfile.Replace(file, []byte(f.Data), os.FileMode(f.Mode))
			}
			if err != nil {
				return nil, cove.Errorf(cove.StorageFull, "cannot write to the run directory: %w", err).
					WithHint("free some space, or choose another with --run-dir or COVE_RUN_DIR")
			}
		}
		binds = append(binds, bind{source: file, target: f.Name, readOnly: true})
	}
	return binds, nil
}

// removeImage removes an image by its tag. One that is not there counts as removed.
func (a *api) removeImage(ctx context.Context, tag string) error {
	return a.do(ctx, "remove an image", func(ctx context.Context) error {
		_, err := a.c.ImageRemove(ctx, tag, client.ImageRemoveOptions{Force: true})
		if cerrdefs.IsNotFound(err) {
			return nil
		}
		return err
	})
}
