//go:build linux

// Package agents runs the real command lines of coding agents in Cove's
// sandboxes, against a model that follows a script, in an internet of its own.
package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	labs "github.com/cove-sandbox/cove/test/adversary/lab"
	"github.com/cove-sandbox/cove/test/modeltest"
)

func TestMain(m *testing.M) { os.Exit(labs.Main(m)) }

// key is the canary: it must be nowhere but on requests to the providers.
const key = "canary-7d1f4e5a90b2c3d4e5f60718293a4b5c"

// token is what a profile may put into a sandbox.
const token = "token-3b9c41d2e8f7a6b5"

// agents are those whose real programs run here, and what is needed of their host.
var agents = []struct{ name, host, provider string }{
	{"claude", "api.anthropic.com", "anthropic"},
	{"codex", "api.openai.com", "openai"},
	{"worker", "api.anthropic.com", "anthropic"},
}

// lab is the internet, with providers of models, and where Cove keeps its state.
type lab struct {
	*labs.Internet
	models *modeltest.Server
	dir    string
	bin    string
	before func(*http.Request) // is called before a model answers; may be nil
	asked  atomic.Bool         // a model has been asked something
	speaks atomic.Bool         // and was told what a tool has answered
}

func newLab(t *testing.T, script string) *lab {
	t.Helper()
	l := &lab{Internet: labs.Open(t)}
	parsed, err := modeltest.Parse("script", []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	l.models = modeltest.New(modeltest.Options{Script: parsed, Keys: []string{key, token}})
	for _, a := range agents {
		l.Site(a.host, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if l.before != nil {
				l.before(r)
			}
			l.models.ServeHTTP(w, r)
		}))
	}
	if l.dir, err = os.MkdirTemp("", "cove-agents-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(l.dir) })
	if err := os.Chmod(l.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l.write(t, "lab.pem", string(l.Authority()))
	l.write(t, "cove.yaml", fmt.Sprintf("gateway:\n  resolver: %s\n  extra_cas: [%s]\n", labs.ResolverAt(),
		filepath.Join(l.dir, "lab.pem")))
	l.build(t)
	l.install(t)
	t.Cleanup(func() { l.end(t) })
	return l
}

// install shows this lab's Cove the agents that were installed for the tests.
func (l *lab) install(t *testing.T) {
	t.Helper()
	installed := os.Getenv("COVE_TEST_AGENTS")
	if installed == "" {
		t.Skip("needs the agents: COVE_TEST_AGENTS is a directory that they were installed in, as scripts/test.sh does")
	}
	if err := os.MkdirAll(filepath.Join(l.dir, "home"), 0o700); err != nil {
		t.Fatal(err)
	}
	// Their files are large, and nobody writes to them; a link to a directory is what Cove shows no sandbox.
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", `cp -a --link "$1" "$2" 2>/dev/null || cp -a "$1/." "$2"`,
		"sh", installed,
		filepath.Join(l.dir, "home", "agents")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// end stops the server with all that it has, of which nothing is left.
func (l *lab) end(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	names, err := l.command(ctx, l.dir, "list", "-q").Output()
	if err != nil {
		t.Error(err)
	}
	for _, args := range [][]string{append([]string{"destroy", "--yes"}, strings.Fields(string(names))...),
		{"server", "stop"}} {
		if args[0] == "destroy" && len(args) == 2 {
			continue // there are none
		}
		if out, err := l.command(ctx, l.dir, args...).CombinedOutput(); err != nil {
			t.Errorf("cove %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	left := searchProcesses(t)
	for _, place := range []string{"home/sandboxes", "home/workspaces", "home/ca", "run/instances", "run/lasting/*",
		"run/ways", "run/staging"} {
		left = append(left, globbed(t, filepath.Join(l.dir, place, "[^.]*"))...)
	}
	if len(left) > 0 {
		t.Errorf("this is left of sandboxes: %q", left)
	}
}

func (l *lab) write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(l.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// build finds the programs of this run, or builds them.
func (l *lab) build(t *testing.T) {
	t.Helper()
	if l.bin = os.Getenv("COVE_TEST_BIN"); l.bin != "" {
		return
	}
	l.bin = filepath.Join(l.dir, "bin")
	cmd := exec.Command("go", "build", "-C", "../..", "-trimpath", "-o", l.bin+"/", "./cmd/...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// project is a small project in a repository of its own, one of whose tests
// fails, and with something in it that is not committed.
func (l *lab) project(t *testing.T, name string) string {
	t.Helper()
	l.write(t, name+"/add.py", "def add(a, b):\n    return a - b\n")
	l.write(t, name+"/test_add.py",
		"import unittest\nfrom add import add\n\n\nclass Add(unittest.TestCase):\n    def test_add(self):\n        "+
			"self.assertEqual(add(1, 2), 3)\n")
	l.write(t, name+"/.gitignore", "__pycache__\n")
	dir := filepath.Join(l.dir, name)
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"},
		{"-c", "user.name=A", "-c", "user.email=a@lab.test", "commit", "-qm", "A first version"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + l.dir, "GIT_CONFIG_NOSYSTEM=1"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args[0], err, out)
		}
	}
	l.write(t, name+"/draft.txt", "not committed\n")
	return dir
}

// result is how a command ended.
type result struct {
	stdout, stderr string
	code           int
}

func (l *lab) command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(l.bin, "cove"), args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + l.dir, "NO_COLOR=1",
		"COVE_CONFIG=" + filepath.Join(l.dir, "cove.yaml"), "COVE_HOME=" + filepath.Join(l.dir, "home"),
		"COVE_RUN_DIR=" + filepath.Join(l.dir, "run"),
		"ANTHROPIC_API_KEY=" + key, "OPENAI_API_KEY=" + key, "GEMINI_API_KEY=" + key, "COVE_LISTEN=",
		"DOCKER_HOST=" + os.Getenv("DOCKER_HOST"), "COVE_SANDBOX_CGROUP_PARENT=" + cgroups, "COVE_SANDBOX_READY=0"}
	return cmd
}

// cove runs a command of Cove's in a directory.
func (l *lab) cove(t *testing.T, dir string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := l.command(ctx, dir, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// messages are what an agent said, as --json prints it.
func messages(t *testing.T, stdout string) []api.Message {
	t.Helper()
	var all []api.Message
	for line := range strings.Lines(stdout) {
		var m api.Message
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q is no message: %v", line, err)
		}
		if m.Version != api.MessageVersion {
			t.Errorf("version %d: %q", m.Version, line)
		}
		all = append(all, m)
	}
	return all
}

// client speaks to the server in the background.
func (l *lab) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Address: "unix:" + filepath.Join(l.dir, "run", "cove.sock")})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// last is the last run.
func (l *lab) last(t *testing.T) api.Run {
	t.Helper()
	c := l.client(t)
	defer c.Close()
	list, err := c.Runs(t.Context(), client.RunQuery{Limit: 1})
	if err != nil || len(list.Runs) == 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	r, err := c.Run(t.Context(), list.Runs[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
