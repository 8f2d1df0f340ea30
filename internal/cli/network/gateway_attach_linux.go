package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/linux/netjoin"
	"github.com/cove-sandbox/cove/internal/linux/transparent"
)

// insideDir is the directory in which a client with a mount namespace of its own sees its files.
const insideDir = "/etc/cove"

func gatewayAttach(sess *session.Session) *cobra.Command {
	var f clientFlags
	var g api.GatewayRegistration
	var pid int
	var env bool
	c := &cobra.Command{
		Use:   "attach --pid PID",
		Short: "Lead everything that leaves a container to the gateway",
		Long: `Lead everything that leaves the network namespace of a process to the gateway,
whether or not the programs there know of it. The namespace must have loopback
only, as containers started with "docker run --network none" have; it is entered
for that, so this needs root.

This command stays: the way out is open while it runs and while the process
does. When the gateway has gone, nothing goes out, and when it is back the way
out is opened again.

Programs have to trust the client's authority. Its files are put into a container
as /etc/cove, if they are not there already (--volume FILES:/etc/cove:ro; "cove
gateway add NAME --transparent" prints FILES beforehand), and the environment
that --env prints makes programs look there.`,
		Example: `  docker run --detach --network none --name box debian sleep infinity
  docker inspect --format '{{.State.Pid}}' box   # says 4242
  cove gateway attach --pid 4242 --name box --policy policy.yaml --env >box.env &
  docker exec --env-file box.env box curl https://api.example.com/`,
		Args: ui.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pid <= 0 {
				return ui.UsageError(cmd, "--pid PID is missing: the process in the container, as this machine numbers it")
			}
			g, err := f.registration(g)
			if err != nil {
				return err
			}
			g.Transparent = true
			g.Name = cmp.Or(g.Name, "pid-"+strconv.Itoa(pid))
			return attachProcess(sess, cmd, pid, g, f.given(), env)
		},
	}
	f.add(c.Flags(), "the client")
	c.Flags().IntVar(&pid, "pid", 0, "`PID` of a process in the container")
	c.Flags().StringVar(&g.Name, "name", "", "`NAME` of the client (default: pid-PID); "+
		"a registered client keeps its authority, and its policy unless flags give another")
	c.Flags().StringVar(&g.Dir, "dir", "",
		"`DIR` where the process sees its files (default: /etc/cove in a container, else where the gateway has them)")
	c.Flags().BoolVar(&env, "env", false, "print NAME=VALUE lines, once the way out is open")
	return c
}

// attachment holds the sockets of a client for "cove gateway attach".
type attachment struct {
	*session.Session
	gateway *client.Client
	name    string
	sockets []*os.File
}

func attachProcess(sess *session.Session, cmd *cobra.Command, pid int, g api.GatewayRegistration,
	given, env bool) error {
	ctx, interrupts := ui.CoverSignals(cmd.Context())
	defer interrupts.Stop()
	gone, err := session.WatchProcess(pid)
	if err != nil {
		return err
	}
	defer gone.Close()
	inside, err := otherRoot(pid)
	if err != nil {
		return err
	}
	if inside && g.Dir == "" {
		g.Dir = insideDir
	}
	t := &attachment{Session: sess, name: g.Name}
	if t.gateway, err = gatewayClient(sess, cmd); err != nil {
		return err
	}
	defer t.gateway.Close()
	made, err := t.register(ctx, g, given)
	if err != nil {
		return err
	}
	plan := transparent.Plan{TCPPort: engine.TransparentPort, DNSPort: engine.DNSPort}
	if t.sockets, err = netjoin.Take(pid, plan, sockets()); err != nil {
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
	held, err := t.gateway.HandOver(ctx, t.name, t.sockets)
	if err != nil {
		return err
	}
	sess.Say.Line("attached process %d as %s", pid, ui.Printable(t.name))
	if env {
		if err := sess.Print(envText(made.Env)); err != nil {
			return err
		}
	}
	go func() { // the process's end ends this, too
		gone.Wait(ctx)
		interrupts.GiveUp()
	}()
	err = t.hold(ctx, held)
	if ctx.Err() != nil && interrupts.First() == 0 {
		sess.Say.Line("process %d has ended", pid)
		return nil
	}
	return interrupts.Explain(err)
}

func sockets() (all []netjoin.Socket) {
	for _, l := range engine.RouteListeners() {
		all = append(all, netjoin.Socket{Network: l.Network, Address: l.Address})
	}
	return all
}

// register makes the client known. One that is known keeps its policy unless another is given.
func (t *attachment) register(ctx context.Context, g api.GatewayRegistration, given bool) (api.GatewayClient, error) {
	if !given {
		all, err := t.gateway.GatewayClients(ctx)
		if err != nil {
			return api.GatewayClient{}, err
		}
		for _, known := range all {
			if known.Name == g.Name {
				g.GatewayPolicy, g.Credentials = known.GatewayPolicy, known.Credentials
			}
		}
	}
	return t.gateway.RegisterGatewayClient(ctx, g)
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
