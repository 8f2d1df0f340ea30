//go:build linux

package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/cove-sandbox/cove"
)

// Write gives the user namespace of a process the map, by the tools that may do so for users without root.
func (m IDMap) Write(ctx context.Context, pid int) error {
	for tool, lines := range map[string]IDLines{"newuidmap": m.Users, "newgidmap": m.Groups} {
		args := append([]string{strconv.Itoa(pid)}, strings.Fields(lines.String())...)
		if out, err := exec.CommandContext(ctx, tool, args...).CombinedOutput(); err != nil {
			return cove.Errorf(cove.Unavailable, "%s: %w: %s", tool, err, strings.TrimSpace(string(out))).
				WithHint("check /etc/subuid and /etc/subgid, and that %s is setuid", tool)
		}
	}
	return nil
}

// RemoveAll removes a tree of which root inside may have given parts to other users. Those have subordinate ids, which
// the rights of this process reach only in a user namespace with the same map. A missing tree is no error.
func (d IDs) RemoveAll(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, fs.ErrPermission) || d.subordinate == (Owner{}) {
		return err
	}
	return d.within(context.Background(), "rm", "-rf", "--", dir)
}

// GiveBack makes this user the owner of all in a directory that root inside has given to subordinate ids. What belongs
// to others, who are none of these, stays theirs.
func (d IDs) GiveBack(ctx context.Context, dir string) error {
	if d.root || d.subordinate == (Owner{}) {
		return nil
	}
	// 65534 is an id inside, and stands for all that the namespace does not have: those chown refuses.
	const mine = `find -P "$0" -xdev ! -uid 0 -execdir chown -h 0:0 {} + 2>/dev/null
		[ -z "$(find -P "$0" -xdev ! -uid 0 ! -uid 65534 | head -c 1)" ]`
	return d.within(ctx, "sh", "-c", mine, dir)
}

// within runs a program of the host with Run, and returns what it says as the error.
func (d IDs) within(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var said strings.Builder
	cmd.Stderr = &said
	if err := d.Run(cmd); err != nil {
		return cove.Errorf(cove.Internal, "%s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return nil
}

// Run runs a program of the host: for a user with subordinate ids as root of a user namespace with the map of root
// inside.
func (d IDs) Run(cmd *exec.Cmd) error {
	if d.subordinate == (Owner{}) {
		return cmd.Run()
	}
	gate, ready, err := os.Pipe()
	if err != nil {
		return err
	}
	defer gate.Close()
	defer ready.Close()
	cmd.Args = append([]string{"sh", "-c", `read -r mapped <&3 && exec "$@" 3<&-`, "sh"}, cmd.Args...)
	cmd.Path, cmd.ExtraFiles = "/bin/sh", []*os.File{gate}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = subordinateMap(cove.RootUser, d.self, d.subordinate).Write(context.Background(), cmd.Process.Pid)
	if err == nil {
		_, err = ready.WriteString("mapped\n")
	}
	ready.Close()
	if e := cmd.Wait(); err == nil {
		err = e
	}
	return err
}
