package doctor

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/localsocket"
)

// checkPeer accepts a connection from itself at a socket of the kind that the owner has, and one from a user namespace.
func checkPeer(ctx context.Context, h *host) outcome {
	dir, err := os.MkdirTemp("", "cove-doctor-")
	if err != nil {
		return unknown("a place for a socket", err)
	}
	defer os.RemoveAll(dir)
	ln, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		return unknown("a socket", err)
	}
	defer ln.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { ln.Close() })
	judge := func(dial func() error) (verdict, err error) {
		ended := make(chan error, 1)
		go func() {
			err := dial()
			if err != nil {
				cancel()
			}
			ended <- err
		}()
		conn, err := ln.Accept()
		if err != nil {
			return nil, errors.Join(<-ended, err)
		}
		verdict = localsocket.CheckPeer(conn)
		conn.Close()
		return verdict, <-ended
	}
	own, err := judge(func() error {
		conn, err := net.Dial("unix", ln.Addr().String())
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = io.Copy(io.Discard, conn)
		return err
	})
	if err != nil {
		return unknown("a connection", err)
	}
	if own != nil {
		return fail("this process is refused: "+own.Error(), "needs /proc, with the processes of this user (hidepid)")
	}
	inside, err := judge(func() error {
		_, err := h.try(ctx, trial{name: "connect", args: []string{ln.Addr().String()},
			namespaces: unix.CLONE_NEWUSER | unix.CLONE_NEWPID})
		return err
	})
	if err != nil {
		return unknown("a connection from another user namespace", err)
	}
	if inside == nil {
		return fail("a process in another user namespace passed",
			"needs a kernel with user namespaces in /proc (CONFIG_USER_NS)")
	}
	return ok("this process passed, and one in another user namespace did not")
}
