//go:build linux

// Package git tests pushes and fetches of a real git through a real gateway,
// against a real server, and what git could be made to ask for beyond them.
package git

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove/test/await"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// host is the name of this machine's own services, which is the one that a gateway leads to loopback.
const host = "host.cove.internal"

// password is what upstream asks for; it must be nowhere but on requests to it.
const password = "canary-2f6c9d81e7b34a50"

// lab is a git server, a gateway in front of it, and where they keep their state.
type lab struct {
	t      *testing.T
	server *gittest.Server
	engine string // of the sandboxes in which pushes are looked into
	dir    string
	bin    string
	env    []string // of its commands, beside the usual
	log    *output

	gateway *exec.Cmd
	ended   chan struct{} // closed when it has
}

// output can be read while it is written.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// newLab starts a server and a gateway of its own, with the native engine.
func newLab(t *testing.T, o gittest.Options) *lab { return newLabOn(t, "native", o) }

func newLabOn(t *testing.T, engine string, o gittest.Options) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: packs are looked into in sandboxes with limits, which without it are those of a delegated cgroup")
	}
	o.Names = append(o.Names, host)
	l := &lab{t: t, engine: engine, server: gittest.Start(t, o)}
	var err error
	if l.dir, err = os.MkdirTemp("", "cove-git-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(l.dir) })
	if err := os.Chmod(l.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l.build()
	l.write("credentials.yaml", fmt.Sprintf(`credentials:
  - name: forge
    source: env:FORGE_PASSWORD
    to:
      - {form: basic, user: robot, hosts: %s, ports: %d}
`, host, l.server.Addr().Port))
	l.write("cove.yaml", fmt.Sprintf("engine: %s\ngateway:\n  extra_cas: [%s]\n  credentials: %s\n", l.engine, l.server.CA,
		l.path("credentials.yaml")))
	l.start()
	return l
}

// home is where Cove's state is in a lab: where it is by default for whoever is
// not root, which no user may show to a sandbox.
const home = ".local/share/cove"

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

func (l *lab) write(name, content string) string {
	l.t.Helper()
	if err := os.WriteFile(l.path(name), []byte(content), 0o600); err != nil {
		l.t.Fatal(err)
	}
	return l.path(name)
}

// build finds Cove's programs of this run, or builds them.
func (l *lab) build() {
	l.t.Helper()
	if l.bin = os.Getenv("COVE_TEST_BIN"); l.bin != "" {
		return
	}
	l.bin = l.path("bin")
	cmd := exec.Command("go", "build", "-C", "../..", "-trimpath", "-o", l.bin+"/", "./cmd/cove", "./cmd/cove-server",
		"./cmd/cove-guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("%v\n%s", err, out)
	}
}

func (l *lab) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(l.bin, "cove"), args...) // also once the test has ended, to clean up
	cmd.Env = append([]string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + l.dir, "NO_COLOR=1",
		"COVE_CONFIG=" + l.path("cove.yaml"),
		"COVE_HOME=" + l.path(home), "COVE_RUN_DIR=" + l.path("run"), "FORGE_PASSWORD=" + password, "COVE_LISTEN=",
		"COVE_SANDBOX_CGROUP_PARENT=cove-git-test", "COVE_SANDBOX_READY=0", "DOCKER_HOST=" + os.Getenv("DOCKER_HOST")},
		l.env...)
	return cmd
}

// cove runs a command of Cove's that has to succeed.
func (l *lab) cove(args ...string) string {
	l.t.Helper()
	cmd := l.command(args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("cove %q: %v\n%s%s", args, err, out, stderr.String())
	}
	return string(out)
}

// start starts the gateway, and waits until it takes clients.
func (l *lab) start() {
	l.t.Helper()
	l.log = &output{}
	cmd := l.command("gateway")
	cmd.Stdout, cmd.Stderr = l.log, l.log
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	ended := make(chan struct{})
	l.gateway, l.ended = cmd, ended
	go func() { defer close(ended); cmd.Wait() }()
	l.t.Cleanup(func() { cmd.Process.Signal(os.Interrupt); <-ended })
	await.That(l.t, "the gateway starts", func() bool {
		select {
		case <-ended:
			l.t.Fatalf("the gateway has ended: %s", l.log)
		default:
		}
		return strings.Contains(l.log.String(), "clients are registered")
	})
}

// kill ends the gateway as nothing can prevent; start starts another.
func (l *lab) kill() {
	l.gateway.Process.Kill()
	<-l.ended
}

// remote is the address of a repository as clients behind the gateway have it.
func (l *lab) remote(path string) string { return l.server.URLAt(host, path) }

// policy is one that opens the server, and says this of git; "REPO" stands for the address of repo.git.
func (l *lab) policy(git string) string {
	git = strings.ReplaceAll(git, "REPO", l.remote("repo.git"))
	return fmt.Sprintf("rules:\n- {hosts: %s, ports: %d}\ngit:\n%s", host, l.server.Addr().Port, git)
}

// client is a git behind the gateway, with a policy of its own, and no credential.
func (l *lab) client(name, policy string, env ...string) (gittest.Git, api.GatewayClient) {
	l.t.Helper()
	return l.clientWith(name, policy, []string{"forge"}, env...)
}

// clientWith is the same with credentials by their names.
func (l *lab) clientWith(name, policy string, credentials []string, env ...string) (gittest.Git, api.GatewayClient) {
	l.t.Helper()
	args := []string{"gateway", "add", name, "--policy", l.write(name+".yaml", policy), "--json"}
	for _, c := range credentials {
		args = append(args, "--credential", c)
	}
	var c api.GatewayClient
	if err := json.Unmarshal([]byte(l.cove(args...)), &c); err != nil {
		l.t.Fatal(err)
	}
	dir := l.path(name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		l.t.Fatal(err)
	}
	var all []string
	for k, v := range c.Env {
		all = append(all, k+"="+v)
	}
	return gittest.NewGit(l.t, dir, append(all, env...)...), c
}

// account is what the server asks for in most tests.
var account = gittest.Options{User: "robot", Password: password}

// waits is the id of the one thing that waits to be approved, once it does.
func (l *lab) waits() (id string) {
	l.t.Helper()
	await.That(l.t, "something waits", func() bool {
		id = regexp.MustCompile(`ho_\w+`).FindString(l.cove("approve"))
		return id != ""
	})
	return id
}
