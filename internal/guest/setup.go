package guest

// Begin is what every sandbox begins with, whatever it becomes: the guest takes
// its ids, gets mounts of its own, a cgroup namespace, a loopback interface
// that is up, and the threads it will ever need, and carries out Steps. A guest
// that has done it may wait for its Setup.
//
// Steps are data: the host decides, in engine/native's pure planner, and the
// guest executes. They run in order, in the guest's own user and mount
// namespaces.
type Begin struct {
	// UID and GID are what the guest becomes, inside.
	UID int `json:"uid"`
	GID int `json:"gid"`
	// Staging is an empty host directory on which the sandbox is assembled: a
	// tmpfs is mounted there first. Targets of all Steps are paths in it.
	Staging string `json:"staging"`
	Steps   []Step `json:"steps"`
	// Listeners are made after Steps, for a Bind that asks for them. Those that it
	// does not ask for it closes.
	Listeners []Listen `json:"listeners,omitempty"`
}

// Setup is how the guest builds the sandbox's root filesystem, which will be
// the directory Root of the staging one.
type Setup struct {
	// Size in bytes and Inodes are what the file system on the staging
	// directory may hold: everything writable, which is what Stats measures.
	Size   int64  `json:"size"`
	Inodes int64  `json:"inodes"`
	Steps  []Step `json:"steps"`
}

// Root is the directory below Begin.Staging that becomes the sandbox's root.
const Root = "/root"

// StepKind says what a Step does.
type StepKind string

const (
	// StepTmpfs mounts a tmpfs of Size bytes and Inodes at Target.
	StepTmpfs StepKind = "tmpfs"
	// StepBind attaches the host's Source, or descriptor FD of the request
	// (a detached mount), at Target with Flags. A Target that is not there is
	// made. An Optional step is left out when Source does not exist. A Source
	// that is not what Is says is an error.
	StepBind StepKind = "bind"
	// StepBindInside attaches Source, below the staging directory too.
	StepBindInside StepKind = "bind-inside"
	// StepMove moves the mount at Source, below the staging directory too, with
	// everything on it.
	StepMove StepKind = "move"
	// StepOverlay mounts an overlay at Target: Source under Upper and Work, all
	// below the staging directory.
	StepOverlay StepKind = "overlay"
	StepProc    StepKind = "proc"
	StepDevpts  StepKind = "devpts"
	StepDir     StepKind = "dir"     // Mode, UID
	StepFile    StepKind = "file"    // Data, Mode
	StepSymlink StepKind = "symlink" // Source is the text
	// StepMask hides Target: a file behind /dev/null, a directory behind an
	// empty read-only tmpfs. Absent targets are left out.
	StepMask StepKind = "mask"
	// StepReadOnly makes the mount at Target (bound onto itself if it is none)
	// read-only with Flags. Absent targets are left out.
	StepReadOnly StepKind = "read-only"
	// StepNetlink sends Data, whole netlink messages in host byte order, to the
	// kernel; Target is NetlinkRoute or NetlinkNetfilter. Each message that asks
	// for an answer has to be accepted.
	StepNetlink StepKind = "netlink"
)

// The kernel's sides of StepNetlink.
const (
	NetlinkRoute     = "route"
	NetlinkNetfilter = "netfilter"
)

// Step is one step of a Begin, a Setup or a Bind.
type Step struct {
	Kind      StepKind  `json:"kind"`
	Target    string    `json:"target"`
	Source    string    `json:"source,omitempty"`
	Is        *Inode    `json:"is,omitempty"`
	FD        *int      `json:"fd,omitempty"` // index among the request's descriptors
	Flags     MountFlag `json:"flags,omitempty"`
	Optional  bool      `json:"optional,omitempty"`
	Existing  bool      `json:"existing,omitempty"` // leave out a StepBind or StepBindInside without a target
	Recursive bool      `json:"recursive,omitempty"`
	Size      int64     `json:"size,omitempty"`
	Inodes    int64     `json:"inodes,omitempty"`
	Mode      uint32    `json:"mode,omitempty"`
	UID       int       `json:"uid,omitempty"`
	Data      []byte    `json:"data,omitempty"`
	Upper     string    `json:"upper,omitempty"`
	Work      string    `json:"work,omitempty"`
}

// Inode tells one file or directory of the host from every other.
type Inode struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// MountFlag are the attributes of a mount.
type MountFlag uint32

const (
	ReadOnly MountFlag = 1 << iota
	NoSuid
	NoDev
	NoExec
	NoFollow // 5.14: of symbolic links
)

// Bind gives the sandbox to somebody and then seals the guest: after the
// answer it has no capabilities beyond Keep, no_new_privs, the filter, and no
// way back.
type Bind struct {
	Hostname  string   `json:"hostname"`
	Steps     []Step   `json:"steps,omitempty"` // late mounts
	Listeners []Listen `json:"listeners,omitempty"`
	// Scratch are the writable places, for Stats, when a container engine has
	// mounted each of them as a file system of its own.
	Scratch []string `json:"scratch,omitempty"`
	// Door is the index, among the request's descriptors, of a listening unix
	// socket. A guest that has one outlives its connections: it waits there for
	// the next, and keeps its listeners for it.
	Door *int `json:"door,omitempty"`
	// Hold are descriptors, by index, that stay open for as long as the guest
	// lives: locks that show that it does.
	Hold []int `json:"hold,omitempty"`
	Seal Seal  `json:"seal"`
}

// Listen is a listening socket to create in the sandbox's network namespace, or
// among its files.
type Listen struct {
	Network string `json:"network"` // "tcp4", "tcp6", "udp4", "udp6", UnixNetwork
	Address string `json:"address"` // numeric address and port; of UnixNetwork an absolute path
	// FD is the index, among the request's descriptors, of the socket where the
	// host has made it.
	FD *int `json:"fd,omitempty"`
}

// UnixNetwork is the network of sockets among the sandbox's files.
const UnixNetwork = "unix"

// Seal is what the guest gives up, and as whom the user's processes run.
type Seal struct {
	// UserUID and UserGID are the ids of the user's processes and files.
	UserUID int `json:"user_uid"`
	UserGID int `json:"user_gid"`
	// Pivot says that Setup assembled a root that has to be entered.
	Pivot bool `json:"pivot"`
	// Filter is a seccomp program: struct sock_filter, 8 bytes each, host byte
	// order.
	Filter []byte `json:"filter"`
	// OpenFiles and FileSize become RLIMIT_NOFILE and RLIMIT_FSIZE. Core dumps
	// are always off.
	OpenFiles int64 `json:"open_files"`
	FileSize  int64 `json:"file_size"`
}
