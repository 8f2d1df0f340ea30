//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// server is a "cove serve" that answers.
type server struct {
	cmd    *exec.Cmd
	client *client.Client // over HTTP on loopback
	owner  *client.Client // over the socket, as the machine's owner
	dir    string

	serial atomic.Int64 // of the names of sandboxes
	mu     sync.Mutex
	made   []string // sandboxes to destroy
}

// serving says how a server is started.
type serving struct {
	bin  string // directory of its programs; empty: what "make build" made
	dir  string // of its state
	core int    // a processor of its own, or anyCore
}

const anyCore = -1

// startServer starts a server with some settings, and returns when it is at rest.
func startServer(ctx context.Context, how serving, settings ...string) (*server, error) {
	program, err := binaryIn(how.bin, "cove")
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := ln.Addr().String()
	ln.Close()
	argv := []string{program, "serve", "--listen", address}
	if how.core != anyCore {
		argv = onCore(how.core, argv[0], argv[1:]...)
	}
	s := &server{cmd: exec.Command(argv[0], argv[1:]...), dir: how.dir}
	s.cmd.Env = append(s.environ(), "COVE_SANDBOX_MAX_CONCURRENT=100", "COVE_SANDBOX_READY=2",
		"COVE_SANDBOX_MAX_LASTING=2000", "COVE_RATE_LIMIT_PER_SECOND=0", "COVE_LOG_LEVEL=warn")
	s.cmd.Env, s.cmd.Stderr = append(s.cmd.Env, settings...), os.Stderr
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	if s.client, err = client.New(client.Options{Address: "http://" + address}); err != nil {
		return nil, errors.Join(err, s.close())
	}
	socket := filepath.Join(s.dir, "server", "cove.sock")
	if s.owner, err = client.New(client.Options{Address: "unix:" + socket}); err != nil {
		return nil, errors.Join(err, s.close())
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err = s.client.Health(ctx); err == nil {
			time.Sleep(300 * time.Millisecond) // at rest
			return s, nil
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("the server does not answer: %w", err), s.close())
		}
	}
}

// environ is the environment of the server's programs, which finds it.
func (s *server) environ() []string {
	return append(os.Environ(), "COVE_SERVER=", "COVE_HOME="+filepath.Join(s.dir, "home"),
		"COVE_RUN_DIR="+filepath.Join(s.dir, "server"))
}

func (s *server) pid() int { return s.cmd.Process.Pid }

func (s *server) close() error {
	for _, c := range []*client.Client{s.client, s.owner} {
		if c != nil {
			c.Close()
		}
	}
	s.cmd.Process.Signal(os.Interrupt)
	return s.cmd.Wait()
}

// execute runs code that prints 1.
func (s *server) execute(language, code string, allow ...string) func(context.Context) error {
	r := snippet(language, code)
	if len(allow) > 0 {
		r.Permissions = &api.Permissions{Network: &api.NetworkPermission{Enabled: true,
			GatewayPolicy: api.GatewayPolicy{Allow: allow}}}
	}
	return s.asking(r)
}

func snippet(language, code string) api.ExecuteRequest {
	return api.ExecuteRequest{Language: language, Code: code, Timeout: 60}
}

func (s *server) asking(r api.ExecuteRequest) func(context.Context) error {
	return func(ctx context.Context) error {
		e, err := s.client.Execute(ctx, r)
		if err == nil && (e.ExitCode != 0 || strings.TrimSpace(e.Output) != "1") {
			err = fmt.Errorf("exit code %d, output %q, %s", e.ExitCode, e.Output, e.Stderr)
		}
		return err
	}
}

// stays makes a long-lived sandbox and runs its first command, /bin/true. Destroying it is not measured.
func (s *server) stays(name string) contender {
	return contender{name: name, run: func(ctx context.Context) error {
		id := "bench-" + strconv.FormatInt(s.serial.Add(1), 10)
		if _, err := s.client.CreateSandbox(ctx, api.SandboxRequest{Name: id}, nil); err != nil {
			return err
		}
		s.mu.Lock()
		s.made = append(s.made, id)
		s.mu.Unlock()
		end, err := s.client.Exec(ctx, id, api.ExecRequest{Args: []string{"/bin/true"}},
			client.Stream{Stdout: io.Discard, Stderr: io.Discard})
		if err == nil && end.ExitCode != 0 {
			err = fmt.Errorf("exit code %d", end.ExitCode)
		}
		return err
	}, settle: func() (err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, id := range s.made {
			_, gone := s.client.DestroySandbox(context.Background(), id, false)
			err = errors.Join(err, gone)
		}
		s.made = nil
		return err
	}}
}

// command runs the command line of the server's build, beside the server.
func (s *server) command(program string, args ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Env = s.environ()
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
}

// build is one build of Cove, and its servers, which differ in their settings.
type build struct {
	bin, dir string
	servers  map[string]*server // by their settings
}

// server starts a server with some settings, or finds the one that was started with them.
func (b *build) server(ctx context.Context, settings ...string) (*server, error) {
	key := strings.Join(settings, " ")
	if s := b.servers[key]; s != nil {
		return s, nil
	}
	n := strconv.Itoa(len(b.servers))
	how := serving{bin: b.bin, dir: filepath.Join(b.dir, "build-"+n), core: anyCore}
	if err := os.Mkdir(how.dir, 0o755); err != nil {
		return nil, err
	}
	s, err := startServer(ctx, how, append([]string{"COVE_SANDBOX_CGROUP_PARENT=cove-" + filepath.Base(b.dir) + "-" + n},
		settings...)...)
	if err != nil {
		return nil, err
	}
	if b.servers == nil {
		b.servers = map[string]*server{}
	}
	b.servers[key] = s
	return s, nil
}

func (b *build) close() (err error) {
	for _, s := range b.servers {
		err = errors.Join(err, s.close())
	}
	b.servers = nil
	return err
}

// binary finds one of the programs that "make build" made.
func binary(name string) (string, error) { return binaryIn("", name) }

// binaryIn finds a program in a directory; in that of "make build" if it is empty.
func binaryIn(dir, name string) (string, error) {
	if dir == "" {
		dir = "bin"
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: run \"make build\" first", err)
	}
	return path, nil
}
