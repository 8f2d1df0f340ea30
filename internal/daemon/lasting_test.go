//go:build linux

package daemon_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/test/await"

	"golang.org/x/crypto/ssh/agent"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/daemon"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
)

// serverEnv has the configuration of the process that the tests below kill.
const serverEnv = "COVE_TEST_LASTING_SERVER"

// TestServeLasting is that process.
func TestServeLasting(t *testing.T) {
	text := os.Getenv(serverEnv)
	if text == "" {
		t.Skip("a part of TestLasting")
	}
	var cfg config.Config
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		t.Fatal(err)
	}
	d, err := daemon.New(t.Context(), daemon.Options{Config: &cfg, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Serve(t.Context()); err != nil { // until it is killed
		t.Fatal(err)
	}
}

// process is a server in a process of its own.
type process struct {
	*client.Client
	cmd *exec.Cmd
}

func serve(t *testing.T, cfg *config.Config, env ...string) *process {
	t.Helper()
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestServeLasting$", "-test.timeout=0")
	cmd.Env = append(append(os.Environ(), serverEnv+"="+string(text)), env...)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	cmd.WaitDelay = time.Second
	os.Remove(cfg.Socket()) // of one that was killed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{Address: "unix:" + cfg.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{c, cmd}
	t.Cleanup(p.kill)
	await.That(t, "the server answers", func() bool {
		_, err := c.Health(t.Context())
		return err == nil
	})
	return p
}

// kill ends the server at once, as kill -9 does.
func (p *process) kill() {
	p.Close()
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// sh runs a shell script in a sandbox, and returns what it prints.
func (p *process) sh(t *testing.T, sandbox, script string) string {
	t.Helper()
	var out bytes.Buffer
	r, err := p.Exec(t.Context(), sandbox, api.ExecRequest{Args: []string{"sh", "-c", script}},
		client.Stream{Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	if r.ExitCode != 0 {
		t.Errorf("%s: exit code %d", script, r.ExitCode)
	}
	return strings.TrimSpace(out.String())
}

func (p *process) want(t *testing.T, sandbox, script, want string) {
	t.Helper()
	if got := p.sh(t, sandbox, script); got != want {
		t.Errorf("%s: it prints %q, want %q", script, got, want)
	}
}

func (p *process) wantState(t *testing.T, sandbox string, want cove.State) api.Sandbox {
	t.Helper()
	s, err := p.Sandbox(t.Context(), sandbox)
	if err != nil {
		t.Fatal(err)
	}
	if s.State != string(want) {
		t.Errorf("%s is %s (%s), want %s", sandbox, s.State, s.Error, want)
	}
	return s
}

// fails returns the error of a call that has another value too.
func fails[T any](_ T, err error) error { return err }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// changes waits until a file has other content than before.
func changes(t *testing.T, path, before string) string {
	t.Helper()
	var now []byte
	await.That(t, path+" changes from "+before, func() bool {
		var err error
		now, err = os.ReadFile(path)
		return err == nil && len(now) > 0 && string(now) != before
	})
	return string(now)
}

// repository is a directory with a repository of one commit.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c",
		`git init -q . && echo first > file && git add . && git -c user.name=a -c user.email=a@example.com commit -q -m first`)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// sshAgent serves an agent with one key.
func sshAgent(t *testing.T) (path, comment string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	keys := agent.NewKeyring()
	must(t, keys.Add(agent.AddedKey{PrivateKey: key, Comment: "lent-key"}))
	path = filepath.Join(t.TempDir(), "agent")
	ln, err := net.Listen("unix", path)
	must(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { agent.ServeAgent(keys, c); c.Close() })
		}
	})
	t.Cleanup(func() { ln.Close(); serving.Wait() })
	return path, "lent-key"
}

// TestLasting is the life of long-lived sandboxes, with a server that is killed and a machine that is restarted.
func TestLasting(t *testing.T) { lasting(t, "native") }

// TestLastingContainers is the same with containers.
func TestLastingContainers(t *testing.T) {
	if os.Getenv("DOCKER_HOST") == "" {
		t.Skip("needs a Docker daemon of its own: DOCKER_HOST=$(scripts/start-docker.sh)")
	}
	lasting(t, "docker")
}

func lasting(t *testing.T, engine string) {
	cfg := settings(t)
	cfg.Engine = engine
	cfg.Sandbox.CgroupParent = "cove-lasting-" + strconv.Itoa(os.Getpid())
	p := serve(t, cfg)
	socket, comment := sshAgent(t)
	source := repository(t)

	var both sync.WaitGroup
	both.Go(func() {
		var steps []string
		_, err := p.CreateSandbox(t.Context(), api.SandboxRequest{
			Name: "worker", Repository: &api.RepositoryRequest{Source: source}, SSHAgent: socket,
			Git:   &api.GitIdentity{Name: `Ada "the first" Byron`, Email: "ada@example.com"},
			Spec:  api.Spec{Env: map[string]string{"MINE": "yes"}},
			Files: []api.File{{Path: "notes/a", Content: "a file\n"}},
		}, func(p api.Progress) { steps = append(steps, p.Step) })
		if err != nil || len(steps) == 0 {
			t.Errorf("%q, %v", steps, err)
		}
	})
	both.Go(func() {
		if _, err := p.CreateSandbox(t.Context(), api.SandboxRequest{Name: "other",
			Spec: api.Spec{Limits: &api.Limits{MemoryMB: 128}}}, nil); err != nil {
			t.Error(err)
		}
	})
	both.Wait()
	if t.Failed() {
		t.FailNow()
	}

	p.want(t, "worker", "pwd; id -u; echo $HOME $MINE; cat file notes/a",
		"/workspace\n1000\n/home/cove yes\nfirst\na file")
	p.want(t, "worker", "git config user.name; git log --format=%s; git branch --show-current; git remote",
		"Ada \"the first\" Byron\nfirst\ncove/worker")
	p.want(t, "other", "ls -A /workspace; cat /workspace/file 2>/dev/null || echo none", "none")
	_, noSSH := exec.LookPath("ssh-add")
	lent := func() {
		t.Helper()
		if noSSH == nil {
			if got := p.sh(t, "worker", "ssh-add -l; ssh-add -D 2>&1 || true; ssh-add -l"); strings.Count(got, comment) != 2 {
				t.Errorf("the agent says %q", got)
			}
		}
	}
	lent()
	p.sh(t, "worker",
		"echo work > /workspace/work && git add -A && git commit -qm work && echo home > ~/home && echo tmp > /tmp/tmp")

	t.Log("a command beyond the memory limit")
	const beyond = "head -c 400M /dev/zero | tail"
	for _, c := range []struct {
		script string
		code   int
		hit    cove.LimitKind
	}{
		{beyond, 137, cove.LimitOOM},
		{"kill -9 $$", 137, ""},      // of its own accord, after a kill for memory
		{beyond + "; exit 5", 5, ""}, // it has dealt with the kill
		{"echo fine", 0, ""},
	} {
		r, err := p.Exec(t.Context(), "other", api.ExecRequest{Args: []string{"sh", "-c", c.script}}, client.Stream{})
		if err != nil || r.ExitCode != c.code || r.LimitHit != string(c.hit) {
			t.Errorf("%s: %+v, %v; want exit code %d and limit %q", c.script, r, err, c.code, c.hit)
		}
	}

	t.Log("stop and start")
	_, err := p.StopSandbox(t.Context(), "worker")
	must(t, err)
	p.wantState(t, "worker", cove.StateStopped)
	if _, err := p.Exec(t.Context(), "worker", api.ExecRequest{Args: []string{"true"}},
		client.Stream{}); cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("a command in one that is stopped: %v", err)
	}
	_, err = p.StartSandbox(t.Context(), "worker")
	must(t, err)
	p.want(t, "worker", "git log --format=%s; cat ~/home; cat /tmp/tmp 2>/dev/null || echo gone",
		"work\nfirst\nhome\ngone")

	t.Log("pause and resume")
	count := filepath.Join(p.wantState(t, "worker", cove.StateRunning).Directory, "count")
	if _, err := p.Exec(t.Context(), "worker",
		api.ExecRequest{Args: []string{"sh", "-c",
			"(i=0; while :; do i=$((i+1)); echo $i > /workspace/count; done) > /dev/null 2>&1 &"}, Detach: true},
		client.Stream{}); err != nil {
		t.Fatal(err)
	}
	changes(t, count, changes(t, count, ""))
	_, err = p.PauseSandbox(t.Context(), "worker")
	must(t, err)
	p.wantState(t, "worker", cove.StatePaused)
	before, err := os.ReadFile(count)
	must(t, err)
	time.Sleep(100 * time.Millisecond) // sleep: a paused program does nothing, of which no event can tell
	if after, err := os.ReadFile(count); err != nil || string(after) != string(before) {
		t.Errorf("paused, it counts from %s to %s, %v", before, after, err)
	}
	_, err = p.ResumeSandbox(t.Context(), "worker")
	must(t, err)
	counted := changes(t, count, string(before))

	t.Log("a server that is killed, one sandbox running and one paused")
	_, err = p.PauseSandbox(t.Context(), "other")
	must(t, err)
	p.kill()
	changes(t, count, counted) // it goes on by itself
	if d, err := daemon.New(t.Context(), daemon.Options{Config: cfg, Log: slog.New(slog.DiscardHandler),
		Warm: true}); err != nil {
		t.Error(err)
	} else if err := d.Close(t.Context()); err != nil { // of a single command, which leaves them alone
		t.Error(err)
	}
	p = serve(t, cfg)
	p.wantState(t, "worker", cove.StateRunning)
	p.wantState(t, "other", cove.StatePaused)
	p.want(t, "worker", "echo $MINE $HOME; git log --format=%s", "yes /home/cove\nwork\nfirst")
	lent()
	_, err = p.ResumeSandbox(t.Context(), "other")
	must(t, err)
	p.want(t, "other", "echo on", "on")

	t.Log("a machine that is restarted")
	list, err := p.Sandboxes(t.Context())
	must(t, err)
	p.kill()
	reboot(t, cfg, list.Sandboxes...)
	p = serve(t, cfg)
	for _, name := range []string{"worker", "other"} {
		if s := p.wantState(t, name, cove.StateStopped); !strings.Contains(s.Error, "restart of the machine") {
			t.Errorf("why it is stopped: %q", s.Error)
		}
		_, err := p.StartSandbox(t.Context(), name)
		must(t, err)
	}
	p.want(t, "worker", "git status --short | grep -v count; git log --format=%s; cat ~/home", "work\nfirst\nhome")
	lent()

	t.Log("nothing is left")
	must(t, fails(p.DestroySandbox(t.Context(), "worker", false)))
	kept := p.wantState(t, "other", cove.StateRunning).Directory
	p.sh(t, "other", "echo mine > /workspace/mine")
	must(t, fails(p.DestroySandbox(t.Context(), "other", true)))
	if text, err := os.ReadFile(filepath.Join(kept, "mine")); err != nil || string(text) != "mine\n" {
		t.Errorf("the work that was kept says %q, %v", text, err)
	}
	if list, err := p.Sandboxes(t.Context()); err != nil || len(list.Sandboxes)+len(list.Orphans) > 0 {
		t.Errorf("listed are %+v, %v", list, err)
	}
	p.kill()
	for _, dir := range []string{"sandboxes", "ca"} {
		if left, _ := os.ReadDir(filepath.Join(cfg.Home, dir)); len(left) > 0 {
			t.Errorf("left in %s: %v", dir, left)
		}
	}
	for _, dir := range []string{"lasting/" + engine, "ways"} {
		if left, _ := os.ReadDir(filepath.Join(cfg.RunDir, dir)); len(left) > 0 {
			t.Errorf("left in %s: %v", dir, left)
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), cfg.Home) ||
		strings.Contains(string(mounts), cfg.RunDir) {
		t.Errorf("mounts are left: %v", err)
	}
	reap(t, cfg)
}

// TestLastingRepository: a sandbox works on a repository of a server that asks
// who it is, with a credential that this machine has and nobody else sees.
func TestLastingRepository(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	const user, password = "somebody", "a-password-of-this-machine"
	server := gittest.Start(t, gittest.Options{User: user, Password: password, Names: []string{policy.HostService}})
	repo := server.Create("team/app.git")
	address := server.URLAt(policy.HostService, "team/app.git")
	cfg := settings(t)
	cfg.Sandbox.CgroupParent = "cove-lasting-" + strconv.Itoa(os.Getpid())
	cfg.Gateway.ExtraCAs = []string{server.CA}

	// Nobody's: the machine has no credential.
	home := t.TempDir()
	p := serve(t, cfg, "HOME="+home)
	if made, err := p.CreateSandbox(t.Context(), api.SandboxRequest{Repository: &api.RepositoryRequest{Source: address}},
		nil); err == nil {
		t.Errorf("without a credential there is %+v", made)
	}
	if list, err := p.Sandboxes(t.Context()); err != nil || len(list.Sandboxes)+len(list.Orphans) > 0 {
		t.Errorf("listed are %+v, %v", list, err)
	}
	p.kill()

	must(t, os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[credential]\n\thelper = store\n"), 0o600))
	host := strings.TrimPrefix(strings.TrimSuffix(address, "/team/app.git"), "https://")
	must(t, os.WriteFile(filepath.Join(home, ".git-credentials"),
		[]byte("https://"+user+":"+password+"@"+host+"\n"), 0o600))
	p = serve(t, cfg, "HOME="+home)
	made, err := p.CreateSandbox(t.Context(), api.SandboxRequest{Name: "worker",
		Repository: &api.RepositoryRequest{Source: address},
		Git:        &api.GitIdentity{Name: "Ada", Email: "ada@example.com"}}, nil)
	must(t, err)
	if made.Network != string(cove.NetworkLimited) || made.Repository.Remote != address ||
		made.Repository.Branch != "cove/worker" {
		t.Errorf("made is %+v, %+v", made, made.Repository)
	}
	p.want(t, "worker", "cat README; git fetch -q && git branch -r --format='%(refname:short)' --list origin/main",
		"first\norigin/main")
	p.want(t, "worker", "echo work > work && git add . && git commit -qm work && git push -q origin cove/worker 2>&1", "")
	if got := repo.Run("log", "-1", "--format=%s %an", "cove/worker"); got != "work Ada" {
		t.Errorf("the server has %q", got)
	}
	if got := p.sh(t, "worker", "git push origin cove/worker:main 2>&1 || true"); !strings.Contains(got, "remote:") ||
		repo.Run("log", "-1", "--format=%s", "main") != "first" {
		t.Errorf("pushing to another branch: %s", got)
	}
	if got := p.sh(t, "worker", "cat ~/.git-credentials 2>/dev/null; git config -l; env; grep -rs "+
		password+" /workspace /home /etc/cove /run/cove || true"); strings.Contains(got, password) {
		t.Errorf("the credential is inside: %s", got)
	}
	p.kill()
	p = serve(t, cfg, "HOME="+home)
	p.want(t, "worker", "echo more >> work && git commit -qam more && git push -q 2>&1 origin HEAD", "")
	if got := repo.Run("log", "-1", "--format=%s", "cove/worker"); got != "more" {
		t.Errorf("after a restart the server has %q", got)
	}
	decisions, err := p.Decisions(t.Context(), client.DecisionOptions{Execution: "worker"})
	if err != nil || len(decisions.Decisions) == 0 {
		t.Errorf("recorded of the sandbox are %+v, %v", decisions, err)
	}
	must(t, fails(p.DestroySandbox(t.Context(), "worker", false)))

	// Of a repository that the store has in part, what is not there comes through
	// the sandbox's own network, as far as it may read it.
	large := server.Create("team/large.git")
	second := large.RunWith("100644 blob "+large.RunWith("second\n", "hash-object", "-w",
		"--stdin")+"\tREADME\n", "mktree")
	large.Run("update-ref", "refs/heads/main", large.Run("commit-tree", "-p", "main", "-m", "second", second))
	hidden := large.RunWith("hidden\n", "hash-object", "-w", "--stdin")
	address = server.URLAt(policy.HostService, "team/large.git")
	if stored, err := p.FetchRepository(t.Context(), api.FetchRepositoryRequest{Source: address, Partial: true},
		nil); err != nil || !stored.Partial {
		t.Fatalf("stored is %+v, %v", stored, err)
	}
	_, err = p.CreateSandbox(t.Context(), api.SandboxRequest{Name: "part",
		Repository: &api.RepositoryRequest{Source: address},
		Git:        &api.GitIdentity{Name: "Ada", Email: "ada@example.com"}}, nil)
	must(t, err)
	p.want(t, "part",
		"GIT_NO_LAZY_FETCH=1 git show HEAD~1:README >/dev/null 2>&1 && echo there; git status --porcelain; cat README; git "+
			"show HEAD~1:README", "second\nfirst")
	if got := p.sh(t, "part", "git cat-file -p "+hidden+" 2>&1 || true"); strings.Contains(got, "hidden") ||
		!strings.Contains(got, "not our ref") {
		t.Errorf("of what nobody refers to the sandbox sees %s", got)
	}
	p.want(t, "part", "echo work >> README && git commit -qam work && git push -q origin cove/part 2>&1", "")
	var diff bytes.Buffer
	must(t, p.DiffWork(t.Context(), "part", client.WorkOptions{}, &diff))
	if !strings.Contains(diff.String(), "+work") {
		t.Errorf("the difference is %s", &diff)
	}
	must(t, fails(p.DestroySandbox(t.Context(), "part", false)))
	p.kill()
	reap(t, cfg)
}

// reboot ends everything of the sandboxes, and empties the run directory.
func reboot(t *testing.T, cfg *config.Config, sandboxes ...api.Sandbox) {
	t.Helper()
	if cfg.Engine == "docker" {
		for _, s := range sandboxes {
			endContainer(t, s.ID)
		}
	} else {
		endGroups(t, cfg)
	}
	must(t, os.RemoveAll(cfg.RunDir))
}

// endContainer ends a sandbox's container, which its daemon still has then.
func endContainer(t *testing.T, sandbox string) {
	t.Helper()
	daemon := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(os.Getenv("DOCKER_HOST"), "unix://"))
		}}}
	for _, path := range []string{"/kill", "/wait"} {
		r, err := daemon.Post("http://docker/containers/cove-"+sandbox+path, "", nil)
		must(t, err)
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode >= 300 {
			t.Fatalf("%s of a container: %s: %s, %v", path, r.Status, text, err)
		}
	}
}

func endGroups(t *testing.T, cfg *config.Config) {
	t.Helper()
	h, err := cgroup.Find(cfg.Sandbox.CgroupParent)
	must(t, err)
	defer h.Close()
	names, err := h.List()
	must(t, err)
	if len(names) == 0 {
		t.Error("nothing runs that a restart could end")
	}
	for _, name := range names {
		must(t, h.Group(name).Kill())
		must(t, h.Group(name).Remove(10*time.Second))
	}
}

// reap has a process of Cove remove what the killed one had for itself, and looks whether groups are left then.
func reap(t *testing.T, cfg *config.Config) {
	t.Helper()
	// What a killed server had made ready ends by itself, which takes a moment.
	await.That(t, "every instance ends", func() bool {
		known, err := instance.List(cfg.RunDir)
		must(t, err)
		return !slices.ContainsFunc(known, func(id cove.InstanceID) bool { return instance.Alive(cfg.RunDir, id) })
	})
	d, err := daemon.New(t.Context(), daemon.Options{Config: cfg,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Warm: true})
	must(t, err)
	c, err := d.Client()
	must(t, err)
	if _, err := c.Execute(t.Context(), api.ExecuteRequest{Language: "sh", Code: "true"}); err != nil {
		t.Error(err)
	}
	c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := d.Close(ctx); err != nil {
		t.Error(err)
	}
	h, err := cgroup.Find(cfg.Sandbox.CgroupParent)
	must(t, err)
	defer h.Close()
	if names, err := h.List(); err != nil || len(names) > 0 {
		t.Errorf("groups are left: %v, %v", names, err)
	}
}
