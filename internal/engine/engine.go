// Package engine is the contract between Cove and the providers of sandboxes.
//
// # Model
//
// An [Engine] makes sandboxes in two phases, because a pool cannot know who will use what it prepares. Prepare builds
// the generic part from a [Template]: root filesystem, namespaces, limits, a guest that answers. Bind gives it to a
// user with a [Binding]: host name, mounts, listeners; the guest then gives up its privileges for good. Only after Bind
// can a process run, so nothing untrusted ever runs in a sandbox that can still be changed.
//
// Guest is the way in: everything that happens inside is asked of cove-guest, PID 1 of the sandbox, over the guest
// protocol. Destroy removes every trace and may be called at any time, concurrently, any number of times.
//
// # A walk through
//
//	sb, err := eng.Prepare(ctx, engine.Template{ID: id, Shape: cove.Shape{Limits: limits}, …})
//	defer sb.Destroy(context.WithoutCancel(ctx))
//	err = sb.Bind(ctx, engine.Binding{Hostname: "sandbox"})
//	p, err := sb.Guest().Start(ctx, guest.ProcessSpec{Args: []string{"true"}})
//	exit, err := p.Wait(ctx)
//	stats, err := sb.Stats(ctx)
//
// # Refuse rather than degrade
//
// What an engine can enforce is data, [Capabilities]; callers never ask which engine it is. A Template or Binding that
// needs what the engine cannot enforce is refused with cove.Unsupported, before anything is made.
//
// # Ownership
//
// Everything an engine leaves on the host carries the cove.InstanceID of the process that made it, and the instance
// holds a lock while it lives. Sweep removes what belongs to instances that no longer do, and nothing else.
//
// enginetest.Run is the conformance suite that every engine passes.
package engine

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Engine provides sandboxes. All methods may be called concurrently.
type Engine interface {
	// Name is the word users choose the engine by: "native", "docker".
	Name() string

	// Capabilities says what this engine can enforce on this host. It does not change while the engine lives.
	Capabilities() Capabilities

	// Prepare makes the generic part of a sandbox. On error nothing is left behind. Errors: Unsupported, ImageMissing,
	// Unavailable, Conflict (an id in use), StorageFull.
	Prepare(ctx context.Context, t Template) (Sandbox, error)

	// Sweep removes everything on the host that belongs to instances which are gone. It is idempotent, safe beside a
	// running Prepare of any instance, and removes nothing on an incomplete list.
	Sweep(ctx context.Context) (Swept, error)

	// Close destroys the sandboxes of this engine value that still exist, except detached ones that are bound: it leaves
	// those running. It releases what the engine holds.
	Close() error
}

// Resolver is implemented by an engine with images of its own (Capabilities.OwnImages).
type Resolver interface {
	// Resolve finds an image by the engine's reference, and says what it asks to have in its processes' environment.
	// Nothing is pulled. Errors: ImageMissing, Unavailable.
	Resolve(ctx context.Context, ref string) (Rootfs, error)
}

// Late is implemented by an engine that has another program make its sandboxes, which may do so after the process of
// Cove that asked for one has died.
type Late interface {
	// Lateness bounds how long after that.
	Lateness() time.Duration
}

// Adopter is implemented by an engine whose sandboxes can outlive the process of Cove that made them
// (Capabilities.Lasting). One process at a time manages such a sandbox.
type Adopter interface {
	// Left lists the sandboxes that run and that no process manages.
	Left(ctx context.Context) ([]cove.SandboxID, error)

	// Runs reports whether a sandbox runs, paused or not, whichever process manages it.
	Runs(ctx context.Context, id cove.SandboxID) (bool, error)

	// Adopt takes over a sandbox that another process has made and bound. Its processes run on, and their output waits to
	// be attached to; those of one that is paused are resumed. Errors: NotFound when it does not run, Conflict when a
	// process has it.
	Adopt(ctx context.Context, id cove.SandboxID) (Sandbox, error)
}

// Giver is implemented by sandboxes whose root inside may have given files of a mount to ids over which the host's user
// has no rights.
type Giver interface {
	// GiveBack makes the user the owner of such files of a directory, when the sandbox has ended.
	GiveBack(ctx context.Context, dir string) error
}

// Pauser is implemented by the sandboxes of an engine that can pause (Capabilities.Pause).
type Pauser interface {
	// Pause freezes every process at once, the guest among them: it keeps its memory, does nothing, and answers nothing
	// until Resume. Errors: NotFound when it has been destroyed, Unavailable.
	Pause(ctx context.Context) error
	// Resume lets all of them go on.
	Resume(ctx context.Context) error
}

// Reacher is implemented by the sandboxes of an engine whose programs the host can connect to (Capabilities.Reach).
type Reacher interface {
	// Reach connects to a TCP port at the loopback of the sandbox, which must be bound. The peer is whatever program of
	// the sandbox listens there. Errors: Unavailable when none does, or when the guest does not answer.
	Reach(ctx context.Context, port uint16) (net.Conn, error)
}

// Sandbox is one sandbox of an engine.
type Sandbox interface {
	ID() cove.SandboxID

	// Bind gives the sandbox to its user, once; a second call is Conflict. On error the sandbox can only be destroyed. The
	// descriptors of b stay the caller's.
	Bind(ctx context.Context, b Binding) error

	// Guest is the way in. Before Bind it answers health only.
	Guest() *guest.Client

	// Listeners are the sockets that Bind asked for, in its order, listening in the sandbox's network namespace. The
	// caller owns them.
	Listeners() []*os.File

	// Stats reads the kernel's accounting; it works until Destroy, also after every process has gone.
	Stats(ctx context.Context) (Stats, error)

	// Done is closed when PID 1 has gone, for whatever reason.
	Done() <-chan struct{}

	// Kill ends every process at once, PID 1 included. It removes nothing.
	Kill() error

	// Destroy kills what runs and removes every trace. Idempotent.
	Destroy(ctx context.Context) error
}

// Template is the generic part of a sandbox: nothing in it says whose it is.
type Template struct {
	ID     cove.SandboxID
	Rootfs Rootfs
	// Shape has every limit and a user. Its isolation may be the engine's own choice (empty). A detached sandbox, once it
	// is bound, goes on without the process of Cove that made it, until it is destroyed (Adopter).
	cove.Shape
	Network cove.NetworkMode // in force
	// Layer keeps what changes in the root filesystem of a RootfsDir: a directory of Cove's own, made by MakeLayer, that
	// outlives the sandbox, and that no other one uses meanwhile (Capabilities.Layers). Without, changes are in memory,
	// and end with the sandbox.
	Layer string
	// Bare says that programs see the places for temporary files, the home and cove.WorkDir of a RootfsDir with a Layer,
	// in which they change them, in place of the sandbox's own. /run is the sandbox's own in any case.
	Bare bool
	// Alone says that its Binding shares nothing: then its programs need not have the ids of who runs Cove.
	Alone bool
}

// RootfsKind says where a root filesystem comes from.
type RootfsKind string

const (
	RootfsHost  RootfsKind = "host"  // the host's own toolchain directories, read-only
	RootfsDir   RootfsKind = "dir"   // an unpacked tree, under a private overlay
	RootfsImage RootfsKind = "image" // an image the engine itself holds (Capabilities.OwnImages)
)

// Rootfs is a resolved root filesystem.
type Rootfs struct {
	Kind RootfsKind
	Dir  string // RootfsDir: absolute host path of the tree; never written to
	// Flat is the same tree with one owner for all files, where Dir has owners that are only right for programs without
	// the ids of who runs Cove; empty: Dir does for every user.
	Flat string `json:",omitempty"`
	// Layers are changes above Dir, the lowest first, at most MaxLayers: directories like those in which Template.Layer
	// keeps changes (Changes). Flat has them already.
	Layers []string
	// Digest names the content of Dir and Layers when they are an image of the store ("sha256:…"); empty for a directory
	// of the user's.
	Digest string
	Image  string // RootfsImage: the engine's reference
	Env    []string
	// User is USER[:GROUP] of the image's processes, by names or ids, and WorkDir where they begin; empty: the image does
	// not say.
	User, WorkDir string
	// Entrypoint and Cmd are the command of an image: the program, with arguments, and further ones that others replace.
	Entrypoint, Cmd []string
	// Health is the image's own check of whether its program is ready; without Args it has none.
	Health Health
	Ports  []uint16 // of TCP, at which the program may listen, as the image says
	// StopSignal asks the program to end, by a name or a number; empty: the image does not say.
	StopSignal string
}

// Stack returns the directories of a RootfsDir, the lowest first.
func (r Rootfs) Stack() rootfs.Stack { return append(rootfs.Stack{r.Dir}, r.Layers...) }

// Health is a program that succeeds once that of its image is ready. What is zero, the image does not say.
type Health struct {
	Args                     []string      `json:"args,omitempty"`
	Interval, Timeout, Start time.Duration `json:",omitempty"` // Start is how long it may fail at first
}

// Binding gives a prepared sandbox to its user. It shows parts of the host with one of two trusts: Attachments and
// Files are Cove's own, by open descriptors; Mounts are a user's wishes, which the engine judges. They are attached in
// this order, so that a mount may lie on an attachment; an attachment that lies in a mount follows it.
type Binding struct {
	Hostname    string
	Attachments []Attachment     // Capabilities.LateMount
	Mounts      []cove.Mount     // likewise; sources have passed the allowlist (invariant H5)
	Allow       cove.MountAllow  // of Mounts
	Again       bool             // Mounts were bound before, in this sandbox's earlier runs
	Marks       *[]hostpath.Mark // if it is not nil, Bind adds what writable ones of Mounts hold
	Files       []File           // Capabilities.Files
	Overlay     *Overlay         // Capabilities.Overlay; the last of what is shown
	Changes     *os.File         // O_PATH, a directory of MakeLayer; keeps what is changed in Overlay. nil: memory
	Throughput  Throughput       // Capabilities.Throughput
	Listeners   []guest.Listen   // Capabilities.Listeners
	Copy        *Copy            // Capabilities.Zygotes
}

// Shares reports whether directories or files of the machine's are attached whose owner the user has to be.
func (b Binding) Shares() bool {
	return len(b.Mounts) > 0 ||
		slices.ContainsFunc(b.Attachments, func(a Attachment) bool { return a.Place != nil && !a.Owners })
}

// Copy is a program to be made from a zygote, which the engine has made in another sandbox with the same template.
type Copy struct {
	Zygote *os.File // the caller's
	Path   string   // of the named pipe at which it waits
	Spec   guest.ProcessSpec
	Sparse bool // it shares memory with others of the zygote until it writes to it, which takes it time then
}

// Attachment is a directory or file of the host, open as a place, shown at Target. Its files are the sandbox's user's
// where the engine can arrange that (Capabilities.MountOwners).
type Attachment struct {
	Place    *os.File // O_PATH
	Target   string   // absolute path inside
	ReadOnly bool
	NoExec   bool // nothing in it can be run
	NoFollow bool // symbolic links in it lead nowhere
	// Guard says what Place is, if it is a part of an earlier attachment, in which Target lies.
	Guard *guest.Inode
	// Owners says that its files have the owners that they would have in a Rootfs.Dir (Capabilities.Layers). Its target
	// may be anywhere in such a root filesystem.
	Owners bool
	// Memory describes a file or directory to make in place of Place, which is nil then, likewise.
	Memory *Memory
}

// Memory is an empty directory or a file in the memory of a sandbox.
type Memory struct {
	Data     []byte // of a file; nil: it is a directory
	Mode     uint32
	UID, GID int
	Size     int64 // bytes of a directory, within the sandbox's disk limit; 0: as much as that
}

// Overlay is a directory in the home of the sandbox's user that begins with the content of others: the user may change
// everything in it, and nothing in those. Files that come into the others, and go, while a sandbox has them may show
// inside or not, so each is complete when it comes, and never changes. A sandbox goes without its overlay where the
// kernel cannot mount it, and where the home is not the sandbox's own or has something else at the place.
type Overlay struct {
	Lower []*os.File // O_PATH, directories, the uppermost first; all of one owner, whose files are the user's inside
	Name  string     // in the home
}

// Close closes the descriptors of an overlay, which may be nil.
func (o *Overlay) Close() {
	if o != nil {
		for _, f := range o.Lower {
			f.Close()
		}
	}
}

// Throughput limits what a sandbox reads, and as much what it writes, per second of the block device that holds its
// files; zero limits nothing.
type Throughput struct {
	Device     string // path on the host
	Bytes      int64
	Operations int64
}

// File is a file of Cove's own on the host, readable by every user, shown read-only at a place inside, whatever is
// there.
type File struct {
	Place    *os.File // O_PATH; one descriptor may be shown at several targets
	Target   string
	Existing bool // only in place of a file that is there
}

// Where the ways out of a sandbox with a network lead: to sockets on its loopback at these ports, which
// Binding.Listeners has to ask for. Programs inside cannot bind the first two, and find the third taken.
const (
	TransparentPort = 1    // TCP, wherever it wanted to go (SO_ORIGINAL_DST says)
	DNSPort         = 53   // TCP and UDP
	ProxyPort       = 3128 // TCP, of programs that are told of a proxy
)

// RouteListeners returns these sockets in the order in which an egress route takes them. An engine may make them ahead
// of need.
func RouteListeners() []guest.Listen {
	at := func(network string, port int) guest.Listen {
		host := "127.0.0.1"
		if network[len(network)-1] == '6' {
			host = "[::1]"
		}
		return guest.Listen{Network: network, Address: fmt.Sprintf("%s:%d", host, port)}
	}
	return []guest.Listen{
		at("tcp4", TransparentPort), at("tcp6", TransparentPort), at("tcp4", ProxyPort),
		at("tcp4", DNSPort), at("tcp6", DNSPort), at("udp4", DNSPort), at("udp6", DNSPort),
	}
}

// Capabilities describes what an engine can enforce on this host.
type Capabilities struct {
	Isolations  []cove.Isolation   `json:"isolations"` // the first is the engine's own choice
	Networks    []cove.NetworkMode `json:"networks"`
	OwnImages   bool               `json:"own_images"`    // resolves image references itself
	UserIDs     bool               `json:"user_ids"`      // the guest and the user's processes have different ids
	HostIDRange bool               `json:"host_id_range"` // a range of host ids of its own for each sandbox
	Root        bool               `json:"root"`          // cove.RootUser: root inside
	Users       bool               `json:"users"`         // the users of a RootfsDir
	// UserNamespace says that root inside is an unprivileged user outside.
	UserNamespace bool `json:"user_namespace"`
	LateMount     bool `json:"late_mount"` // Binding.Attachments and Binding.Mounts
	// MountFlags says that every mount has nosuid and nodev. Without, that setuid programs and device nodes have no effect
	// is left to no_new_privs and to the list of devices.
	MountFlags bool `json:"mount_flags"`
	// MountOwners says that files in mounts are the caller's, inside and outside. Without, they keep the owners they have
	// on the host.
	MountOwners bool `json:"mount_owners"`
	Overlay     bool `json:"overlay"`   // Binding.Overlay
	Files       bool `json:"files"`     // Binding.Files
	Listeners   bool `json:"listeners"` // Binding.Listeners
	// FileSockets says that Binding.Listeners may name sockets among the files of every sandbox. Without, only those of
	// long-lived sandboxes may.
	FileSockets bool `json:"file_sockets"`
	MemoryLimit bool `json:"memory_limit"`
	SwapLimit   bool `json:"swap_limit"`   // memory without swap
	SocketLimit bool `json:"socket_limit"` // buffers of TCP and UDP
	CPULimit    bool `json:"cpu_limit"`
	PIDsLimit   bool `json:"pids_limit"`
	DiskLimit   bool `json:"disk_limit"` // bytes and inodes of everything writable
	Throughput  bool `json:"throughput"` // Binding.Throughput
	NoExec      bool `json:"no_exec"`    // temporary places whose programs do not run
	Debuggers   bool `json:"debuggers"`  // programs that trace others of their sandbox, and nothing else
	Lasting     bool `json:"lasting"`    // cove.LifetimeDetached; the engine is an Adopter
	Pause       bool `json:"pause"`      // sandboxes are Pausers
	Reach       bool `json:"reach"`      // sandboxes are Reachers
	Layers      bool `json:"layers"`     // Template.Layer and Rootfs.Layers; Attachment.Owners and Memory
	Snapshot    bool `json:"snapshot"`
	Zygotes     bool `json:"zygotes"` // guest.MakeZygote and Binding.Copy
	// Missing explains each false above that is not just a thing to come: capability name to what to do about it.
	Missing map[string]string `json:"missing,omitempty"`
}

// Stats is the kernel's accounting of one sandbox.
type Stats struct {
	CPUTime    time.Duration
	MemoryPeak int64 // bytes
	PIDs       int64 // tasks now, of the user, the guest's own not counted
	PIDsPeak   int64 // likewise
	OOMKills   int64 // processes killed for memory
	PIDsDenied int64 // forks refused by the pids limit
	Locks      int64 // locks of files for which the sandbox was killed; 0 where it was not
}

// Swept counts what Sweep removed.
type Swept struct {
	Sandboxes int
	Items     []string // what was removed, for the log
}
