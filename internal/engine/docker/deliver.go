//go:build linux

package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/cove-sandbox/cove"
)

// A daemon of another machine sees no file of this one. The guest and the files of Cove's own are delivered in images
// then, as a container with a read-only root takes no other file: the guest in one for each image, which stays, and
// what a sandbox alone has in one of its own above that. The daemon makes the files of names itself.

// deliver gives a wish an image with the guest and with Cove's own files, in place of their binds; called with changing
// held.
func deliver(ctx context.Context, s *sandbox, w *wish) error {
	img, err := withGuest(ctx, s, w.image)
	if err != nil {
		return err
	}
	var files []file
	for _, b := range w.binds {
		if !b.own {
			continue
		}
		data, err := os.ReadFile(b.source)
		if err != nil {
			return err
		}
		files = append(files, file{b.target, 0o644, data, !b.existing})
	}
	if len(files) > 0 {
		s.image = imageTag(s.ID())
		if img, err = commit(ctx, s, img, files, s.image, w.nonce); err != nil {
			return err
		}
	}
	w.binds = slices.DeleteFunc(slices.Clone(w.binds), func(b bind) bool { return b.own || hides(b, files) })
	w.image.ID, w.guest, w.resolver = img, "", true
	return nil
}

// file is one to deliver.
type file struct {
	name string
	mode int64
	data []byte
	made bool // its directory is Cove's own
}

// hides reports whether a bind of the toolchain's settings would hide a file that is delivered.
func hides(b bind, files []file) bool {
	return strings.HasPrefix(b.target, "/etc/") && slices.ContainsFunc(files, func(f file) bool {
		return strings.HasPrefix(f.name, b.target+"/")
	})
}

// guestedImage are images with a guest, by both. They are a cache, as those that are imported.
const guestedImage = "cove/guested"

// withGuest finds or makes the image that has a guest besides, and returns its id.
func withGuest(ctx context.Context, s *sandbox, img image) (string, error) {
	e := s.engine
	program, err := os.ReadFile(e.o.Guest)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(slices.Concat([]byte(img.ID+" "), program))
	tag := guestedImage + ":" + hex.EncodeToString(sum[:16])
	e.importing.Lock()
	defer e.importing.Unlock()
	have, err := e.find(ctx, tag)
	if cove.ErrorCode(err) != cove.ImageMissing {
		return have.ID, err
	}
	return commit(ctx, s, img.ID, []file{{guestPath, 0o755, program, true}}, tag, "")
}

// commit makes an image with further files, and returns its id. With a nonce it is the sandbox's alone.
func commit(ctx context.Context, s *sandbox, from string, files []file, tag, nonce string) (string, error) {
	e := s.engine
	archive, err := archiveOf(files)
	if err != nil {
		return "", err
	}
	own := e.newNonce()
	name := filesName(s.ID())
	s.traces = append(s.traces, trace{name: name, nonce: own})
	id, err := e.api.create(ctx, name, &container.Config{
		Image: from, Entrypoint: []string{guestPath}, Cmd: []string{}, NetworkDisabled: true,
		Labels: labels(e.realm, e.o.Instance, s.ID(), own),
	}, &container.HostConfig{NetworkMode: "none"})
	if err != nil {
		return "", err
	}
	last := len(s.traces) - 1
	s.traces[last].id = id
	err = e.api.do(ctx, "take files", func(ctx context.Context) error {
		_, err := e.api.c.CopyToContainer(ctx, id, client.CopyToContainerOptions{DestinationPath: "/",
			Content: bytes.NewReader(archive), AllowOverwriteDirWithFile: false})
		return err
	})
	if err != nil {
		return "", err
	}
	config := &container.Config{}
	if nonce != "" {
		config.Labels = labels(e.realm, e.o.Instance, s.ID(), nonce)
	}
	var made string
	err = e.api.do(ctx, "make an image", func(ctx context.Context) error {
		r, err := e.api.c.ContainerCommit(ctx, id, client.ContainerCommitOptions{Reference: tag, NoPause: true,
			Comment: "made by Cove", Config: config})
		made = r.ID
		return err
	})
	if err != nil {
		return "", err
	}
	if err := e.api.remove(ctx, id); err != nil {
		return "", err
	}
	e.disown(s.traces[last:])
	s.traces = s.traces[:last]
	return made, nil
}

func archiveOf(files []file) ([]byte, error) {
	var archive bytes.Buffer
	tw := tar.NewWriter(&archive)
	var errs []error
	made := map[string]bool{}
	for _, f := range files {
		if dir := path.Dir(f.name); f.made && !made[dir] {
			made[dir] = true
			errs = append(errs, tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: 0o755}))
		}
		errs = append(errs, tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name[1:], Mode: f.mode,
			Size: int64(len(f.data))}))
		_, err := tw.Write(f.data)
		errs = append(errs, err)
	}
	return archive.Bytes(), errors.Join(append(errs, tw.Close())...)
}
