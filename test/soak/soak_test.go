package soak

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/test/await"
	"github.com/cove-sandbox/cove/test/holdings"
)

// long is how long the test takes when it is asked for by hand (COVE_SOAK=4h); 0 is the short form.
var long time.Duration

// chosen is the engine of the tests that have one.
var chosen = cmp.Or(os.Getenv("COVE_SOAK_ENGINE"), native)

// Engines that are loaded.
const (
	native = "native"
	docker = "docker"
)

// bin is where the programs are: as "make test" has built them, or built now.
var bin = os.Getenv("COVE_TEST_BIN")

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if text := os.Getenv("COVE_SOAK"); text != "" {
		long, err = time.ParseDuration(text)
	}
	if err == nil && bin == "" && os.Geteuid() == 0 {
		if bin, err = os.MkdirTemp("", "cove-soak-bin-"); err == nil {
			defer os.RemoveAll(bin)
			err = os.Chmod(bin, 0o755)
		}
		build := exec.Command("go", "build", "-o", bin+"/", "../../cmd/...")
		build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
		err = errors.Join(err, build.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 1
	}
	return m.Run()
}

// groups is the control group of the tests' sandboxes.
const groups = "cove-soak-test"

// lab is a home of its own, and the server in it.
type lab struct {
	t      *testing.T
	engine string
	dir    string
	oracle *oracle
	client *client.Client
	server int // its process

	log      string // the id of the long-lived sandbox of that name
	terminal string // the id of the terminal that is typed at
}

func newLab(t *testing.T, engine string) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: control groups are not this user's to make")
	}
	if engine == docker && os.Getenv("DOCKER_HOST") == "" {
		t.Skip("needs a Docker daemon of its own: DOCKER_HOST=$(scripts/start-docker.sh)")
	}
	dir, err := os.MkdirTemp("", "cove-so-") // short: a unix socket's path has 107 bytes
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, engine: engine, dir: dir, oracle: newOracle()}
	if l.client, err = client.New(client.Options{Address: "unix:" + filepath.Join(dir, "run/cove.sock")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.destroyAll() // what a failed test has left; the server may be gone
		l.cove("server", "stop")
		if log, err := os.ReadFile(filepath.Join(dir, "home/logs/server.log")); err == nil && t.Failed() {
			t.Logf("the end of the server's log:\n%s", log[max(0, len(log)-8000):])
		}
		os.RemoveAll(dir)
	})
	return l
}

func (l *lab) runDir() string { return filepath.Join(l.dir, "run") }

// cove runs a command in the lab's home.
func (l *lab) cove(args ...string) (string, error) {
	c := exec.Command(filepath.Join(bin, "cove"), args...)
	c.Env = append(os.Environ(), "COVE_HOME="+filepath.Join(l.dir, "home"), "COVE_RUN_DIR="+l.runDir(),
		"COVE_ENGINE="+l.engine, "COVE_SANDBOX_CGROUP_PARENT="+groups, "COVE_SANDBOX_MAX_LASTING=2000", "COVE_SERVER=",
		"HOME="+l.dir)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("cove %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return string(out), err
}

// serve starts a server.
func (l *lab) serve() {
	l.t.Helper()
	if _, err := l.cove("server", "start"); err != nil {
		l.t.Fatal(err)
	}
	out, err := l.cove("server", "status", "--json")
	if err != nil {
		l.t.Fatal(err)
	}
	_, after, _ := strings.Cut(out, `"pid": `)
	if l.server, err = strconv.Atoi(strings.TrimRight(strings.SplitN(after, "\n", 2)[0], ", ")); err != nil {
		l.t.Fatalf("%v in %s", err, out)
	}
}

// kill kills the server, and returns when it is dead.
func (l *lab) kill() {
	l.t.Helper()
	if err := syscall.Kill(l.server, syscall.SIGKILL); err != nil {
		l.t.Fatal(err)
	}
	await.That(l.t, "the server dies", func() bool { return syscall.Kill(l.server, 0) != nil })
}

// execute runs a snippet that prints a word.
func (l *lab) execute(ctx context.Context, word string) error {
	var out bytes.Buffer
	var id string
	e, err := l.client.ExecuteStream(ctx, api.ExecuteRequest{Language: "bash", Code: "echo " + word}, client.Stream{
		Stdout: &out, Started: func(given string) { id = given; l.oracle.execution(id, answered{output: word + "\n"}) }})
	if err == nil && e.Status == api.StatusCompleted {
		if out.String() != word+"\n" {
			l.t.Errorf("%s has printed %q and not %q", e.ID, out.String(), word)
		}
		l.oracle.execution(e.ID, answered{output: word + "\n", result: !e.Unrecorded})
	} else if err == nil {
		err = fmt.Errorf("%s is %s: %s", e.ID, e.Status, e.Error)
	}
	return err
}

// away waits a moment, since there is no server.
func away() { time.Sleep(20 * time.Millisecond) } // sleep: the next one comes at its own time

// destroyAll destroys every sandbox.
func (l *lab) destroyAll() error {
	list, err := l.client.Sandboxes(context.Background())
	for _, s := range list.Sandboxes {
		_, derr := l.client.DestroySandbox(context.Background(), s.ID, false)
		err = errors.Join(err, derr)
	}
	return err
}

// resident is the server's memory, in bytes.
func (l *lab) resident() int64 {
	l.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", l.server))
	fields := strings.Fields(string(b))
	if err != nil || len(fields) < 2 {
		l.t.Fatalf("the server's memory: %q, %v", b, err)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		l.t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// descriptors counts those of the server, by what they lead to.
func (l *lab) descriptors() map[string]int {
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", l.server))
	count := map[string]int{}
	for _, path := range open {
		if to, err := os.Readlink(path); err == nil {
			kind, _, _ := strings.Cut(to, ":[") // the number of a pipe or a socket
			count[kind]++
		}
	}
	return count
}

// total adds counts up.
func total(counts map[string]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// descriptorSlack is how many descriptors a server may hold more than when it was looked at first: guests that wait for
// the next sandboxes, of which some are made after that, have 15, and the database's connections 6.
const descriptorSlack = 24

// releases waits until the server holds no more descriptors than before. Idle connections to it end after half a
// minute.
func (l *lab) releases(before map[string]int) {
	l.t.Helper()
	var now map[string]int
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); away() {
		if now = l.descriptors(); total(now) <= total(before)+descriptorSlack {
			return
		}
	}
	l.t.Errorf("the server holds %d descriptors, and before %d: %s", total(now), total(before),
		holdings.Leaked(before, now))
}

// TestBurst: of many executions at once each is answered, with its result or with a word that there are too many, and
// the history has them all. After each burst the server and the machine hold what they held before the first, and the
// server's memory is what it was after that.
func TestBurst(t *testing.T) {
	l := newLab(t, chosen)
	l.serve()
	many, bursts := 200, 2
	if long > 0 {
		many, bursts = 1000, 10
	}
	if l.engine == docker {
		many /= 5 // a daemon makes a container in a good part of a second
	}
	if err := l.execute(t.Context(), "first"); err != nil { // what is made once is made before the machine is looked at
		t.Fatal(err)
	}
	l.drain()
	before := l.holdings()
	if l.engine == native {
		await.That(t, "the next guest is ready beside the server", func() bool {
			before = l.holdings()
			return before["processes"] > 1
		})
	}
	usual, memory, kernel := l.descriptors(), int64(0), holdings.KernelMemory()
	for n := range bursts {
		l.burst(many)
		l.drain()
		l.releases(usual)
		l.holdsNoMore(before)
		if n == 0 {
			memory = l.resident()
		}
	}
	l.kernelSettles(kernel, many*bursts)
	l.check()
	if now := l.resident(); now > 2*memory {
		t.Errorf("the server has %d MiB, and after the first burst %d MiB", now>>20, memory>>20)
	}
	t.Logf("the server has %d MiB, and after the first of %d bursts %d MiB", l.resident()>>20, bursts, memory>>20)
}

// drain has the server destroy what it has prepared for executions that may come.
func (l *lab) drain() {
	l.t.Helper()
	if _, err := l.cove("pool", "drain"); err != nil {
		l.t.Fatal(err)
	}
}

// burst makes many executions at once.
func (l *lab) burst(many int) {
	l.t.Helper()
	var all sync.WaitGroup
	var done, refused atomic.Int64
	for i := range many {
		all.Go(func() {
			switch err := l.execute(l.t.Context(), fmt.Sprint("burst", i)); {
			case err == nil:
				done.Add(1)
			case cove.ErrorCode(err) == cove.Overloaded:
				refused.Add(1)
			default:
				l.t.Error(err)
			}
		})
	}
	all.Wait()
	if done.Load() == 0 {
		l.t.Error("none was run")
	}
	l.t.Logf("%d were run, and %d refused", done.Load(), refused.Load())
}

// TestManySandboxes: many long-lived sandboxes are made and used, outlive a server that is killed, and leave nothing.
// What they cost is printed: memory, the start of the next server, and the start of an execution beside them.
func TestManySandboxes(t *testing.T) {
	l, alone := newLab(t, chosen), newLab(t, chosen)
	l.serve()
	many := 40
	if long > 0 {
		many = 1000
	}
	if l.engine == docker {
		many /= 10 // each container has a process of the daemon's, of 10 MiB
	}
	if err := l.execute(t.Context(), "first"); err != nil { // what is made once is made before the machine is looked at
		t.Fatal(err)
	}
	served, cold, kernel := l.start(), alone.start(), holdings.KernelMemory()
	l.drain()
	before, usual := l.holdings(), l.descriptors()
	t.Logf("none: cove run takes %v with a server and %v without; %s", served, cold, kernel)
	l.each(many, func(name string) error {
		s, err := l.client.CreateSandbox(t.Context(), api.SandboxRequest{Name: name}, nil)
		if err == nil && s.State != "running" {
			err = fmt.Errorf("it is %s", s.State)
		}
		l.oracle.sandbox(name, there)
		return err
	})
	say := func(name string) error { // a word that its own sandbox keeps
		var out bytes.Buffer
		r, err := l.client.Exec(t.Context(), name, api.ExecRequest{Args: []string{"sh", "-c",
			"test -e word || echo $0 >word; cat word", name}}, client.Stream{Stdout: &out})
		if err == nil && (r.ExitCode != 0 || out.String() != name+"\n") {
			err = fmt.Errorf("it ends with %d and says %q", r.ExitCode, out.String())
		}
		return err
	}
	l.each(many, say)
	t.Logf("%d are there: the server has %d MiB and %d descriptors; %s", many, l.resident()>>20, total(l.descriptors()),
		holdings.KernelMemory())
	of := "containers"
	if l.engine == native {
		t.Logf("their control groups hold %d KiB each", holdings.Charged(groups)>>10/many)
		of = "processes"
	}
	held := l.holdings()
	if loops := held["loop devices"]; held[of] < many || loops > 0 && loops < many {
		t.Errorf("the machine is said to hold %v", held)
	}
	beside, coldBeside := l.start(), alone.start()
	t.Logf("beside them, cove run takes %v with the server and %v without: %.2f and %.2f times", beside, coldBeside,
		float64(beside)/float64(served), float64(coldBeside)/float64(cold))
	l.kill()
	began := time.Now()
	l.serve()
	answers := time.Since(began)
	l.check()
	t.Logf("the next server answers after %v, and has said of each that it runs after %v",
		answers.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	l.each(many, say)
	if err := l.destroyAll(); err != nil {
		t.Error(err)
	}
	l.releases(usual)
	l.holdsNoMore(before)
	t.Logf("and after: the server has %d MiB", l.resident()>>20)
	l.kernelSettles(kernel, many)
}

// each does a thing for each of many names, four at a time.
func (l *lab) each(many int, f func(name string) error) {
	l.t.Helper()
	names := make(chan string)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for name := range names {
				if err := f(name); err != nil {
					l.t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	for i := range many {
		names <- fmt.Sprint("many", i)
	}
	close(names)
	all.Wait()
}

// start returns how long a short "cove run" takes in a lab: the median of some.
func (l *lab) start() time.Duration {
	l.t.Helper()
	var took []time.Duration
	for range 15 {
		began := time.Now()
		if out, err := l.cove("run", "bash", "-c", "echo hello"); err != nil || out != "hello\n" {
			l.t.Fatalf("%q, %v", out, err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2].Round(100 * time.Microsecond)
}

// holdsNoMore waits until the machine holds no more of a lab than it did.
func (l *lab) holdsNoMore(before map[string]int) {
	l.t.Helper()
	more := ""
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); away() {
		if more = holdings.Leaked(before, l.holdings()); more == "" {
			return
		}
	}
	l.t.Errorf("the machine holds more than before: %s", more)
}

// kernelSettles waits until the kernel holds no more of its own than it may after some sandboxes: it frees what is dead
// after a while.
func (l *lab) kernelSettles(before holdings.Kernel, sandboxes int) {
	l.t.Helper()
	more := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); away() {
		now := holdings.KernelMemory()
		if more = holdings.KernelLeaked(before, now, sandboxes); more == "" {
			l.t.Logf("the kernel's own memory, of all programs, before %d sandboxes: %v; after: %v", sandboxes, before, now)
			return
		}
	}
	l.t.Error(more)
}

// TestDiskEdge: on a disk that is nearly full, what was acknowledged is in the history of the next server, unless the
// answer has said that it is not.
func TestDiskEdge(t *testing.T) {
	t.Setenv("COVE_HISTORY_MIN_FREE_MB", "1") // the disk itself is smaller than what is usually left free
	l := newLab(t, chosen)
	home := filepath.Join(l.dir, "home")
	err := errors.Join(os.Mkdir(home, 0o700), syscall.Mount("none", home, "tmpfs", 0, "size=24m,mode=700"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Unmount(home, syscall.MNT_DETACH) })
	l.serve()
	full := 0
	fill := filepath.Join(home, "fill")
	for i := range 40 {
		os.Remove(fill)
		if i%4 > 0 { // some room is left, which may do for a result or not
			var disk syscall.Statfs_t
			if err := syscall.Statfs(home, &disk); err != nil {
				t.Fatal(err)
			}
			left := rand.Int64N(1200 << 10)
			if i%4 == 1 {
				left = -1 << 20 // there is no room at all
			}
			err := os.WriteFile(fill, make([]byte, max(0, int64(disk.Bavail)*disk.Bsize-left)), 0o600)
			if err != nil && !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
		}
		e, err := l.client.Execute(t.Context(), api.ExecuteRequest{Language: "bash",
			Code: "head -c 500000 /dev/urandom | base64 -w0"})
		switch {
		case err == nil:
			l.oracle.execution(e.ID, answered{output: e.Output,
				result: e.Status == api.StatusCompleted && !e.Unrecorded})
		case cove.ErrorCode(err) == cove.StorageFull:
			full++
		default:
			t.Error(err)
		}
		if i%10 == 9 {
			os.Remove(fill)
			l.kill()
			l.serve()
		}
	}
	if full == 0 || len(l.oracle.executions) == 0 {
		t.Error("the disk was not on its edge")
	}
	l.check()
	t.Logf("%d executions were acknowledged, and %d refused for the lack of room", len(l.oracle.executions), full)
}
