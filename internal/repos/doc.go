// Package repos owns the repositories that lasting sandboxes work on: the
// store of mirrors, the workspaces with their checkouts, and what comes back
// from them. It implements [workspace.Workspaces] with git on the host
// (package hostgit).
//
// # The store
//
// Below "repos" of Cove's home there is one bare mirror per repository. It has
// the well-known branches and the tags, and nothing else, because every sandbox
// of the repository can read all of its objects. It is written to under a file
// lock, which the git that writes inherits: as long as that runs, whoever
// started it or not, nobody else writes, and what a dead one left is removed by
// the next. Objects that somebody borrows are never removed: a collection keeps
// what no ref reaches any more.
//
// Mirrors are whole, or partial: without the contents of files, which are
// fetched into the mirror when they are first checked out. Git inside fetches
// others by itself, through the gateway; on the host it never does. Who wants
// less history says how deep (Depth), which borrows nothing.
//
// # A workspace
//
//	workspaces/ID/
//	  record.json      what it is
//	  checkout/        at /workspace inside; with a .git of its own
//	  home/            at /home/cove inside
//	  run/cove/objects a link to the mirror's objects, which are read-only at
//	                   /run/cove/objects inside: so the one relative path in
//	                   checkout/.git/objects/info/alternates is right in both
//	  import.git       the host's own, which the sandbox's work is fetched into
//	  repository.git   the repository of a worktree of a remote repository
//
// It is made under another name and renamed, so that it is there whole or not
// at all. Submodules are not fetched, and files of LFS stay pointers: git inside
// fetches them through the gateway, where the policy allows it.
//
// Once a workspace is there, no git of the host runs in its checkout or with
// its .git, which belong to the sandbox. Its work comes back by [Store.Import]:
// git runs inside and sends, git on the host receives into import.git, checks
// every object, and shows from there.
package repos
