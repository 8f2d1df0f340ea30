package cli

import (
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
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/linux/netjoin"
	"github.com/cove-sandbox/cove/internal/linux/transparent"
)

// insideDir is where the files of a client are shown whose own they are.
const insideDir = "/etc/cove"

func (a *app) gatewayAttach() *cobra.Command {
	var f policyFlags
	var models modelFlags
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
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pid <= 0 {
				return usageError(cmd, "--pid PID is missing: the process in the container, as this machine numbers it")
			}
			var err error
			if g.GatewayPolicy, err = f.texts(); err != nil {
				return err
			}
			if g.ModelPermission, err = models.permission(); err != nil {
				return err
			}
			g.Transparent = true
			if g.Name == "" {
				g.Name = "pid-" + strconv.Itoa(pid)
			}
			return a.attach(cmd, pid, g, f.given() || len(g.Credentials) > 0 || models.given(), env)
		},
	}
	f.add(c.Flags())
	c.Flags().IntVar(&pid, "pid", 0, "`PID` of a process in the container")
	c.Flags().StringVar(&g.Name, "name", "", "`NAME` of the client (default: pid-PID); one that is known keeps its authority, and its policy unless flags say another")
	c.Flags().StringArrayVar(&g.Credentials, "credential", nil, "`NAME` of a credential that the client may use (repeatable)")
	models.add(c.Flags())
	c.Flags().StringVar(&g.Dir, "dir", "", "`DIR` where the process sees its files (default: /etc/cove in a container, else where the gateway has them)")
	c.Flags().BoolVar(&env, "env", false, "print NAME=VALUE lines, once the way out is open")
	return c
}

// attachment is what "cove gateway attach" holds.
type attachment struct {
	*app
	gateway *client.Client
	name    string
	sockets []*os.File
}

func (a *app) attach(cmd *cobra.Command, pid int, g api.GatewayRegistration, given, env bool) error {
	interrupts := watchSignals()
	defer interrupts.stop()
	ctx, cancel := interrupts.cover(cmd.Context())
	defer cancel()
	gone, err := watchProcess(pid)
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
	t := &attachment{app: a, name: g.Name}
	if t.gateway, err = a.gatewayClient(cmd); err != nil {
		return err
	}
	defer t.gateway.Close()
	made, err := t.register(ctx, g, given)
	if err != nil {
		return err
	}
	if t.sockets, err = netjoin.Take(pid, transparent.Plan{TCPPort: engine.TransparentPort, DNSPort: engine.DNSPort}, sockets()); err != nil {
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
	a.say.line("attached process %d as %s", pid, printable(t.name))
	if env {
		if err := a.printEnv(made.Env); err != nil {
			return err
		}
	}
	go func() { // the process's end ends this, too
		gone.wait(ctx)
		cancel()
	}()
	err = t.hold(ctx, held)
	if ctx.Err() != nil && interrupts.first() == 0 {
		a.say.line("process %d has ended", pid)
		return nil
	}
	return interrupts.explain(err)
}

// sockets are those that a way out needs.
func sockets() (all []netjoin.Socket) {
	for _, l := range engine.WayOut() {
		all = append(all, netjoin.Socket{Network: l.Network, Address: l.Address})
	}
	return all
}

// register makes the client known. One that is known keeps its policy unless
// another is given.
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

// How long it takes to look for a gateway that has gone again, at first and at
// most.
const (
	soonest = 50 * time.Millisecond
	latest  = 2 * time.Second
)

// hold keeps the way out open until ctx ends, or the gateway does not know the
// client any more.
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
		t.say.line("the gateway has gone: nothing leaves until it is back")
		var err error
		if held, err = t.again(ctx); err != nil {
			return err
		}
		t.say.line("the gateway is back")
	}
}

// again hands the sockets over as soon as somebody takes them.
func (t *attachment) again(ctx context.Context) (*client.Holding, error) {
	for wait := soonest; ; wait = min(2*wait, latest) {
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

// process is a process that is waited for, which is not a child.
type process struct{ *os.File }

func watchProcess(pid int) (process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK) // 5.10
	if errors.Is(err, unix.ESRCH) {
		return process{}, cove.Errorf(cove.NotFound, "there is no process %d", pid)
	}
	if err != nil {
		return process{}, cove.Errorf(cove.InvalidArgument, "cannot watch process %d: %w", pid, err)
	}
	return process{os.NewFile(uintptr(fd), "process")}, nil
}

// wait waits for the process's end, or ctx's.
func (p process) wait(ctx context.Context) {
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.Fd()), Events: unix.POLLIN}}, int(latest.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) || n > 0 {
			return
		}
	}
}

// otherRoot reports whether a process sees other files than this one.
func otherRoot(pid int) (bool, error) {
	ours, err := os.Stat("/proc/self/root/")
	if err != nil {
		return false, err
	}
	theirs, err := os.Stat(fmt.Sprintf("/proc/%d/root/", pid))
	if err != nil {
		return false, cove.Errorf(cove.Forbidden, "cannot look at the files of process %d: %w", pid, cause(err)).WithHint("run it as root")
	}
	return !os.SameFile(ours, theirs), nil
}

// putFiles puts a client's files into a directory of a process's own root,
// where they are not there already. Nothing there can lead elsewhere.
func putFiles(pid int, from, to string) error {
	root, err := os.OpenRoot(fmt.Sprintf("/proc/%d/root", pid))
	if err != nil {
		return cove.Errorf(cove.Forbidden, "cannot look at the files of process %d: %w", pid, cause(err)).WithHint("run it as root")
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
			return cove.Errorf(cove.StorageFull, "cannot put %s into the container: %w", path.Join(to, e.Name()), cause(err)).
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

// readRegular reads a file of at most size bytes that whoever is inside may
// have made.
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
