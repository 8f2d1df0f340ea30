package sandbox

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/store"
)

// service is something that this process does for a sandbox, on a socket inside that it holds.
type service struct {
	listen guest.Listen
	env    map[string]string
	front  string                                     // a directory inside, to be the first of PATH
	serve  func(ctx context.Context, ln net.Listener) // until ctx ends; closes ln
	git    workGit                                    // nil except for git of a repository that is not inside
}

// agentPlace is the path, inside, of the SSH agent that is lent to programs.
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

// lendAgent lets programs that connect to ln use the agent at a socket of this machine: see its public keys, and have
// it sign. It serves until ctx ends.
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
			host, err := new(net.Dialer).DialContext(ctx, "unix", socket)
			if err != nil {
				return // as if no agent were there
			}
			defer host.Close()
			defer context.AfterFunc(ctx, func() { host.Close() })()
			relay(c, host)
		})
	}
}

// Messages of the agent protocol (draft-ietf-sshm-ssh-agent): four bytes of
// length, big-endian, and as much, of which the first byte is the type.
const (
	agentFailure = 5  // SSH_AGENT_FAILURE
	agentList    = 11 // SSH_AGENTC_REQUEST_IDENTITIES
	agentSign    = 13 // SSH_AGENTC_SIGN_REQUEST

	maxAgentMessage = 256 << 10 // bytes, as OpenSSH has it
)

// relay passes on requests to an agent that is lent, with its answers. It refuses every request except listing keys and
// signing: no program inside adds or removes keys, locks the agent, or uses extensions of the protocol.
func relay(theirs, agent io.ReadWriter) error {
	for {
		request, err := readAgentMessage(theirs)
		if err != nil {
			return err
		}
		answer := []byte{agentFailure}
		if kind := request[0]; kind == agentSign || kind == agentList && len(request) == 1 {
			if err := writeAgentMessage(agent, request); err != nil {
				return err
			}
			if answer, err = readAgentMessage(agent); err != nil {
				return err
			}
		}
		if err := writeAgentMessage(theirs, answer); err != nil {
			return err
		}
	}
}

func readAgentMessage(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n == 0 || n > maxAgentMessage {
		return nil, cove.Errorf(cove.InvalidArgument, "a message of %d bytes is none of an SSH agent", n)
	}
	message := make([]byte, n)
	_, err := io.ReadFull(r, message)
	return message, err
}

func writeAgentMessage(w io.Writer, message []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...))
	return err
}
