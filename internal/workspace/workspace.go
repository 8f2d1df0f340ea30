// Package workspace is the contract for the files that a long-lived sandbox works on: a directory on the host that
// outlives processes, sandboxes and servers, until it is removed.
//
// [Workspaces] makes a workspace in a transaction: it exists completely, or not at all. Its content belongs to the
// sandbox, and so to an attacker: the host reads it only through descriptors, and no git of the host runs in it.
package workspace

import (
	"context"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Workspaces manages workspaces. Methods may be called concurrently.
type Workspaces interface {
	// Create makes the workspace of a sandbox, and reports its steps to progress, which may be nil. On error nothing is
	// left. Errors: InvalidArgument, NotFound (the repository, or the start), Forbidden, Conflict (the branch belongs
	// to another sandbox), StorageFull, Unavailable (the remote).
	Create(ctx context.Context, s Spec, progress func(Step)) (Workspace, error)
	// Open returns an existing workspace. Errors: NotFound, Corrupt.
	Open(ctx context.Context, id cove.SandboxID) (Workspace, error)
	// CheckRemove reports whether Remove may remove a workspace so. Errors: Conflict (its work was kept by an earlier
	// attempt, and would be lost), Unsupported (its work cannot be kept), Corrupt.
	CheckRemove(id cove.SandboxID, keepWork bool) error
	// Remove removes a workspace, if it exists; with keepWork the checkout stays in place, as a directory of the
	// caller's own. Errors: those of CheckRemove, StorageFull.
	Remove(ctx context.Context, id cove.SandboxID, keepWork bool) error
	// List returns the ids of all workspaces, including those without a sandbox.
	List(ctx context.Context) ([]cove.SandboxID, error)
}

// Disks are the disks of workspaces, each of which holds a checkout and a home. Methods may be called concurrently.
type Disks interface {
	// Used returns what a workspace and its home hold.
	Used(ctx context.Context, id cove.SandboxID) (Used, error)
	// Full reports whether the kernel lets nothing more be stored on a disk. It reads no tree.
	Full(id cove.SandboxID) (bool, error)
	// Bounds reports whether the kernel can hold new workspaces to their size. Errors: Unsupported.
	Bounds(ctx context.Context) error
	// Resize changes the size of a workspace's disk, which can only grow while its sandbox runs. Errors: NotFound,
	// Conflict (it is in use, or what it holds does not fit), StorageFull.
	Resize(ctx context.Context, id cove.SandboxID, to Disk, runs bool) error
	// Still calls f while the files of a workspace are all in its directory, and its disk does not change. That of a
	// sandbox that runs must be paused; any other is unmounted, until something opens it. Errors: NotFound, those of f.
	Still(ctx context.Context, id cove.SandboxID, runs bool, f func() error) error
	// Device returns the path of the block device that a workspace's files alone are on. Errors: NotFound, Unsupported
	// (its disk has none of its own).
	Device(id cove.SandboxID) (string, error)
	// Free returns the room on the disk of the host that holds the workspaces.
	Free() (hostdisk.Room, error)
	// Uploaded calls f with the bytes of a caller's uploads which no workspace has taken yet, without one of them. None
	// of them grows meanwhile. Errors: those of f, StorageFull.
	Uploaded(who cove.Principal, but string, f func(bytes int64) error) error
}

// Spec describes a workspace.
type Spec struct {
	ID         cove.SandboxID
	Name       string         // the sandbox's, for a branch name
	User       cove.User      // owner of the files, inside
	Repository *Repository    // nil: an empty directory
	Bind       string         // a directory of the caller's own in place of a new one, absolute; never removed
	Owner      cove.Principal // the requester
	Disk       Disk           // bounds everything of the workspace together; zero is no bound
	Layer      bool           // changes to the root filesystem are the workspace's, too
	// Within is another sandbox of the same client, whose home contains the checkout as a directory: the checkout has
	// no home and no mounts of its own. It borrows objects where that sandbox does.
	Within cove.SandboxID
}

// Disk is the size of the file system that holds a workspace and its home.
type Disk struct{ Bytes, Inodes int64 }

// DiskKind tells what holds a workspace to its size.
type DiskKind string

// Kinds of disks. The zero value is a workspace of an earlier version, which has no size of its own.
const (
	DiskImage   DiskKind = "image"   // the kernel: a file system of its own
	DiskWatched DiskKind = "watched" // Cove measures it, and pauses the sandbox
)

// Used describes the content of a disk.
type Used struct {
	Bytes, Files int64
	Unwritten    int64 // of Bytes: those that the host's disk does not have yet
	Kind         DiskKind
}

// Repository describes the checkout.
type Repository struct {
	Source   string // URL, OWNER/REPO or absolute directory
	Branch   string // empty: derived from the name
	From     string // empty: the default branch, or Branch if the remote has it
	Sparse   []string
	Depth    int // 0: all
	Worktree bool
	// Uncommitted starts at the working files of a directory, which need not be a repository, instead of a commit.
	Uncommitted bool
	// Ignored are paths of a directory that git ignores, and which are copied nevertheless.
	Ignored []string
	// Upload is a folder of another machine, whose name is Source; nil is none.
	Upload *Upload
}

// Upload is a folder that a client has sent as a pack.
type Upload struct {
	ID      string
	Commit  string   // to begin at
	From    string   // the branch or tag of the commit; may be empty
	Shallow []string // commits whose parents are not in the pack
	Remote  string   // for pushes, as the client names it; may be empty
}

// FolderScheme begins the name of a folder of another machine: file://HOST/PATH (RFC 8089).
const FolderScheme = "file://"

// Step is progress.
type Step struct {
	Text string  // "fetching https://git.example/owner/repo.git"
	Done float64 // 0 to 1; 0 if unknown
	// Bytes of a transfer that have arrived, and Total of all that will; 0 if unknown.
	Bytes, Total int64
}

// Workspace is an existing workspace.
type Workspace struct {
	ID cove.SandboxID
	// Root is Cove's own directory above all of the following, except those of a person.
	Root      string
	Directory string // of the checkout, on the host; shown at cove.Workspace
	Home      string // on the host; shown at cove.Home
	Disk      DiskKind
	// Layer keeps changes to the root filesystem (engine.Template); empty: the workspace has none.
	Layer string
	// Volumes is a directory on the disk for the volumes of the sandbox, which need not be there; empty: there is no disk.
	Volumes string
	// Bound reports that Directory is a person's: it is shown as that person's mount.
	Bound bool
	// Place is the checkout's path inside, if it lies within another sandbox. Such a checkout has no trustworthy path
	// on the host: the path to it belongs to that sandbox.
	Place string
	// Borrowed is a directory of borrowed objects, shown read-only at BorrowedPlace; empty: none.
	Borrowed string
	// Hidden is the git directory of a worktree, which is not inside. It is empty when git works inside by itself. If
	// it is shown to another sandbox, it must be directly below /, for the objects that it borrows.
	Hidden   string
	Worktree string // its name below Hidden/worktrees
	Checkout
}

// BorrowedPlace is the path of borrowed objects inside, where the checkout looks for them.
const BorrowedPlace = rootfs.Own + "/objects"

// Own names one of the directories below Root.
func (w Workspace) Own(dir string) hostpath.Own { return hostpath.Below(w.Root, dir) }

// Checkout describes the repository of a workspace; zero without one.
type Checkout struct {
	Source string // as requested
	Remote string // HTTPS address for pushes; empty if there is none
	Branch string // the sandbox's own, without refs/heads/
	From   string
	Base   string   // id of the starting commit, hex
	Shared []string // branches that every sandbox may read
}
