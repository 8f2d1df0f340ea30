package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/linux/netjoin"
	"github.com/cove-sandbox/cove/internal/linux/transparent"
)

// attaching holds what the attachments of a command share.
type attaching struct {
	*session.Session
	gateway *client.Client
	given   bool // flags say what clients may
	env     bool // print an environment
}

// attachment holds the sockets of a client for "cove gateway attach".
type attachment struct {
	attaching
	name    string
	sockets []*os.File
}

// process attaches the network namespace of a process, until that ends, which is no error, or ctx does. check, if not
// nil, judges the process before anything is done.
func (a attaching) process(ctx context.Context, pid int, g api.GatewayRegistration, check func() error) error {
	gone, err := session.WatchProcess(pid)
	if err != nil {
		return err
	}
	defer gone.Close()
	if check != nil {
		if err := check(); err != nil {
			return err
		}
	}
	inside, err := otherRoot(pid)
	if err != nil {
		return err
	}
	if inside && g.Dir == "" {
		g.Dir = ca.Dir
	}
	t := &attachment{attaching: a, name: g.Name}
	made, err := a.register(ctx, g)
	if err != nil {
		return err
	}
	messages, err := gatewayPlan.Messages()
	if err != nil {
		return err
	}
	if t.sockets, err = netjoin.Take(pid, messages, sockets()); err != nil {
		return err
	}
	defer func() {
		for _, f := range t.sockets {
			f.Close()
		}
	}()
	if inside {
		if err := putFiles(pid, made.Files, made.Dir); err != nil {
			return err
		}
	}
	held, err := a.gateway.HandOver(ctx, t.name, t.sockets)
	if err != nil {
		return err
	}
	a.Say.Line("attached process %d as %s", pid, ui.Printable(t.name))
	if a.env {
		if err := a.Print(envText(made.Env)); err != nil {
			return err
		}
	}
	lives, end := context.WithCancel(ctx)
	defer end()
	go func() { // the process's end ends this, too
		gone.Wait(lives)
		end()
	}()
	if err = t.hold(lives, held); lives.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// gatewayPlan leads a namespace to sockets.
var gatewayPlan = transparent.Plan{TCPPort: engine.TransparentPort, DNSPort: engine.DNSPort}

func sockets() (all []netjoin.Socket) {
	for _, l := range engine.RouteListeners() {
		all = append(all, netjoin.Socket{Network: l.Network, Address: l.Address})
	}
	return all
}

// register makes the client known. One that is known keeps its policy unless another is given.
func (a attaching) register(ctx context.Context, g api.GatewayRegistration) (api.GatewayClient, error) {
	if !a.given {
		known, err := a.known(ctx, g.Name)
		if err != nil {
			return api.GatewayClient{}, err
		}
		if known != nil {
			g.GatewayPolicy, g.Credentials = known.GatewayPolicy, known.Credentials
		}
	}
	return a.gateway.RegisterGatewayClient(ctx, g)
}

// known returns the client of that name, nil for none.
func (a attaching) known(ctx context.Context, name string) (*api.GatewayClient, error) {
	all, err := a.gateway.GatewayClients(ctx)
	if err != nil {
		return nil, err
	}
	for i, c := range all {
		if c.Name == name {
			return &all[i], nil
		}
	}
	return nil, nil
}

// hold keeps the way out open until ctx ends, or the gateway does not know the client any more.
func (t *attachment) hold(ctx context.Context, held *client.Holding) error {
	for {
		closed := make(chan struct{})
		stop := context.AfterFunc(ctx, func() { held.Close(); close(closed) })
		held.Wait()
		if !stop() {
			<-closed
			return cove.Errorf(cove.Canceled, "it was ended")
		}
		held.Close()
		t.Say.Line("the gateway has gone: nothing leaves until it is back")
		var err error
		if held, err = t.again(ctx); err != nil {
			return err
		}
		t.Say.Line("the gateway is back")
	}
}

// again hands the sockets over as soon as a gateway takes them.
func (t *attachment) again(ctx context.Context) (*client.Holding, error) {
	for wait := session.SoonestRetry; ; wait = min(2*wait, session.LatestRetry) {
		held, err := t.gateway.HandOver(ctx, t.name, t.sockets)
		switch cove.ErrorCode(err) {
		case "":
			return held, nil
		case cove.Unavailable, cove.Conflict: // not there, or it has not noticed
		default:
			return nil, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, cove.Errorf(cove.Canceled, "it was ended")
		}
	}
}

func otherRoot(pid int) (bool, error) {
	ours, err := os.Stat("/proc/self/root/")
	if err != nil {
		return false, err
	}
	theirs, err := os.Stat(fmt.Sprintf("/proc/%d/root/", pid))
	if err != nil {
		return false, cove.Errorf(cove.Forbidden, "cannot look at the files of process %d: %w", pid, ui.Cause(err)).
			WithHint("run it as root")
	}
	return !os.SameFile(ours, theirs), nil
}

// putFiles puts a client's files into a directory of a process's own root,
// where they are not there already. Nothing there can lead elsewhere.
func putFiles(pid int, from, to string) error {
	root, err := os.OpenRoot(fmt.Sprintf("/proc/%d/root", pid))
	if err != nil {
		return cove.Errorf(cove.Forbidden, "cannot look at the files of process %d: %w", pid, ui.Cause(err)).
			WithHint("run it as root")
	}
	defer root.Close()
	dir := strings.TrimPrefix(path.Clean("/"+to), "/")
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		data, err := os.ReadFile(path.Join(from, e.Name()))
		if err != nil {
			return err
		}
		if err := putFile(root, path.Join(dir, e.Name()), data); err != nil {
			return cove.Errorf(cove.StorageFull, "cannot put %s into the container: %w", path.Join(to, e.Name()), ui.Cause(err)).
				WithHint("attach it when the container is started: --volume %s:%s:ro", from, to)
		}
	}
	return nil
}

func putFile(root *os.Root, name string, data []byte) error {
	if there, err := readRegular(root, name, len(data)); err == nil && string(there) == string(data) {
		return nil
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chmod(0o644), f.Close())
}

// readRegular reads a file of at most size bytes. Programs in the container may have made it, so it is not trusted.
func readRegular(root *os.Root, name string, size int) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("it is no file")
	}
	return io.ReadAll(io.LimitReader(f, int64(size)+1))
}
