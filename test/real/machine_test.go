package real

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/test/delegate"
)

// patience is how long one command may take.
const patience = 3 * time.Minute

// programs is a directory with the programs of a release that everybody may read: what "make test" has built, or what
// is built now.
var programs string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "cove-real-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = dir
	var out []byte
	if built := os.Getenv("COVE_TEST_BIN"); built != "" {
		copying := exec.Command("cp", "cove", "cove-server", "cove-guest", "cove-worker", dir)
		copying.Dir = built
		out, err = copying.CombinedOutput()
	} else {
		build := exec.Command("go", "build", "-trimpath", "-o", dir+"/",
			"../../cmd/cove", "../../cmd/cove-server", "../../cmd/cove-guest", "../../cmd/cove-worker")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err = build.CombinedOutput()
	}
	err = errors.Join(err, os.Chmod(dir, 0o755), os.Symlink("cove", filepath.Join(dir, "git-remote-cove")))
	if err != nil {
		fmt.Fprintf(os.Stderr, "the programs cannot be had: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// machine is this one with empty state, as one of its users has it: nothing that only Cove knows is in the environment.
type machine struct {
	t       *testing.T
	dir     string // has lib, which is its /var/lib; root's machines only
	home    string // of the user
	state   string // where Cove keeps its own, by itself
	project string // a repository of the user's
	enter   []string
	env     []string
}

// asRoot is a machine of root's in a mount namespace and under a host name of its
// own, so that nothing of it is the real machine's.
func asRoot(t *testing.T) *machine {
	n, dir := newNamespace(t)
	return asRootIn(t, n, dir)
}

func asRootIn(t *testing.T, n []string, dir string) *machine {
	return start(&machine{
		t: t, dir: dir, home: "/root", state: "/var/lib/cove", project: "/srv/project", enter: n,
		env: []string{"HOME=/root", "USER=root", "LOGNAME=root"},
	})
}

// user is an ordinary user's id, who has no entry anywhere.
const user = 61000

// asUser is a machine of an ordinary user's: in such a namespace with control
// groups that root has handed over, or, where this process is one, its own.
func asUser(t *testing.T) *machine {
	m := &machine{t: t}
	if os.Geteuid() == 0 {
		m.home = "/home/user"
		n, _ := newNamespace(t)
		m.enter = slices.Concat(n, delegate.Enter(delegate.Groups(t, user)), delegate.As(user))
	} else {
		home, err := os.MkdirTemp("", "cove-real-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(home) })
		m.home = home
	}
	m.state, m.project = filepath.Join(m.home, ".local/share/cove"), filepath.Join(m.home, "project")
	m.env = []string{"HOME=" + m.home, "USER=user", "LOGNAME=user"}
	return start(m)
}

// newNamespace is the beginning of a command in a new mount namespace with empty directories where people and Cove keep
// things, and in more namespaces if they are said. dir has them: lib is /var/lib.
func newNamespace(t *testing.T, more ...string) (enter []string, dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cove-real-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	script := fmt.Sprintf(`set -e
		hostname %s
		cd %s
		mkdir lib root home home/user srv
		chmod 700 root; chown %d:%[3]d home/user
		for place in lib:/var/lib root:/root home:/home srv:/srv; do mount --bind ${place%%%%:*} ${place#*:}; done
		mount -t tmpfs -o mode=755 tmpfs /run
		echo ready
		exec sleep infinity`, filepath.Base(dir), dir, user)
	more = append(more, "--mount", "--uts")
	holder := exec.Command("unshare", slices.Concat(more, []string{"--propagation", "slave", "sh", "-c", script})...)
	holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	holder.Stderr = &said
	out, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		holder.Process.Kill()
		holder.Wait()
	})
	ready := make([]byte, len("ready\n"))
	if n, err := out.Read(ready); string(ready[:n]) != "ready\n" {
		t.Fatalf("no namespace: %v, %s", err, said.String())
	}
	return slices.Concat([]string{"nsenter", "--target", fmt.Sprint(holder.Process.Pid)}, more, []string{"--"}), dir
}

// start makes the user's repository, and ends what the user has started when the test is over.
func start(m *machine) *machine {
	m.t.Helper()
	m.env = append(m.env, "PATH="+programs+":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG=C.UTF-8", "TERM=dumb")
	m.sh("/", `mkdir -p `+m.project+` && cd `+m.project+` &&
		git config --global user.name Ada && git config --global user.email ada@site.example &&
		git init -q -b main && echo one >a.txt && git add . && git commit -q -m one`)
	m.t.Cleanup(func() {
		if names := m.try("/", "cove", "list", "-q"); names.code == 0 && names.out != "" {
			if r := m.try("/", append([]string{"cove", "destroy", "--yes"}, strings.Fields(names.out)...)...); r.code != 0 {
				m.t.Errorf("sandboxes stay: %s", r.errs)
			}
		}
		if m.t.Failed() {
			m.t.Logf("the server's log:\n%s", m.try("/", "cat", filepath.Join(m.state, "logs/server.log")).out)
		}
		if r := m.try("/", "cove", "server", "stop"); r.code != 0 {
			m.t.Errorf("the server stays: %s", r.errs)
		}
	})
	return m
}

// result is how a command ended.
type result struct {
	out, errs string
	code      int
}

// command is one of the user's in a directory. Its process is the command's own.
func (m *machine) command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	all := slices.Concat(m.enter, []string{"sh", "-c", `cd "$1" && shift && exec "$@"`, "sh", dir}, args)
	c := exec.CommandContext(ctx, all[0], all[1:]...)
	c.Env, c.Dir, c.WaitDelay = m.env, "/", time.Second
	return c
}

// signaled runs a command, signals its process group once it has printed a line, as a terminal does, and returns what
// it printed.
func (m *machine) signaled(s syscall.Signal, args ...string) (r result) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := m.command(ctx, "/", args...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		m.t.Fatal(err)
	}
	printed := bufio.NewReader(out)
	r.out, err = printed.ReadString('\n')
	err = errors.Join(err, syscall.Kill(-c.Process.Pid, s))
	rest, rerr := io.ReadAll(printed)
	if err = errors.Join(err, rerr); err != nil {
		m.t.Errorf("%q: %v", args, err)
	}
	c.Wait() // the signal is what ends it
	r.out += string(rest)
	r.errs, r.code = errs.String(), c.ProcessState.ExitCode()
	return r
}

// try runs a command of the user's in a directory.
func (m *machine) try(dir string, args ...string) (r result) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := m.command(ctx, dir, args...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	r = result{out: out.String(), errs: errs.String(), code: c.ProcessState.ExitCode()}
	if err != nil && r.code <= 0 {
		r.errs += err.Error()
	}
	return r
}

// must runs one that has to succeed, and returns what it prints.
func (m *machine) must(dir string, args ...string) string {
	m.t.Helper()
	r := m.try(dir, args...)
	if r.code != 0 {
		m.t.Fatalf("%s: code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.errs)
	}
	return r.out
}

func (m *machine) sh(dir, script string) string {
	m.t.Helper()
	return m.must(dir, "sh", "-c", script)
}

// cove runs Cove in the project.
func (m *machine) cove(args ...string) string {
	m.t.Helper()
	return m.must(m.project, append([]string{"cove"}, args...)...)
}
