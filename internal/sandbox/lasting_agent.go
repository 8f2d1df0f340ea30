package sandbox

import (
	"context"
	"net"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/store"
)

// agentPlace is where programs inside find an SSH agent that is lent to them.
const agentPlace = rootfs.Own + "/ssh-agent.sock"

// maxAgents is how many connections to it are served at a time.
const maxAgents = 16

// servicesOf are the services that a spec asks for, always in the same order:
// another process finds their sockets by it.
func servicesOf(spec store.SandboxSpec) []service {
	if spec.SSHAgent == "" {
		return nil
	}
	return []service{{
		listen: guest.Listen{Network: guest.UnixNetwork, Address: agentPlace},
		env:    map[string]string{"SSH_AUTH_SOCK": agentPlace},
		serve:  func(ctx context.Context, ln net.Listener) { lendAgent(ctx, ln, spec.SSHAgent) },
	}}
}

// lendAgent lets who connects to ln use the agent at a socket of this machine:
// see its public keys, and have it sign. It serves until ctx ends.
func lendAgent(ctx context.Context, ln net.Listener, socket string) {
	var serving sync.WaitGroup
	defer serving.Wait()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	places := make(chan struct{}, maxAgents)
	for {
		c, err := ln.Accept()
		if err != nil {
			ln.Close()
			return
		}
		select {
		case places <- struct{}{}:
		default:
			c.Close()
			continue
		}
		serving.Go(func() {
			defer func() { <-places }()
			defer c.Close()
			stop := context.AfterFunc(ctx, func() { c.Close() })
			defer stop()
			theirs, err := new(net.Dialer).DialContext(ctx, "unix", socket)
			if err != nil {
				return // as if no agent were there
			}
			defer theirs.Close()
			defer context.AfterFunc(ctx, func() { theirs.Close() })()
			agent.ServeAgent(lent{agent.NewClient(theirs)}, c)
		})
	}
}

// lent is what a sandbox may do with an agent: neither add nor remove keys, nor
// lock it, nor use what extends the protocol.
type lent struct{ to agent.ExtendedAgent }

var errLent = cove.Errorf(cove.Forbidden, "this agent is lent: it lists keys and signs")

// List implements agent.Agent.
func (l lent) List() ([]*agent.Key, error) { return l.to.List() }

// Sign implements agent.Agent.
func (l lent) Sign(key ssh.PublicKey, data []byte) (*ssh.Signature, error) {
	return l.to.Sign(key, data)
}

// SignWithFlags implements agent.ExtendedAgent.
func (l lent) SignWithFlags(key ssh.PublicKey, data []byte, flags agent.SignatureFlags) (*ssh.Signature, error) {
	return l.to.SignWithFlags(key, data, flags)
}

// Extension implements agent.ExtendedAgent.
func (lent) Extension(string, []byte) ([]byte, error) { return nil, agent.ErrExtensionUnsupported }

// Add implements agent.Agent.
func (lent) Add(agent.AddedKey) error { return errLent }

// Remove implements agent.Agent.
func (lent) Remove(ssh.PublicKey) error { return errLent }

// RemoveAll implements agent.Agent.
func (lent) RemoveAll() error { return errLent }

// Lock implements agent.Agent.
func (lent) Lock([]byte) error { return errLent }

// Unlock implements agent.Agent.
func (lent) Unlock([]byte) error { return errLent }

// Signers implements agent.Agent.
func (lent) Signers() ([]ssh.Signer, error) { return nil, errLent }
