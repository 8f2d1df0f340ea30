//go:build linux

package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/test/adversary"
)

const podmanScript = "../../../scripts/start-podman.sh"

var podmanDir = filepath.Join(os.TempDir(), "cove-podman-test-"+strconv.Itoa(os.Getpid()))

// podmanVar holds the service's address for the processes that a test starts.
const podmanVar = "COVE_TEST_PODMAN_SERVICE"

// podmanService starts a Podman service of the tests' own, once, and says where it is.
var podmanService = sync.OnceValues(func() (string, error) {
	if address := os.Getenv(podmanVar); address != "" {
		return address, nil
	}
	out, err := exec.Command(podmanScript, podmanDir).Output()
	return strings.TrimSpace(string(out)), err
})

// stopPodman ends the service, if there is one.
func stopPodman() (code int) {
	if _, err := os.Stat(podmanDir); err == nil {
		if out, err := exec.Command(podmanScript, "--stop", podmanDir).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "stopping Podman: %v: %s", err, out)
			code = 1
		}
		os.RemoveAll(podmanDir)
	}
	return code
}

func podmanHost(t testing.TB) string {
	t.Helper()
	if os.Geteuid() != 0 && os.Getenv(podmanVar) == "" {
		t.Skip("needs root to start Podman's service")
	}
	for _, program := range []string{"podman", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s: apt-get install %[1]s", program)
		}
	}
	address, err := podmanService()
	if err != nil {
		t.Fatalf("scripts/start-podman.sh: %v", err)
	}
	return address
}

func podmanOptions(t testing.TB) Options {
	t.Helper()
	address := podmanHost(t)
	run := t.TempDir()
	in, err := instance.Hold(run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Release() })
	return Options{Podman: true, Host: address, Guest: enginetest.BuildGuest(t), RunDir: run, Instance: in.ID,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

// podmanLeftovers are the service's containers.
func podmanLeftovers(t *testing.T) []string {
	c, err := client.New(client.WithHost(podmanHost(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Not the test's context: this is asked after its end.
	containers, err := c.ContainerList(context.Background(), client.ContainerListOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, ct := range containers.Items {
		left = append(left, "container "+ct.Names[0]+" "+string(ct.State))
	}
	return left
}

// TestConformanceOfPodman: Podman's containers are like Docker's where Podman sets them up. The other groups are about
// the guest and about Cove's use of a daemon's answers, and run if COVE_TEST_LONG is set.
func TestConformanceOfPodman(t *testing.T) {
	var o Options
	groups := []string{"wall", "limits", "lasting"}
	if os.Getenv("COVE_TEST_LONG") != "" {
		groups = nil
	}
	enginetest.Suite{
		Open: func(t *testing.T) engine.Engine {
			o = podmanOptions(t)
			return open(t, o)
		},
		Reopen:    func(t *testing.T) engine.Engine { return open(t, o) },
		Leftovers: podmanLeftovers,
		Sandboxes: 6,
		Groups:    groups,
	}.Run(t)
}

// TestAdversaryOfPodman attacks Podman's containers from inside, by the rows about what Podman sets up.
func TestAdversaryOfPodman(t *testing.T) {
	t.Setenv(podmanVar, podmanHost(t)) // for the owners that are killed
	o := adversaryOptions("")
	o.Only = []string{"C1.", "C3.", "C4.tcp", "C4.swap", "C5.", "C7.accounts", "F2.", "F3.", "F4.dev",
		"F4.plain", "F8.ownership", "F8.setuid",
		"H1.", "H3.", "K3.syslog", "K4.", "K5.file", "K5.no", "K5.set_ids", "K8.", "P1.", "P2.", "P3.", "P4."}
	adversary.Run(t, openPodmanShared, o)
}

// openPodmanShared makes an engine whose run directory is the suite's.
func openPodmanShared(t testing.TB, state string) engine.Engine {
	t.Helper()
	o := podmanOptions(t)
	if err := os.Chmod(state, 0o755); err != nil {
		t.Fatal(err)
	}
	in, err := instance.Hold(state)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Release() })
	o.Guest, o.RunDir, o.Instance = enginetest.SharedGuest(t, state), state, in.ID
	o.Paths, o.Log = adversary.Rules(state), discard
	return open(t, o)
}

// TestPodmanThatAdds: a containers.conf that mounts a directory of the host, or shows one of its devices, in every
// container does not so in a sandbox.
func TestPodmanThatAdds(t *testing.T) {
	o := podmanOptions(t)
	conf := filepath.Join(podmanDir, "containers.conf")
	usual, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ line, says string }{
		{`volumes = ["/etc/apt:/opt/host:rw"]`, "something is mounted at /opt/host"},
		{`devices = ["/dev/full:/dev/disk:rwm"]`, "devices of the host are in /dev: disk"},
		{"", ""},
	} {
		dir := podmanDir + "-adds"
		t.Cleanup(func() {
			exec.Command(podmanScript, "--stop", dir).Run()
			os.RemoveAll(dir)
		})
		start := exec.Command(podmanScript, dir)
		start.Env = append(os.Environ(),
			"COVE_PODMAN_CONF="+strings.Replace(string(usual), "[engine]", c.line+"\n[engine]", 1))
		out, err := start.Output()
		if err != nil {
			t.Fatalf("scripts/start-podman.sh: %v", err)
		}
		o.Host = strings.TrimSpace(string(out))
		e := open(t, o)
		sb, err := e.Prepare(t.Context(), template())
		switch {
		case err == nil && c.says != "":
			t.Errorf("%s: the sandbox was made", c.line)
			fallthrough
		case err == nil:
			if err := sb.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		case c.says == "" || !strings.Contains(err.Error(), c.says):
			t.Errorf("%s: %v, want %q", c.line, err, c.says)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if out, err := exec.Command(podmanScript, "--stop", dir).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// TestOtherEngine: an engine that answers where another one was expected is refused.
func TestOtherEngine(t *testing.T) {
	o := podmanOptions(t)
	o.Podman = false
	if _, err := New(o); cove.ErrorCode(err) != cove.Unsupported || !strings.Contains(err.Error(), "Podman answers") {
		t.Errorf("docker at Podman's socket: %v", err)
	}
	o.Podman, o.Host = true, host(t)
	if _, err := New(o); cove.ErrorCode(err) != cove.Unsupported || !strings.Contains(err.Error(), "no Podman answers") {
		t.Errorf("podman at Docker's socket: %v", err)
	}
	o.Host = "unix://" + filepath.Join(t.TempDir(), "none")
	if _, err := New(o); cove.ErrorCode(err) != cove.Unavailable ||
		!strings.Contains(err.Error(), "systemctl start podman.socket") {
		t.Errorf("podman at no socket: %v", err)
	}
	o.Host = "tcp://127.0.0.1:1"
	if _, err := New(o); cove.ErrorCode(err) != cove.Unsupported || !strings.Contains(err.Error(), "on another machine") {
		t.Errorf("podman on another machine: %v", err)
	}
}

// serveUnix serves at a unix socket in a directory of its own.
func serveUnix(t *testing.T, h http.HandlerFunc) (dir, address string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cove-podman-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return dir, "unix://" + l.Addr().String()
}

// TestRootlessPodman: a service that runs without root, which it says in a field of its own alone, is refused for root,
// and for others if it is too old.
func TestRootlessPodman(t *testing.T) {
	var version string
	dir, address := serveUnix(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Libpod-Api-Version", version)
		if strings.HasSuffix(r.URL.Path, "/info") {
			fmt.Fprintf(w, `{"OSType":"linux","Architecture":"amd64","MemoryLimit":true,"SwapLimit":true,"CpuCfsQuota":true,`+
				`"CpuCfsPeriod":true,"PidsLimit":true,"SecurityOptions":["name=seccomp,profile=default"],`+
				`"CgroupDriver":"systemd","host":{"cgroupVersion":"v2","security":{"rootless":true}}}`)
		}
	})
	for v, want := range map[string]string{"3.4.4": "Podman 4 or newer", "4.2.1": "Podman 4.3", "4.3.0": "not delegated",
		"5.0.0-rc1": "not delegated"} {
		version = v
		if os.Geteuid() == 0 && v >= "4" {
			want = "ordinary user's"
		}
		_, err := New(Options{Podman: true, Host: address, Guest: enginetest.BuildGuest(t),
			RunDir: dir, Log: discard})
		if cove.ErrorCode(err) != cove.Unsupported || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", v, err)
		}
	}
}

// TestPodmanLimits: without root and on control groups of version 2, containers of a service have the limits whose
// controllers are delegated, unless they have no control groups.
func TestPodmanLimits(t *testing.T) {
	for _, c := range []struct {
		driver string
		tasks  bool
		want   string
	}{
		{"systemd", true, ""},
		{"systemd", false, "not delegated"},
		{"cgroupfs", true, "cgroup_manager"},
	} {
		e := &Engine{capabilities: engine.Capabilities{PIDsLimit: c.tasks, Missing: map[string]string{}}}
		err := limitUsers(e, system.Info{CgroupVersion: "2", CgroupDriver: c.driver})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestSubordinateIDs: a container whose ids Podman does not find is asked for again, and in the end it is said what the
// user lacks.
func TestSubordinateIDs(t *testing.T) {
	asked, lost := 0, 0
	dir, address := serveUnix(t, func(w http.ResponseWriter, r *http.Request) {
		var spec podmanSpec
		err := json.NewDecoder(r.Body).Decode(&spec)
		if want := (podmanNS{"keep-id", "uid=65534,gid=65534"}); err != nil || spec.UserNS != want {
			t.Errorf("the user namespace %+v, %v", spec.UserNS, err)
		}
		if asked++; asked > lost {
			fmt.Fprint(w, `{"Id":"made"}`)
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, `{"message":"keep-id requires additional UIDs or GIDs defined in /etc/subuid and /etc/subgid"}`)
	})
	c, err := client.New(client.WithHost(address))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p := podman{c: c, engine: true, filters: filepath.Join(dir, "filters")}
	config, host, err := plan(wish{template: template(), owns: true, cpus: 1})
	if err != nil {
		t.Fatal(err)
	}
	for n, why := range map[int]string{0: "", 3: "", idAttempts: "usermod --add-subuids"} {
		asked, lost = 0, n
		id, _, err := p.create(t.Context(), "name", config, host)
		if (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) ||
			err == nil && id != "made" {
			t.Errorf("lost %d times: %q, %v", n, id, err)
		}
		if want := min(n+1, idAttempts); asked != want {
			t.Errorf("lost %d times, asked for %d times", n, asked)
		}
	}
}
