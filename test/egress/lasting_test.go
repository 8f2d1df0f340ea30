//go:build linux

package egress

import (
	"bufio"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/test/await"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/native"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/instance"
	labs "github.com/cove-sandbox/cove/test/adversary/lab"
)

// server is a process of Cove's: an engine and a gateway.
type server struct {
	engine  *native.Engine
	gateway *gateway.Gateway
}

func startServer(t *testing.T, dir, bin string) server {
	t.Helper()
	home, run := filepath.Join(dir, "home"), filepath.Join(dir, "run")
	for _, d := range []string{home, run} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	in, err := instance.Hold(run)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	e, err := native.New(native.Options{Guest: filepath.Join(bin, "cove-guest"), RunDir: run, Instance: in.ID,
		CgroupParent: "cove-egress-test", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	keep, err := ca.OpenStore(home)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(filepath.Join(dir, "lab.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	g := gateway.New(gateway.Options{
		Dir: filepath.Join(run, "shown"), Keep: &keep, Roots: roots, Clock: clock.Real(), Log: log,
		Dialer: proxy.Direct{Resolver: &net.Resolver{PreferGo: true,
			Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, labs.ResolverAt().String())
			}}},
	})
	t.Cleanup(func() { g.Close(); e.Close(); in.Release() })
	return server{e, g}
}

// open is the way out of a sandbox that may reach good.lab.test.
func (s server) open(t *testing.T, id cove.SandboxID) *gateway.Route {
	t.Helper()
	p, err := policy.Args("test", policy.Allow, "good.lab.test")
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.gateway.Open(gateway.Spec{Sandbox: id, Name: "lasting", Policy: []*policy.Document{p}})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestRestart: a gateway is killed while a sandbox uses it. Nothing leaves then; the next one opens the way again, with
// the authority that the sandbox trusts and the policy that it has.
func TestRestart(t *testing.T) {
	if why := labs.Missing(); why != "" {
		t.Skip(why)
	}
	l := newLab(t)
	maker := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMakeRunning$")
	maker.Env = append(os.Environ(), "COVE_TEST_MAKE_RUNNING="+l.dir, "COVE_TEST_BIN="+l.bin)
	maker.Stderr = os.Stderr
	out, err := maker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := maker.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	var id cove.SandboxID
	var seen uint64
	if _, err := fmt.Sscanf(line, "%s %d", &id, &seen); err != nil {
		t.Fatalf("it says %q: %v", line, err)
	}
	await.That(t, "the stream has begun too", func() bool { return len(l.seen()) >= 2 })
	maker.Process.Kill()
	maker.Wait()

	s := startServer(t, l.dir, l.bin)
	sb, err := s.engine.Adopt(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Destroy(context.Background())
	p, err := sb.Guest().Attach(t.Context(), sb.Guest().Processes()[0], seen, 0)
	if err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(p.Stdout())
	ask := func(what string) string {
		t.Helper()
		if _, err := io.WriteString(p.Stdin(), what+"\n"); err != nil {
			t.Fatal(err)
		}
		got, err := answers.ReadString('\n')
		if err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		return strings.TrimSpace(got)
	}
	// The stream has broken, and nothing gets through. curl: partial file, receive, TLS, HTTP/2
	if got := ask("wait"); got != "18" && got != "56" && got != "35" && got != "92" {
		t.Errorf("the stream ended with curl's code %s", got)
	}
	if got := ask("good.lab.test --max-time 2"); !strings.HasPrefix(got, "000") {
		t.Errorf("without a gateway: %s", got)
	}
	if got := l.seen(); len(got) != 2 {
		t.Errorf("without a gateway the origin has seen %v", got)
	}
	w := s.open(t, id)
	if err := w.Serve(sb.Listeners()); err != nil {
		t.Fatal(err)
	}
	if got := ask("good.lab.test --max-time 60"); got != "200 0" {
		t.Errorf("after the restart: %s", got)
	}
	if got := ask("good.lab.test --max-time 60 --noproxy *"); got != "200 0" {
		t.Errorf("after the restart, past the proxy: %s", got)
	}
	if got := ask("bad.lab.test --max-time 60"); got == "200 0" {
		t.Errorf("what was not allowed before: %s", got)
	}
}

// TestMakeRunning is the process that TestRestart kills.
func TestMakeRunning(t *testing.T) {
	dir := os.Getenv("COVE_TEST_MAKE_RUNNING")
	if dir == "" {
		t.Skip("a part of TestRestart")
	}
	s := startServer(t, dir, os.Getenv("COVE_TEST_BIN"))
	id := cove.NewSandboxID()
	sb, err := s.engine.Prepare(t.Context(), engine.Template{
		ID: id, Shape: cove.Shape{User: cove.CodeUser, Limits: cove.Limits{Memory: 512 << 20, CPUs: 1, PIDs: 100,
			Disk: 64 << 20, Inodes: 5000, OpenFiles: 1024}, Lifetime: cove.LifetimeDetached},
		Rootfs:  engine.Rootfs{Kind: engine.RootfsHost},
		Network: cove.NetworkLimited,
	})
	if err != nil {
		t.Fatal(err)
	}
	w := s.open(t, id)
	b := engine.Binding{Hostname: "sandbox"}
	if err := w.Bind(&b, engine.Rootfs{}); err != nil {
		t.Fatal(err)
	}
	if err := sb.Bind(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if err := w.Serve(sb.Listeners()); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=/usr/bin:/bin", "HOME=" + cove.Home}
	for k, v := range w.Env() {
		env = append(env, k+"="+v)
	}
	p, err := sb.Guest().Start(t.Context(), guest.ProcessSpec{
		Args: []string{"bash", "-c", `
			curl -s --no-buffer https://good.lab.test/slow & stream=$!
			while read -r host flags; do
				case $host in
				wait) wait $stream; echo $? ;;
				*) set -f; curl -s -o /dev/null -w '%{http_code} %{ssl_verify_result}\n' $flags https://$host/ ;;
				esac
			done`},
		Env: env, Dir: "/tmp", Stdin: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(p.Stdin(), "good.lab.test --max-time 60\n"); err != nil {
		t.Fatal(err)
	}
	got, err := bufio.NewReader(p.Stdout()).ReadString('\n')
	if err != nil || got != "200 0\n" {
		t.Fatalf("%q, %v", got, err)
	}
	fmt.Println(id, len(got))
	time.Sleep(time.Hour) // sleep: the program stays until it is killed
}
