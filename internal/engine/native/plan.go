//go:build linux

package native

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/transparent"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Places on the staging directory, beside guest.Root.
const (
	writablePlace = "/writable" // one directory for each of rootfs.Writables
	kernelPlace   = "/kernel"   // what becomes /proc, /sys and /dev
	lowerPlace    = "/lower"    // an image's tree, or directories with its layers
	layerPlace    = "/layer"    // of Template.Layer
	upperPlace    = "/upper"
	workPlace     = "/work"
	memoryPlace   = "/memory"  // of attachments in memory
	overlayPlace  = "/overlay" // of Binding.Overlay: its lower directories, and what keeps changes
)

// overheadInodes counts the inodes that the layout itself uses of the scratch file system, so that the user has all of
// the limit.
const overheadInodes = 56

const (
	sealed   = guest.NoSuid | guest.NoDev
	readOnly = sealed | guest.ReadOnly
)

// planBegin says what every sandbox has, whatever its root will be: /proc with its masks, a minimal /dev and an empty
// /sys; settings of its user namespace; and the network with the sockets of a way out, if it is for sandboxes that have
// one. It is pure.
func planBegin(own local.Owner, staging string, settings []rootfs.Sysctl, network []guest.Step) guest.Begin {
	b := guest.Begin{UID: own.UID, GID: own.GID, Staging: staging, Steps: append(kernelPlaces(settings), network...)}
	if len(network) > 0 {
		b.Listeners = engine.RouteListeners()
	}
	return b
}

// planSetup says how the guest builds a sandbox's root. It is pure: what has been read of the host comes in as host,
// the files that an image lacks as lacking, and what its network still lacks as network.
func planSetup(t engine.Template, host rootfs.Host, lacking []rootfs.File, network []guest.Step) guest.Setup {
	s := guest.Setup{Size: t.Limits.Disk, Inodes: t.Limits.Inodes + overheadInodes}
	add := func(steps ...guest.Step) { s.Steps = append(s.Steps, steps...) }
	if t.Rootfs.Kind == engine.RootfsHost {
		add(hostRoot(host, t.User)...)
	} else {
		add(imageRoot(t)...)
		add(files(lacking)...)
	}
	for _, name := range []string{"/proc", "/sys", "/dev"} { // instead of whatever the image has there
		add(guest.Step{Kind: guest.StepMove, Source: kernelPlace + name, Target: guest.Root + name})
	}
	for _, w := range rootfs.Writables(t.User) {
		if t.Bare && w.Name != "/run" && w.Name != "/dev/shm" {
			continue
		}
		dir := guest.Step{Kind: guest.StepDir, Target: writablePlace + w.Name, Mode: w.Mode}
		if w.Own {
			dir.UID, dir.GID = t.User.UID, t.User.GID
		}
		flags := sealed
		if t.NoExec && w.Temp {
			flags |= guest.NoExec
		}
		add(dir, guest.Step{Kind: guest.StepBindInside, Source: writablePlace + w.Name, Target: guest.Root + w.Name,
			Flags: flags})
	}
	if t.User.Home != cove.Home && !t.User.IsOfImage() && !t.Bare { // where Cove places the files of an agent
		add(guest.Step{Kind: guest.StepSymlink, Source: t.User.Home, Target: guest.Root + cove.Home})
	}
	add(network...)
	return s
}

// hostRoot is a read-only root of the host's toolchain and a generated /etc.
func hostRoot(host rootfs.Host, u cove.User) []guest.Step {
	steps := []guest.Step{{Kind: guest.StepTmpfs, Target: guest.Root, Size: 4 << 20, Inodes: 1024, Mode: 0o755,
		Flags: sealed}}
	for _, dir := range host.Dirs {
		steps = append(steps, guest.Step{Kind: guest.StepBind, Source: dir, Target: guest.Root + dir, Flags: readOnly,
			Recursive: true})
	}
	for _, l := range host.Links {
		steps = append(steps, guest.Step{Kind: guest.StepSymlink, Source: l.Target, Target: guest.Root + l.Name})
	}
	for _, name := range host.Etc {
		steps = append(steps, guest.Step{Kind: guest.StepBind, Source: name, Target: guest.Root + name,
			Flags: readOnly | guest.NoExec, Recursive: true, Optional: true})
	}
	return append(steps, files(rootfs.EtcFiles(rootfs.Hostname, u))...)
}

// imageRoot is a private overlay over the trees that the host hands over as descriptors: those of rootfs, in its order,
// and the layer, if there is one.
func imageRoot(t engine.Template) []guest.Step {
	flags := sealed
	if t.User.MayBeRoot() {
		flags &^= guest.NoSuid
	}
	given := 0
	give := func(target string, flags guest.MountFlag) guest.Step {
		given++
		return guest.Step{Kind: guest.StepBind, FD: new(given - 1), Target: target, Flags: flags}
	}
	overlay := guest.Step{Kind: guest.StepOverlay, Target: guest.Root, Source: lowerPlace, Upper: upperPlace,
		Work: workPlace, Flags: flags}
	var steps []guest.Step
	if lower := lowers(t); len(lower) == 1 {
		steps = append(steps, give(lowerPlace, readOnly))
	} else {
		for i := range lower {
			name := strconv.FormatInt(int64(i), 36)
			steps = append(steps, give(lowerPlace+"/"+name, readOnly))
			overlay.Lower = slices.Insert(overlay.Lower, 0, name)
		}
	}
	if t.Layer == "" {
		steps = append(steps, guest.Step{Kind: guest.StepDir, Target: upperPlace, Mode: 0o755},
			guest.Step{Kind: guest.StepDir, Target: workPlace, Mode: 0o755})
	} else {
		steps = append(steps, give(layerPlace, sealed))
		overlay.Upper, overlay.Work = layerPlace+upperPlace, layerPlace+workPlace
	}
	steps = append(steps, guest.Step{Kind: guest.StepDir, Target: guest.Root, Mode: 0o755}, overlay)
	return append(steps, files(rootfs.Resolver(rootfs.Hostname))...)
}

// mapped is the user whose ids those of a sandbox have to do for. With those of root inside the owners of an image's
// files are right for every user who shares nothing with who runs Cove. What a layer keeps stays as it was.
func mapped(t engine.Template) cove.User {
	if t.User.Root || t.Rootfs.Flat != "" && t.Alone && t.Layer == "" {
		return cove.RootUser
	}
	return t.User
}

// lowers are the directories with the files of the image, the lowest first.
func lowers(t engine.Template) rootfs.Stack {
	if t.Rootfs.Flat != "" && !mapped(t).IsRoot() {
		return rootfs.Stack{t.Rootfs.Flat}
	}
	return t.Rootfs.Stack()
}

// trees are the directories of the host that imageRoot attaches, in its order.
func trees(t engine.Template) []string {
	all := lowers(t)
	if t.Layer != "" {
		all = append(all, t.Layer)
	}
	return all
}

func files(fs []rootfs.File) []guest.Step {
	var steps []guest.Step
	for _, f := range fs {
		steps = append(steps, guest.Step{Kind: guest.StepFile, Target: guest.Root + f.Name, Mode: f.Mode,
			Data: []byte(f.Data)})
	}
	return steps
}

func kernelPlaces(settings []rootfs.Sysctl) []guest.Step {
	const quiet = sealed | guest.NoExec
	in := func(name string) string { return kernelPlace + name }
	steps := []guest.Step{
		{Kind: guest.StepProc, Target: in("/proc"), Flags: quiet},
		{Kind: guest.StepTmpfs, Target: in("/sys"), Size: 4096, Inodes: 1, Mode: 0o555, Flags: quiet | guest.ReadOnly},
		{Kind: guest.StepTmpfs, Target: in("/dev"), Size: 64 << 10, Inodes: 64, Mode: 0o755,
			Flags: guest.NoSuid | guest.NoExec},
	}
	for _, d := range rootfs.Devices {
		steps = append(steps, guest.Step{Kind: guest.StepBind, Source: "/dev/" + d, Target: in("/dev/" + d),
			Flags: guest.NoSuid | guest.NoExec})
	}
	for _, l := range rootfs.DeviceLinks {
		steps = append(steps, guest.Step{Kind: guest.StepSymlink, Source: l.Target, Target: in(l.Name)})
	}
	steps = append(steps,
		guest.Step{Kind: guest.StepDevpts, Target: in("/dev/pts"), Inodes: rootfs.Terminals,
			Flags: guest.NoSuid | guest.NoExec},
		guest.Step{Kind: guest.StepDir, Target: in("/dev/shm"), Mode: 0o755},
		guest.Step{Kind: guest.StepReadOnly, Target: in("/dev"), Flags: guest.NoSuid | guest.NoExec},
	)
	for _, s := range settings { // before /proc/sys is read-only
		steps = append(steps, guest.Step{Kind: guest.StepSysctl, Target: in("/proc/sys/" + s.Name), Data: []byte(s.Value)})
	}
	for _, name := range rootfs.ReadOnly {
		steps = append(steps, guest.Step{Kind: guest.StepReadOnly, Target: in(name), Flags: quiet})
	}
	for _, name := range rootfs.Masked {
		steps = append(steps, guest.Step{Kind: guest.StepMask, Target: in(name)})
	}
	return steps
}

// planBind says what the guest attaches last, and what it gives up. It attaches b.Attachments, which the mounts have
// become, and b.Files in this order, less those files that are shown already: each by a descriptor of the request, or,
// where the host hands none over, by its identity in sources.
//
// shared says that the sandbox writes into directories of the host, which bounds what root inside may do.
func planBind(t engine.Template, b engine.Binding, sources []engine.Identity, filter []byte, shared bool) guest.Bind {
	capabilities := uint64(0)
	if t.User.MayBeRoot() {
		capabilities = rootCapabilities(shared)
	}
	g := guest.Bind{
		Hostname:  b.Hostname,
		Listeners: b.Listeners,
		Seal: guest.Seal{
			UserUID: t.User.UID, UserGID: t.User.GID, UserGroups: t.User.GroupIDs(), Capabilities: capabilities,
			Pivot: true, Filter: filter, OpenFiles: t.Limits.OpenFiles, FileSize: t.Limits.Disk,
		},
	}
	attached := 0
	attach := func(step guest.Step) {
		step.Kind = guest.StepBind
		if sources == nil {
			step.FD = new(attached)
		} else {
			source := sources[attached]
			step.Source, step.Is = source.Path, &guest.Inode{Dev: source.Dev, Ino: source.Ino}
		}
		attached++
		g.Steps = append(g.Steps, step)
	}
	for _, a := range b.Attachments {
		if a.Guard != nil {
			g.Steps = append(g.Steps, guest.Step{Kind: guest.StepGuard, Target: guest.Root + a.Target, Flags: flagsOf(a),
				Is: a.Guard})
			continue
		}
		if a.Memory != nil {
			g.Steps = append(g.Steps, inMemory(a, t.Limits)...)
			continue
		}
		attach(guest.Step{Target: guest.Root + a.Target, Flags: flagsOf(a)})
	}
	for i, f := range b.Files {
		step := guest.Step{Target: guest.Root + f.Target, Flags: readOnly | guest.NoExec, Existing: f.Existing}
		if at, ok := shownAlready(b.Files, i); ok {
			step.Kind, step.Source = guest.StepBindInside, guest.Root+at
			g.Steps = append(g.Steps, step)
		} else {
			attach(step)
		}
	}
	if b.Overlay != nil {
		overlay := guest.Step{Kind: guest.StepOverlay, Target: guest.Root + overlayTarget(t, b), Source: overlayPlace +
			lowerPlace, Flags: sealed, Optional: true}
		for i := range b.Overlay.Lower {
			name := strconv.Itoa(i)
			attach(guest.Step{Target: overlay.Source + "/" + name, Flags: readOnly})
			overlay.Lower = append(overlay.Lower, name)
		}
		changes := overlayPlace + layerPlace
		overlay.Upper, overlay.Work = changes+upperPlace, changes+workPlace
		if b.Changes != nil {
			attach(guest.Step{Target: changes, Flags: sealed})
		} else {
			g.Steps = append(g.Steps, guest.Step{Kind: guest.StepDir, Target: overlay.Upper, Mode: 0o755, UID: t.User.UID,
				GID: t.User.GID}, guest.Step{Kind: guest.StepDir, Target: overlay.Work, Mode: 0o700})
		}
		g.Steps = append(g.Steps, overlay)
	}
	if t.Rootfs.Kind == engine.RootfsHost {
		g.Steps = append(g.Steps, guest.Step{Kind: guest.StepReadOnly, Target: guest.Root, Flags: sealed})
	}
	return g
}

func sameIDs(u, v cove.User) bool { return u.UID == v.UID && u.GID == v.GID }

func overlayTarget(t engine.Template, b engine.Binding) string {
	return path.Join(t.User.Home, b.Overlay.Name)
}

// fits reports whether a sandbox can have its overlay: the home is its own and not an image's, nothing else is shown at
// the place or in it, and the user is who owns what is shared. root says that owners are mapped.
func fits(t engine.Template, b engine.Binding, root bool) bool {
	home := func(a engine.Attachment) bool { return a.Target == t.User.Home }
	own := !t.Bare && slices.ContainsFunc(rootfs.Writables(t.User), func(w rootfs.Writable) bool {
		return w.Name == t.User.Home
	})
	in := func(target string) bool { return strings.HasPrefix(target+"/", overlayTarget(t, b)+"/") }
	return (own || slices.ContainsFunc(b.Attachments, home)) && (root || sameIDs(mapped(t), t.User)) &&
		!slices.ContainsFunc(b.Attachments, func(a engine.Attachment) bool { return in(a.Target) }) &&
		!slices.ContainsFunc(b.Files, func(f engine.File) bool { return in(f.Target) })
}

// inMemory are the steps of an attachment that is made in memory: among what is writable, where it counts for the
// limit of the sandbox, or with a size of its own.
func inMemory(a engine.Attachment, l cove.Limits) []guest.Step {
	m, at := *a.Memory, memoryPlace+a.Target
	show := guest.Step{Kind: guest.StepBindInside, Source: at, Target: guest.Root + a.Target, Flags: flagsOf(a)}
	if m.Data != nil {
		return []guest.Step{{Kind: guest.StepFile, Target: at, Data: m.Data, Mode: m.Mode, UID: m.UID, GID: m.GID}, show}
	}
	if m.Size > 0 && (l.Disk == 0 || m.Size < l.Disk) {
		return []guest.Step{{Kind: guest.StepTmpfs, Target: guest.Root + a.Target, Size: m.Size, Inodes: l.Inodes,
			Mode: m.Mode, Flags: flagsOf(a)}}
	}
	return []guest.Step{{Kind: guest.StepDir, Target: at, Mode: m.Mode}, show}
}

// rootCapabilities returns what root inside may do. One that writes into directories of the host, as shared says,
// cannot give files capabilities, which they would have there.
func rootCapabilities(shared bool) uint64 {
	if shared {
		return rootfs.RootCapabilities &^ (1 << unix.CAP_SETFCAP)
	}
	return rootfs.RootCapabilities
}

func flagsOf(a engine.Attachment) guest.MountFlag {
	flags := sealed
	if a.ReadOnly {
		flags = readOnly
	}
	if a.NoExec {
		flags |= guest.NoExec
	}
	if a.NoFollow {
		flags |= guest.NoFollow
	}
	return flags
}

// shownAlready returns the target of an earlier file with the same place. The guest can attach that again by itself,
// and a mount that the host clones for a place which is not there would cost more to drop than to make.
func shownAlready(files []engine.File, i int) (target string, ok bool) {
	for _, f := range files[:i] {
		if f.Place == files[i].Place && !f.Existing {
			return f.Target, true
		}
	}
	return "", false
}

// planNetwork is the network of a sandbox whose ways out lead to the gateway. The guest only sends the messages, in its
// own network namespace, before anything else runs there: in a Begin or a Setup.
var planNetwork = sync.OnceValues(func() ([]guest.Step, error) {
	plan := transparent.Plan{TCPPort: engine.TransparentPort, DNSPort: engine.DNSPort}
	routes, err := plan.Routes()
	if err != nil {
		return nil, err
	}
	rules, err := plan.Firewall()
	if err != nil {
		return nil, err
	}
	return []guest.Step{
		{Kind: guest.StepNetlink, Target: guest.NetlinkRoute, Data: routes},
		{Kind: guest.StepNetlink, Target: guest.NetlinkNetfilter, Data: rules},
	}, nil
})
