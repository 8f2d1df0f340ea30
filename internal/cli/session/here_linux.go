package session

import (
	"context"
	"io"
	"net"
	"path/filepath"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/httpapi/workspec"
	"github.com/cove-sandbox/cove/internal/image/source"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/linux/forkserver"
	"github.com/cove-sandbox/cove/internal/linux/peeruser"
	"github.com/cove-sandbox/cove/internal/repos"
)

// This file and here_other.go have what a command does on this machine itself, which is Linux here and nothing there.

// Here returns nil: sandboxes can run on this machine.
func Here() error { return nil }

// OwnPeer refuses a connection of another user of this machine than this process's and root.
func OwnPeer(c net.Conn) error { return peeruser.CheckOwn(c) }

// forkServer starts a fork server from cove-guest, and returns variables for the program with the daemon; none where it
// cannot, which that program finds out by itself.
func forkServer(guest string) []string {
	variable, err := forkserver.Ahead(guest)
	if err != nil {
		return nil
	}
	return []string{variable}
}

const instanceDir = instance.Dir

// AbsoluteImage makes the path in an image string absolute: a server of this machine has another working directory.
func AbsoluteImage(s, dir string) string { return source.Absolute(s, dir) }

// ServerPath returns a path for a server, which knows no current directory.
func ServerPath(path string) (string, error) { return filepath.Abs(path) }

// ApplyHere applies work that a server of another machine sends to a directory of this one.
func ApplyHere(ctx context.Context, sess *Session, sent io.Reader, req api.ApplyRequest) (api.AppliedWork, error) {
	cfg, err := sess.Config()
	if err != nil {
		return api.AppliedWork{}, err
	}
	store, err := repos.Open(repos.Options{Home: cfg.Home, Log: sess.QuietLogger(cfg)})
	if err != nil {
		return api.AppliedWork{}, err
	}
	of, style, err := workspec.ApplyStyle(req)
	if err != nil {
		return api.AppliedWork{}, err
	}
	done, err := store.ApplySent(ctx, sent, of.Paths, req.Directory, style)
	if err != nil {
		return api.AppliedWork{}, err
	}
	return workspec.AppliedWork(done), nil
}

// Origin returns the address that a sandbox of the repository around a directory of this machine pushes to.
func Origin(ctx context.Context, dir string) (string, error) { return repos.Origin(ctx, dir) }

// Branch is a branch of a repository of this machine.
type Branch = repos.Branch

// RemovableBranch returns a branch of a repository of this machine, if it can be removed.
func RemovableBranch(ctx context.Context, dir, name, except string, insist bool) (*Branch, error) {
	return repos.RemovableBranch(ctx, dir, name, except, insist)
}
