package guest

// Begin is the part of a sandbox's setup that does not depend on its plan. The guest takes its ids, gets its own
// mounts, a cgroup namespace and a loopback interface, and executes Steps. It may then wait for its Setup.
//
// Steps are data: engine/native's pure planner decides on the host, and the guest executes. Steps run in order, in the
// guest's own user and mount namespaces.
type Begin struct {
	// UID and GID are the guest's own ids, inside.
	UID int `json:"uid"`
	GID int `json:"gid"`
	// Staging is an empty host directory on which the sandbox is assembled: a
	// tmpfs is mounted there first. Targets of all Steps are paths in it.
	Staging string `json:"staging"`
	Steps   []Step `json:"steps"`
	// Listeners are made after Steps, for the Bind that requests them. Bind closes listeners that it does not request.
	Listeners []Listen `json:"listeners,omitempty"`
}

// Setup makes the guest build the sandbox's root filesystem, in the directory Root of the staging one.
type Setup struct {
	// Size in bytes and Inodes limit the staging file system: everything writable, which Stats measures.
	Size   int64  `json:"size"`
	Inodes int64  `json:"inodes"`
	Steps  []Step `json:"steps"`
}

const (
	// Threads is the least number of threads of a guest that is a program, before the user's first process.
	Threads = 16
	// LateThreads is how many threads more the guest's runtime may want later, which happens once in a hundred sandboxes.
	// Where it does not, the user has them.
	LateThreads = 2
)

// Root is the directory below Begin.Staging that becomes the sandbox's root.
const Root = "/root"

// StepKind is the action of a Step.
type StepKind string

const (
	// StepTmpfs mounts a tmpfs of Size bytes and Inodes at Target.
	StepTmpfs StepKind = "tmpfs"
	// StepBind attaches the host's Source, or descriptor FD of the request (a detached mount), at Target with Flags. A
	// missing Target is made. An Optional step is skipped when Source does not exist. A Source that is not the inode Is
	// fails the step.
	StepBind StepKind = "bind"
	// StepBindInside attaches Source, which lies below the staging directory too.
	StepBindInside StepKind = "bind-inside"
	// StepMove moves the mount at Source, below the staging directory too, with its submounts.
	StepMove StepKind = "move"
	// StepOverlay mounts an overlay at Target: the directories named Lower below Source, the uppermost first, or Source
	// itself without names, under Upper and Work, all below the staging directory. An Optional one is not mounted where
	// the kernel refuses; nothing leads from the directory of Target to it by a symbolic link.
	StepOverlay StepKind = "overlay"
	StepProc    StepKind = "proc"
	// StepDevpts mounts terminals of the sandbox's own at Target, at most Inodes at a time.
	StepDevpts  StepKind = "devpts"
	StepDir     StepKind = "dir"     // Mode, UID, GID
	StepFile    StepKind = "file"    // Data, Mode, UID, GID
	StepSymlink StepKind = "symlink" // Source is the text
	// StepSysctl writes Data to Target, a setting of the sandbox's user namespace, unless the kernel has none of the name.
	StepSysctl StepKind = "sysctl"
	// StepMask hides Target, unless missing: a file behind /dev/null, a directory behind an empty read-only tmpfs.
	StepMask StepKind = "mask"
	// StepReadOnly makes the mount at Target read-only with Flags, after binding a Target that is no mount onto itself.
	// A missing Target is skipped.
	StepReadOnly StepKind = "read-only"
	// StepGuard attaches Target on itself, with Flags. It has to be what Is says, and no symbolic link leads to it.
	StepGuard StepKind = "guard"
	// StepNetlink sends Data, whole netlink messages in host byte order, to the kernel; Target is NetlinkRoute or
	// NetlinkNetfilter. The kernel must accept each message that requests an acknowledgement.
	StepNetlink StepKind = "netlink"
)

// The kernel's protocols for StepNetlink.
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
	Existing  bool      `json:"existing,omitempty"` // skip a StepBind or StepBindInside without a target
	Recursive bool      `json:"recursive,omitempty"`
	Size      int64     `json:"size,omitempty"`
	Inodes    int64     `json:"inodes,omitempty"`
	Mode      uint32    `json:"mode,omitempty"`
	UID       int       `json:"uid,omitempty"`
	GID       int       `json:"gid,omitempty"`
	Data      []byte    `json:"data,omitempty"`
	Lower     []string  `json:"lower,omitempty"`
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

// Bind hands the sandbox to its user and then seals the guest. After the answer the guest has no_new_privs, the filter,
// no way back, and no capabilities except those to start and signal the user's processes.
type Bind struct {
	Hostname  string   `json:"hostname"`
	Steps     []Step   `json:"steps,omitempty"` // late mounts
	Listeners []Listen `json:"listeners,omitempty"`
	// Scratch are the writable places, for Stats, when a container engine has mounted each as its own file system.
	Scratch []string `json:"scratch,omitempty"`
	// Door is the index, among the request's descriptors, of a listening unix socket. A guest with a door outlives its
	// connections: it accepts the next one there, and keeps its listeners for it.
	Door *int `json:"door,omitempty"`
	// Hold are descriptors, by index, that stay open as long as the guest lives: locks that prove it alive.
	Hold []int `json:"hold,omitempty"`
	Seal Seal  `json:"seal"`
	// Copy has the guest make a process from a zygote, for the Start that asks for it.
	Copy *Copy `json:"copy,omitempty"`
}

// Copy is a program made from a zygote, which waits at the named pipe of Path as the zygote's does.
type Copy struct {
	FD   int         `json:"fd"` // the index of the zygote, among the request's descriptors
	Path string      `json:"path"`
	Spec ProcessSpec `json:"spec"`
	// Sparse has it share pages with the zygote until it writes to them; else they are its own before it runs.
	Sparse bool `json:"sparse,omitempty"`
}

// Listen is a listening socket to make in the sandbox's network namespace, or among its files.
type Listen struct {
	Network string `json:"network"` // "tcp4", "tcp6", "udp4", "udp6", UnixNetwork
	Address string `json:"address"` // numeric address and port; of UnixNetwork an absolute path
	// FD is the index, among the request's descriptors, of a socket that the host has made.
	FD *int `json:"fd,omitempty"`
}

// UnixNetwork is the network of sockets among the sandbox's files.
const UnixNetwork = "unix"

// Seal lists the privileges that the guest drops, and the ids of the user's processes.
type Seal struct {
	// UserUID and UserGID are the ids of the user's processes and files.
	UserUID int `json:"user_uid"`
	UserGID int `json:"user_gid"`
	// UserGroups are the supplementary groups of the user's processes.
	UserGroups []int `json:"user_groups,omitempty"`
	// Capabilities are the bits that a user may have who is root inside, or may become it by programs that are setuid;
	// with none there is no_new_privs. A guest that shares its id with root inside keeps them.
	Capabilities uint64 `json:"capabilities,omitempty"`
	// Pivot makes the guest enter the root that Setup assembled.
	Pivot bool `json:"pivot"`
	// Filter is a seccomp program: struct sock_filter, 8 bytes each, host byte order.
	Filter []byte `json:"filter"`
	// OpenFiles and FileSize become RLIMIT_NOFILE and RLIMIT_FSIZE. Core dumps are always off. The limits of pending
	// signals and of message queues become half of the caller's.
	OpenFiles int64 `json:"open_files"`
	FileSize  int64 `json:"file_size"`
}
