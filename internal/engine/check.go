package engine

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Check refuses a template that needs what c cannot enforce, naming all of it, a limit below zero, which a kernel may
// take for none, and a template without a user.
func (c Capabilities) Check(t Template) error {
	l := t.Limits
	if l.CPUs < 0 || min(l.Memory, l.PIDs, l.Disk, l.Inodes, l.OpenFiles, l.Stdout, l.Stderr, int64(l.Timeout)) < 0 {
		return cove.Errorf(cove.InvalidArgument, "a limit is negative").WithHint("leave it out for the default")
	}
	switch {
	case t.User.UID < 0, t.User.UID == 0 && !t.User.IsRoot():
		return cove.Errorf(cove.InvalidArgument, "the user of a sandbox has the id %d", t.User.UID).
			WithHint("use an id above 0, such as 1000")
	case t.User.UID > rootfs.MaxID, t.User.GID < 0, t.User.GID > rootfs.MaxID:
		return cove.Errorf(cove.InvalidArgument, "the user of a sandbox has the ids %d:%d", t.User.UID, t.User.GID).
			WithHint("use ids from 0 to %d", rootfs.MaxID)
	case t.User.MayBeRoot() && t.Rootfs.Kind == RootfsHost:
		const why = "root inside cannot change the host's own toolchain, whose packages and settings no sandbox sees"
		return cove.Errorf(cove.Unsupported, why).WithHint("use an image: --image IMAGE, after \"cove image pull IMAGE\", " +
			"or \"cove image build -t IMAGE images/base\" in Cove's repository")
	case len(t.Rootfs.Layers) > MaxLayers:
		return cove.Errorf(cove.TooLarge, "a root filesystem of %d layers; at most %d are allowed", len(t.Rootfs.Layers),
			MaxLayers)
	}
	if err := c.CheckUser(t.User, t.Alone); err != nil {
		return err
	}
	var missing []string
	need := func(ok bool, name string) {
		if !ok {
			missing = append(missing, name)
		}
	}
	need(t.Isolation == "" || slices.Contains(c.Isolations, t.Isolation), fmt.Sprintf("isolation %s (it has %s)",
		t.Isolation, list(c.Isolations)))
	need(!t.User.MayBeRoot() || c.Root, "root")
	need(!t.User.IsOfImage() || c.Users && t.Rootfs.Kind == RootfsDir, "users")
	need(slices.Contains(c.Networks, t.Network), "network "+string(t.Network))
	need(t.Rootfs.Kind != RootfsImage || c.OwnImages, "own_images")
	need(t.Layer == "" || c.Layers && t.Rootfs.Kind == RootfsDir, "layers")
	need(t.Limits.Memory == 0 || c.MemoryLimit, "memory_limit")
	need(t.Limits.Memory == 0 || c.SwapLimit, "swap_limit")
	need(t.Limits.CPUs == 0 || c.CPULimit, "cpu_limit")
	need(t.Limits.PIDs == 0 || c.PIDsLimit, "pids_limit")
	need(t.Limits.Disk == 0 || c.DiskLimit, "disk_limit")
	need(!t.NoExec || c.NoExec, "no_exec")
	need(!t.Debuggers || c.Debuggers, "debuggers")
	need(t.Lifetime != cove.LifetimeDetached || c.Lasting, "lasting")
	return c.refusal(missing)
}

// CheckUser refuses a user beside root inside where a sandbox shares directories, unless it is alone, and its ids are
// not a range of its own: what is shared belongs to one id, and root inside is another.
func (c Capabilities) CheckUser(u cove.User, alone bool) error {
	if !u.Root || alone || c.HostIDRange {
		return nil
	}
	return cove.Errorf(cove.Unsupported,
		"the programs of a sandbox that shares directories with an ordinary user are root inside or %.80q, not both", u.Name).
		WithHint("leave --root or --user out, or have Cove run as root, which can give such directories to either")
}

// CheckBinding refuses a binding that needs what c cannot do, or whose mounts would hide what the wall depends on. Only
// attachments may be at places of Cove's own.
func (c Capabilities) CheckBinding(b Binding) error {
	var missing []string
	flags := false
	for _, a := range b.Attachments {
		if a.Owners || a.Memory != nil {
			if err := rootfs.ValidatePlace(a.Target); err != nil {
				return err
			}
			if !c.Layers {
				missing = append(missing, "layers")
			}
		} else if err := rootfs.ValidateTarget(a.Target); err != nil &&
			!strings.HasPrefix(path.Clean(a.Target), rootfs.Own+"/") {
			return err
		}
		flags = flags || a.NoExec || a.NoFollow
	}
	for _, m := range b.Mounts {
		if err := rootfs.ValidateTarget(m.Target); err != nil {
			return err
		}
		flags = flags || m.NoExec || m.NoFollow
	}
	if flags && !c.MountFlags {
		missing = append(missing, "mount_flags")
	}
	if len(b.Attachments)+len(b.Mounts) > 0 && !c.LateMount {
		missing = append(missing, "late_mount")
	}
	if len(b.Files) > 0 && !c.Files {
		missing = append(missing, "files: "+c.Missing["files"])
	}
	if b.Overlay != nil && !c.Overlay {
		missing = append(missing, "overlay")
	}
	if b.Throughput != (Throughput{}) && !c.Throughput {
		missing = append(missing, "throughput")
	}
	if b.Copy != nil && !c.Zygotes {
		missing = append(missing, "zygotes")
	}
	if len(b.Listeners) > 0 && !c.Listeners {
		missing = append(missing, "listeners")
	}
	return c.refusal(missing)
}

func list(all []cove.Isolation) string {
	var names []string
	for _, i := range all {
		names = append(names, string(i))
	}
	return strings.Join(names, ", ")
}

// refusal names what is missing, and each reason once.
func (c Capabilities) refusal(missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	var reasons []string // in the order of the first that each explains
	names := map[string][]string{}
	for _, name := range missing {
		why := c.Missing[name]
		if names[why] == nil {
			reasons = append(reasons, why)
		}
		names[why] = append(names[why], name)
	}
	var parts []string
	for _, why := range reasons {
		part := strings.Join(names[why], ", ")
		if why != "" {
			part += ": " + why
		}
		parts = append(parts, part)
	}
	return cove.Errorf(cove.Unsupported, "this engine cannot enforce what was asked: %s", strings.Join(parts, "; ")).
		WithHint("run \"cove doctor\" for what is missing and how to get it")
}
