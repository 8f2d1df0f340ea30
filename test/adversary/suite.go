package adversary

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// suite is what all rows share.
type suite struct {
	open    Open
	options Options
	state   string // the engines' state directory
	probe   []byte
	path    string // the probe program, on the host
	missing string // why there is none

	online  *Online  // nil: sandboxes have no network
	secrets []string // values of credentials that rows have used

	engine  engine.Engine
	ahead   *preparing // nil: sandboxes are made when rows ask for them
	caps    engine.Capabilities
	shared  *box
	outer   *prober // for controls that are made together
	machine *prober // for those that need the machine's network
	before  hostValues
	results map[string]result

	parentGroups []string // where the engine's control groups are

	// What an owner that is going to be killed holds on to.
	keep     []*process
	prepared []engine.Sandbox
}

func newSuite(t *testing.T, open Open, o Options) *suite {
	s := &suite{open: open, options: o, state: stateDir(t), results: map[string]result{}, before: readHostValues()}
	s.findProbe(t)
	dir := t.TempDir()
	s.outer = &prober{start: func() (*serving, error) { return s.serveOutside(dir) }}
	s.machine = &prober{start: s.serveHere}
	t.Cleanup(s.outer.end)
	t.Cleanup(s.machine.end)
	s.engine = open(t, s.state)
	s.caps = s.engine.Capabilities()
	t.Cleanup(func() {
		if err := s.engine.Close(); err != nil {
			t.Errorf("closing the engine: %v", err)
		}
	})
	if o.Ahead != "" {
		s.ahead = newPreparing(o.Ahead)
		t.Cleanup(s.ahead.Close)
	}
	return s
}

// stateDir is short, because sockets may be in it.
func stateDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "adv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

const probePackage = "github.com/cove-sandbox/cove/test/adversary/cmd/probe"

// Probe returns the probe program: that which COVE_PROBE names, or the one in the directory that COVE_TEST_BIN names or
// beside the test; otherwise it is built.
func Probe(t *testing.T) ([]byte, error) {
	places := []string{os.Getenv("COVE_PROBE")}
	if dir := os.Getenv("COVE_TEST_BIN"); dir != "" {
		places = append(places, filepath.Join(dir, "probe"))
	}
	if self, err := os.Executable(); err == nil {
		places = append(places, filepath.Join(filepath.Dir(self), "probe"))
	}
	for _, p := range places {
		if data, err := os.ReadFile(p); p != "" && err == nil {
			return data, nil
		}
	}
	path := filepath.Join(t.TempDir(), "probe")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, probePackage)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("there is no probe program: set COVE_PROBE, or have Go installed (%w: %s)", err, out)
	}
	return os.ReadFile(path)
}

// findProbe has the probe program where everybody can execute it.
func (s *suite) findProbe(t *testing.T) {
	var err error
	if s.probe, err = Probe(t); err != nil {
		s.missing = err.Error()
		return
	}
	s.publish(t)
}

// publish copies the program to where an unprivileged control can execute it.
func (s *suite) publish(t *testing.T) {
	dir, err := os.MkdirTemp("", "probe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s.path = filepath.Join(dir, "probe")
	if err := os.WriteFile(s.path, s.probe, 0o755); err != nil {
		t.Fatal(err)
	}
}

func (s *suite) needProbe(c *trial) {
	if s.missing != "" {
		c.Fatal("not tested: ", s.missing)
	}
}

// asRoot reports whether the suite is run by root.
func asRoot() bool { return os.Geteuid() == 0 }

// outside makes an attempt without a sandbox: as root of the host, in namespaces of its own that keep mounts, names and
// signals from anybody else. Without root the environment is a user namespace of the caller's.
func (s *suite) outside(c *trial, attempt string) outcome.Result {
	c.Helper()
	return s.unconfined(c, attempt, func(*exec.Cmd) {})
}

// heldOutside runs a held attempt on the machine as it is, and returns what ends it.
func (s *suite) heldOutside(c *trial, attempt, said string) (finish func()) {
	c.Helper()
	cmd := exec.CommandContext(c.Context(), s.path, strings.Fields(attempt)...)
	cmd.Env = plainEnvironment()
	stdin, err := cmd.StdinPipe()
	must(c, err)
	stdout, err := cmd.StdoutPipe()
	must(c, err)
	must(c, cmd.Start())
	if line, err := bufio.NewReader(stdout).ReadString('\n'); !strings.Contains(line, said) {
		c.Errorf("not tested: %q outside said %q, %v", attempt, line, err)
	}
	return func() {
		stdin.Close()
		cmd.Wait()
	}
}

// unconfined is outside, with a change.
func (s *suite) unconfined(c *trial, attempt string, change func(*exec.Cmd)) outcome.Result {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := s.throwAway(ctx, c.TempDir(), strings.Fields(attempt)...)
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	change(cmd)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	code, signal, err := ended(cmd.Run())
	if err != nil {
		return outcome.Result{Name: attempt, Outcome: outcome.Broken, Detail: err.Error()}
	}
	return interpret(attempt, stdout.String(), stderr.String(), code, signal)
}

// asNobody has an attempt outside made without any right.
func asNobody(cmd *exec.Cmd) {
	os.Chmod(cmd.Dir, 0o777)
	cmd.Env = append(cmd.Env, "COVE_PROBE_AS=65534")
}

// throwAway is the probe program in namespaces that end with it.
func (s *suite) throwAway(ctx context.Context, dir string, attempt ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.path, append([]string{"init"}, attempt...)...)
	cmd.Dir = dir
	cmd.Env = plainEnvironment("TMPDIR=" + dir)
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true,
		// The cgroup namespace because a cgroup2 mount made in the host's sets the options of the host's own, whatever
		// the mount namespace: nsdelegate, which keeps users in what they have been given, would go.
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWCGROUP}
	if !asRoot() {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return cmd
}

// ended is how a process in the throw-away environment has ended, whose init tells a signal as a shell does.
func ended(err error) (code, signal int, _ error) {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, 0, err
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return code, max(code-128, 0), nil
}

func plainEnvironment(more ...string) []string {
	return append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8",
		"GOTRACEBACK=none", "GOMAXPROCS=2"}, more...)
}

// interpret makes a result of what the probe program printed last. A filter that kills is a refusal, and says nothing.
func interpret(attempt, stdout, stderr string, code, signal int) outcome.Result {
	if signal == int(syscall.SIGSYS) || code == 2 && strings.Contains(stderr, "SIGSYS") {
		return outcome.Result{Name: attempt, Outcome: outcome.Refused, Errno: "SIGSYS"}
	}
	if strings.Contains(stderr, "failed to create new OS thread") {
		return outcome.Result{Name: attempt, Outcome: outcome.Refused, Errno: "EAGAIN", Detail: "no more threads"}
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	var r outcome.Result
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err == nil && r.Outcome != "" {
		return r
	}
	if signal != 0 {
		return outcome.Result{Name: attempt, Outcome: outcome.Refused, Errno: syscall.Signal(signal).String(),
			Detail: "killed"}
	}
	return outcome.Result{Name: attempt, Outcome: outcome.Broken,
		Detail: fmt.Sprintf("exit %d, output %.200q, errors %.300q", code, stdout, stderr)}
}

// sharedBox is the sandbox for attempts that harm nobody.
func (s *suite) sharedBox(c *trial) *box {
	c.Helper()
	if s.shared != nil && s.shared.alive() && !s.spent(s.shared) {
		return s.shared
	}
	if s.shared != nil && !s.spent(s.shared) {
		c.Logf("the shared sandbox has ended; a new one")
	}
	if s.shared != nil {
		s.shared.destroy(c)
	}
	b, err := s.make(c, boxOptions{many: true})
	if err != nil {
		c.Fatalf("not tested: no sandbox: %v", err)
	}
	s.shared = b
	return b
}

// limits are small enough to be exceeded in a moment.
func (s *suite) limits() cove.Limits {
	return cove.Limits{Memory: 96 << 20, CPUs: 1, PIDs: 64, Disk: 48 << 20, Inodes: 4000, OpenFiles: 256,
		Stdout: 1 << 20, Stderr: 256 << 10, Timeout: time.Minute}
}

// canaryWord is 32 random hexadecimal characters.
func canaryWord() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
