//go:build linux

// Package egress tests the ways out of real sandboxes, with real clients inside, against an internet of its own.
package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	labs "github.com/cove-sandbox/cove/test/adversary/lab"
)

func TestMain(m *testing.M) { os.Exit(labs.Main(m)) }

// lab is the internet, and where Cove keeps its state.
type lab struct {
	*labs.Internet
	config string   // more of the gateway's
	env    []string // more of Cove's
	dir    string
	bin    string
}

// key is the canary: it must be nowhere but on requests to key.lab.test.
const key = "canary-7d1f4e5a90b2c3d4e5f60718293a4b5c"

const credentials = `
credentials:
  - name: lab
    source: env:LAB_KEY
    variables: LAB_TOKEN
    shape: lab_{32}
    to:
      - form: bearer
        hosts: key.lab.test
        ports: 443
        methods: GET
        paths: /**
      - form: bearer
        hosts: key.lab.test
        ports: 9443
        methods: POST
        paths: /lab.Talk/*
  - name: other
    source: env:LAB_KEY
    to:
      - form: bearer
        hosts: other.lab.test
        methods: POST
        paths: /v2/chat/completions
  - name: gitlab
    source: env:LAB_KEY
    variables: LAB_GIT
    to:
      - form: basic
        user: robot
        hosts: git.lab.test
  - name: hub
    source: env:LAB_KEY
    variables: GH_TOKEN
    shape: ghp_{36}
    to:
      - form: bearer
        hosts: api.github.com
        ports: 443
`

const providers = `
providers:
  - name: anthropic
    models: ["claude-*"]
    prices: [{models: "claude-*", input: 3, output: 15, cache_read: 0.3, cache_write: 3.75}]
  - name: other
    kind: openai
    base_url: https://other.lab.test/v2
    endpoints: [chat/completions]
    credential: other
`

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{Internet: labs.Open(t)}
	var err error
	if l.dir, err = os.MkdirTemp("", "cove-egress-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(l.dir) })
	if err := os.Chmod(l.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.dir, "lab.pem"), l.Authority(), 0o644); err != nil {
		t.Fatal(err)
	}
	l.build(t)
	l.Page("/mirror", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Seen", r.Header.Get("Authorization"))
		fmt.Fprintf(w, "you sent %q\n", r.Header["Authorization"])
	})
	l.Page("/slow", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	return l
}

// build finds the programs of this run, or builds them: Cove's, and those that tests run in sandboxes.
func (l *lab) build(t *testing.T) {
	t.Helper()
	if l.bin = os.Getenv("COVE_TEST_BIN"); l.bin != "" {
		return
	}
	l.bin = filepath.Join(l.dir, "bin")
	for _, of := range [][]string{{"../..", "./cmd/cove", "./cmd/cove-server", "./cmd/cove-guest"}, {"../clients", "."}} {
		cmd := exec.Command("go", append([]string{"build", "-C", of[0], "-trimpath", "-o", l.bin + "/"}, of[1:]...)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// seen are the requests that reached an origin: method, host, path.
func (l *lab) seen() []string {
	var all []string
	for _, r := range l.Requests() {
		all = append(all, r.String())
	}
	return all
}

// keys are the credentials that reached one.
func (l *lab) keys() []string {
	var all []string
	for _, r := range l.Requests() {
		all = append(all, r.Header.Values("Authorization")...)
	}
	return all
}

// result is how a command ended.
type result struct {
	stdout, stderr string
	code           int
}

// command is one of Cove's.
func (l *lab) command(t testing.TB, ctx context.Context, args ...string) *exec.Cmd {
	t.Helper()
	config := filepath.Join(l.dir, "cove.yaml")
	text := fmt.Sprintf("gateway:\n  resolver: %s\n  extra_cas: [%s]\n  credentials: %s\n  providers: %s\n",
		labs.ResolverAt(), filepath.Join(l.dir, "lab.pem"), filepath.Join(l.dir, "credentials.yaml"),
		filepath.Join(l.dir, "providers.yaml")) + l.config
	if err := os.WriteFile(filepath.Join(l.dir, "providers.yaml"), []byte(providers), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.dir, "credentials.yaml"), []byte(credentials), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(l.bin, "cove"), args...)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + l.dir, "NO_COLOR=1",
		"COVE_CONFIG=" + config, "COVE_HOME=" + filepath.Join(l.dir, "home"), "COVE_RUN_DIR=" + filepath.Join(l.dir, "run"),
		"LAB_KEY=" + key, "DOCKER_HOST=" + os.Getenv("DOCKER_HOST"),
		"CONTAINERS_CONF=" + os.Getenv("CONTAINERS_CONF"), "ANTHROPIC_API_KEY=" + key, "OPENAI_API_KEY=" + key,
		"COVE_LISTEN=", "COVE_SANDBOX_CGROUP_PARENT=cove-egress-test", "COVE_SANDBOX_READY=0"}
	cmd.Env = append(cmd.Env, l.env...)
	return cmd
}

// cove runs a command of Cove's.
func (l *lab) cove(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := l.command(t, ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// waiting is false, and the test has failed, once a command has ended.
func (l *lab) waiting(t *testing.T, done <-chan result) bool {
	t.Helper()
	select {
	case got := <-done:
		t.Errorf("it has ended already: %+v", got)
		return false
	case <-time.After(20 * time.Millisecond):
		return true
	}
}

// inside runs a shell script in a sandbox with a network.
func (l *lab) inside(t *testing.T, script string, flags ...string) result {
	t.Helper()
	return l.cove(t, append([]string{"run", "bash", "-c", script, "--timeout", "60s", "--pids", "200", "--memory",
		"1G"}, flags...)...)
}
