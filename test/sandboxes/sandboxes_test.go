// Package sandboxes proves long-lived sandboxes from outside: with the programs
// themselves, a server that a command has started, and real repositories.
package sandboxes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/test/await"

	"github.com/cove-sandbox/cove/api"
)

// lab is a home of its own, with a repository to work on.
type lab struct {
	t   *testing.T
	dir string // short: a unix socket's path has 107 bytes
	env []string
	// enter is the beginning of a command that runs Cove as another user; empty: this one does.
	enter []string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: control groups are not this user's to make")
	}
	dir, err := os.MkdirTemp("", "cove-sb-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, dir: dir}
	l.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "COVE_HOME="+l.in("home"), "COVE_RUN_DIR="+l.in("run"),
		"COVE_SANDBOX_CGROUP_PARENT=cove-sb-test",
		"COVE_SERVER=", "HOME="+dir, "NO_COLOR=1", "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@site.example", "GIT_COMMITTER_NAME=Ada",
		"GIT_COMMITTER_EMAIL=ada@site.example")
	t.Cleanup(func() {
		for _, s := range l.list().Sandboxes {
			l.run("cove", "destroy", "--yes", s.ID)
		}
		l.run("cove", "server", "stop")
		if t.Failed() {
			if log, err := os.ReadFile(l.in("home/logs/server.log")); err == nil {
				t.Logf("the server's log:\n%s", log)
			}
		}
		os.RemoveAll(dir)
	})
	l.must("git", "init", "-q", "-b", "main", l.in("src"))
	l.write("src/a.txt", "one\n")
	l.must("git", "-C", l.in("src"), "add", ".")
	l.must("git", "-C", l.in("src"), "commit", "-q", "-m", "one")
	return l
}

// docker returns a lab with a Docker daemon.
func (l *lab) docker() *lab {
	l.t.Helper()
	if os.Getenv("DOCKER_HOST") == "" {
		l.t.Skip("needs a Docker daemon of its own: DOCKER_HOST=$(scripts/start-docker.sh)")
	}
	return l
}

// bin is where the programs are: as "make test" has built them, or built now.
var bin = os.Getenv("COVE_TEST_BIN")

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if bin == "" && os.Geteuid() == 0 {
		var err error
		if bin, err = os.MkdirTemp("", "cove-sb-bin-"); err == nil {
			defer os.RemoveAll(bin)
			err = os.Chmod(bin, 0o755)
		}
		build := exec.Command("go", "build", "-o", bin+"/", "../../cmd/...")
		build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
		if err := errors.Join(err, build.Run()); err != nil {
			fmt.Fprintln(os.Stderr, "cannot build:", err)
			return 1
		}
	}
	return m.Run()
}

func (l *lab) in(name string) string { return filepath.Join(l.dir, name) }

func (l *lab) write(name, text string) {
	l.t.Helper()
	if err := os.WriteFile(l.in(name), []byte(text), 0o644); err != nil {
		l.t.Fatal(err)
	}
}

// command is a program with this lab's home; its directory is the repository.
func (l *lab) command(args ...string) *exec.Cmd {
	path := args[0]
	if path == "cove" {
		path = filepath.Join(bin, "cove")
	}
	args = slices.Concat(l.enter, []string{path}, args[1:])
	c := exec.Command(args[0], args[1:]...)
	c.Dir, c.Env = l.dir, l.env
	return c
}

// run returns standard output, and error output with the exit code in the error.
func (l *lab) run(args ...string) (string, error) {
	var out, errs bytes.Buffer
	c := l.command(args...)
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), err
}

func (l *lab) must(args ...string) string {
	l.t.Helper()
	out, err := l.run(args...)
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

func (l *lab) list() (all api.SandboxList) {
	l.t.Helper()
	if err := json.Unmarshal([]byte(l.must("cove", "list", "--all", "--json")), &all); err != nil {
		l.t.Fatal(err)
	}
	return all
}

// eventually waits for something that happens by itself.
func (l *lab) eventually(what string, is func() bool) {
	l.t.Helper()
	await.That(l.t, what, is)
}

// left are the workspaces on disk.
func (l *lab) left() []string {
	l.t.Helper()
	entries, err := os.ReadDir(l.in("home/workspaces"))
	if err != nil {
		l.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// serverPID is the process of the server in the background.
func (l *lab) serverPID() int {
	l.t.Helper()
	var s struct{ PID int }
	if err := json.Unmarshal([]byte(l.must("cove", "server", "status", "--json")), &s); err != nil || s.PID == 0 {
		l.t.Fatalf("%+v, %v", s, err)
	}
	return s.PID
}

// TestLife is one sandbox from its beginning to its end.
func TestLife(t *testing.T) {
	l := newLab(t)
	if name := l.must("cove", "new", "src", "--name", "first", "--no-attach", "--copy", "src/a.txt:notes/b.txt", "--env",
		"MODE=test"); name != "first\n" {
		t.Fatalf("%q", name)
	}
	var s api.Sandbox
	if err := json.Unmarshal([]byte(l.must("cove", "info", "first", "--json")), &s); err != nil {
		t.Fatal(err)
	}
	if s.State != "running" || s.Repository == nil || s.Repository.Branch != "cove/first" || s.Repository.From != "main" ||
		s.DiskUsed == 0 || s.Network != "none" {
		t.Errorf("%+v %+v", s, s.Repository)
	}
	if out := l.must("cove", "exec", "first", "--", "sh", "-c",
		"cat a.txt notes/b.txt; echo $MODE; pwd; git branch --show-current; git log --format=%an%s; id -u"); out != "one\none\ntest\n/workspace\ncove/first\nAdaone\n1000\n" {
		t.Errorf("%q", out)
	}
	// Stopping ends what runs, and keeps the work.
	l.must("cove", "exec", "first", "--", "sh", "-c",
		"echo two >>a.txt; echo mine >~/own; git commit -qam two; echo three >c.txt")
	l.must("cove", "stop", "first")
	if out, err := l.run("cove", "exec", "first", "--", "true"); err == nil {
		t.Errorf("a program ran in a sandbox that is stopped: %q", out)
	}
	if out := l.must("cove", "log", "first", "--oneline"); !strings.HasSuffix(out, " two\n") {
		t.Errorf("the log of one that is stopped: %q", out)
	}
	if out := l.must("cove", "diff", "first", "--name-only"); out != "a.txt\nc.txt\nnotes/b.txt\n" {
		t.Errorf("what it has changed: %q", out)
	}
	l.must("cove", "start", "first")
	if out := l.must("cove", "exec", "first", "--", "sh", "-c",
		"cat a.txt c.txt ~/own; git status --short"); out != "one\ntwo\nthree\nmine\n?? c.txt\n?? notes/\n" {
		t.Errorf("%q", out)
	}
	// It is found from the repository it was made from, and from its checkout.
	for _, dir := range []string{l.in("src"), s.Directory} {
		c := l.command("cove", "pause")
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil || string(out) != "first\n" {
			t.Errorf("in %s: %q, %v", dir, out, err)
		}
		l.must("cove", "resume", "first")
	}
	l.must("cove", "destroy", "first", "--keep-work", "--yes")
	if all := l.list(); len(all.Sandboxes) != 0 {
		t.Errorf("%+v", all)
	}
	if text, err := os.ReadFile(filepath.Join(s.Directory, "c.txt")); string(text) != "three\n" {
		t.Errorf("the work that was to be kept: %q, %v", text, err)
	}
}

// TestManyAtOnce: of several first commands one starts the server, and all have
// their sandboxes; of one name there is one.
func TestManyAtOnce(t *testing.T) {
	l := newLab(t)
	const many = 4
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			if _, err := l.run("cove", "new", "src", "--no-attach", "--name", "s"+strconv.Itoa(i)); err != nil {
				t.Error(err)
			}
		})
	}
	var mu sync.Mutex
	made := 0
	for range 3 {
		all.Go(func() {
			if _, err := l.run("cove", "new", "src", "--no-attach", "--name", "same"); err == nil {
				mu.Lock()
				defer mu.Unlock()
				made++
			}
		})
	}
	all.Wait()
	branches := map[string]bool{}
	for _, s := range l.list().Sandboxes {
		branches[s.Repository.Branch] = true
		if s.State != "running" {
			t.Errorf("%s is %s", s.Name, s.State)
		}
	}
	if made != 1 || len(branches) != many+1 || len(l.left()) != many+1 {
		t.Errorf("%d of one name, branches %v, workspaces %q", made, branches, l.left())
	}
	log, err := os.ReadFile(l.in("home/logs/server.log"))
	if n := bytes.Count(log, []byte("msg=listening")); err != nil || n != 1 {
		t.Errorf("%d servers began to listen, %v", n, err)
	}
}

// silent is a server of repositories that takes a request and says nothing. It tells when one has come.
func silent(t *testing.T) (address string, asked chan struct{}) {
	asked, end := make(chan struct{}, 100), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-end:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(end); s.Close() })
	return s.URL + "/owner/repo.git", asked
}

// TestInterrupted: what Ctrl-C ends in the midst leaves nothing, whatever the step, and the next one works.
func TestInterrupted(t *testing.T) {
	l := newLab(t)
	address, asked := silent(t)
	c := l.command("cove", "new", address, "--name", "slow", "--no-attach")
	var errs bytes.Buffer
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	<-asked
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err := c.Wait()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 128+int(syscall.SIGINT) ||
		!strings.Contains(errs.String(), "taken back") {
		t.Errorf("%v: %s", err, errs.String())
	}
	l.eventually("nothing is left", func() bool {
		all := l.list()
		return len(all.Sandboxes)+len(all.Orphans)+len(l.left()) == 0
	})
	l.must("cove", "new", "src", "--name", "slow", "--no-attach")
}

// TestServerKilled: what runs in sandboxes goes on, the next server has them, and what was being made is gone.
func TestServerKilled(t *testing.T) {
	l := newLab(t)
	l.must("cove", "new", "src", "--name", "lasts", "--no-attach")
	l.must("cove", "exec", "lasts", "--detach", "--", "sh", "-c", "echo $$ >/workspace/pid; exec sleep 1000")
	l.eventually("the program runs", func() bool {
		_, err := l.run("cove", "exec", "lasts", "--", "test", "-s", "/workspace/pid")
		return err == nil
	})
	address, asked := silent(t)
	c := l.command("cove", "new", address, "--name", "slow", "--no-attach")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	<-asked
	pid := l.serverPID()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil {
		t.Error("a sandbox was made by a server that is dead")
	}
	all := l.list()
	if len(all.Sandboxes) != 1 || all.Sandboxes[0].Name != "lasts" || all.Sandboxes[0].State != "running" ||
		len(all.Orphans) > 0 || len(l.left()) != 1 {
		t.Errorf("%+v, workspaces %q", all, l.left())
	}
	if again := l.serverPID(); again == pid {
		t.Error("the server that was killed answers")
	}
	l.must("cove", "exec", "lasts", "--", "sh", "-c", "kill -0 $(cat /workspace/pid)")
	if out := l.must("cove", "server", "stop"); !strings.Contains(out, "1 sandbox stays") {
		t.Errorf("%q", out)
	}
	l.must("cove", "exec", "lasts", "--", "sh", "-c", "kill -0 $(cat /workspace/pid)")
}

// TestPush: what somebody has agreed to is pushed from the machine, to a real server, without force.
func TestPush(t *testing.T) {
	l := newLab(t)
	l.must("git", "clone", "-q", "--bare", l.in("src"), l.in("srv/site.git"))
	l.must("git", "-C", l.in("srv/site.git"), "config", "http.receivepack", "true")
	backend := strings.TrimSpace(l.must("git", "--exec-path")) + "/git-http-backend"
	s := httptest.NewServer(&cgi.Handler{Path: backend,
		Env: []string{"GIT_PROJECT_ROOT=" + l.in("srv"), "GIT_HTTP_EXPORT_ALL=1"}, InheritEnv: []string{"PATH"}})
	t.Cleanup(s.Close)
	l.must("cove", "new", s.URL+"/site.git", "topic", "--name", "pusher", "--no-attach")
	if _, err := l.run("cove", "push", "pusher", "--yes", "--branch", "-x"); err == nil {
		t.Error("pushed to a branch that begins with a hyphen")
	}
	l.must("cove", "exec", "pusher", "--", "sh", "-c", "echo two >>a.txt; git commit -qam two; echo three >>a.txt")
	if out, err := l.run("cove", "push", "pusher"); err == nil || !strings.Contains(err.Error(), "cannot ask") {
		t.Errorf("%q, %v", out, err)
	}
	if out := l.must("cove", "push", "pusher", "--yes"); out != "topic\n" {
		t.Errorf("%q", out)
	}
	at := func(ref string) string { return l.must("git", "-C", l.in("srv/site.git"), "log", "--format=%s", ref) }
	if got := at("topic"); got != "two\none\n" {
		t.Errorf("the remote has %q", got)
	}
	// Somebody else has pushed meanwhile: nothing is overwritten.
	l.must("cove", "exec", "pusher", "--", "git", "commit", "-q", "--amend", "-m", "other")
	if _, err := l.run("cove", "push", "pusher", "--yes"); err == nil ||
		!strings.Contains(err.Error(), "the sandbox has not") {
		t.Errorf("%v", err)
	}
	if got := at("topic"); got != "two\none\n" {
		t.Errorf("the remote has %q", got)
	}
}

// TestRemedy: the command that a refusal names is one that does it, at once and
// each time that the sandbox is started; and what is denied is denied.
func TestRemedy(t *testing.T) {
	l := newLab(t)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		fmt.Fprint(w, "served")
	}))
	defer service.Close()
	host := "host.cove.internal:" + service.URL[strings.LastIndexByte(service.URL, ':')+1:]
	l.must("cove", "new", "--empty", "--name", "first", "--no-attach", "--allow", "api.example.com")
	ask := func() string {
		t.Helper()
		return l.must("cove", "exec", "first", "--", "curl", "-sS", "http://"+host+"/")
	}
	said := ask()
	_, remedy, _ := strings.Cut(said, `"cove policy allow `)
	remedy, _, ok := strings.Cut(remedy, `"`)
	if !ok {
		t.Fatalf("it names no command: %s", said)
	}
	l.must(append([]string{"cove", "policy", "allow"}, strings.Fields(remedy)...)...)
	if said := ask(); said != "served" {
		t.Errorf("after %q it says %s", remedy, said)
	}
	if out := l.must("cove", "ca", "show", "first"); !strings.HasPrefix(out, "subject      CN=sb_") {
		t.Errorf("%s", out)
	}
	l.must("cove", "stop", "first")
	l.must("cove", "start", "first")
	if said := ask(); said != "served" {
		t.Errorf("when it is started again it says %s", said)
	}
	l.must("cove", "policy", "deny", "first", host)
	if said := ask(); !strings.Contains(said, `"type": "blocked"`) {
		t.Errorf("when it is denied it says %s", said)
	}
	if out, err := l.run("cove", "policy", "allow", "second", host); err == nil ||
		!strings.Contains(err.Error(), `there is no sandbox "second"`) {
		t.Errorf("%q, %v", out, err)
	}
}
