//go:build linux

package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/mounts"
)

// plain refuses an image in which a symbolic link stands for a directory that the container runtime fills. Docker puts
// a directory there before; with Podman, runc would follow the link, and make files where it leads on the host.
func (e *Engine) plain(ctx context.Context, id string) error {
	var root string
	err := e.api.do(ctx, "mount a container's files", func(ctx context.Context) error {
		_, said, err := e.api.podman.call(ctx, http.MethodPost, podmanAPI+"/containers/"+id+"/mount", nil)
		root = strings.TrimSpace(string(said))
		return err
	})
	if err == nil && !filepath.IsAbs(root) {
		err = cove.Errorf(cove.Unavailable, "the Podman service does not say where a container's files are")
	}
	if err != nil {
		return err
	}
	for _, name := range []string{"dev", "proc", "sys"} {
		fi, err := os.Lstat(filepath.Join(root, name))
		if err == nil && !fi.IsDir() {
			return cove.Errorf(cove.Forbidden, "the image's /%s is no directory", name).
				WithHint("use another image, or --engine native")
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return cove.Errorf(cove.Unavailable, "an image cannot be checked: %w", err).WithHint("use --engine native")
		}
	}
	return e.api.do(ctx, "unmount a container's files", func(ctx context.Context) error {
		return e.api.podman.libpod(ctx, "/containers/"+id+"/unmount", nil, nil)
	})
}

// fit gives the writable places what Podman knows no options for: a limit of files, and an owner.
func fit(pid int, w wish) error {
	l := w.template.Limits
	places, err := divide(cmp.Or(l.Disk, defaultDisk), cmp.Or(l.Inodes, defaultInodes), w.template.User)
	if err != nil {
		return err
	}
	var all []mounts.Change
	for _, p := range places {
		if slices.ContainsFunc(w.binds, func(b bind) bool { return b.target == p.Name }) {
			continue // a mount of the user's takes its place
		}
		all = append(all, mounts.Change{Point: p.Name, Options: []string{fmt.Sprintf("nr_inodes=%d", p.inodes)},
			Owner: &mounts.Owner{UID: w.template.User.UID, GID: w.template.User.UID}})
	}
	if err := mounts.Reconfigure(pid, all...); err != nil {
		return cove.Errorf(cove.Unsupported, "a writable place of a container cannot be limited: %w", err).
			WithHint("see that no writable place of the image is a symbolic link, or use --engine native")
	}
	return nil
}

// check completes a container, and refuses one that is weaker than what was asked for.
func (e *Engine) check(c *running, pid int, w wish, asked *container.HostConfig) error {
	if c.group == nil {
		return notHere("limits")
	}
	if err := fit(pid, w); err != nil {
		return err
	}
	weaker, err := weaknesses(pid, asked, w.image.Env, c.group)
	if err != nil {
		return cove.Errorf(cove.Unavailable, "a container cannot be checked: %w", err).WithHint("use --engine native")
	}
	if len(weaker) > 0 {
		return e.notAsked(weaker)
	}
	return nil
}

// notAsked refuses a container that is weaker than what was asked for.
func (e *Engine) notAsked(weaker []string) error {
	hint := "use Docker Engine 20.10 or newer without plugins that change containers, or --engine native"
	if e.api.podman.engine {
		hint = "use Podman 4 or newer with no containers.conf that adds to containers, or --engine native"
	}
	return cove.Errorf(cove.Unsupported, "the %s did not make the container that was asked for: %s", e.api.name(),
		strings.Join(weaker, "; ")).WithHint("%s", hint)
}
