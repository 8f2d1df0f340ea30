//go:build !linux

package session

import (
	"context"
	"io"
	"net"
	"path"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/compose"
)

// Here returns why no sandboxes run on this machine.
func Here() error {
	return cove.Errorf(cove.Unsupported, "cove runs sandboxes on Linux").
		WithHint("name a server: --server ssh://HOST (docs/install.md)")
}

// OwnPeer passes every connection: whose it is, is asked on Linux alone.
func OwnPeer(net.Conn) error { return nil }

// instanceDir is never looked into: Here comes first.
const instanceDir = "instances"

// StartServer is refused.
func (sess *Session) StartServer(context.Context) (address string, err error) { return "", Here() }

// StopServer is refused.
func StopServer(context.Context, *Session) (pid int, err error) { return 0, Here() }

// Alone has no other command wait: these systems have no server.
func Alone(context.Context, string) (release func(), err error) { return func() {}, nil }

// EnsureImage is refused.
func EnsureImage(context.Context, *Session, NewBuild) (name string, err error) {
	return "", Here()
}

// FetchImage is refused.
func FetchImage(context.Context, *Session, string) error { return Here() }

// FetchArtifact is refused.
func FetchArtifact(context.Context, *Session, string) (Artifact, error) { return Artifact{}, Here() }

// MergeCompose is refused.
func MergeCompose(context.Context, *Session, compose.Request) (compose.Merged, error) {
	return compose.Merged{}, Here()
}

// AbsoluteImage leaves the path in an image string as it is: it is the server's.
func AbsoluteImage(s, _ string) string { return s }

// ServerPath returns a path of the server, which is Linux's.
func ServerPath(name string) (string, error) {
	if !path.IsAbs(name) {
		return "", cove.Errorf(cove.InvalidArgument, "%s is no absolute path of the server", name).
			WithHint("a directory of this machine cannot be attached to a sandbox of another one")
	}
	return path.Clean(name), nil
}

// ApplyHere is refused: what changes a directory all at once, and follows no link in it, is of Linux.
func ApplyHere(context.Context, *Session, io.Reader, api.ApplyRequest) (api.AppliedWork, error) {
	return api.AppliedWork{}, cove.Errorf(cove.Unsupported, "cove changes directories on Linux only").
		WithHint("have git do it: \"cove diff SANDBOX >work.patch\", look at it, and \"git apply work.patch\"")
}

// Origin is refused.
func Origin(context.Context, string) (string, error) { return "", Here() }

// Branch is a branch of a repository of this machine.
type Branch struct{}

// RemovableBranch is refused.
func RemovableBranch(context.Context, string, string, string, bool) (*Branch, error) {
	return nil, Here()
}

// Name returns the branch's name.
func (*Branch) Name() string { return "" }

// Remove is refused.
func (*Branch) Remove(context.Context) error { return Here() }

func forkServer(string) []string { return nil }
