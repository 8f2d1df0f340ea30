//go:build linux

package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// A blank is a guest that has begun and waits for its plan: a process in its own namespaces and control group, with ids
// and a /proc of its own and perhaps on the network that leads to the gateway, and nothing else: no root filesystem, no
// limits, no owner. It is what every sandbox begins as, and what the pool keeps ready.
type blank struct {
	ids        local.IDMap
	releaseIDs func()
	group      *cgroup.Group
	client     *guest.Client
	complaint  complaint // what the guest wrote to its standard error
	online     bool      // has planNetwork done
	tasks      int64     // threads of the guest itself
	adopted    bool      // PID 1 is not a child of this process

	owning     sync.Mutex
	ownerships map[[3]int]*os.File // see Engine.ownership; guarded by owning

	done chan struct{} // closed when the process has been collected

	mu     sync.Mutex
	pid    int  // 0 once the process has been collected, and if adopted
	goesOn bool // without its connection

	removeOnce sync.Once
	removeErr  error
}

// namespaces are all but the cgroup namespace, which the guest makes itself once it is in its group.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID |
	unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// ambient are the capabilities, in its own user namespace, that the guest needs to build the sandbox. They survive the
// exec although its id is not mapped yet; the seal drops them.
var ambient = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID,
	unix.CAP_SETPCAP, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT, unix.CAP_SYS_ADMIN,
}

// guestEnv spares the guest's runtime a look at the host's control groups, a collection of its few megabytes, and
// threads that look for work: it waits nearly always, and one that spins takes the CPU from the user's program.
var guestEnv = []string{"GOMAXPROCS=1", "GOTRACEBACK=none", "GOGC=400", "GODEBUG=containermaxprocs=0,updatemaxprocs=0"}

// newBlank makes one for a class of users, on the network or not, with a group of that name and, as root, one of the id
// ranges. On error nothing is left.
func (e *Engine) newBlank(
	ctx context.Context, u cove.User, online bool, name string, ranges *local.Ranges,
) (b *blank, err error) {
	b = &blank{online: online, releaseIDs: func() {}, ownerships: map[[3]int]*os.File{}, done: make(chan struct{})}
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
	seed, err := newSeed(e.hierarchy, name)
	if err != nil {
		return b, cove.Errorf(cove.Unavailable, "%w", err).WithHint("run \"cove doctor\"")
	}
	b.group = seed.group
	conn, theirs, err := unixconn.Pair()
	if err != nil {
		seed.discard()
		return b, err
	}
	err = b.start(e.o.Guest, seed, theirs)
	theirs.Close()
	if err == nil {
		err = e.writeIDs(ctx, b)
	}
	if err != nil {
		conn.Close()
		return b, err
	}
	if b.client, err = guest.NewClient(ctx, conn); err != nil {
		return b, b.explain("start the guest", err)
	}
	go b.collect()
	if err = b.client.Begin(ctx, planBegin(b.ids.Guest, e.staging, network)); err != nil {
		return b, b.explain("begin the sandbox", err)
	}
	stats, err := b.group.Stats()
	if err != nil {
		return b, fmt.Errorf("read the control group: %w", err)
	}
	b.tasks = stats.PIDs
	return b, nil
}

// start forks the guest into its namespaces and group.
func (b *blank) start(program string, seed *seed, socket *os.File) error {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		seed.discard()
		return err
	}
	defer null.Close()
	stderr, err := b.complaint.open()
	if err != nil {
		seed.discard()
		return err
	}
	defer stderr.Close()
	attr := &syscall.ProcAttr{
		Env:   guestEnv,
		Files: []uintptr{null.Fd(), null.Fd(), stderr.Fd(), socket.Fd()},
		Sys:   &syscall.SysProcAttr{Cloneflags: namespaces, AmbientCaps: ambient, Setsid: true},
	}
	if b.pid, err = seed.fork(program, []string{"cove-guest", "--socket"}, attr); err != nil {
		b.pid = 0
		return launchError(err)
	}
	return nil
}

func launchError(err error) error {
	e := cove.Errorf(cove.Unavailable, "cannot make the namespaces of a sandbox: %w", err)
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS), errors.Is(err, unix.EINVAL):
		return e.WithHint("user namespaces seem to be turned off or used up; \"cove doctor\" says how to allow them")
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM):
		return cove.Errorf(cove.Overloaded, "the host is out of processes or memory: %w", err).
			WithHint("wait for sandboxes to end")
	}
	return e.WithHint("run \"cove doctor\"")
}

// writeIDs gives the guest's user namespace its maps. The guest waits for the plan meanwhile.
func (e *Engine) writeIDs(ctx context.Context, b *blank) error {
	pid := strconv.Itoa(b.pid)
	if b.ids.Tool {
		for tool, lines := range map[string]local.IDLines{"newuidmap": b.ids.Users, "newgidmap": b.ids.Groups} {
			args := append([]string{pid}, strings.Fields(lines.String())...)
			if out, err := exec.CommandContext(ctx, tool, args...).CombinedOutput(); err != nil {
				return cove.Errorf(cove.Unavailable, "%s: %w: %s", tool, err, strings.TrimSpace(string(out))).
					WithHint("check /etc/subuid and /etc/subgid, and that %s is setuid", tool)
			}
		}
		return nil
	}
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

// alive reports whether the guest still waits.
func (b *blank) alive() bool {
	select {
	case <-b.client.Done():
		return false
	default:
		return true
	}
}

// Kill ends PID 1, and with it the kernel ends all of its namespace.
func (b *blank) Kill() error {
	if b.adopted {
		return b.group.Kill()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pid == 0 {
		return nil
	}
	if err := unix.Kill(b.pid, unix.SIGKILL); err != nil || b.group == nil {
		return err
	}
	return b.group.LetDie() // if it was paused
}

// leave ends the connection, and nothing else.
func (b *blank) leave() {
	b.mu.Lock()
	b.goesOn = true
	b.mu.Unlock()
	b.client.Close()
}

// collect waits for PID 1, whose end shows as the end of the connection.
func (b *blank) collect() {
	<-b.client.Done()
	b.mu.Lock()
	goesOn := b.goesOn
	b.mu.Unlock()
	if goesOn && b.adopted {
		return // another goroutine sees how it ends
	}
	if !goesOn {
		b.Kill() // it may live without its socket only if it has gone wrong
	}
	b.wait()
	close(b.done)
}

// wait collects PID 1 once it has been killed or has ended.
func (b *blank) wait() {
	if b.adopted {
		b.waitEmpty()
		return
	}
	b.mu.Lock()
	pid := b.pid
	b.mu.Unlock()
	if pid == 0 {
		return
	}
	// Look first: the id stays ours until it is cleared below.
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	unix.Wait4(pid, nil, unix.WNOHANG, nil)
	b.pid = 0
}

// remove kills the guest and removes every trace. It may be called again.
func (b *blank) remove() error {
	b.removeOnce.Do(func() { b.removeErr = b.removeAll() })
	return b.removeErr
}

func (b *blank) removeAll() error {
	err := b.Kill()
	if b.client != nil {
		b.client.Close()
		<-b.done
	} else {
		b.wait()
		close(b.done)
	}
	b.complaint.close()
	b.dropOwnerships()
	if b.group != nil {
		if b.group.Remove(removalPatience/100) != nil {
			err = errors.Join(err, b.group.Kill(), b.group.Remove(removalPatience))
		}
	}
	if err == nil && b.releaseIDs != nil {
		b.releaseIDs() // ids of which something may be left are not given out again
	}
	return err
}

// dropOwnerships closes what nothing more is mounted with.
func (b *blank) dropOwnerships() {
	b.owning.Lock()
	defer b.owning.Unlock()
	for _, ns := range b.ownerships {
		ns.Close()
	}
	clear(b.ownerships)
}

// explain turns a failure of the guest into an error that says what it complained about.
func (b *blank) explain(doing string, err error) error {
	var failure *guest.Failure
	hint := "run \"cove doctor\" for what this host lacks"
	if errors.As(err, &failure) {
		return cove.Errorf(cove.Unavailable, "cannot %s: %w", doing, failure).WithHint("%s", hint)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	b.Kill()
	if text := b.complaint.text(); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return cove.Errorf(cove.Unavailable, "cannot %s: %w", doing, err).WithHint("%s", hint)
}
