package sandboxes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/test/await"

	"github.com/cove-sandbox/cove/api"
)

// user is a user of the machine with a client of a server over loopback. The sockets are that user's for the kernel.
type user struct {
	t      *testing.T
	base   string
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	client http.Client
	key    string // of the API, if it has one
}

// sign sets the headers of a request.
func (u user) sign(r *http.Request) {
	r.Header.Set("Content-Type", "application/json")
	if u.key != "" {
		r.Header.Set("X-API-Key", u.key)
	}
}

func (l *lab) user(base string, uid int) user {
	return l.dialer(base, func(ctx context.Context, network, address string) (net.Conn, error) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if _, err := unix.SetfsuidRetUid(uid); err != nil {
			return nil, err
		}
		defer unix.SetfsuidRetUid(0)
		return new(net.Dialer).DialContext(ctx, network, address)
	})
}

// dialer is a user whose connections are made in a way.
func (l *lab) dialer(base string, dial func(ctx context.Context, network, address string) (net.Conn, error)) user {
	u := user{t: l.t, base: base, dial: dial, client: http.Client{Transport: &http.Transport{DialContext: dial}}}
	l.t.Cleanup(u.client.CloseIdleConnections)
	return u
}

// ask sends a request and returns the status and the body, of a stream as much as comes within the time.
func (u user) ask(ctx context.Context, method, path, body string) (int, string) {
	u.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, u.base+path, strings.NewReader(body))
	if err != nil {
		u.t.Fatal(err)
	}
	u.sign(r)
	if strings.HasPrefix(path, "/network/decisions/stream") {
		r.Header.Set("Last-Event-ID", "0") // from the beginning
	}
	answer, err := u.client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

func (u user) get(path string) string {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), time.Minute)
	if strings.HasSuffix(path, "/stream") {
		ctx, cancel = context.WithTimeout(u.t.Context(), 2*time.Second)
	}
	defer cancel()
	code, text := u.ask(ctx, "GET", path, "")
	if code != http.StatusOK {
		u.t.Errorf("GET %s: %d %s", path, code, text)
	}
	return text
}

// serve starts a server that listens on loopback, and returns its address.
func (l *lab) serve(args ...string) (base string) {
	l.t.Helper()
	base, _ = l.listen(l.command(append([]string{"cove", "serve", "--listen", "127.0.0.1:0"}, args...)...))
	return base
}

// listen starts a server, and returns its address.
func (l *lab) listen(c *exec.Cmd) (base string, pid int) {
	l.t.Helper()
	said, err := os.Create(l.in("serve.txt"))
	if err != nil {
		l.t.Fatal(err)
	}
	defer said.Close()
	c.Stderr = said
	if err := c.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		c.Process.Signal(syscall.SIGTERM)
		c.Wait()
	})
	listens := regexp.MustCompile(`address=(\d+\.\d+\.\d+\.\d+:\d+)`)
	var found []string
	l.eventually("the server listens", func() bool {
		text, _ := os.ReadFile(said.Name())
		found = listens.FindStringSubmatch(string(text))
		return found != nil
	})
	return "http://" + found[1], c.Process.Pid
}

const asksFirst = `"permissions":{"network":{"enabled":true,"policies":[{"source":"p.yaml",` +
	`"text":"rules:\n  - {hosts: kept.example, action: ask}\n"}]}}`

// TestLocalUsers: on a server without keys, what one user of the machine has made is not there for another one: not its
// execution, sandbox, run, hold, decision or audit record, in no route, list, filter, stream and metric. The user who
// made it has it, and so has the machine's owner at the server's socket. Root over loopback is another user.
func TestLocalUsers(t *testing.T) {
	l := newLab(t)
	base := l.serve()
	keeper, stranger, root := l.user(base, 4242), l.user(base, 4243), l.user(base, 0)

	if code, text := keeper.ask(t.Context(), "POST", "/sandboxes", `{"name":"plot"}`); code != 200 ||
		!strings.Contains(text, "event: created") {
		t.Fatalf("%d %s", code, text)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	t.Cleanup(func() { cancel(); asking.Wait() })
	script := "echo 4711; (exec 3<>/dev/tcp/denied.example/443); curl -s https://kept.example/; sleep 60"
	for path, body := range map[string]string{
		"/execute/stream": fmt.Sprintf(`{"language":"bash","code":%q,"timeout":60,%s}`, script, asksFirst),
		"/runs":           `{"agent":"worker","prompt":"4711","new":{"network":{"enabled":true,"allow":["models.example"]}}}`,
	} {
		asking.Go(func() { keeper.ask(ctx, "POST", path, body) })
	}
	var executions api.ExecutionList
	var sandboxes api.SandboxList
	var runs api.RunList
	var holds api.HoldList
	await.That(t, "there is one of each", func() bool {
		for path, into := range map[string]any{"/executions": &executions, "/sandboxes": &sandboxes, "/runs": &runs,
			"/network/holds": &holds} {
			if err := json.Unmarshal([]byte(keeper.get(path)), into); err != nil {
				t.Fatal(err)
			}
		}
		return len(executions.Executions) == 1 && len(sandboxes.Sandboxes) == 2 && len(runs.Runs) == 1 &&
			len(holds.Holds) == 1
	})
	execution, run, hold := executions.Executions[0].ID, runs.Runs[0].ID, holds.Holds[0].ID
	var plot api.Sandbox
	if err := json.Unmarshal([]byte(keeper.get("/sandboxes/plot")), &plot); err != nil {
		t.Fatal(err)
	}
	sandbox := plot.ID

	for _, list := range []struct{ path, has string }{
		{"/executions", execution}, {"/executions?status=running", execution}, {"/sandboxes", sandbox},
		{"/runs", run}, {"/runs?sandbox=" + runs.Runs[0].Sandbox, run}, {"/network/holds", hold},
		{"/network/holds?execution=" + execution, hold}, {"/network/decisions", "denied.example"},
		{"/network/decisions?execution=" + execution, "denied.example"},
		{"/network/decisions/stream", "denied.example"}, {"/audit", sandbox}, {"/audit?object=" + sandbox, sandbox},
	} {
		await.That(t, list.path+" of the keeper", func() bool { return strings.Contains(keeper.get(list.path), list.has) })
		for name, u := range map[string]user{"another user": stranger, "root over loopback": root} {
			if text := u.get(list.path); strings.Contains(text, list.has) || strings.Contains(text, "uid:4242") {
				t.Errorf("%s: %s: %s", name, list.path, text)
			}
		}
	}
	for _, u := range []user{keeper, stranger} {
		if code, text := u.ask(t.Context(), "GET", "/metrics", ""); code != http.StatusForbidden ||
			!strings.Contains(text, "scope metrics or admin") {
			t.Errorf("metrics, which count what others do: %d %s", code, text)
		}
	}

	requests := []struct{ method, path, body string }{
		{"GET", "/executions/" + execution, ""},
		{"GET", "/executions/" + execution + "/ca", ""},
		{"GET", "/sandboxes/" + sandbox, ""},
		{"GET", "/sandboxes/plot", ""},
		{"GET", "/sandboxes/plot/terminals", ""},
		{"POST", "/sandboxes/" + sandbox + "/exec", `{"args":["echo","4711"]}`},
		{"GET", "/runs/" + run, ""},
		{"POST", "/network/holds/" + hold, `{"allow":false}`},
		{"DELETE", "/executions/" + execution, ""},
		{"POST", "/runs/" + run + "/interrupt", `{}`},
	}
	// What another user would learn of the streams and recordings, and a start of its own of them.
	others := append(requests[:len(requests):len(requests)], []struct{ method, path, body string }{
		{"GET", "/executions/" + execution + "/stream", ""},
		{"GET", "/runs/" + run + "/events", ""},
		{"GET", "/runs/" + run + "/export", ""},
		{"GET", "/runs/" + run + "/recordings/t1", ""},
		{"POST", "/runs", `{"agent":"worker","prompt":"x","sandbox":"plot"}`},
		{"DELETE", "/runs/" + run, ""},
		{"DELETE", "/sandboxes/" + sandbox, ""},
	}...)
	for _, u := range []user{stranger, root} {
		for _, r := range others {
			if code, text := u.ask(t.Context(), r.method, r.path, r.body); code != http.StatusNotFound {
				t.Errorf("another user: %s %s: %d %s", r.method, r.path, code, text)
			}
		}
	}
	for _, r := range requests {
		code, text := keeper.ask(t.Context(), r.method, r.path, r.body)
		ended := code == http.StatusConflict && strings.HasSuffix(r.path, "/interrupt") // its agent has no models
		if !ended && (code < 200 || code >= 300) {
			t.Errorf("who made it: %s %s: %d %s", r.method, r.path, code, text)
		}
	}
	asking.Wait()
	if text := keeper.get("/executions/" + execution + "/stream"); !strings.Contains(text, "4711") {
		t.Errorf("what it said: %s", text)
	}

	if all := l.list().Sandboxes; len(all) != 1 || all[0].CreatedBy != "uid:4242" {
		t.Errorf("the machine's owner sees %+v", all)
	}
	if code, text := stranger.ask(t.Context(), "POST", "/sandboxes", `{"name":"plot"}`); code != 200 ||
		!strings.Contains(text, "event: created") {
		t.Errorf("a name that another user's sandbox has: %d %s", code, text)
	}
}

// TestDecisionsOfRepositories: what git of this machine does for a key is among the key's decisions.
func TestDecisionsOfRepositories(t *testing.T) {
	l := newLab(t)
	c := l.asKey()
	if text, err := c.run("cove", "new", "https://forge.invalid/owner/repo.git", "--no-attach"); err == nil {
		t.Fatalf("a repository that is nowhere: %s", text)
	}
	for name, who := range map[string]*lab{"the key": c, "the owner": l} {
		who.eventually(name+" sees the decision", func() bool {
			return strings.Contains(who.must("cove", "network", "log", "--json"), `"forge.invalid"`)
		})
	}
}
