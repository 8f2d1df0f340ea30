//go:build linux

package native

import (
	"context"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/remote"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// newBlank makes a blank for a class of users, with a group of that name and an id range. On error nothing is left.
func (e *Engine) newBlank(ctx context.Context, u cove.User, online bool, name string,
	ranges *local.Ranges) (b *blank, err error) {
	b = &blank{online: online, tasks: 1, releaseIDs: func() {}, ownerships: map[ownership]*os.File{},
		done: make(chan struct{})}
	defer func() {
		if err != nil {
			b.remove()
			b = nil
		}
	}()
	var network []guest.Step
	if online {
		if network, err = planNetwork(); err != nil {
			return b, err
		}
	}
	if b.ids, b.releaseIDs, err = e.ids.Map(u, ranges); err != nil {
		return b, err
	}
	if b.group, err = e.hierarchy.Create(name); err != nil {
		return b, cove.Errorf(cove.Unavailable, "make a control group: %w", err).WithHint("run \"cove doctor\"")
	}
	conn, theirs, err := unixconn.Pair()
	if err != nil {
		return b, err
	}
	err = b.start(ctx, &e.forks, e.accountable(b.ids), theirs)
	theirs.Close()
	if err == nil {
		err = e.writeIDs(ctx, b)
	}
	if err != nil {
		conn.Close()
		return b, err
	}
	if b.client, err = guest.NewClient(ctx, remote.Serve(conn)); err != nil {
		return b, b.explain("start the guest", err)
	}
	go b.collect()
	b.begun = planBegin(b.ids.Guest, e.staging, e.watches, network)
	if err = b.client.Begin(ctx, b.begun); err != nil {
		return b, b.explain("begin the sandbox", err)
	}
	return b, nil
}

// accountable is the user of the host for whom the kernel counts what a sandbox has of inotify, pending signals and
// message queues: as root one of its own range, so that no sandbox takes another's.
func (e *Engine) accountable(ids local.IDMap) int {
	if e.root {
		return ids.Users.OnHost(0)
	}
	return e.ids.Self().UID
}

// writeIDs gives the guest's user namespace its maps. The guest waits for the plan meanwhile.
func (e *Engine) writeIDs(ctx context.Context, b *blank) error {
	if b.ids.Tool {
		return b.ids.Write(ctx, b.process.PID())
	}
	pid := strconv.Itoa(b.process.PID())
	type file struct{ name, text string }
	maps := []file{{"uid_map", b.ids.Users.String()}, {"gid_map", b.ids.Groups.String()}}
	if !e.root {
		maps = append([]file{{"setgroups", "deny"}}, maps...)
	}
	for _, m := range maps {
		if err := os.WriteFile(filepath.Join("/proc", pid, m.name), []byte(m.text), 0); err != nil {
			return cove.Errorf(cove.Unavailable, "cannot map ids into the sandbox: %w", err).WithHint("run \"cove doctor\"")
		}
	}
	return nil
}

// ownership is a user namespace for idmapped mounts, in which what belongs to an owner of the host belongs to a user of
// the sandbox. It stays open until the sandbox has all of its mounts.
func (e *Engine) ownership(b *blank, of local.Owner, u cove.User) (*os.File, error) {
	inside := local.Owner{UID: b.ids.Users.OnHost(u.UID), GID: b.ids.Groups.OnHost(u.GID)}
	key := ownership{of, inside}
	b.owning.Lock()
	defer b.owning.Unlock()
	if ns := b.ownerships[key]; ns != nil {
		return ns, nil
	}
	ns, err := local.Ownership(e.program.Path(), guestEnv, of, inside)
	if err == nil {
		b.ownerships[key] = ns
	}
	return ns, err
}
