//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/native"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/rootfs"
	runtimes "github.com/cove-sandbox/cove/internal/runtime"
)

// coveUnderTest is a real server process, and two engines in this one: with guests ready and without.
type coveUnderTest struct {
	*server
	ready, unready engine.Engine
	instance       *instance.Instance
	guest          string
}

func newCove(ctx context.Context, dir string) (c *coveUnderTest, err error) {
	c = &coveUnderTest{}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.guest, err = binary("cove-guest"); err != nil {
		return c, err
	}
	run := filepath.Join(dir, "run")
	if err := os.Mkdir(run, 0o755); err != nil {
		return c, err
	}
	if c.instance, err = instance.Hold(run); err != nil {
		return c, err
	}
	open := func(ready int) (engine.Engine, error) {
		return native.New(native.Options{
			Guest: c.guest, RunDir: run, Instance: c.instance.ID, CgroupParent: "cove-bench" + strconv.Itoa(ready), Ready: ready,
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		})
	}
	if c.ready, err = open(2); err != nil {
		return c, err
	}
	if c.unready, err = open(0); err != nil {
		return c, err
	}
	c.server, err = startServer(ctx, dir, -1)
	return c, err
}

// server is a "cove serve" that answers.
type server struct {
	cmd    *exec.Cmd
	client *client.Client
}

// startServer starts one with its state below dir, on a processor of its own if core is not negative.
func startServer(ctx context.Context, dir string, core int, settings ...string) (*server, error) {
	program, err := binary("cove")
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
	if core >= 0 {
		argv = onCore(core, argv[0], argv[1:]...)
	}
	s := &server{cmd: exec.Command(argv[0], argv[1:]...)}
	s.cmd.Env = append(os.Environ(), "COVE_HOME="+filepath.Join(dir, "home"), "COVE_RUN_DIR="+filepath.Join(dir, "server"),
		"COVE_SANDBOX_MAX_CONCURRENT=100", "COVE_SANDBOX_READY=2", "COVE_RATE_LIMIT_PER_SECOND=0", "COVE_LOG_LEVEL=warn")
	s.cmd.Env, s.cmd.Stderr = append(s.cmd.Env, settings...), os.Stderr
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	if s.client, err = client.New(client.Options{Address: "http://" + address}); err != nil {
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

func (s *server) pid() int { return s.cmd.Process.Pid }

func (s *server) close() error {
	if s.client != nil {
		s.client.Close()
	}
	s.cmd.Process.Signal(os.Interrupt)
	return s.cmd.Wait()
}

func (c *coveUnderTest) close() error {
	var errs []error
	if c.server != nil {
		errs = append(errs, c.server.close())
	}
	for _, e := range []engine.Engine{c.ready, c.unready} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	if c.instance != nil {
		errs = append(errs, c.instance.Release())
	}
	return errors.Join(errs...)
}

// first makes a sandbox and runs /bin/true in it. Destroying it is not timed
// by anybody here: a user has the answer before.
func (c *coveUnderTest) first(e engine.Engine) func(context.Context) error {
	limits := runtimes.Defaults
	return func(ctx context.Context) error {
		sb, err := e.Prepare(ctx, engine.Template{
			ID: cove.NewSandboxID(), Shape: cove.Shape{Limits: limits, User: cove.CodeUser},
			Rootfs: engine.Rootfs{Kind: engine.RootfsHost}, Network: cove.NetworkNone,
		})
		if err != nil {
			return err
		}
		defer func() { go sb.Destroy(context.Background()) }()
		if err := sb.Bind(ctx, engine.Binding{}); err != nil {
			return err
		}
		p, err := sb.Guest().Start(ctx, guest.ProcessSpec{Args: []string{"/bin/true"}, Env: rootfs.Env(cove.CodeUser),
			Dir: cove.WorkDir, Alone: true})
		if err != nil {
			return err
		}
		go io.Copy(io.Discard, p.Stderr())
		io.Copy(io.Discard, p.Stdout())
		exit, err := p.Wait(ctx)
		if err == nil && exit.Code != 0 {
			err = fmt.Errorf("exit code %d", exit.Code)
		}
		return err
	}
}

func (c *coveUnderTest) execute(language, code string, allow ...string) func(context.Context) error {
	r := api.ExecuteRequest{Language: language, Code: code, Timeout: 60}
	if len(allow) > 0 {
		r.Permissions = &api.Permissions{Network: &api.NetworkPermission{Enabled: true,
			GatewayPolicy: api.GatewayPolicy{Allow: allow}}}
	}
	return func(ctx context.Context) error {
		e, err := c.client.Execute(ctx, r)
		if err == nil && (e.ExitCode != 0 || strings.TrimSpace(e.Output) != "1") {
			err = fmt.Errorf("exit code %d, output %q, %s", e.ExitCode, e.Output, e.Stderr)
		}
		return err
	}
}

// language is execute for a toolchain that may not be installed.
func (c *coveUnderTest) language(name, code string) contender {
	if _, err := exec.LookPath(name); err != nil {
		return contender{name: name, why: "not installed"}
	}
	return contender{name: name, run: c.execute(name, code)}
}

// figures are measured once, not compared.
func (c *coveUnderTest) figures(ctx context.Context, f map[string]float64) error {
	fi, err := os.Stat(c.guest)
	if err != nil {
		return err
	}
	f["guest_on_disk_mib"] = float64(fi.Size()) / (1 << 20)
	begin := time.Now()
	if err := c.burst(ctx, 100); err != nil {
		return fmt.Errorf("a burst of 100: %w", err)
	}
	f["burst_of_100_sh_ms"] = float64(time.Since(begin).Milliseconds())
	begin, n := time.Now(), 0
	for time.Since(begin) < 3*time.Second {
		if err := c.execute("python", "print(1)")(ctx); err != nil {
			return err
		}
		n++
	}
	f["python_runs_per_second_one_client"] = float64(n) / time.Since(begin).Seconds()
	f["server_after_load_mib"] = residentMiB(c.pid())
	if err := c.storm(ctx, f); err != nil {
		return err
	}
	return nil
}

func (c *coveUnderTest) burst(ctx context.Context, n int) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = c.execute("sh", "echo 1")(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}
