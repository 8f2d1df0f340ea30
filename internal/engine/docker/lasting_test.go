//go:build linux

package docker

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/instance"
)

func lasting(t *engine.Template) { t.Lifetime = cove.LifetimeDetached }

// TestLastingSurvivesKill: the process of Cove that made a long-lived sandbox is
// killed; the next one finds it as it was, and sweeps the one that was not bound.
func TestLastingSurvivesKill(t *testing.T) {
	if dir := os.Getenv("COVE_TEST_MAKE_LASTING"); dir != "" {
		makeLasting(t, dir)
		return
	}
	o := options(t)
	maker := exec.Command(os.Args[0], "-test.run=^TestLastingSurvivesKill$")
	maker.Env = append(os.Environ(), "COVE_TEST_MAKE_LASTING="+o.RunDir, "COVE_TEST_HOST="+o.Host,
		"COVE_TEST_GUEST="+enginetest.BuildGuest(t))
	maker.Stderr = os.Stderr
	out, err := maker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := maker.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	id := cove.SandboxID(strings.TrimSpace(line))
	maker.Process.Kill()
	maker.Wait()

	e := open(t, o)
	if swept, err := e.Sweep(t.Context()); err != nil || swept.Sandboxes != 1 {
		t.Errorf("swept %+v, %v", swept, err)
	}
	if left, err := e.Left(t.Context()); err != nil || !slices.Equal(left, []cove.SandboxID{id}) {
		t.Fatalf("left %v, %v; want %s", left, err, id)
	}
	elsewhere := o
	elsewhere.Host = newWire(t).address
	if _, err := open(t, elsewhere).Adopt(t.Context(), id); cove.ErrorCode(err) != cove.Conflict ||
		!strings.Contains(err.Error(), "DOCKER_HOST") {
		t.Errorf("adopting from another daemon: %v", err)
	}
	sb, err := e.Adopt(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sb.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if data, err := sb.Guest().ReadFile(t.Context(), "/tmp/kept", 100); err != nil || string(data) != "kept" {
		t.Errorf("its file: %q, %v", data, err)
	}
	p, err := sb.Guest().Attach(t.Context(), sb.Guest().Processes()[0], 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.Stdin().Close()
	if text, err := io.ReadAll(p.Stdout()); err != nil || string(text) != "begun\nended\n" {
		t.Errorf("its process: %q, %v", text, err)
	}
}

// makeLasting is a server that is about to be killed.
func makeLasting(t *testing.T, run string) {
	in, err := instance.Hold(run)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Release() // never reached: it keeps the lock's file from being collected
	e, err := New(Options{Host: os.Getenv("COVE_TEST_HOST"), Guest: os.Getenv("COVE_TEST_GUEST"), RunDir: run,
		Instance: in.ID, Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	sb := bound(t, e, lasting)
	if err := sb.Guest().WriteFile(t.Context(), "/tmp/kept", 0o600, []byte("kept")); err != nil {
		t.Fatal(err)
	}
	spec := command("sh", "-c", "echo begun; cat; echo ended")
	spec.Stdin = true
	if _, err := sb.Guest().Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	unbound := template()
	unbound.Lifetime = cove.LifetimeDetached
	if _, err := e.Prepare(t.Context(), unbound); err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString(string(sb.ID()) + "\n")
	select {} // until it is killed
}

// TestLastingSwept: a sweep removes a detached sandbox that ended while no process managed it, and no sandbox that a
// process manages.
func TestLastingSwept(t *testing.T) {
	o := options(t)
	e := open(t, o)
	one, other := bound(t, e, lasting).ID(), bound(t, e, lasting).ID()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	has, next := open(t, o), open(t, o)
	had, err := has.Adopt(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	defer had.Destroy(context.Background())
	if swept, err := next.Sweep(t.Context()); err != nil || swept.Sandboxes > 0 {
		t.Fatalf("those that run: swept %+v, %v", swept, err)
	}
	for _, id := range []cove.SandboxID{one, other} {
		if _, err := ask(t).ContainerKill(t.Context(), containerName(id),
			client.ContainerKillOptions{Signal: "KILL"}); err != nil {
			t.Fatal(err)
		}
	}
	<-had.Done()
	swept, err := next.Sweep(t.Context())
	if err != nil || swept.Sandboxes != 1 || len(swept.Items) != 2 {
		t.Errorf("swept %+v, %v", swept, err)
	}
	if stats, err := had.Stats(t.Context()); err != nil || stats.PIDs != 0 {
		t.Errorf("the other: %+v, %v", stats, err)
	}
	if err := had.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(o.RunDir, local.Dir, engine.Docker)); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestOnlyTheGuestCalls: the user's processes may not connect to where the guest has called.
func TestOnlyTheGuestCalls(t *testing.T) {
	e := open(t, options(t))
	sb := bound(t, e, lasting)
	got := say(t, sb,
		`perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0); connect(S, sockaddr_un($ARGV[0])) and print "connected"; print $!' `+callPath)
	if got != "Permission denied" {
		t.Errorf("%q", got)
	}
}

// TestLastingGuestThatFails: what the guest of a long-lived sandbox complains about is said, as that of any other.
func TestLastingGuestThatFails(t *testing.T) {
	o := options(t)
	o.Guest = filepath.Join(t.TempDir(), "guest")
	if err := os.WriteFile(o.Guest, []byte("#!/bin/sh\necho no such thing >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	tmpl := template()
	tmpl.Lifetime = cove.LifetimeDetached
	if _, err := open(t, o).Prepare(t.Context(), tmpl); cove.ErrorCode(err) != cove.Unavailable ||
		!strings.Contains(err.Error(), "no such thing") {
		t.Errorf("Prepare: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(o.RunDir, local.Dir, engine.Docker)); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestLocalSocketsOfOthers: a sandbox that does not last is refused sockets among
// its files, before anything is made of it.
func TestLocalSocketsOfOthers(t *testing.T) {
	e := open(t, options(t))
	sb, err := e.Prepare(t.Context(), template())
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Destroy(context.Background())
	err = sb.Bind(t.Context(),
		engine.Binding{Listeners: []guest.Listen{{Network: guest.UnixNetwork, Address: "/run/cove/x.sock"}}})
	if cove.ErrorCode(err) != cove.Unsupported {
		t.Errorf("Bind: %v", err)
	}
}

// TestAdoptWithoutTheDaemon: what cannot be taken over is left as it is, and what
// cannot be removed is known until it is.
func TestAdoptWithoutTheDaemon(t *testing.T) {
	x := newWire(t)
	e := through(t, x)
	o := e.o
	sb := bound(t, e, lasting)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	next := open(t, o)
	next.api.timeout = 3 * time.Second
	x.set(func(w http.ResponseWriter, _ *http.Request) bool {
		hangUp(w)
		return true
	})
	if _, err := next.Adopt(t.Context(), sb.ID()); cove.ErrorCode(err) != cove.Unavailable {
		t.Errorf("Adopt: %v", err)
	}
	if left, err := next.Left(t.Context()); err != nil || !slices.Equal(left, []cove.SandboxID{sb.ID()}) {
		t.Errorf("left %v, %v", left, err)
	}
	x.heal()
	again, err := next.Adopt(t.Context(), sb.ID())
	if err != nil {
		t.Fatal(err)
	}
	if got := say(t, again, "echo here"); got != "here\n" {
		t.Errorf("%q", got)
	}
	x.set(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete {
			return false
		}
		http.Error(w, `{"message":"device or resource busy"}`, http.StatusInternalServerError)
		return true
	})
	if err := again.Destroy(t.Context()); cove.ErrorCode(err) != cove.Unavailable {
		t.Errorf("Destroy: %v", err)
	}
	x.heal()
	if err := again.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if next.keeper.Has(sb.ID()) {
		t.Error("it is kept after it was removed")
	}
}
