// Package workspace is the contract between a lasting sandbox and whoever keeps
// the files it works on: a directory on the host that outlives processes,
// sandboxes and servers, until it is removed.
//
// A [Workspaces] makes one in a transaction: it is there whole, or not at all.
// What is in it belongs to the sandbox, which is to say to the attacker: nobody
// on the host reads it but through descriptors, and no git of the host runs in
// it.
package workspace

import (
	"context"

	"github.com/cove-sandbox/cove"
)

// Workspaces keeps workspaces. Methods may be called concurrently.
type Workspaces interface {
	// Create makes the workspace of a sandbox, and tells its steps to progress,
	// which may be nil. On error nothing is left. Errors: InvalidArgument,
	// NotFound (the repository, or what to begin at), Forbidden, Conflict (the
	// branch is another sandbox's), StorageFull, Unavailable (the remote).
	Create(ctx context.Context, s Spec, progress func(Step)) (Workspace, error)
	// Open finds one that is there. Errors: NotFound, Corrupt.
	Open(ctx context.Context, id cove.SandboxID) (Workspace, error)
	// Remove removes one, if it is there; with keepWork the checkout stays
	// where it is, as a directory of the caller's own.
	Remove(ctx context.Context, id cove.SandboxID, keepWork bool) error
	// List lists those that are there, also without a sandbox.
	List(ctx context.Context) ([]cove.SandboxID, error)
	// Used is how many bytes one takes on disk.
	Used(ctx context.Context, id cove.SandboxID) (int64, error)
}

// Spec says what a workspace must be.
type Spec struct {
	ID         cove.SandboxID
	Name       string         // of the sandbox, for a branch's name
	User       cove.User      // whose the files are, inside
	Repository *Repository    // nil is an empty directory
	Bind       string         // a directory of the caller's own instead of one that is made, absolute; it is never removed
	Owner      cove.Principal // who asked
	// Within is another sandbox of the same client's, in whose home the checkout
	// is to be, as a directory of its own: it has no home, and no mounts. It borrows
	// objects where that sandbox does.
	Within cove.SandboxID
}

// Repository says what to check out.
type Repository struct {
	Source   string // URL, OWNER/REPO or absolute directory
	Local    bool   // the machine's owner asks, who may name a directory
	Branch   string // empty is one made of the name
	From     string // empty is the default branch, or Branch where the remote has it
	Sparse   []string
	Depth    int // 0 is all
	Worktree bool
	// Uncommitted begins at what is in the working files of a directory, which
	// need not be a repository, and not at what is committed.
	Uncommitted bool
}

// Step is progress.
type Step struct {
	Text string  // "fetching https://git.example/owner/repo.git"
	Done float64 // 0 to 1; 0 where it is not known
	Note string  // how far it is, where that is no part of a whole: "120 MB so far"
}

// Workspace is one that is there.
type Workspace struct {
	ID        cove.SandboxID
	Directory string // of the checkout, on the host; mounted at cove.Workspace
	Home      string // on the host; mounted at cove.Home
	// Place is where the checkout is inside, where it is within another sandbox.
	// On the host it has no directory then that leads where one thinks: what is on
	// the way to it is that sandbox's.
	Place string
	// Mounts and Files are what it needs beside these: objects that are borrowed.
	Mounts []cove.Mount
	// Hidden is the git directory of a worktree, which is not inside. Empty
	// when git works inside by itself. Where it is shown to another sandbox, it
	// has to be directly below /, for the objects that it borrows.
	Hidden   string
	Worktree string // its name below Hidden/worktrees
	Checkout
}

// Checkout is what a workspace knows of its repository; zero without one.
type Checkout struct {
	Source string // as asked for
	Remote string // HTTPS address that is pushed to; empty when there is none
	Branch string // the sandbox's own, without refs/heads/
	From   string
	Base   string   // id of the commit it began at, hex
	Shared []string // branches that everybody may read
}
