//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/test/bench/result"
	"github.com/cove-sandbox/cove/test/modeltest"
)

// agentsDir is where scripts/agents.sh installs agents.
const agentsDir = ".cache/agents"

// agentPrompt is the task, which is over with its first answer.
const agentPrompt = "say hello"

// agentLab is a model on loopback, with TLS as everywhere, and a project.
type agentLab struct {
	models  *httptest.Server
	address string // of the models
	trust   string // file of the authority that vouches for them
	server  *server
	dir     string
	project string

	mu    sync.Mutex
	asked chan struct{} // closed when the next request of an agent has come
}

// agents measures how long it takes until an agent asks its model for the first time, with Cove and without.
func (r *report) agents(ctx context.Context, dir string, a asked) (err error) {
	l, err := newAgentLab(ctx, filepath.Join(dir, "agents"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	for _, m := range []scenario{
		l.match("Claude Code", "claude", a.rounds/3, []string{"-p", "--output-format", "stream-json", "--verbose",
			"--dangerously-skip-permissions"},
			"ANTHROPIC_API_KEY=placeholder", "ANTHROPIC_BASE_URL="+l.address, "NODE_EXTRA_CA_CERTS="+l.trust, "IS_SANDBOX=1",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1"),
		l.match("Codex", "codex", a.rounds/3, []string{"exec", "--json", "--skip-git-repo-check",
			"--dangerously-bypass-approvals-and-sandbox",
			"-c", `model_provider="own"`, "-c",
			fmt.Sprintf(`model_providers.own={name="own", base_url=%q, wire_api="responses", env_key="OPENAI_API_KEY"}`,
				l.address+"/v1"),
			"-c", "check_for_update_on_startup=false", "-c", "analytics.enabled=false", "-c", "feedback.enabled=false", "-c",
			"features.plugins=false", "-c", "features.apps=false", "-"},
			"OPENAI_API_KEY=placeholder", "SSL_CERT_FILE="+l.trust),
		l.match("the worker", "worker", a.rounds/3, []string{"agentic", "--prompt-file", "-"},
			"ANTHROPIC_API_KEY=placeholder", "ANTHROPIC_BASE_URL="+l.address, "SSL_CERT_FILE="+l.trust),
	} {
		results, err := m.play(ctx, a.only)
		if err != nil {
			return err
		}
		r.Results = append(r.Results, results...)
		m.print(results)
		if len(results) > 1 && results[0].P50 > 0 && results[1].P50 > 0 {
			r.Figures[results[0].Contender+" adds, ms"] = results[0].P50 - results[1].P50
		}
	}
	return nil
}

func newAgentLab(ctx context.Context, dir string) (l *agentLab, err error) {
	l = &agentLab{dir: dir, project: filepath.Join(dir, "project")}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	script, err := modeltest.Parse("bench", []byte("aside: A title\nprompts: [{turns: [{say: Hello.}]}]"))
	if err != nil {
		return l, err
	}
	answers := modeltest.New(modeltest.Options{Script: script})
	if err := os.MkdirAll(filepath.Join(dir, "home"), 0o755); err != nil {
		return l, err
	}
	err = l.serveModels(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			l.arrived()
		}
		answers.ServeHTTP(w, r)
	}))
	if err != nil {
		return l, err
	}
	installed, err := filepath.Abs(agentsDir)
	if err != nil {
		return l, err
	}
	if _, err := os.Stat(installed); err != nil {
		return l, fmt.Errorf("%w: run scripts/agents.sh first", err)
	}
	// Nobody writes to their files; a link to a directory is what Cove shows no sandbox.
	if out, err := exec.CommandContext(ctx, "sh", "-c", `cp -a --link "$1" "$2" 2>/dev/null || cp -a "$1/." "$2"`, "sh",
		filepath.Join(installed, "agents"), filepath.Join(dir, "home", "agents")).CombinedOutput(); err != nil {
		return l, fmt.Errorf("copying the agents: %w: %s", err, out)
	}
	if err := l.makeProject(ctx); err != nil {
		return l, err
	}
	providers := filepath.Join(dir, "providers.yaml")
	text := fmt.Sprintf("providers:\n  - {name: anthropic, base_url: %[1]q}\n  - {name: openai, base_url: %[1]q}\n",
		l.address+"/v1")
	if err := os.WriteFile(providers, []byte(text), 0o644); err != nil {
		return l, err
	}
	l.server, err = startServer(ctx, serving{dir: dir, core: anyCore}, "COVE_GATEWAY_PROVIDERS="+providers,
		"COVE_GATEWAY_EXTRA_CAS="+l.trust, "COVE_LISTEN=")
	return l, err
}

// serveModels serves them at localhost.
func (l *agentLab) serveModels(h http.Handler) error {
	files, err := newPair(l.dir)
	if err != nil {
		return err
	}
	certificate, err := tls.LoadX509KeyPair(files.Certificate, files.Key)
	if err != nil {
		return err
	}
	l.trust = files.Authority
	l.models = httptest.NewUnstartedServer(h)
	l.models.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	l.models.Config.ErrorLog = quiet
	l.models.StartTLS()
	l.address = strings.Replace(l.models.URL, "127.0.0.1", "localhost", 1)
	return nil
}

// makeProject makes a repository with a commit.
func (l *agentLab) makeProject(ctx context.Context) error {
	if err := os.MkdirAll(l.project, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(l.project, "README"), []byte("a project\n"), 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"},
		{"-c", "user.name=A", "-c", "user.email=a@bench.test", "commit", "-qm", "Begin"}} {
		if out, err := exec.CommandContext(ctx, "git", append([]string{"-C", l.project}, args...)...).
			CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", args[0], err, out)
		}
	}
	return nil
}

// expect returns what is closed when an agent asks next.
func (l *agentLab) expect() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = make(chan struct{})
	return l.asked
}

func (l *agentLab) arrived() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked != nil {
		close(l.asked)
		l.asked = nil
	}
}

// match is the scenario of an agent, with Cove and without.
func (l *agentLab) match(title, name string, rounds int, args []string, env ...string) scenario {
	programs, err := filepath.Glob(filepath.Join(l.dir, "home", "agents", name, "*", "bin", name))
	if name == "worker" {
		programs = make([]string, 1)
		programs[0], err = binary("cove-worker")
	}
	m := scenario{
		part: "agents", name: "until " + title + " first asks its model", load: one, rounds: max(rounds, 5),
		budget: 20 * time.Second, rest: 100 * time.Millisecond,
	}
	if err != nil || len(programs) != 1 {
		m.contenders = []contender{{name: "cove " + name, why: "it is not installed"}}
		return m
	}
	program, err := binary("cove")
	with := l.contender("cove "+name, []string{program, name, "--quiet", agentPrompt}, "",
		"COVE_HOME="+filepath.Join(l.dir, "home"), "COVE_RUN_DIR="+filepath.Join(l.dir, "server"))
	if err != nil {
		with = contender{name: "cove " + name, why: err.Error()}
	}
	alone := func(name, home string) contender {
		return l.contender(name, slices.Concat(programs, args), agentPrompt, append(slices.Clip(env), "HOME="+home)...)
	}
	fresh := filepath.Join(l.dir, "new-home")
	anew := alone(result.Plain+", in a new home", fresh)
	end := anew.settle
	anew.settle = func() error { return errors.Join(end(), os.RemoveAll(fresh)) }
	m.contenders = []contender{with, alone(result.Plain, filepath.Join(l.dir, "own-home")), anew}
	return m
}

// contender starts a command; what is measured ends with its first request.
func (l *agentLab) contender(name string, args []string, stdin string, env ...string) contender {
	var cmd *exec.Cmd
	var said strings.Builder
	return contender{
		name: name,
		run: func(ctx context.Context) error {
			asked := l.expect()
			cmd = exec.CommandContext(ctx, args[0], args[1:]...)
			cmd.Dir, cmd.Env = l.project, append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + l.dir}, env...)
			said.Reset()
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), io.Discard, &said
			if err := cmd.Start(); err != nil {
				return err
			}
			select {
			case <-asked:
				return nil
			case <-time.After(time.Minute):
				cmd.Process.Kill()
				cmd.Wait()
				return errors.New("it has not asked within a minute: " + said.String())
			}
		},
		settle: func() error {
			if err := cmd.Wait(); err != nil {
				return fmt.Errorf("%w: %s", err, said.String())
			}
			return nil
		},
	}
}

func (l *agentLab) close() error {
	if l.models != nil {
		l.models.Close()
	}
	if l.server != nil {
		return l.server.close()
	}
	return nil
}
