//go:build linux

package docker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/client"

	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/internal/instance"
)

// The tests have a Docker daemon of their own: they stop it, freeze it and look for what is left of its containers.
const script = "../../../scripts/start-docker.sh"

var daemonDir = filepath.Join(os.TempDir(), "cove-docker-test-"+strconv.Itoa(os.Getpid()))

// daemonVar holds the daemon's address for the processes that a test starts.
const daemonVar = "COVE_TEST_DOCKER_DAEMON"

// daemon starts it, once, and says where it is. What a test process that crashed has left is stopped first.
var daemon = sync.OnceValues(func() (string, error) {
	if address := os.Getenv(daemonVar); address != "" {
		return address, nil
	}
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), "cove-docker-test-*"))
	for _, dir := range old {
		pid := strings.TrimPrefix(filepath.Base(dir), "cove-docker-test-")
		if _, err := os.Stat("/proc/" + pid); err != nil {
			exec.Command(script, "--stop", dir).Run()
			os.RemoveAll(dir)
		}
	}
	out, err := exec.Command(script, daemonDir).Output()
	return strings.TrimSpace(string(out)), err
})

func TestMain(m *testing.M) {
	code := m.Run()
	code = max(code, stopPodman())
	if _, err := os.Stat(daemonDir); err == nil {
		if out, err := exec.Command(script, "--stop", daemonDir).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "stopping the Docker daemon: %v: %s", err, out)
			code = 1
		}
		os.RemoveAll(daemonDir)
	}
	os.Exit(code)
}

// host is the address of a daemon that works, or the test is skipped.
func host(t testing.TB) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to start a Docker daemon")
	}
	if _, err := exec.LookPath("dockerd"); err != nil {
		t.Skip("needs dockerd: apt-get install docker.io")
	}
	address, err := daemon()
	if err != nil {
		t.Fatalf("scripts/start-docker.sh: %v", err)
	}
	return address
}

// options are those of an engine with an instance of its own.
func options(t testing.TB) Options {
	t.Helper()
	address := host(t)
	run := t.TempDir()
	in, err := instance.Hold(run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Release() })
	level := slog.LevelWarn
	if testing.Verbose() {
		level = slog.LevelDebug
	}
	return Options{
		Host: address, Guest: enginetest.BuildGuest(t), RunDir: run, Instance: in.ID,
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: level})),
	}
}

func open(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

var discard = slog.New(slog.DiscardHandler)

// ask is a client of its own for looking from outside.
func ask(t testing.TB) *client.Client {
	t.Helper()
	c, err := client.New(client.WithHost(host(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// leftovers are the daemon's containers and volumes, and what the host has of them: mounts and control groups.
func leftovers(t *testing.T) []string {
	c := ask(t)
	var left []string
	// Not the test's context: this is asked after its end.
	containers, err := c.ContainerList(context.Background(), client.ContainerListOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, ct := range containers.Items {
		left = append(left, "container "+ct.Names[0]+" "+string(ct.State))
	}
	return append(left, onHost(t)...)
}

func onHost(t *testing.T) []string {
	var left []string
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		found, err := filepath.Glob(pattern + "cove-" + filepath.Base(daemonDir) + "-*/*/cgroup.procs")
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, found...)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, daemonDir+"/data/") {
			left = append(left, "mount "+strings.Fields(line)[4])
		}
	}
	slices.Sort(left)
	return left
}

func TestConformance(t *testing.T) {
	var o Options
	enginetest.Suite{
		Open: func(t *testing.T) engine.Engine {
			o = options(t)
			return open(t, o)
		},
		Reopen:    func(t *testing.T) engine.Engine { return open(t, o) },
		Leftovers: leftovers,
		Sandboxes: 20,
	}.Run(t)
}

var _ io.ReadWriteCloser = (*stream)(nil)
