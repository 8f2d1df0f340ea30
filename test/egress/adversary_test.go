//go:build linux

package egress

import (
	"bytes"
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/docker"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/internal/engine/native"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/store/sqlite"
	"github.com/cove-sandbox/cove/test/adversary"
	labs "github.com/cove-sandbox/cove/test/adversary/lab"
)

// TestAdversary attacks the way out of real sandboxes, with the gateway that Cove has. Each attempt is a subtest.
func TestAdversary(t *testing.T) { attack(t, openNative, false) }

// TestDockerAdversary does so from containers of a Docker daemon's, as far as that depends on the engine.
func TestDockerAdversary(t *testing.T) {
	if os.Getenv("DOCKER_HOST") == "" {
		t.Skip("needs a Docker daemon of its own: DOCKER_HOST=$(scripts/start-docker.sh)")
	}
	attack(t, openDocker, true)
}

// TestDockerAdversaryOverTCP does so where sidecars lead the network.
func TestDockerAdversaryOverTCP(t *testing.T) {
	overTCP(t)
	attack(t, openDocker, true)
}

// TestPodmanAdversary does so from containers of a Podman service's.
func TestPodmanAdversary(t *testing.T) {
	if os.Getenv("COVE_TEST_LONG") == "" {
		t.Skip("Docker's containers have it, and their network is entered in the same way: set COVE_TEST_LONG=1")
	}
	const script = "../../scripts/start-podman.sh"
	dir, err := os.MkdirTemp("", "cove-podman-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		exec.Command(script, "--stop", dir).Run()
		os.RemoveAll(dir)
	})
	out, err := exec.Command(script, dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %s", script, out)
	}
	t.Setenv("CONTAINER_HOST", strings.TrimSpace(string(out)))
	attack(t, openPodman, true)
}

func attack(t *testing.T, open adversary.Open, brief bool) {
	l := newLab(t)
	g := newWatched(t, l)
	adversary.RunOnline(t, open, adversary.Options{}, adversary.Online{
		Internet: l.Internet, Open: g.open, Decisions: g.decisions, Log: g.text,
		Command: func(t testing.TB, args ...string) *exec.Cmd { return l.command(t, context.Background(), args...) },
		Brief:   brief,
		Dirs:    []string{g.dir, filepath.Join(l.dir, "home"), filepath.Join(l.dir, "run")},
	})
}

// openNative makes an engine whose run directory is the suite's.
func openNative(t testing.TB, state string) engine.Engine {
	t.Helper()
	in := holdIn(t, state)
	e, err := native.New(native.Options{Guest: enginetest.SharedGuest(t, state), RunDir: state, Instance: in.ID,
		CgroupParent: "cove-egress-adversary",
		Log:          slog.New(slog.NewTextHandler(os.Stderr, nil)), Ready: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() }) // before its instance is over
	return e
}

func openDocker(t testing.TB, state string) engine.Engine { return openContainers(t, state, false) }

func openPodman(t testing.TB, state string) engine.Engine { return openContainers(t, state, true) }

func openContainers(t testing.TB, state string, podman bool) engine.Engine {
	t.Helper()
	in := holdIn(t, state)
	e, err := docker.New(docker.Options{Podman: podman, Guest: enginetest.SharedGuest(t, state),
		RunDir: state, Instance: in.ID,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func holdIn(t testing.TB, state string) *instance.Instance {
	t.Helper()
	if err := os.Chmod(state, 0o755); err != nil {
		t.Fatal(err)
	}
	in, err := instance.Hold(state)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Release() })
	return in
}

// watched is a gateway of which everything that it writes is kept.
type watched struct {
	gateway *gateway.Gateway
	dir     string

	mu   sync.Mutex
	log  bytes.Buffer
	told []decision.Decision
}

// Write takes what is logged.
func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

func (w *watched) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

func (w *watched) decisions() []decision.Decision {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.told)
}

func (w *watched) open(id cove.SandboxID, policies []*policy.Document, credentials []string) (adversary.Route, error) {
	route, err := w.gateway.Open(gateway.Spec{Sandbox: id, Name: string(id), Policy: policies, Credentials: credentials})
	if err != nil {
		return nil, err // and no nil way that is not nil
	}
	return route, nil
}

func newWatched(t *testing.T, l *lab) *watched {
	t.Helper()
	w := &watched{dir: filepath.Join(l.dir, "gateway")}
	described, err := credential.Parse("credentials.yaml", []byte(adversary.Credentials))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(l.Authority())
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, labs.ResolverAt().String())
	}}
	log := slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
	decisions, err := sqlite.Open(t.Context(), filepath.Join(w.dir, "cove.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { decisions.Close() })
	recorder := gateway.NewRecorder(gateway.RecorderOptions{Store: store.NewVault(decisions), Keep: 10000,
		Clock: clock.Real(), Log: log, Observe: func(d decision.Decision) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, d)
		}})
	t.Cleanup(recorder.Flush)
	w.gateway = gateway.New(gateway.Options{
		Dir: w.dir, Roots: roots, Dialer: proxy.Direct{Resolver: resolver},
		Machine:   policy.Machine{Own: []netip.Addr{labs.Host4, labs.Host6}},
		Described: func() (gateway.Described, error) { return gateway.Described{Credentials: described}, nil },
		Clock:     clock.Real(), Log: log,
		Recorder: recorder,
	})
	t.Cleanup(w.gateway.Close)
	return w
}
