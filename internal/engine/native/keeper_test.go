//go:build linux

package native

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/linux/executor"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/test/await"
)

// lasting is a bound long-lived sandbox of an engine, which the test's end destroys.
func lasting(t *testing.T, e *Engine) *sandbox {
	t.Helper()
	return lastingOf(t, e, lastingTemplate())
}

func lastingOf(t *testing.T, e *Engine, template engine.Template) *sandbox {
	t.Helper()
	sb, err := e.Prepare(t.Context(), template)
	if err == nil {
		err = sb.Bind(t.Context(), engine.Binding{})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return sb.(*sandbox)
}

// tasks is how many tasks the kernel counts in a sandbox's group.
func tasks(t *testing.T, s *sandbox) int64 {
	t.Helper()
	stats, err := s.group.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return stats.PIDs
}

// inside lists the processes in a sandbox's group by the ids that the host has for them, with the id inside and the
// name of each.
func inside(t *testing.T, s *sandbox) map[int]string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]string{}
	for _, file := range all {
		group, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cgroup"))
		status, statusErr := os.ReadFile(file)
		if err != nil || statusErr != nil || !strings.Contains(string(group), "/"+s.group.Name()+"\n") {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		name, rest, _ := strings.Cut(string(status), "\n")
		_, ids, _ := strings.Cut(rest, "NSpid:")
		ids, _, _ = strings.Cut(ids, "\n")
		fields := strings.Fields(ids)
		found[pid] = fields[len(fields)-1] + " " + strings.TrimSpace(strings.TrimPrefix(name, "Name:"))
	}
	return found
}

// one is the process in a sandbox's group that the host sees under a name, beside PID 1.
func one(t *testing.T, s *sandbox, name string) int {
	t.Helper()
	for pid, is := range inside(t, s) {
		if id, of, _ := strings.Cut(is, " "); of == name && id != "1" {
			return pid
		}
	}
	t.Fatalf("no %s among %v", name, inside(t, s))
	return 0
}

func shellSpec(script string) guest.ProcessSpec {
	return guest.ProcessSpec{Args: []string{"sh", "-c", script}, Env: rootfs.Env(lastingTemplate().User), Dir: "/",
		Stdin: true}
}

// TestIdleHasOneTask: a long-lived sandbox in which nothing runs has one task, before its first command and after its
// last one, and a limit of tasks that leaves room for a keeper.
func TestIdleHasOneTask(t *testing.T) {
	needRoot(t)
	e := open(t)
	s := lasting(t, e)
	if n := tasks(t, s); n != 1 {
		t.Errorf("it begins with %d tasks: %v", n, inside(t, s))
	}
	for range 2 {
		p, err := s.Guest().Start(t.Context(), shellSpec("read x; echo $x"))
		if err != nil {
			t.Fatal(err)
		}
		if n := tasks(t, s); n < 1+guest.Threads+1 {
			t.Errorf("with a command it has %d tasks: %v", n, inside(t, s))
		}
		if stats, err := s.Stats(t.Context()); err != nil || stats.PIDs != 1 {
			t.Errorf("the user has %+v, %v", stats, err)
		}
		fmt.Fprintln(p.Stdin(), "word")
		if out, err := io.ReadAll(p.Stdout()); err != nil || string(out) != "word\n" {
			t.Errorf("it says %q, %v", out, err)
		}
		if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 0 {
			t.Errorf("it ends with %+v, %v", exit, err)
		}
		await.That(t, "it has one task again", func() bool { return tasks(t, s) == 1 })
	}
	if stats, err := s.Stats(t.Context()); err != nil || stats.PIDs != 0 || stats.PIDsPeak < 1 {
		t.Errorf("the user has %+v, %v", stats, err)
	}
}

// TestKeeperEndsWithItsHost: a keeper that holds nothing ends when the server does, and one that holds an exit stays
// until that has been collected.
func TestKeeperEndsWithItsHost(t *testing.T) {
	needRoot(t)
	e := open(t)
	idle, holds := lasting(t, e), lasting(t, e)
	if out, _ := output(t, idle, "echo here"); out != "here\n" {
		t.Errorf("it says %q", out)
	}
	spec := shellSpec("echo kept; exit 7")
	spec.Keep = true
	p, err := holds.Guest().Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 7 {
		t.Errorf("it ends with %+v, %v", exit, err)
	}
	if err := p.Note(t.Context(), []byte("a note")); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	await.That(t, "one keeper ends", func() bool { return tasks(t, idle) == 1 })
	if n := tasks(t, holds); n < 1+guest.Threads {
		t.Errorf("the one that holds an exit has %d tasks", n)
	}
	next := openIn(t, e.o.RunDir)
	for _, id := range []engine.Sandbox{idle, holds} {
		sb, err := next.Adopt(t.Context(), id.ID())
		if err != nil {
			t.Fatal(err)
		}
		defer sb.Destroy(context.Background())
		if id != holds {
			continue
		}
		again, err := sb.Guest().AttachKept(t.Context(), sb.Guest().Processes()[0], 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		out, err := io.ReadAll(again.Stdout())
		exit, failed := again.Wait(t.Context())
		if err != nil || failed != nil || string(out) != "kept\n" || exit.Code != 7 {
			t.Errorf("it said %q, %v, and ended with %+v, %v", out, err, exit, failed)
		}
		if note, err := sb.Guest().Noted(t.Context(), again.ID()); err != nil || string(note) != "a note" {
			t.Errorf("its note is %q, %v", note, err)
		}
		if err := again.Forget(); err != nil {
			t.Error(err)
		}
		await.That(t, "its keeper ends", func() bool { return tasks(t, holds) == 1 })
	}
}

// TestKeeperKilled: when the keeper is killed, its processes end and say why, and the sandbox goes on.
func TestKeeperKilled(t *testing.T) {
	needRoot(t)
	e := open(t)
	for _, adopted := range []bool{false, true} {
		s := lasting(t, e)
		if err := s.Guest().WriteFile(t.Context(), "/tmp/file", 0o644, []byte("text")); err != nil {
			t.Fatal(err)
		}
		p, err := s.Guest().Start(t.Context(), shellSpec("echo begun; exec sleep 600"))
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(p.Stdout()).ReadString('\n'); err != nil || line != "begun\n" {
			t.Fatalf("it says %q, %v", line, err)
		}
		sb := engine.Sandbox(s)
		if adopted {
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			e = openIn(t, e.o.RunDir)
			if sb, err = e.Adopt(t.Context(), s.ID()); err == nil {
				p, err = sb.Guest().Attach(t.Context(), p.ID(), uint64(len("begun\n")), 0)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := unix.Kill(one(t, s, "cove-guest"), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(t.Context()); !errors.Is(err, guest.ErrKeeperGone) {
			t.Errorf("it ends with %v", err)
		}
		await.That(t, "all that it held has ended", func() bool { return tasks(t, s) == 1 })
		if out, exit := output(t, sb, "cat /tmp/file"); out != "text" || exit.Code != 0 {
			t.Errorf("the next command says %q, %+v", out, exit)
		}
		if err := sb.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestKeeperIsSealed: a keeper has what is left to PID 1, and a process of the user's nothing of it. Where the user may
// become root inside, the capabilities of that are bounds, and no more.
func TestKeeperIsSealed(t *testing.T) {
	needRoot(t)
	const none = "0000000000000000"
	t.Run("user", func(t *testing.T) { keeperIsSealed(t, lastingTemplate(), none, "1") })
	beside := lastingTemplate()
	beside.Rootfs = engine.Rootfs{Kind: engine.RootfsDir, Dir: imageTree(t)}
	beside.User = cove.User{UID: 1001, GID: 50, Name: "node", Home: cove.Home, Shell: "/bin/sh", Root: true}
	bounds := fmt.Sprintf("%016x", rootCapabilities(false))
	t.Run("beside root inside", func(t *testing.T) { keeperIsSealed(t, beside, bounds, "0") })
}

func keeperIsSealed(t *testing.T, template engine.Template, bounds, noNewPrivs string) {
	s := lastingOf(t, open(t), template)
	p, err := s.Guest().Start(t.Context(), shellSpec("cat /proc/self/status; ls /proc/self/fd; echo end; read x"))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(p.Stdout())
	status, fds := map[string]string{}, ""
	for !strings.HasSuffix(fds, "end\n") {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if name, value, found := strings.Cut(line, ":"); found {
			status[name] = strings.TrimSpace(value)
		} else {
			fds += line
		}
	}
	const none, kept = "0000000000000000", "00000000001000e0" // KILL, SETGID, SETUID, and that which programs have not
	want := map[string]string{"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": bounds, "CapAmb": none,
		"NoNewPrivs": noNewPrivs, "Seccomp": "2"}
	check := func(who string, status map[string]string) {
		t.Helper()
		for name, value := range want {
			if status[name] != value {
				t.Errorf("%s of %s is %q, want %q", name, who, status[name], value)
			}
		}
	}
	check("the user's process", status)
	if fds != "0\n1\n2\n3\nend\n" { // the last is that of the list itself
		t.Errorf("the user's process has the descriptors %q", fds)
	}
	keeper := one(t, s, "cove-guest")
	want["CapPrm"], want["CapEff"] = kept, kept
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", keeper))
	if err != nil || len(threads) < guest.Threads {
		t.Fatalf("the keeper has the threads %q, %v", threads, err)
	}
	for _, thread := range threads {
		check("the keeper's "+thread, statusAt(t, thread))
	}
	want["CapInh"] = kept // for keepers
	for pid, is := range inside(t, s) {
		if strings.HasPrefix(is, "1 ") {
			check("PID 1", statusOf(t, pid))
		}
	}
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", keeper))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		to, _ := os.Readlink(fd)
		if strings.HasPrefix(to, "/") && to != "/dev/null" && !strings.HasPrefix(to, "/proc/") && to != "/run" {
			t.Errorf("the keeper has %s", to)
		}
	}
}

func statusOf(t *testing.T, pid int) map[string]string {
	t.Helper()
	return statusAt(t, fmt.Sprintf("/proc/%d", pid))
}

func statusAt(t *testing.T, dir string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(dir + "/status")
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		status[name] = strings.TrimSpace(value)
	}
	return status
}

// TestStartsAndKeepersEnds: no start is lost that meets a keeper which is about to end.
func TestStartsAndKeepersEnds(t *testing.T) {
	needRoot(t)
	s := lasting(t, open(t))
	s.keeper.Linger = 0
	var all sync.WaitGroup
	for worker := range 3 {
		all.Go(func() {
			for i := range 100 {
				p, err := s.Guest().Start(t.Context(), shellSpec("read x; echo $x; exit 5"))
				if err != nil {
					t.Errorf("start %d of %d: %v", i, worker, err)
					return
				}
				fmt.Fprintln(p.Stdin(), worker, i)
				out, err := io.ReadAll(p.Stdout())
				exit, failed := p.Wait(t.Context())
				if err != nil || failed != nil || exit.Code != 5 || string(out) != fmt.Sprintln(worker, i) {
					t.Errorf("start %d of %d: %q, %v, %+v, %v", i, worker, out, err, exit, failed)
					return
				}
			}
		})
	}
	all.Wait()
	await.That(t, "the last keeper ends", func() bool { return tasks(t, s) == 1 })
}

// TestOrphansAreCollected: while no server is connected and no keeper runs, PID 1 collects orphans that end, and
// programs that their command has left behind go on until then.
func TestOrphansAreCollected(t *testing.T) {
	needRoot(t)
	e := open(t)
	s := lasting(t, e)
	p, err := s.Guest().Start(t.Context(), shellSpec("for i in 1 2 3; do sleep 600 >/dev/null 2>&1 & done; echo begun"))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := io.ReadAll(p.Stdout()); err != nil || string(out) != "begun\n" {
		t.Fatalf("it says %q, %v", out, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	await.That(t, "only PID 1 and the orphans are left", func() bool { return tasks(t, s) == 1+3 })
	for pid, is := range inside(t, s) {
		if strings.HasSuffix(is, " sleep") {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Error(err)
			}
		}
	}
	await.That(t, "only PID 1 is left", func() bool { return tasks(t, s) == 1 && len(inside(t, s)) == 1 })
	sb, err := openIn(t, e.o.RunDir).Adopt(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Destroy(context.Background())
	if ids := sb.Guest().Processes(); len(ids) > 0 {
		t.Errorf("it has processes: %v", ids)
	}
	if out, _ := output(t, sb, "echo again"); out != "again\n" {
		t.Errorf("it says %q", out)
	}
}

// TestPrivateProgram: a cove-guest that its owner alone may read and execute serves all the same.
func TestPrivateProgram(t *testing.T) {
	needRoot(t)
	program, err := os.ReadFile(enginetest.BuildGuest(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	private := filepath.Join(dir, "cove-guest")
	if err := os.WriteFile(private, program, 0o700); err != nil {
		t.Fatal(err)
	}
	run := t.TempDir()
	passable(run)
	in, err := instance.Hold(run)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Release()
	e, err := New(Options{Guest: private, RunDir: run, Instance: in.ID, CgroupParent: groupParent, Log: slog.Default()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s := lasting(t, e)
	defer s.Destroy(context.Background())
	for range 2 {
		if out, _ := output(t, s, "echo here"); out != "here\n" {
			t.Errorf("it says %q", out)
		}
	}
}

// TestGuestsAreFixed: no process of a sandbox runs from a file that even root can change through the process, also
// after another server has adopted the sandbox.
func TestGuestsAreFixed(t *testing.T) {
	needRoot(t)
	e := open(t)
	s := lasting(t, e)
	hold := func(sb engine.Sandbox) (end func()) {
		p, err := sb.Guest().Start(t.Context(), shellSpec("echo begun; read x"))
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(p.Stdout()).ReadString('\n'); err != nil || line != "begun\n" {
			t.Fatalf("it says %q, %v", line, err)
		}
		return func() { p.Stdin().Close(); p.Wait(t.Context()) }
	}
	end := hold(s)
	server, err := e.forks.server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	areFixed(t, map[string]int{"the fork server": server.PID(), "PID 1": s.process.PID(),
		"the keeper": one(t, s, "cove-guest")})
	end()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the keeper ends", func() bool { return tasks(t, s) == 1 })
	next := openIn(t, e.o.RunDir)
	sb, err := next.Adopt(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Destroy(context.Background())
	defer hold(sb)()
	areFixed(t, map[string]int{"the keeper of the next server": one(t, s, "cove-guest")})
}

func areFixed(t *testing.T, processes map[string]int) {
	t.Helper()
	for what, pid := range processes {
		exe := fmt.Sprintf("/proc/%d/exe", pid)
		for name, change := range map[string]func() error{
			"chmod":  func() error { return os.Chmod(exe, 0o755) },
			"utimes": func() error { return os.Chtimes(exe, time.Time{}, time.Now()) },
			"chown":  func() error { return os.Chown(exe, 0, 0) },
		} {
			if err := change(); !errors.Is(err, unix.EROFS) {
				t.Errorf("%s of what %s runs: %v", name, what, err)
			}
		}
	}
}

// TestGuestTakesNoPrivilege: a cove-guest with a setuid bit does nothing for another user.
func TestGuestTakesNoPrivilege(t *testing.T) {
	needRoot(t)
	program, err := os.ReadFile(enginetest.BuildGuest(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	passable(dir)
	guest := filepath.Join(dir, "cove-guest")
	run := func() (int, string) {
		c := exec.Command(guest, "--version")
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 61001, Gid: 61001}}
		out, err := c.CombinedOutput()
		if c.ProcessState == nil {
			t.Fatal(err)
		}
		return c.ProcessState.ExitCode(), string(out)
	}
	err = errors.Join(os.WriteFile(guest, program, 0o755), os.Chown(guest, 61000, 61000))
	if err != nil {
		t.Fatal(err)
	}
	if code, out := run(); code != 0 {
		t.Fatalf("without the bit it ends with %d: %s", code, out)
	}
	for _, bits := range []os.FileMode{os.ModeSetuid, os.ModeSetgid} {
		if err := os.Chmod(guest, 0o755|bits); err != nil {
			t.Fatal(err)
		}
		if code, out := run(); code != 125 || !strings.Contains(out, "setuid") {
			t.Errorf("%v: it ends with %d: %s", bits, code, out)
		}
	}
}

// TestScriptsOfAnotherVersion: a sandbox whose PID 1 another version of Cove has started is not adopted where the two
// do not understand each other. It says so, and goes on for the other.
func TestScriptsOfAnotherVersion(t *testing.T) {
	needRoot(t)
	e := open(t)
	s := lasting(t, e)
	p, err := s.Guest().Start(t.Context(), shellSpec("read x; echo $x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(e.o.RunDir, local.Dir, engineName, string(s.ID()), "record")
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	this := fmt.Sprintf(`"Version":%d`, executor.Version)
	write := func(version string) {
		t.Helper()
		if err := os.WriteFile(record, []byte(strings.Replace(string(text), this, version, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next := openIn(t, e.o.RunDir)
	write(`"Version":99`)
	_, err = next.Adopt(t.Context(), s.ID())
	if cove.ErrorCode(err) != cove.Unavailable || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("adopting it: %v", err)
	}
	write(this)
	sb, err := next.Adopt(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Destroy(context.Background())
	if p, err = sb.Guest().Attach(t.Context(), p.ID(), 0, 0); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(p.Stdin(), "still here")
	if out, err := io.ReadAll(p.Stdout()); err != nil || string(out) != "still here\n" {
		t.Errorf("it says %q, %v", out, err)
	}
}

// TestStoppedKeeper: a start that a stopped keeper does not answer ends with the reason, and not never. What runs goes
// on when the keeper does.
func TestStoppedKeeper(t *testing.T) {
	needRoot(t)
	s := lasting(t, open(t))
	p, err := s.Guest().Start(t.Context(), shellSpec("read x"))
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.keeper.Patience = 100 * time.Millisecond
	s.mu.Unlock()
	keeper := one(t, s, "cove-guest")
	if err := unix.Kill(keeper, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := s.Guest().Start(ctx, shellSpec("true")); !errors.Is(err, guest.ErrKeeperStopped) {
		t.Errorf("a start: %v", err)
	}
	if err := unix.Kill(keeper, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(p.Stdin(), "word")
	if _, err := p.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}
