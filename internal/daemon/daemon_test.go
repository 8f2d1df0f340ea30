//go:build linux

package daemon_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/test/await"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/daemon"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// settings are a configuration of this test's own.
func settings(t *testing.T) *config.Config {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: an unprivileged run depends on how the machine delegates control groups; the VM tests do that")
	}
	dir := t.TempDir()
	for d := dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		os.Chmod(d, 0o755) // guests pass through to the staging directory
	}
	cfg := config.Defaults(func(string) string { return "" }, 0)
	cfg.Home, cfg.RunDir = filepath.Join(dir, "home"), filepath.Join(dir, "run")
	cfg.Guest, cfg.Listen = enginetest.BuildGuest(t), ""
	cfg.Sandbox.CgroupParent = "cove-test"
	return &cfg
}

func start(t *testing.T, cfg *config.Config) (*daemon.Daemon, *client.Client) {
	t.Helper()
	d, err := daemon.New(t.Context(), daemon.Options{Config: cfg,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Warm: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := d.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		left, _ := os.ReadDir(filepath.Join(cfg.RunDir, "instances"))
		if len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	return d, c
}

func TestRunsCode(t *testing.T) {
	_, c := start(t, settings(t))
	e, err := c.Execute(t.Context(), api.ExecuteRequest{Language: "bash", Code: "echo hello $1; exit 4",
		Args: []string{"you"}})
	if err != nil {
		t.Fatal(err)
	}
	if e.Output != "hello you\n" || e.ExitCode != 4 || e.Status != api.StatusCompleted || e.Usage.MemoryPeakMB <= 0 ||
		e.Usage.CPUTimeMS <= 0 {
		t.Errorf("%+v", e)
	}
	again, err := c.Get(t.Context(), e.ID)
	if err != nil || again.Output != e.Output {
		t.Errorf("%+v, %v", again, err)
	}
}

// TestLimits: each limit ends the program that runs into it, and is named.
func TestLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	_, c := start(t, settings(t))
	tests := map[string]struct {
		code   string // of sh, which gives up at once where bash would try again
		limits api.Limits
		hit    cove.LimitKind
	}{
		"memory":  {`head -c 300000000 /dev/zero | tail; echo done; exit 1`, api.Limits{MemoryMB: 64}, cove.LimitOOM},
		"time":    {`while :; do :; done`, api.Limits{}, cove.LimitTimeout},
		"pids":    {`for i in $(seq 100); do sleep 3 & done; wait; exit 1`, api.Limits{PIDs: 20}, cove.LimitPIDs},
		"disk":    {`head -c 30000000 /dev/zero > /tmp/x || exit 1`, api.Limits{DiskMB: 8}, cove.LimitDisk},
		"inodes":  {`for i in $(seq 2000); do : > /tmp/$i || exit 1; done`, api.Limits{Inodes: 100}, cove.LimitDisk},
		"output":  {`yes`, api.Limits{}, cove.LimitOutput},
		"success": {`echo fine`, api.Limits{}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			timeout := api.Seconds(60)
			if tt.hit == cove.LimitTimeout {
				timeout = 2
			}
			e, err := c.Execute(t.Context(), api.ExecuteRequest{Language: "sh", Code: tt.code,
				Spec: api.Spec{Limits: &tt.limits}, Timeout: timeout})
			if err != nil {
				t.Fatal(err)
			}
			if e.LimitHit != string(tt.hit) {
				t.Errorf("ended by %q, want %q: exit %d, stderr %.200q, %+v", e.LimitHit, tt.hit, e.ExitCode, e.Stderr, e.Usage)
			}
			if (tt.hit == cove.LimitTimeout) != (e.ExitCode == -1) {
				t.Errorf("exit code %d", e.ExitCode)
			}
		})
	}
}

func TestManyAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	cfg := settings(t)
	cfg.Sandbox.MaxConcurrent, cfg.Sandbox.Queue = 100, 0
	_, c := start(t, cfg)
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			e, err := c.Execute(t.Context(), api.ExecuteRequest{Language: "sh", Code: "echo ok", Timeout: 60})
			if err != nil || e.Output != "ok\n" {
				t.Errorf("%+v, %v", e, err)
			}
		})
	}
	all.Wait()
}

func TestSecondServerIsRefused(t *testing.T) {
	cfg := settings(t)
	d, _ := start(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- d.Serve(ctx) }()
	await.That(t, "the server listens", func() bool {
		_, err := os.Stat(cfg.Socket())
		return err == nil
	})
	second, err := daemon.New(t.Context(), daemon.Options{Config: cfg, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close(t.Context())
	if err := second.Serve(t.Context()); cove.ErrorCode(err) != cove.Conflict ||
		!strings.Contains(err.Error(), "another server") {
		t.Errorf("got %v", err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(cfg.Socket()); err == nil {
		t.Error("the socket is still there")
	}
}
