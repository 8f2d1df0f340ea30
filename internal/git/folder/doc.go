// Package folder reads a person's own folders as git sees them: where a repository is, how its working files stand, and
// which commit holds them with all that is not committed. It packs them for a server of another machine, too.
//
// Git runs as package hostgit has it, so that the folder starts no program, and nothing in the folder changes. The
// package builds on every system that has a client.
package folder
