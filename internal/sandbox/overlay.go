package sandbox

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// keptRoute is a route of a sandbox that keeps on its disk what it changes in the overlay that the route shows.
type keptRoute struct {
	egress.Route
	ws  workspace.Workspace
	log *slog.Logger
}

// Bind implements provision.Route. Where the changes cannot be kept, there is no overlay.
func (k keptRoute) Bind(b *engine.Binding, root engine.Rootfs) error {
	if err := k.Route.Bind(b, root); err != nil || b.Overlay == nil {
		return err
	}
	changes, err := overlayChanges(k.ws, b.Overlay.Name)
	if err == nil {
		b.Changes, err = changes.Open()
	}
	if err != nil {
		k.log.Warn("a sandbox goes without the packages that its owner's others have fetched", "sandbox", k.ws.ID,
			"error", err)
		b.Overlay.Close()
		b.Overlay = nil
	}
	return nil
}

// overlayChanges makes what an overlay needs on a sandbox's disk: the directory in its home at which it is shown, and
// among the volumes, which are numbered, the one that keeps changes. Errors: InvalidArgument, StorageFull.
func overlayChanges(ws workspace.Workspace, name string) (hostpath.Own, error) {
	dir := filepath.Join(ws.Volumes, "overlay")
	if ws.Volumes == "" {
		return hostpath.Own{}, errors.New("it has no disk")
	}
	if err := makeMountPoint(ws.Home, name, true); err != nil {
		return hostpath.Own{}, err
	}
	if err := os.MkdirAll(ws.Volumes, 0o755); err != nil {
		return hostpath.Own{}, cove.Errorf(cove.StorageFull, "cannot make a directory on its disk: %w", err)
	}
	if err := engine.MakeLayer(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return hostpath.Own{}, err
	}
	return ws.Own(dir), nil
}
