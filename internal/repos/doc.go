// Package repos owns the repositories that detached sandboxes work on: the store of mirrors, the workspaces with their
// checkouts, and the work that returns from them. It implements [workspace.Workspaces] with git on the host (package
// hostgit).
//
// # The store
//
// Below "repos" of Cove's home there is one bare mirror per repository. It contains only the well-known branches and
// the tags, because every sandbox of the repository can read all of its objects. A file lock protects writes, and the
// git process that writes inherits it: as long as that process runs, even after the one that started it, no other
// writes. The next writer removes the remains of a dead one. Borrowed objects are never removed: garbage collection
// keeps objects that no ref reaches any more.
//
// Mirrors are complete or partial. A partial mirror lacks the contents of files, which are fetched into it at their
// first checkout. Git inside fetches other contents by itself, through the gateway; git on the host never does. A
// request for a shorter history states a Depth, and its checkout borrows nothing.
//
// The mirror of a partial clone of this machine is partial, too. It gets what the clone has, and its promisor is that
// of the clone: the remote "origin". From there git on the host fetches what else a checkout needs, through the Outlet.
// A repository of this machine that borrows objects is read with those; the directories are judged first.
//
// # A workspace
//
//	workspaces/ID/
//	  record.json      its record
//	  disk.img         bounds what follows: it is mounted at disk/, which holds all
//	                   but import.git, unless the kernel cannot bound it
//	  checkout/        at /workspace inside; with its own .git
//	  home/            at /home/cove inside
//	  run/cove/objects a link to the mirror's objects, which are read-only at
//	                   /run/cove/objects inside: so the one relative path in
//	                   checkout/.git/objects/info/alternates is right in both
//	  import.git       the host's own, into which the sandbox's work is fetched
//	  repository.git   the repository of a worktree of a remote repository
//
// A workspace is made under another name and renamed, so that it exists completely or not at all. Submodules are not
// fetched, and files of LFS stay pointers: git inside fetches them through the gateway, where the policy allows it.
//
// Once a workspace exists, no git of the host runs in its checkout or with its .git, which belong to the sandbox. Its
// work returns by [Store.Import]: git inside sends, git on the host receives into import.git, checks every object, and
// shows from there.
package repos
