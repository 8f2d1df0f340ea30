//go:build linux

package docker

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"github.com/cove-sandbox/cove/internal/linux/enter"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// do does a job in the namespaces of a container of this machine: as root in this process, and for another user, whose
// service it is, in the container's user namespace, where cove-guest is root. Errors: those of enter.Job.Do.
func do(ctx context.Context, e *Engine, j enter.Job) (done enter.Done, err error) {
	if os.Geteuid() == 0 {
		return j.Do()
	}
	ours, theirs, err := unixconn.Pair()
	if err != nil {
		return done, err
	}
	defer ours.Close()
	defer context.AfterFunc(ctx, func() { ours.Close() })()
	cmd := exec.CommandContext(ctx, "nsenter", "--user", "--target", strconv.Itoa(j.PID), "--", e.o.Guest, enter.Flag)
	var said bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stderr = []string{}, theirs, &said
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return done, err
	}
	done, err = enter.Ask(ours, j)
	if ended := cmd.Wait(); ended != nil {
		for _, f := range done.Sockets {
			f.Close()
		}
		return enter.Done{}, fmt.Errorf("the namespaces of process %d cannot be entered: %w: %s", j.PID, ended,
			bytes.TrimSpace(said.Bytes()))
	}
	return done, err
}
