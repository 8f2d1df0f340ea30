//go:build linux

package docker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/client"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/linux/relayed"
	"github.com/cove-sandbox/cove/test/await"
)

// overTCP is an address of the daemon as one of another machine has it, until the test ends.
func overTCP(t testing.TB) string {
	t.Helper()
	return enginetest.OverTCP(t, host(t))
}

// TestConformanceOverTCP: what differs where the daemon counts as one of another machine.
func TestConformanceOverTCP(t *testing.T) {
	var o Options
	enginetest.Suite{
		Open: func(t *testing.T) engine.Engine {
			o = options(t)
			o.Host = overTCP(t)
			return open(t, o)
		},
		Reopen:    func(t *testing.T) engine.Engine { return open(t, o) },
		Leftovers: leftovers,
		Sandboxes: 5,
		Groups:    []string{"lifecycle", "refusals", "binding", "crowd", "wall"},
	}.Run(t)
}

// elsewhere starts a daemon that does not see the directory hidden, and returns its address as another machine has it.
func elsewhere(t *testing.T, hidden string) string {
	t.Helper()
	host(t) // or the test is skipped
	dir := filepath.Join(os.TempDir(), "cove-docker-elsewhere-"+strconv.Itoa(os.Getpid()))
	t.Cleanup(func() {
		if out, err := exec.Command(script, "--stop", dir).CombinedOutput(); err != nil {
			t.Errorf("stopping the daemon: %v: %s", err, out)
		}
		os.RemoveAll(dir)
	})
	out, err := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c",
		`mount -t tmpfs hidden "$1" && exec "$2" "$3"`, "sh", hidden, script, dir).Output()
	if err != nil {
		t.Fatalf("starting a daemon elsewhere: %v", err)
	}
	return enginetest.OverTCP(t, strings.TrimSpace(string(out)))
}

// TestDaemonElsewhere: a daemon that sees no file of this machine gets the guest and Cove's own files, and leads the
// network here. Nothing of a sandbox is left, except the images that are a cache.
func TestDaemonElsewhere(t *testing.T) {
	o := options(t)
	hidden := t.TempDir()
	o.Host = elsewhere(t, hidden)
	o.Guest = filepath.Join(hidden, "cove-guest")
	program, err := os.ReadFile(enginetest.BuildGuest(t))
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(hidden, "ca.pem")
	if err := errors.Join(os.WriteFile(o.Guest, program, 0o755),
		os.WriteFile(own, []byte("trusted\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	e := open(t, o)
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	var b engine.Binding
	defer b.Close()
	if err := b.Show(hostpath.Own{Dir: hidden, Name: "ca.pem"}, engine.File{Target: "/etc/cove/ca.pem"},
		engine.File{Target: bundle, Existing: true},
		engine.File{Target: "/etc/nothing", Existing: true}); err != nil {
		t.Fatal(err)
	}
	b.Hostname, b.Listeners = "far", engine.RouteListeners()
	sb, err := e.Prepare(t.Context(), engine.Template{ID: cove.NewSandboxID(), Network: cove.NetworkLimited,
		Rootfs: engine.Rootfs{Kind: engine.RootfsHost},
		Shape:  cove.Shape{User: cove.CodeUser, Limits: cove.Limits{Memory: 128 << 20, PIDs: 32}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Bind(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	ln, err := relayed.Listener(sb.Listeners()[0], "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		c, err := ln.Accept()
		if err != nil {
			t.Errorf("Accept: %v", err)
			return
		}
		defer c.Close()
		fmt.Fprintln(c, c.(*relayed.Conn).Destination())
	}()
	got := outputOf(t, sb, "/bin/bash", "-c", `cat /etc/cove/ca.pem `+bundle+`; ls /etc/nothing; uname -n
		cat /etc/resolv.conf; grep -c 127.0.0.1 /etc/hosts; cat </dev/tcp/192.0.2.1/80`)
	want := "trusted\ntrusted\nfar\nnameserver 127.0.0.1\noptions timeout:1 attempts:1\n2\n192.0.2.1:80\n"
	if got != want {
		t.Errorf("inside: %q\nwant    %q", got, want)
	}
	<-served
	if err := sb.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if left := imagesOf(t, o.Host); slices.ContainsFunc(left, func(tag string) bool {
		return strings.HasPrefix(tag, "cove/sandbox:")
	}) {
		t.Errorf("images are left: %q", left)
	}
}

func outputOf(t *testing.T, sb engine.Sandbox, args ...string) string {
	t.Helper()
	p, err := sb.Guest().Start(t.Context(), guest.ProcessSpec{Args: args, Env: []string{"PATH=/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(p.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	errs, _ := io.ReadAll(p.Stderr())
	if len(errs) > 0 {
		t.Logf("%s", errs)
	}
	return string(out)
}

func imagesOf(t *testing.T, host string) (tags []string) {
	t.Helper()
	c, err := client.New(client.WithHost(host))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.ImageList(t.Context(), client.ImageListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range r.Items {
		tags = append(tags, i.RepoTags...)
	}
	return tags
}

// networked makes a sandbox with a network, and a file of Cove's own.
func networked(t *testing.T, e *Engine) engine.Sandbox {
	t.Helper()
	tpl := template()
	tpl.Network = cove.NetworkLimited
	sb, err := e.Prepare(t.Context(), tpl)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(e.o.RunDir, "own"), []byte("own\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var b engine.Binding
	defer b.Close()
	if err := b.Show(hostpath.Own{Dir: e.o.RunDir, Name: "own"}, engine.File{Target: "/etc/cove/own"}); err != nil {
		t.Fatal(err)
	}
	b.Listeners = engine.RouteListeners()
	if err := sb.Bind(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return sb
}

// TestServerKilledOverTCP: the sidecar and the image of a sandbox go with its container.
func TestServerKilledOverTCP(t *testing.T) {
	o := options(t)
	o.Host = overTCP(t)
	killed(t, o, 3)
	if left := imagesOf(t, o.Host); slices.ContainsFunc(left, func(tag string) bool {
		return strings.HasPrefix(tag, "cove/sandbox:")
	}) {
		t.Errorf("images are left: %q", left)
	}
}

// TestSidecars: each sandbox has its own. It has no privilege, and no network but the sandbox's; when it is killed,
// nothing leaves that sandbox until it is started again, a few times, and the other one's goes on.
func TestSidecars(t *testing.T) {
	o := options(t)
	var log syncBuffer
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	o.Host = overTCP(t)
	e := open(t, o)
	asks := ask(t)
	var boxes [2]engine.Sandbox
	for i := range boxes {
		boxes[i] = networked(t, e)
		answers(t, boxes[i], fmt.Sprintf("host %d\n", i))
	}
	get := func(i int) string {
		return outputOf(t, boxes[i], "/bin/bash", "-c", "{ cat </dev/tcp/192.0.2.1/80; } 2>/dev/null || echo nothing")
	}
	for i := range boxes {
		if got := get(i); got != fmt.Sprintf("host %d\n", i) {
			t.Errorf("sandbox %d gets %q", i, got)
		}
		unprivileged(t, asks, sidecarName(boxes[i].ID()))
	}
	kill := func() {
		t.Helper()
		sb := boxes[0].(*sandbox)
		sb.changing.Lock()
		end := sb.sidecar
		sb.changing.Unlock()
		if err := e.api.kill(t.Context(), sidecarName(sb.ID())); err != nil {
			t.Fatal(err)
		}
		<-end.Done()
	}
	for range mostRestarts {
		kill()
		await.That(t, "the next sidecar", func() bool {
			got := get(0)
			if got != "host 0\n" && got != "nothing\n" {
				t.Fatalf("without its sidecar a sandbox gets %q", got)
			}
			return got == "host 0\n"
		})
	}
	unprivileged(t, asks, sidecarName(boxes[0].ID()))
	kill()
	await.That(t, "it is told", func() bool {
		return strings.Contains(log.String(), "nothing leaves the sandbox any more") &&
			strings.Contains(log.String(), string(boxes[0].ID()))
	})
	if got := get(0); got != "nothing\n" {
		t.Errorf("without its sidecar a sandbox gets %q", got)
	}
	if got := get(1); got != "host 1\n" {
		t.Errorf("the other one gets %q", got)
	}
	for _, sb := range boxes {
		if err := sb.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if strings.Contains(log.String(), "sandbox="+string(boxes[1].ID())) {
		t.Errorf("the end of one that was destroyed is told: %s", log.String())
	}
}

// answers has the host answer every connection of a sandbox with a text.
func answers(t *testing.T, sb engine.Sandbox, text string) {
	t.Helper()
	ln, err := relayed.Listener(sb.Listeners()[0], "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	t.Cleanup(func() {
		ln.Close()
		<-served
		for _, f := range sb.Listeners() {
			f.Close()
		}
	})
	go func() {
		defer close(served)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, text)
			c.Close()
		}
	}()
}

// unprivileged fails unless a sidecar has given up its privileges, and has no network but loopback.
func unprivileged(t *testing.T, asks *client.Client, name string) {
	t.Helper()
	r, err := asks.ContainerInspect(t.Context(), name, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pid := r.Container.State.Pid
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Uid:\t65534\t65534\t65534\t65534\n",
		"Gid:\t65534\t65534\t65534\t65534\n", "Groups:\t \n",
		"CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the sidecar has no %q: %s", want, text)
		}
	}
	dev, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
	if err != nil || strings.Contains(string(dev), "eth") || !strings.Contains(string(dev), "lo:") {
		t.Errorf("interfaces: %s, %v", dev, err)
	}
}

// TestSidecarHere: on the daemon's own machine, a user who is not root has a network by a sidecar, too.
func TestSidecarHere(t *testing.T) {
	e := open(t, options(t))
	e.enters = false // as New finds out
	sb := networked(t, e)
	answers(t, sb, "here\n")
	if got := outputOf(t, sb, "/bin/bash", "-c", "cat /etc/cove/own </dev/tcp/192.0.2.1/80 -"); got != "own\nhere\n" {
		t.Errorf("inside: %q", got)
	}
}

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// sayHere answers the first connection that leaves a sandbox with a line, until the test ends.
func sayHere(t *testing.T, sb engine.Sandbox) {
	t.Helper()
	ln, err := relayed.Listener(sb.Listeners()[0], "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		if c, err := ln.Accept(); err == nil {
			fmt.Fprintln(c, "here")
			c.Close()
		}
	}()
}

// TestOverSSH: a daemon is reached by the machine's own ssh, and leads a network here, too.
func TestOverSSH(t *testing.T) {
	o := options(t)
	address, forget := overSSHD(t, o.Host)
	o.Host = address
	e := open(t, o)
	sb := networked(t, e)
	sayHere(t, sb)
	if got := outputOf(t, sb, "/bin/bash", "-c", "cat </dev/tcp/192.0.2.1/80"); got != "here\n" {
		t.Errorf("inside: %q", got)
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	forget()
	if _, err := New(o); cove.ErrorCode(err) != cove.Unavailable || !strings.Contains(err.Error(), o.Host) ||
		!strings.Contains(err.Error(), "Permission denied") {
		t.Errorf("without a key: %v", err)
	}
}

// overSSHD starts a server of ssh until the test ends, and returns the daemon's address by it. Once forget is called it
// takes the user's key no more.
func overSSHD(t *testing.T, daemonHost string) (address string, forget func()) {
	t.Helper()
	server, err := exec.LookPath("sshd")
	if err != nil {
		t.Skip("needs sshd: apt-get install openssh-server")
	}
	if _, err := exec.LookPath("docker"); err != nil {
		t.Skip("needs the docker command")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, key := range []string{"host", "user"} {
		making := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at(key))
		if out, err := making.CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %s", out)
		}
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"server": fmt.Sprintf("Port %d\nListenAddress 127.0.0.1\nHostKey %s\nAuthorizedKeysFile %s\nStrictModes no\n"+
			"PidFile none\nUsePAM no\nPermitRootLogin yes\nSetEnv DOCKER_HOST=%s\n",
			port, at("host"), at("user.pub"), daemonHost),
		"client": fmt.Sprintf("IdentityFile %s\nIdentitiesOnly yes\nStrictHostKeyChecking no\nUserKnownHostsFile %s\n"+
			"LogLevel ERROR\n", at("user"), at("known")),
		"ssh": fmt.Sprintf("#!/bin/sh\nexec %s -F %s \"$@\"\n", ssh, at("client")),
	} {
		if err := os.WriteFile(at(name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		t.Fatal(err)
	}
	var said syncBuffer
	daemon := exec.Command(server, "-D", "-e", "-f", at("server"))
	daemon.Stderr = &said
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { daemon.Process.Kill(); daemon.Wait() })
	await.That(t, "sshd listens", func() bool { return strings.Contains(said.String(), "Server listening") })
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return fmt.Sprintf("ssh://root@127.0.0.1:%d", port), func() {
		if err := os.Remove(at("user.pub")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAddressesOfSSH(t *testing.T) {
	for address, want := range map[string]string{
		"ssh://host":              "-- host",
		"ssh://me@host.test:2222": "-l me -p 2222 -- host.test",
		"ssh://[::1]":             "-- ::1",
		"ssh://-oProxyCommand=x":  "", "ssh://-x@host": "", "ssh://me:secret@host": "", "ssh://host/path": "", "ssh://": "",
	} {
		got, err := sshArguments(address)
		if want != "" {
			want = "-T -o BatchMode=yes -o ConnectTimeout=20 " + want + " docker system dial-stdio"
		}
		if strings.Join(got, " ") != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", address, got, err)
		}
	}
}
