//go:build linux

package docker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/linux/relayed"
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

// TestElsewhere: a daemon that sees no file of this machine gets the guest and Cove's own files, and leads the network
// here. Nothing of a sandbox is left, except the images that are a cache.
func TestElsewhere(t *testing.T) {
	o := options(t)
	hidden := t.TempDir()
	o.Host = elsewhere(t, hidden)
	o.Guest = filepath.Join(hidden, "cove-guest")
	program, err := os.ReadFile(enginetest.BuildGuest(t))
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(hidden, "ca.pem")
	if err := errors.Join(os.WriteFile(o.Guest, program, 0o755), os.WriteFile(own, []byte("trusted\n"), 0o644)); err != nil {
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
