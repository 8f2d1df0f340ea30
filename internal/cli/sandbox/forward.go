package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/devcontainers"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/devcontainer"
	"github.com/cove-sandbox/cove/internal/pattern"
)

func forwardCommand(sess *session.Session) *cobra.Command {
	var target flags.Target
	var ports []devcontainer.Port
	c := &cobra.Command{
		Use:   "forward",
		Short: "Reach ports of a sandbox from this machine",
		Long: `Listen at ports of this machine's loopback, and carry each connection to a TCP port
of a sandbox that runs, until ctrl-c. PORT alone listens at the same number,
LOCAL:PORT at LOCAL, and 0:PORT at a number that is free. SERVICE:PORT is a port
of a service beside the sandbox. Without a port, they are those of the sandbox's
dev container: forwardPorts, appPort, and ports of its file of Compose.

A program inside need not listen at all addresses: its own localhost is reached.
What answers is a program of the sandbox, and not trusted. Nothing of the sandbox's
reaches this machine by it, and only programs of this machine can connect.`,
		Example: `  cove forward brave-otter 3000
  cove forward brave-otter 8080:80 0:9229
  cove forward shop db:5432
  cove forward`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return target.With(cmd, sess, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
				return forward(ctx, sess, c, s, ports)
			})
		},
	}
	target.AddTo(sess, c)
	c.Use += " [[LOCAL:][SERVICE:]PORT]..."
	c.Args = func(cmd *cobra.Command, args []string) (err error) {
		if len(args) > 0 && !portText.MatchString(args[0]) {
			if err := target.Take(cmd, args[:1]); err != nil {
				return err
			}
			args = args[1:]
		}
		for _, text := range args {
			p, err := parsePort(text)
			if err != nil {
				return err
			}
			ports = append(ports, p)
		}
		return nil
	}
	sess.AddJSON(c.Flags(), "print one JSON object, once it listens")
	return c
}

// portText is [LOCAL:][SERVICE:]PORT.
var portText = pattern.New(`^(?:([0-9]+):)?(?:([a-z][a-z0-9-]*):)?([0-9]+)$`)

// parsePort reads [LOCAL:][SERVICE:]PORT. Errors: InvalidArgument.
func parsePort(text string) (p devcontainer.Port, err error) {
	m := portText.FindStringSubmatch(text)
	if m == nil {
		return p, cove.Errorf(cove.InvalidArgument, "%.100q is no port", text).
			WithHint("write PORT, LOCAL:PORT or SERVICE:PORT, such as 3000, 8080:80 or db:5432")
	}
	inside, err := strconv.ParseUint(m[3], 10, 16)
	if err != nil || inside == 0 {
		return p, cove.Errorf(cove.InvalidArgument, "%.100q: a port is from 1 to 65535", text)
	}
	p = devcontainer.Port{Service: m[2], Port: uint16(inside)}
	if m[1] == "" {
		return p, nil
	}
	local, err := strconv.ParseUint(m[1], 10, 16)
	if err != nil {
		return p, cove.Errorf(cove.InvalidArgument, "%.100q: a port of this machine is from 1 to 65535, or 0 for a free one",
			text)
	}
	p.Local = new(uint16(local))
	return p, nil
}

// forwarded is a port of this machine whose connections go to a port of a sandbox.
type forwarded struct {
	Local   string `json:"local"` // HOST:PORT
	Sandbox string `json:"sandbox"`
	Port    uint16 `json:"port"`

	target    string // the sandbox, for the server: an id, which a new name leaves as it is
	listeners []net.Listener
	mu        sync.Mutex
	said      string // the last failure, since a connection succeeded
}

// forward listens at the ports, and carries connections until ctx ends or the sandbox has gone.
func forward(ctx context.Context, sess *session.Session, c *client.Client, s api.Sandbox,
	ports []devcontainer.Port) error {
	asked := len(ports) > 0
	if !asked {
		var err error
		if ports, err = devcontainers.Ports(sess, s.ID); err != nil {
			return err
		}
		if len(ports) == 0 {
			return cove.Errorf(cove.InvalidArgument, "no port is given, and %s has no dev container that names one", s.Name).
				WithHint("give one: %s", sess.Command("forward", s.Name, "3000"))
		}
	}
	if s.State != string(cove.StateRunning) {
		return cove.Errorf(cove.Conflict, "the sandbox %s is %s", s.Name, s.State).
			WithHint("start it: %s", sess.Command("start", s.Name))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all []*forwarded
	defer func() {
		for _, f := range all {
			f.close()
		}
	}()
	for _, p := range ports {
		f, err := listenAt(p, s, !asked)
		if err != nil {
			return err
		}
		all = append(all, f)
	}
	if err := sess.Show(forwardsOf(all), nil); err != nil {
		return err
	}
	var carrying sync.WaitGroup
	for _, f := range all {
		for _, ln := range f.listeners {
			carrying.Go(func() { cancel(f.serve(ctx, sess, c, ln)) })
		}
	}
	<-ctx.Done()
	for _, f := range all {
		f.close()
	}
	carrying.Wait()
	if err := context.Cause(ctx); cove.ErrorCode(err) == cove.NotFound || cove.ErrorCode(err) == cove.Forbidden {
		return err
	}
	return nil // ctrl-c is its only other end
}

func forwardsOf(all []*forwarded) ui.Result {
	var text strings.Builder
	for _, f := range all {
		fmt.Fprintf(&text, "%s -> port %d of %s\n", f.Local, f.Port, f.Sandbox)
	}
	return ui.Result{Value: map[string]any{"forwards": all}, Text: text.String()}
}

// listenAt listens at both addresses of this machine's loopback. Where the number is taken and may be another, it is a
// free one.
func listenAt(p devcontainer.Port, s api.Sandbox, anyNumber bool) (*forwarded, error) {
	f := &forwarded{Sandbox: s.Name, Port: p.Port, target: s.ID}
	if p.Service != "" {
		f.Sandbox += "." + p.Service
		f.target = f.Sandbox
	}
	local := p.Port
	if p.Local != nil {
		local = *p.Local
	}
	err := f.listen(local)
	if err != nil && anyNumber {
		err = f.listen(0)
	}
	if err != nil {
		return nil, cove.Errorf(cove.Conflict, "cannot listen at port %d of this machine: %w", local, ui.Cause(err)).
			WithHint("take another: %d:%d, or 0:%d for one that is free", freeNumber(local), p.Port, p.Port)
	}
	return f, nil
}

// freeNumber is another number to propose.
func freeNumber(taken uint16) int {
	if taken < 1024 {
		return int(taken) + 8000
	}
	return int(taken)%65535 + 1
}

func (f *forwarded) listen(number uint16) error {
	four, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(number))))
	if err != nil {
		return err
	}
	f.listeners = []net.Listener{four}
	_, port, _ := net.SplitHostPort(four.Addr().String()) // of a TCP address, which has one
	f.Local = net.JoinHostPort("localhost", port)
	six, err := net.Listen("tcp6", net.JoinHostPort("::1", port))
	switch {
	case err == nil:
		f.listeners = append(f.listeners, six)
	case hasLoopback6():
		f.close()
		return err
	}
	return nil
}

// hasLoopback6 reports whether this machine has ::1.
func hasLoopback6() bool {
	ln, err := net.Listen("tcp6", "[::1]:0")
	if err == nil {
		ln.Close()
	}
	return err == nil
}

func (f *forwarded) close() {
	for _, ln := range f.listeners {
		ln.Close()
	}
}

// serve carries the connections of a listener. It returns when the listener is closed, or why the sandbox is reached no
// more.
func (f *forwarded) serve(ctx context.Context, sess *session.Session, c *client.Client, ln net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	var carrying sync.WaitGroup
	defer carrying.Wait()
	for {
		local, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if err := session.OwnPeer(local); err != nil {
			local.Close()
			f.say(ctx, sess, err)
			continue
		}
		carrying.Go(func() {
			if err := f.carry(ctx, sess, c, local); err != nil {
				cancel(err)
			}
		})
	}
}

// carry carries one connection. Its error is final: the sandbox has gone, or is not the caller's any more.
func (f *forwarded) carry(ctx context.Context, sess *session.Session, c *client.Client, local net.Conn) error {
	defer local.Close()
	to, err := c.ConnectPort(ctx, f.target, int(f.Port))
	switch cove.ErrorCode(err) {
	case cove.NotFound:
		return cove.Errorf(cove.NotFound, "the sandbox %s has gone", f.Sandbox)
	case cove.Forbidden:
		return err
	}
	f.say(ctx, sess, err)
	if err == nil {
		to.Carry(ctx, local) // a connection that breaks is the concern of its two ends
	}
	return nil
}

// say says a failure to connect, unless it was the last that was said.
func (f *forwarded) say(ctx context.Context, sess *session.Session, err error) {
	text := ""
	if err != nil && ctx.Err() == nil {
		text = cove.ErrorMessage(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if text != f.said && text != "" {
		sess.Say.Line("%s", text)
	}
	f.said = text
}
