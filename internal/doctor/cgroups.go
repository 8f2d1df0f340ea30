package doctor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/forkserver"
	limits "github.com/cove-sandbox/cove/internal/runtime"
)

var controllers = []string{cgroup.Memory, cgroup.CPU, cgroup.PIDs}

// checkControllers reports which limits can be set at all, and how to enable the others.
func checkControllers(_ context.Context, h *host) outcome {
	hierarchy, err := h.hierarchy()
	if err != nil {
		return fail(err.Error(), "mount control groups: sudo mount -t cgroup2 none /sys/fs/cgroup")
	}
	version := fmt.Sprintf("version %d", hierarchy.Version())
	var have, missing []string
	why := ""
	for _, c := range controllers {
		if hierarchy.Has(c) {
			have = append(have, c)
			continue
		}
		missing = append(missing, c)
		if why == "" { // without the hint, which a later check repeats
			why, _, _ = strings.Cut(hierarchy.Missing(c), ";")
		}
	}
	if missing == nil {
		return ok(version + ": " + strings.Join(have, ", "))
	}
	return fail(fmt.Sprintf("%s: no %s (%s)", version, strings.Join(missing, ", "), why),
		delegation(hierarchy.Version(), isRoot()))
}

func delegation(version int, root bool) string {
	switch {
	case root:
		return "as root this happens in a container without its own control groups, and where controllers were switched " +
			"off at boot\n" +
			"(cgroup_disable=): run Cove outside, or take that off the kernel's command line"
	case version == 1:
		return "hand groups of version 1 to yourself, in the shell in which you run Cove (until the machine restarts):\n" +
			handover + "\nor run Cove as root, or boot with systemd.unified_cgroup_hierarchy=1"
	}
	return `start Cove in a group that systemd hands to you:
systemd-run --user --scope -p Delegate=yes cove …
and if controllers are missing in it, have systemd hand on all of them, then log in again:
sudo mkdir -p /etc/systemd/system/user@.service.d
printf '[Service]\nDelegate=cpu cpuset io memory pids\n' | sudo tee /etc/systemd/system/user@.service.d/delegate.conf
sudo systemctl daemon-reload`
}

// handover hands groups of version 1 to the user of a shell, and has the shell enter them.
const handover = `for c in memory cpu cpuacct pids freezer; do g=/sys/fs/cgroup/$c/$USER
sudo mkdir -p $g && sudo chown -R $USER $g && echo $$ | sudo tee $g/cgroup.procs >/dev/null; done`

type grouped struct {
	found string // its report
	err   error  // its failure
	stats cgroup.Stats
}

func (g grouped) killed() bool {
	exit, ok := errors.AsType[*exec.ExitError](g.err)
	return ok && exit.Sys().(syscall.WaitStatus).Signaled()
}

// tryLimited runs a trial in a new group with limits. It fails if the group cannot be made.
func (h *host) tryLimited(ctx context.Context, limits cgroup.Limits, t trial) (result grouped, err error) {
	err = h.withGroup(limits, func(g *cgroup.Group) error {
		err := inside(g, &t, func() error {
			result.found, result.err = h.try(ctx, t)
			return nil
		})
		if err != nil {
			return err
		}
		result.stats, err = g.Stats()
		return err
	})
	return result, err
}

// withGroup makes a group, and removes it with all its processes.
func (h *host) withGroup(limits cgroup.Limits, f func(*cgroup.Group) error) (err error) {
	hierarchy, err := h.hierarchy()
	if err != nil {
		return err
	}
	if !hierarchy.Has(cgroup.PIDs) || limits.Memory > 0 && !hierarchy.Has(cgroup.Memory) ||
		limits.CPUs > 0 && !hierarchy.Has(cgroup.CPU) {
		return errNoController
	}
	g, err := hierarchy.Create(string(cove.NewInstanceID()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Kill(), g.Remove(5*time.Second)) }()
	if err := g.Limit(limits); err != nil {
		return err
	}
	return f(g)
}

// inside calls f so that its trial starts in the group: by the group's descriptor, or on version 1 from a thread that
// has entered it.
func inside(g *cgroup.Group, t *trial, f func() error) error {
	door, err := g.Door()
	if err != nil {
		return err
	}
	defer door.Close()
	if t.group = door.Dir; t.group != nil {
		return f()
	}
	done := make(chan error)
	go forkserver.OnOwnThread(func() {
		if err := door.Enter(); err != nil {
			done <- err
			return
		}
		done <- f()
	})
	return <-done
}

// errNoController is reported once, by checkControllers.
var errNoController = errors.New("no control group of its own with the controller")

func noGroup(err error) outcome {
	return fail("cannot be limited: "+err.Error(), "see control groups above")
}

// checkBirth starts a process inside a group, and ends the group.
func checkBirth(ctx context.Context, h *host) outcome {
	err := h.withGroup(cgroup.Limits{}, func(g *cgroup.Group) error {
		t := trial{name: "wait"}
		return inside(g, &t, func() error {
			cmd := h.command(ctx, t)
			stdin, err := cmd.StdinPipe()
			if err != nil {
				return err
			}
			defer stdin.Close()
			if err := cmd.Start(); err != nil {
				return fmt.Errorf("start a process in it: %w", err)
			}
			groups, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/cgroup")
			if err == nil && !strings.Contains(string(groups), g.Name()) {
				err = errors.New("the process is not in it")
			}
			if err = errors.Join(err, g.Kill()); err != nil {
				cmd.Process.Kill()
			}
			cmd.Wait()
			if err == nil && cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				return fmt.Errorf("the process ended with %v", cmd.ProcessState)
			}
			return err
		})
	})
	if errors.Is(err, errNoController) {
		return noGroup(err)
	}
	if err != nil {
		return fail(err.Error(),
			"needs Linux 5.7 or later (CLONE_INTO_CGROUP) with control groups of version 2; see control groups above")
	}
	if hierarchy, _ := h.hierarchy(); hierarchy.Version() == 2 {
		return ok("with CLONE_INTO_CGROUP and cgroup.kill")
	}
	return ok("from a thread inside, and one signal each")
}

// checkMemory uses three times the memory limit of a group.
func checkMemory(ctx context.Context, h *host) outcome {
	const limit, use = 64 << 20, 192 << 20
	r, err := h.tryLimited(ctx, cgroup.Limits{Memory: limit}, trial{name: "memory", args: []string{strconv.Itoa(use)}})
	switch {
	case err != nil:
		return noGroup(err)
	case r.killed() && r.stats.OOMKills > 0:
		return ok(fmt.Sprintf("killed at %d of %d MiB", limit>>20, use>>20))
	case r.killed():
		return warn("killed, but the kernel did not count it", "results cannot tell \"oom\" here; needs Linux 4.13 or later")
	case r.err != nil:
		return fail(r.err.Error(), "the trial itself went wrong: try again")
	}
	return fail(fmt.Sprintf("%s under a limit of %d MiB: the rest went to swap", r.found, limit>>20),
		"boot with swapaccount=1 on the kernel's command line, or turn swap off: sudo swapoff -a")
}

// checkSockets fills sockets with three times what the group may have in them. A kernel that counts them as memory may
// kill instead.
func checkSockets(ctx context.Context, h *host) outcome {
	const memory, limit, use = 64 << 20, 16 << 20, 96 << 20
	r, err := h.tryLimited(ctx, cgroup.Limits{Memory: memory, Sockets: limit},
		trial{name: "sockets", args: []string{strconv.Itoa(use)}})
	arrived, parse := strconv.Atoi(r.found)
	switch {
	case err != nil:
		return noGroup(err)
	case r.killed():
		return ok("counted as memory")
	case r.err != nil || parse != nil:
		return fail(fmt.Sprint(r.found, " ", r.err), "the trial itself went wrong: try again")
	case arrived < memory:
		return ok(fmt.Sprintf("held %d of %d MiB", arrived>>20, use>>20))
	}
	return fail(fmt.Sprintf("held %d MiB beside a limit of %d MiB", arrived>>20, limit>>20),
		"boot with control groups of version 2, or a kernel whose version 1 has "+cgroup.SocketLimit)
}

// checkThroughput limits an empty group's throughput of a loop device.
func checkThroughput(_ context.Context, h *host) outcome {
	devices, err := filepath.Glob("/dev/loop[0-9]*")
	if err == nil && len(devices) == 0 {
		return info("no loop device is there to try")
	}
	if err == nil {
		err = h.withGroup(cgroup.Limits{}, func(g *cgroup.Group) error {
			return g.Throttle(devices[0], cgroup.Throughput{Bytes: 1 << 30, Operations: 1 << 20})
		})
	}
	if err != nil {
		return info("cannot be limited (sandbox.lasting.throughput): " + err.Error())
	}
	return ok("can be limited (sandbox.lasting.throughput)")
}

// checkPIDs starts more processes than a group permits.
func checkPIDs(ctx context.Context, h *host) outcome {
	const limit, processes = 40, 64
	args := append([]string{strconv.Itoa(processes)}, h.options.Probe[1:]...)
	r, err := h.tryLimited(ctx, cgroup.Limits{PIDs: limit}, trial{name: "pids", args: append(args, "wait")})
	switch {
	case err != nil:
		return noGroup(err)
	case r.stats.PIDsDenied > 0: // the child may have failed to start a thread
		return ok(fmt.Sprintf("refused the task after %d", limit))
	case r.err != nil:
		return fail(r.err.Error(), "the trial itself went wrong: try again")
	}
	return fail(fmt.Sprintf("%s under a limit of %d tasks", r.found, limit),
		"needs a kernel built with CONFIG_CGROUP_PIDS")
}

// checkCPU computes under a quota of a fifth of a core, which must take several times the CPU time.
func checkCPU(ctx context.Context, h *host) outcome {
	const quota, work = 0.2, 100 * time.Millisecond
	r, err := h.tryLimited(ctx, cgroup.Limits{CPUs: quota}, trial{name: "cpu", args: []string{work.String()}})
	if err != nil {
		return noGroup(err)
	}
	if r.err != nil {
		return fail(r.err.Error(), "the trial itself went wrong: try again")
	}
	took, err := time.ParseDuration(r.found)
	if err != nil {
		return unknown("what the child said", err)
	}
	found := fmt.Sprintf("%d ms of computing took %d ms under a quota of %.1f cores", work.Milliseconds(),
		took.Milliseconds(), quota)
	if took < 3*work {
		return fail(found, "needs a kernel built with CONFIG_CFS_BANDWIDTH")
	}
	return ok(found)
}

// checkTables warns where a table of the whole machine ends long before its memory does.
func checkTables(_ context.Context, h *host) outcome {
	const enough = 5000 // sandboxes
	tables := []struct {
		name  string
		each  int // entries of a sandbox that does nothing
		raise string
	}{
		{"kernel.pid_max", 1, "4194304"},
		{"kernel.threads-max", 1, "4194304"},
		{"fs.file-max", 64, "9223372036854775807"},
	}
	least, found, fix := math.MaxInt, "", ""
	for _, t := range tables {
		if v, ok := h.number(t.name); ok && v/t.each < least {
			least, found, fix = v/t.each, fmt.Sprintf("%s = %d", t.name, v), setting(t.name, t.raise)
		}
	}
	switch {
	case least == math.MaxInt:
		return info("not told by this kernel")
	case least < enough:
		return warn(fmt.Sprintf("%d at most: %s", least, found), fix)
	}
	return ok(fmt.Sprintf("more than %d", enough))
}

// fileBytes is the kernel's memory of an open file at least, in bytes. It counts for the group of who opens it.
const fileBytes = 256

// checkFiles compares the table of open files with what the memory of a long-lived sandbox can hold of them.
func checkFiles(_ context.Context, h *host) outcome {
	most, found := h.number("fs.file-max")
	if !found {
		return info("not told by this kernel")
	}
	return openFiles(most)
}

func openFiles(most int) outcome {
	if int64(most) >= limits.Lasting.Memory/fileBytes {
		return ok("the memory of a sandbox holds fewer than the machine may open")
	}
	return warn(fmt.Sprintf("fs.file-max = %d: a sandbox with %d MiB of memory can open as many, and programs of others "+
		"then open none", most, int64(most)*fileBytes>>20+1), setting("fs.file-max", "9223372036854775807"))
}

// checkLocks takes a lock of a file and looks for it in the kernel's list, by which sandboxes with too many are found.
func checkLocks(context.Context, *host) outcome {
	const fix = "needs a kernel built with CONFIG_FILE_LOCKING, and /proc as the kernel shows it"
	file, err := os.CreateTemp("", "cove-doctor")
	if err != nil {
		return unknown("a file", err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Len: 1}
	if err := unix.FcntlFlock(file.Fd(), unix.F_SETLK, &lock); err != nil {
		return warn("a file cannot be locked: "+err.Error(), fix)
	}
	list, err := os.ReadFile("/proc/locks")
	if err != nil {
		return warn("the locks of files are not shown: "+err.Error(), fix)
	}
	for line := range strings.Lines(string(list)) {
		if f := strings.Fields(line); len(f) > 4 && f[1] == "POSIX" && f[4] == strconv.Itoa(os.Getpid()) {
			return ok("the kernel shows whose they are")
		}
	}
	return warn("the kernel does not show whose the locks of files are", fix)
}

const seccompFix = "needs a kernel built with CONFIG_SECCOMP_FILTER (every distribution's is), on amd64 or arm64"

// checkPIDFD opens a child by a descriptor, kills it, and waits for it.
func checkPIDFD(ctx context.Context, h *host) outcome {
	fix := "needs Linux 5.4 or later"
	cmd := h.command(ctx, trial{name: "wait"})
	fd := -1
	cmd.SysProcAttr.PidFD = &fd
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return unknown("a pipe", err)
	}
	defer stdin.Close()
	if err := cmd.Start(); err != nil {
		return fail("clone with CLONE_PIDFD: "+err.Error(), fix)
	}
	if fd < 0 {
		cmd.Process.Kill()
		cmd.Wait()
		return fail("clone gave no descriptor", fix)
	}
	defer unix.Close(fd)
	signalled := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0)
	if signalled != nil {
		cmd.Process.Kill()
	}
	var si unix.Siginfo
	waited := unix.Waitid(unix.P_PIDFD, fd, &si, unix.WEXITED|unix.WNOWAIT, nil)
	cmd.Wait()
	for name, err := range map[string]error{"pidfd_send_signal": signalled, "waitid(P_PIDFD)": waited} {
		if err != nil {
			return fail(name+": "+err.Error(), fix)
		}
	}
	if cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		return fail(fmt.Sprintf("the child ended with %v", cmd.ProcessState), fix)
	}
	return ok("started, ended and waited for a child by its descriptor")
}
