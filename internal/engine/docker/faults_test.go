//go:build linux

package docker

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/cove-sandbox/cove/test/await"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/internal/instance"
)

// wire is a way to the daemon that goes wrong on request. A rule is asked for
// every call; what it does not handle goes through.
type wire struct {
	address string
	rule    atomic.Pointer[func(w http.ResponseWriter, r *http.Request) (handled bool)]
}

func newWire(t *testing.T) *wire {
	t.Helper()
	daemonSocket := strings.TrimPrefix(host(t), "unix://")
	dir, err := os.MkdirTemp("", "cove-wire-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	through := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "docker"})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", daemonSocket)
	}}
	through.Transport = transport
	through.ErrorLog = log.New(io.Discard, "", 0)
	x := &wire{address: "unix://" + socket}
	srv := &http.Server{ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if rule := x.rule.Load(); rule != nil && (*rule)(w, r) {
				return
			}
			through.ServeHTTP(w, r)
		})}
	var serving sync.WaitGroup
	serving.Go(func() { srv.Serve(ln) })
	t.Cleanup(func() {
		srv.Close()
		serving.Wait()
		transport.CloseIdleConnections()
		os.RemoveAll(dir)
	})
	return x
}

func (x *wire) set(rule func(w http.ResponseWriter, r *http.Request) bool) { x.rule.Store(&rule) }
func (x *wire) heal()                                                      { x.rule.Store(nil) }

// hangUp ends the connection without an answer.
func hangUp(w http.ResponseWriter) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		c.Close()
	}
}

// through opens an engine that reaches the daemon over x and is impatient.
func through(t *testing.T, x *wire) *Engine {
	t.Helper()
	o := options(t)
	o.Host = x.address
	e := open(t, o)
	e.api.timeout = 3 * time.Second
	return e
}

func template() engine.Template {
	return engine.Template{
		ID: cove.NewSandboxID(), Shape: cove.Shape{User: cove.CodeUser,
			Limits: cove.Limits{Memory: 64 << 20, CPUs: 1, PIDs: 32, Disk: 16 << 20, Inodes: 1000, OpenFiles: 256}},
		Rootfs:  engine.Rootfs{Kind: engine.RootfsHost},
		Network: cove.NetworkNone,
	}
}

func bound(t *testing.T, e *Engine, change ...func(*engine.Template)) engine.Sandbox {
	t.Helper()
	tmpl := template()
	for _, f := range change {
		f(&tmpl)
	}
	sb, err := e.Prepare(t.Context(), tmpl)
	if err != nil {
		t.Fatalf("Prepare: %v", err)
	}
	t.Cleanup(func() { sb.Destroy(context.Background()) })
	if err := sb.Bind(t.Context(), engine.Binding{}); err != nil {
		t.Fatalf("Bind: %v", err)
	}
	return sb
}

// say runs a shell script inside and returns what it wrote.
func say(t *testing.T, sb engine.Sandbox, script string) string {
	t.Helper()
	p, err := sb.Guest().Start(t.Context(), command("sh", "-c", "{ "+script+"\n} 2>&1"))
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	go io.Copy(io.Discard, p.Stderr())
	out, _ := io.ReadAll(p.Stdout())
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatalf("Wait: %v", err)
	}
	return string(out)
}

// TestLostAnswers loses the answer to every kind of call once; the daemon has done what was asked, or has not. Either
// way everything works, and nothing is made twice or left.
func TestLostAnswers(t *testing.T) {
	x := newWire(t)
	e := through(t, x)
	bound(t, e).Destroy(t.Context()) // the image is there now
	before := leftovers(t)
	for _, call := range []string{"/containers/create", "/start", "/json", "/update", "DELETE"} {
		for _, done := range []bool{false, true} {
			t.Run(call+" done "+strconv.FormatBool(done), func(t *testing.T) {
				var lost atomic.Bool
				x.set(func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.Contains(r.Method+" "+r.URL.Path, call) || lost.Swap(true) {
						return false
					}
					if done {
						askDirectly(t, r)
					}
					hangUp(w)
					return true
				})
				defer x.heal()
				sb := bound(t, e)
				if got := say(t, sb, "echo works"); got != "works\n" {
					t.Errorf("%q", got)
				}
				if err := sb.Destroy(t.Context()); err != nil {
					t.Errorf("Destroy: %v", err)
				}
				if !lost.Load() {
					t.Errorf("no call of %s was made", call)
				}
			})
		}
	}
	if after := leftovers(t); len(after) > len(before) {
		t.Errorf("left: %q", after)
	}
}

// askDirectly has the daemon do what the caller will never hear of.
func askDirectly(t *testing.T, r *http.Request) {
	t.Helper()
	socket := strings.TrimPrefix(host(t), "unix://")
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	again := r.Clone(context.Background())
	again.RequestURI, again.URL.Scheme, again.URL.Host = "", "http", "docker"
	answer, err := transport.RoundTrip(again)
	if err != nil {
		t.Errorf("asking directly: %v", err)
		return
	}
	io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
}

// TestFaultsEverywhere has each call fail for good, in each way: Prepare says
// so in time, with a code and what to do, and leaves nothing behind.
func TestFaultsEverywhere(t *testing.T) {
	x := newWire(t)
	e := through(t, x)
	bound(t, e).Destroy(t.Context())
	before := leftovers(t)
	for _, call := range []string{"/images/", "/containers/create", "/attach", "/start", "/json", "/update"} {
		for how, fault := range map[string]func(http.ResponseWriter, *http.Request){
			"hangs up":   func(w http.ResponseWriter, _ *http.Request) { hangUp(w) },
			"never says": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			"500":        func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"message":"out of order"}`, 500) },
			"503":        func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"message":"starting"}`, 503) },
			"nonsense":   func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") },
		} {
			t.Run(call+" "+how, func(t *testing.T) {
				x.set(func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.Contains(r.URL.Path, call) || r.Method == "DELETE" {
						return false
					}
					fault(w, r)
					return true
				})
				defer x.heal()
				began := time.Now()
				sb, err := e.Prepare(t.Context(), template())
				if err == nil {
					sb.Destroy(t.Context())
					if how == "nonsense" && (call == "/update" || call == "/start") {
						return // nothing is read from that answer
					}
				}
				if code := cove.ErrorCode(err); code != cove.Unavailable || cove.ErrorHint(err) == "" {
					t.Errorf("%v (code %q)", err, code)
				}
				if took := time.Since(began); took > 15*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		}
	}
	x.heal()
	// What could not be found or removed while the wire was cut, is swept.
	if _, err := e.Sweep(t.Context()); err != nil {
		t.Errorf("Sweep: %v", err)
	}
	if after := leftovers(t); len(after) > len(before) {
		t.Errorf("left: %q", after)
	}
	if got := say(t, bound(t, e), "echo recovered"); got != "recovered\n" {
		t.Errorf("afterwards: %q", got)
	}
}

// TestEndedBesideRemoval: a container that ends in the moment in which the daemon is about to end it, to remove it, is
// removed all the same.
func TestEndedBesideRemoval(t *testing.T) {
	x := newWire(t)
	e := through(t, x)
	sb := bound(t, e)
	before := leftovers(t)
	var told atomic.Bool
	x.set(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete || told.Swap(true) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		io.WriteString(w, `{"message": "Could not kill running container f9, cannot remove - Container f9 is not running"}`)
		return true
	})
	if err := sb.Destroy(t.Context()); err != nil || !told.Load() {
		t.Errorf("%v, the daemon was asked: %v", err, told.Load())
	}
	if after := leftovers(t); len(after) >= len(before) {
		t.Errorf("left: %q of %q", after, before)
	}
}

// TestDestroyThatFailsIsSwept: a container that could not be removed stays known until it is.
func TestDestroyThatFailsIsSwept(t *testing.T) {
	x := newWire(t)
	e := through(t, x)
	before := leftovers(t)
	sb := bound(t, e)
	x.set(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != "DELETE" {
			return false
		}
		http.Error(w, `{"message":"device or resource busy"}`, 500)
		return true
	})
	if err := sb.Destroy(t.Context()); cove.ErrorCode(err) != cove.Unavailable {
		t.Fatalf("Destroy: %v", err)
	}
	if s, err := e.Sweep(t.Context()); err == nil || s.Sandboxes != 0 {
		t.Errorf("Sweep claims to have removed it: %+v, %v", s, err)
	}
	x.heal()
	if s, err := e.Sweep(t.Context()); err != nil || s.Sandboxes != 1 {
		t.Errorf("Sweep: %+v, %v", s, err)
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Errorf("Destroy of what was swept: %v", err)
	}
	<-sb.Done()
	if after := leftovers(t); len(after) > len(before) {
		t.Errorf("left: %q", after)
	}
}

// TestSweepWantsTheWholeList: on a list that is cut, wrong or missing, nothing is removed.
func TestSweepWantsTheWholeList(t *testing.T) {
	x := newWire(t)
	o := options(t)
	dead := o
	dead.Instance = cove.NewInstanceID() // nobody holds it
	gone := open(t, dead)
	sb := bound(t, gone)
	o.Host = x.address
	e := open(t, o)
	e.api.timeout = 3 * time.Second
	for how, fault := range map[string]func(http.ResponseWriter){
		"cut": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100000")
			io.WriteString(w, `[{"Id":"`+strings.Repeat("a", 64)+`","Names":["/cove-`)
		},
		"500":      func(w http.ResponseWriter) { http.Error(w, "{}", 500) },
		"hang-up":  hangUp,
		"nonsense": func(w http.ResponseWriter) { io.WriteString(w, `{"message":"no list"}`) },
	} {
		t.Run(how, func(t *testing.T) {
			removed := false
			x.set(func(w http.ResponseWriter, r *http.Request) bool {
				removed = removed || r.Method == "DELETE"
				if strings.HasSuffix(r.URL.Path, "/containers/json") {
					fault(w)
					return true
				}
				return false
			})
			defer x.heal()
			if s, err := e.Sweep(t.Context()); err == nil || s.Sandboxes != 0 || removed {
				t.Errorf("%+v, %v; removed: %t", s, err, removed)
			}
		})
	}
	// The control: with the list, the container of the dead instance goes.
	if s, err := e.Sweep(t.Context()); err != nil || s.Sandboxes != 1 {
		t.Errorf("Sweep: %+v, %v", s, err)
	}
	<-sb.Done()
}

// TestDaemonFrozen: calls to a daemon that does not move come back.
func TestDaemonFrozen(t *testing.T) {
	o := options(t)
	e := open(t, o)
	e.api.timeout = 2 * time.Second
	sb := bound(t, e)
	pid := daemonPID(t)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thawed := false
	thaw := func() {
		if !thawed {
			syscall.Kill(pid, syscall.SIGCONT)
			thawed = true
		}
	}
	t.Cleanup(thaw)
	for _, c := range []struct { // Destroy last: it ends the guest, after which there is nothing to kill
		what string
		call func() error
	}{
		{"Prepare", func() error { _, err := e.Prepare(t.Context(), template()); return err }},
		{"Sweep", func() error { _, err := e.Sweep(t.Context()); return err }},
		{"Kill", sb.Kill},
		{"Destroy", func() error { return sb.Destroy(t.Context()) }},
	} {
		began := time.Now()
		if err := c.call(); cove.ErrorCode(err) != cove.Unavailable || cove.ErrorHint(err) == "" {
			t.Errorf("%s: %v", c.what, err)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("%s took %v", c.what, took)
		}
	}
	if stats, err := sb.Stats(t.Context()); err != nil && cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("Stats, which needs no daemon: %+v, %v", stats, err)
	}
	thaw()
	if err := sb.Destroy(t.Context()); err != nil {
		t.Errorf("Destroy afterwards: %v", err)
	}
	if got := say(t, bound(t, e), "echo thawed"); got != "thawed\n" {
		t.Errorf("%q", got)
	}
	if _, err := e.Sweep(t.Context()); err != nil {
		t.Errorf("Sweep afterwards: %v", err)
	}
}

func daemonPID(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(daemonDir, "dockerd.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// TestDaemonRestart: sandboxes end with the daemon, and the engine goes on with the next one.
func TestDaemonRestart(t *testing.T) {
	e := open(t, options(t))
	sb := bound(t, e)
	before := leftovers(t)
	if out, err := exec.Command(script, "--stop", daemonDir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	select {
	case <-sb.Done():
	case <-time.After(20 * time.Second):
		t.Error("the sandbox does not notice")
	}
	began := time.Now()
	if _, err := e.Prepare(t.Context(), template()); cove.ErrorCode(err) != cove.Unavailable ||
		!strings.Contains(cove.ErrorHint(err), "start it") {
		t.Errorf("without a daemon: %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if _, err := e.Sweep(t.Context()); cove.ErrorCode(err) != cove.Unavailable {
		t.Errorf("Sweep without a daemon: %v", err)
	}
	if out, err := exec.Command(script, daemonDir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := say(t, bound(t, e), "echo again"); got != "again\n" {
		t.Errorf("%q", got)
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Errorf("Destroy of what the daemon took along: %v", err)
	}
	if after := leftovers(t); len(after) > len(before)+20 {
		t.Errorf("left: %q", after)
	}
}

func TestNoDaemon(t *testing.T) {
	o := Options{Host: "unix:///nowhere/docker.sock", Guest: "/bin/true", RunDir: t.TempDir(),
		Instance: cove.NewInstanceID(), Log: discard}
	began := time.Now()
	_, err := New(o)
	if cove.ErrorCode(err) != cove.Unavailable || cove.ErrorHint(err) == "" || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	o.Guest = "/nowhere/cove-guest"
	if _, err := New(o); cove.ErrorCode(err) != cove.Unavailable || !strings.Contains(err.Error(), "guest") {
		t.Errorf("without a guest: %v", err)
	}
	o.Guest, o.Host = "/bin/true", "nonsense"
	if _, err := New(o); cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("with a bad address: %v", err)
	}
}

// TestServerKilled: when Cove dies, its containers end by themselves, and the next instance removes them.
func TestServerKilled(t *testing.T) {
	if dir := os.Getenv("COVE_TEST_VICTIM"); dir != "" {
		victim(t, dir)
		return
	}
	killed(t, options(t), 2)
}

// killed kills a server that has two sandboxes, of so many containers.
func killed(t *testing.T, o Options, containers int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestServerKilled$")
	cmd.Env = append(os.Environ(), "COVE_TEST_VICTIM="+o.RunDir, "COVE_TEST_HOST="+o.Host,
		"COVE_TEST_GUEST="+enginetest.BuildGuest(t))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make([]byte, len("ready"))
	if _, err := io.ReadFull(out, ready); err != nil {
		t.Fatal(err)
	}
	e := open(t, o)
	if s, err := e.Sweep(t.Context()); err != nil || s.Sandboxes != 0 {
		t.Errorf("Sweep while the other lives: %+v, %v", s, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	await.That(t, "the containers end with the server", func() bool {
		found, err := e.api.list(t.Context(), e.realm)
		if err != nil || len(found) != containers {
			t.Fatalf("%d containers, %v", len(found), err)
		}
		return !slices.ContainsFunc(found, func(c container.Summary) bool { return c.State == "running" })
	})
	if s, err := e.Sweep(t.Context()); err != nil || s.Sandboxes != 2 {
		t.Errorf("Sweep: %+v, %v", s, err)
	}
	if found, err := e.api.list(t.Context(), e.realm); err != nil || len(found) > 0 {
		t.Errorf("%d containers are left, %v", len(found), err)
	}
}

// victim is a server that is about to be killed.
func victim(t *testing.T, runDir string) {
	o := Options{Host: os.Getenv("COVE_TEST_HOST"), Guest: os.Getenv("COVE_TEST_GUEST"), RunDir: runDir, Log: discard}
	held, err := instance.Hold(runDir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release() // never reached: it keeps the lock's file from being collected
	o.Instance = held.ID
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	var sb engine.Sandbox
	if e.here {
		sb = bound(t, e)
	} else {
		sb = networked(t, e)
	}
	if _, err := e.Prepare(t.Context(), template()); err != nil {
		t.Fatal(err)
	}
	if _, err := sb.Guest().Start(t.Context(), command("sleep", "600")); err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString("ready")
	select {}
}

// TestPassingFaults: only what may be different the next time is tried again.
func TestPassingFaults(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{io.EOF, true},
		{io.ErrUnexpectedEOF, true},
		{syscall.ECONNRESET, true},
		{syscall.EPIPE, true},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		{context.DeadlineExceeded, false},
		{&net.OpError{Op: "dial", Err: os.ErrPermission}, false},
		{errors.New("no such container"), false},
	} {
		if got := passing(c.err); got != c.want {
			t.Errorf("%v: %t", c.err, got)
		}
	}
}
