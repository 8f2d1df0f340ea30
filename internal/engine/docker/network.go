//go:build linux

package docker

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/system"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/enter"
	"github.com/cove-sandbox/cove/internal/linux/mounts"
	"github.com/cove-sandbox/cove/internal/linux/netjoin"
	"github.com/cove-sandbox/cove/internal/linux/transparent"
)

// addLocal says what c can do where Cove is root on the daemon's own machine, and what it does by a sidecar elsewhere.
// The daemon gives a container a network namespace with nothing but loopback; to make the gateway its only way out,
// Cove enters it, or a sidecar does (sidecar.go). And what a sandbox that lasts is given goes over sockets of this
// machine.
func addLocal(c *engine.Capabilities, info system.Info, root, here bool) {
	c.Networks = append(c.Networks, cove.NetworkLimited, cove.NetworkHostOnly, cove.NetworkOpen)
	c.Listeners = true
	addReach(c, root, here)
	why := ""
	switch {
	case !root:
		why = "only root can keep a container that lasts, or see its files; run cove as root, or use --engine native"
	case !here:
		why = "a container that lasts can be kept, and its files be seen, only on the daemon's own machine; " +
			"use --engine native"
	}
	if why != "" {
		c.Missing["file_sockets"], c.Missing["lasting"], c.Missing["throughput"] = why, why, why
		return
	}
	c.SocketLimit, c.Throughput = true, throttles(info)
	delete(c.Missing, "socket_limit")
	if !c.Throughput {
		c.Missing["throughput"] = "the daemon's kernel throttles no block devices"
	}
	c.Missing["file_sockets"] = noFileSockets
	switch {
	case c.UserNamespace || has(info, "rootless"):
		why = `the daemon maps ids, so that nothing of this machine's can be a sandbox's own; ` +
			`turn off "userns-remap" in its daemon.json, or use --engine native`
		c.Missing["lasting"], c.Missing["mount_owners"] = why, why
	case !mounts.CanMap():
		c.Lasting, c.Missing["mount_owners"] = true, "the kernel has no mounts with other owners; it needs Linux 5.12"
	default:
		c.Lasting, c.MountOwners, c.MountFlags = true, true, true
		delete(c.Missing, "mount_owners")
		delete(c.Missing, "mount_flags")
	}
}

// addOwn says what c can do with the containers of an ordinary user's own service. Cove gives each a user namespace in
// which the sandbox's user is this user, and enters it.
func addOwn(c *engine.Capabilities) {
	c.UserNamespace, c.Lasting, c.MountOwners, c.Reach = true, true, true, true
	for _, name := range []string{"user_namespace", "lasting", "mount_owners", "reach"} {
		delete(c.Missing, name)
	}
	c.Missing["throughput"] = "Podman throttles no block devices without root; use --engine native"
	c.Missing["file_sockets"] = noFileSockets
	c.MountFlags = mounts.CanMap() // both are by one system call
	delete(c.Missing, "mount_flags")
	if !c.MountFlags {
		c.Missing["mount_flags"] = "the kernel changes no flags of mounts; it needs Linux 5.12"
	}
}

// throttles reports whether the daemon can limit the throughput of block devices: it warns where the kernel, or its
// control groups, cannot.
func throttles(info system.Info) bool {
	return !slices.ContainsFunc(info.Warnings, func(w string) bool {
		return strings.Contains(w, "blkio throttle") || strings.Contains(w, "io.max")
	})
}

// noFileSockets says why a sandbox that is not long-lived has no sockets among its files: they lie in the directory
// that only a detached one has.
const noFileSockets = "only long-lived sandboxes have sockets among their files; use --engine native"

// listen makes the sockets of a binding that are not there yet in the container's network, and leads everything that
// wants to leave it there. Nothing but the guest runs yet.
func (s *sandbox) listen(ctx context.Context, c *running, listeners []guest.Listen, sockets []*os.File) error {
	var missing []netjoin.Socket
	for i, l := range listeners {
		if sockets[i] == nil {
			missing = append(missing, netjoin.Socket{Network: l.Network, Address: l.Address})
		}
	}
	if len(missing) == 0 {
		return nil
	}
	plan := transparent.Plan{TCPPort: engine.TransparentPort, DNSPort: engine.DNSPort}
	made, err := take(ctx, s, c, plan, missing)
	if err != nil {
		return err
	}
	for i := range sockets {
		if sockets[i] == nil {
			sockets[i], made = made[0], made[1:]
		}
	}
	return nil
}

// take makes the sockets the only way out of the container's network.
func take(ctx context.Context, s *sandbox, c *running, plan transparent.Plan,
	missing []netjoin.Socket) (made []*os.File, err error) {
	if !s.engine.enters {
		err = s.make(ctx, func(ctx context.Context) error {
			made, err = relay(ctx, s, c, plan, missing)
			return err
		})
		return made, err
	}
	pid, err := s.process(ctx, c, "network")
	if err != nil {
		return nil, err
	}
	messages, err := plan.Messages()
	if err != nil {
		return nil, err
	}
	done, err := do(ctx, s.engine, enter.Job{PID: pid, Take: &enter.Take{Messages: messages, Sockets: missing}})
	return done.Sockets, err
}

// shown are the binds of Cove's own files. What is shown only in place of another is asked of the container that is
// there.
func (s *sandbox) shown(ctx context.Context, files []engine.File) (binds []bind, err error) {
	s.mu.Lock()
	id := s.current.id
	s.mu.Unlock()
	for _, f := range files {
		if f.Existing {
			there, err := s.engine.api.exists(ctx, id, f.Target)
			if err != nil {
				return nil, err
			}
			if !there {
				continue
			}
		}
		is, err := engine.Identify(f.Place)
		if err != nil {
			return nil, err
		}
		binds = append(binds, bind{source: is.Path, target: f.Target, readOnly: true, own: true, existing: f.Existing})
	}
	return binds, nil
}

// has reports whether the daemon names a security option ("name=seccomp,profile=default", or just "seccomp").
func has(info system.Info, option string) bool {
	return slices.ContainsFunc(info.SecurityOptions, func(s string) bool {
		name, _, _ := strings.Cut(s, ",")
		return strings.TrimPrefix(name, "name=") == option
	})
}
