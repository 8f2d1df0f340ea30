package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// checkVolumes refuses volumes at places that are the sandbox's own. Errors: InvalidArgument.
func checkVolumes(all []cove.Volume, mounts []cove.Mount) error {
	if err := cove.CheckVolumes(all); err != nil {
		return err
	}
	for _, v := range all {
		if err := rootfs.ValidatePlace(v.Target); err != nil {
			return err
		}
		for _, own := range []string{cove.Workspace, cove.Home} {
			if v.Target == own || strings.HasPrefix(own, v.Target+"/") {
				return cove.Errorf(cove.InvalidArgument, "a volume at %s is not possible: it would hide %s", v.Target, own).
					WithHint("choose a place below %s, or a directory of its own such as /data", own)
			}
		}
		if slices.ContainsFunc(mounts, func(m cove.Mount) bool { return m.Target == v.Target }) {
			return cove.Errorf(cove.InvalidArgument, "a mount and a volume are at %s", v.Target).WithHint("leave one out")
		}
	}
	return nil
}

// needVolumes refuses volumes that an engine cannot make: in memory, or over the machine's own toolchain. Errors:
// InvalidArgument, Unsupported.
func needVolumes(eng engine.Engine, spec cove.Spec) error {
	memory := slices.ContainsFunc(spec.Volumes, func(v cove.Volume) bool { return v.Memory })
	if c := eng.Capabilities(); memory && !c.Layers {
		return cove.Errorf(cove.Unsupported, "sandboxes of the engine %s have no volumes in memory", eng.Name()).
			WithHint("leave the volume out, or use the engine native")
	}
	for _, v := range spec.Volumes {
		if err := rootfs.ValidateTarget(v.Target); err != nil && !hasImage(spec) {
			return err
		}
	}
	return nil
}

func hasImage(spec cove.Spec) bool { return spec.Image != "" && spec.Image != "host" }

// lasts reports whether what programs write at a place is on the sandbox's disk anyway: in the workspace, in the home,
// and in the layer. There a volume is nothing but a directory, with what the image has in it.
func lasts(place string, ws workspace.Workspace, user cove.User, root engine.Rootfs) bool {
	below := func(dir string) bool { return strings.HasPrefix(place, dir+"/") }
	switch {
	case below(cove.Workspace):
		return !ws.Bound
	case below(user.Home):
		return true
	case ws.Layer == "" || slices.ContainsFunc(rootfs.Writables(user), func(w rootfs.Writable) bool {
		return place == w.Name || below(w.Name)
	}):
		return false
	}
	return user.IsRoot() || rootfs.HasDir(root.Stack(), place) || rootfs.ValidateTarget(place) != nil
}

// layered reports whether a new sandbox keeps changes to its root filesystem: root inside does, and so do volumes,
// which have what the image has at their places.
func layered(spec cove.Spec, c engine.Capabilities) bool {
	onDisk := func(v cove.Volume) bool { return !v.Memory }
	return c.Layers && (spec.User.MayBeRoot() || hasImage(spec) && slices.ContainsFunc(spec.Volumes, onDisk))
}

// showVolumes adds the volumes of a sandbox to its binding, those within others last. Errors: InvalidArgument,
// StorageFull.
func showVolumes(b *engine.Binding, record store.Sandbox, ws workspace.Workspace, root engine.Rootfs) error {
	user := record.Spec.User
	var all []int
	for i, v := range record.Spec.Volumes {
		if v.Memory || !lasts(v.Target, ws, user, root) {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(i, j int) int {
		return strings.Compare(record.Spec.Volumes[i].Target, record.Spec.Volumes[j].Target)
	})
	for _, i := range all {
		v := record.Spec.Volumes[i]
		if err := volumePoint(ws, user.Home, v.Target); err != nil {
			return err
		}
		if v.Memory {
			b.Attachments = append(b.Attachments, engine.Attachment{Target: v.Target,
				Memory: &engine.Memory{Mode: 0o1777, Size: v.Size}})
			continue
		}
		dir := filepath.Join(ws.Volumes, strconv.Itoa(i)) // the list never changes
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return cove.Errorf(cove.StorageFull, "cannot make a volume: %w", err).
				WithHint("free some space, or give the sandbox a larger disk: cove limits NAME --disk SIZE")
		}
		if err := b.Attach(ws.Own(dir), engine.Attachment{Target: v.Target}); err != nil {
			return err
		}
	}
	return nil
}

// volumePoint makes the directory in a workspace or a home at which a volume is attached; see makeMountPoints. In a
// person's own directory it is that person's.
func volumePoint(ws workspace.Workspace, home, target string) error {
	if name, below := strings.CutPrefix(target, home+"/"); below {
		return makeMountPoint(ws.Home, name, true)
	}
	name, below := strings.CutPrefix(target, cove.Workspace+"/")
	switch {
	case !below:
		return nil
	case !ws.Bound:
		return makeMountPoint(ws.Directory, name, true)
	}
	root, err := os.OpenRoot(ws.Directory)
	if err != nil {
		return cove.Errorf(cove.InvalidArgument, "cannot open the directory %s: %w", ws.Directory, err)
	}
	defer root.Close()
	owner, err := root.Stat(".")
	if err != nil {
		return err
	}
	for i := range len(name) + 1 {
		if i < len(name) && name[i] != '/' {
			continue
		}
		err := root.Mkdir(name[:i], 0o755)
		if st, ok := owner.Sys().(*syscall.Stat_t); ok && err == nil && int(st.Uid) != os.Geteuid() {
			err = root.Lchown(name[:i], int(st.Uid), int(st.Gid))
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			return cove.Errorf(cove.InvalidArgument, "cannot make the place of a volume, %s in %s: %w", name, ws.Directory,
				err).WithHint("make it yourself, or choose another place")
		}
	}
	return nil
}

// makeVolumes makes the directories of those volumes of a running sandbox that are nothing but a directory. What cannot
// be made is seen by the first program that looks for it.
func makeVolumes(ctx context.Context, sb engine.Sandbox, record store.Sandbox, ws workspace.Workspace,
	root engine.Rootfs) {
	for _, v := range record.Spec.Volumes {
		if !v.Memory && lasts(v.Target, ws, record.Spec.User, root) {
			_ = sb.Guest().Mkdir(ctx, v.Target, 0o755)
		}
	}
}
