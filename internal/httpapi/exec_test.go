package httpapi

import (
	"context"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
)

// fakeProcesses run one kind of command: it prints its input and what it was asked, and ends with 3.
type fakeProcesses struct {
	Processes // nil: nothing else is asked for

	mu      sync.Mutex
	opened  []sandbox.TerminalRequest
	signals []syscall.Signal
	who     cove.Principal
}

func (f *fakeProcesses) Command(_ context.Context, who cove.Principal, ref string, q sandbox.CommandRequest,
	started func(cove.ExecutionID), out process.Output) (sandbox.CommandResult, error) {
	if ref != "box" {
		return sandbox.CommandResult{}, cove.Errorf(cove.Conflict, "the sandbox %s is stopped", ref)
	}
	f.mu.Lock()
	f.who = who
	f.mu.Unlock()
	started(someID)
	if q.Stdin != nil {
		in, err := io.ReadAll(q.Stdin)
		if err != nil {
			return sandbox.CommandResult{}, err
		}
		out.Stdout(in)
	}
	out.Stdout([]byte("\xff\x00data: x\n\n"))
	out.Stderr([]byte(strings.Join(q.Args, "|") + " in " + q.Dir + " " + q.Env["X"] + " " + q.Timeout.String()))
	return sandbox.CommandResult{ID: someID, ExitCode: 3, Limit: cove.LimitTimeout}, nil
}

func (f *fakeProcesses) SignalCommand(_ context.Context, _ cove.Principal, ref string, id cove.ExecutionID,
	signal syscall.Signal) error {
	if ref != "box" || id != someID {
		return cove.Errorf(cove.NotFound, "no command %s runs in the sandbox %s", id, ref)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.signals = append(f.signals, signal)
	return nil
}

// OpenTerminal has none, and remembers what was asked.
func (f *fakeProcesses) OpenTerminal(_ context.Context, _ cove.Principal, _ string,
	q sandbox.TerminalRequest) (*terminals.Viewer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened = append(f.opened, q)
	return nil, cove.Errorf(cove.NotFound, "the sandbox has no terminal %s", q.ID)
}

func (f *fakeProcesses) TerminalText(context.Context, cove.Principal, string, string) (string, error) {
	return "<script>alert(1)</script>\n", nil
}

func TestExec(t *testing.T) {
	f := &fakeProcesses{}
	h := start(t, func(o *Options) { o.Processes = f })
	r := h.post("/sandboxes/box/exec",
		`{"args":["a","b c"],"work_dir":"src","env":{"X":"y"},"timeout":1.5,"stdin":"typed "}`)
	if r.StatusCode != 200 || r.Header.Get(api.ExecutionIDHeader) != someID {
		t.Fatalf("%d %s", r.StatusCode, r.body)
	}
	for _, want := range []string{"event: stdout\ndata: {\"data\":\"typed \"}\n",
		"event: stdout\ndata: {\"data\":\"/wBkYXRhOiB4Cgo=\",\"encoding\":\"base64\"}\n",
		"event: stderr\ndata: {\"data\":\"a|b c in src y 1.5s\"}\n", `"exit_code":3`, `"limit_hit":"timeout"`} {
		if !strings.Contains(r.body, want) {
			t.Errorf("no %q in\n%s", want, r.body)
		}
	}
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"/sandboxes/other/exec", `{"args":["a"]}`, 409},
		{"/sandboxes/box/exec", `{"args":["a"],"stdin":"x","stdin_stream":true}`, 400},
		{"/sandboxes/box/exec", `{"args":["a"],"timeout":-1}`, 400},
		{"/sandboxes/box/exec", `{"args":["a"],"timeout":1e300}`, 400},
		{"/sandboxes/box/exec", `{"args":"a"}`, 400},
		{"/sandboxes/box/exec", `{"args":["a"],"tty":true}`, 400},
		{"/sandboxes/box/exec/" + someID + "/signal", `{"signal":"INT"}`, 204},
		{"/sandboxes/box/exec/" + someID + "/signal", `{"signal":"SEGV"}`, 400},
		{"/sandboxes/box/exec/x/signal", `{"signal":"INT"}`, 404},
		{"/sandboxes/other/exec/" + someID + "/signal", `{"signal":"INT"}`, 404},
	} {
		if r := h.post(c.path, c.body); r.StatusCode != c.status {
			t.Errorf("%s %s: %d, want %d: %s", c.path, c.body, r.StatusCode, c.status, r.body)
		}
	}
	if len(f.signals) != 1 || f.signals[0] != syscall.SIGINT {
		t.Errorf("signals %v", f.signals)
	}
	if r := h.get("/sandboxes/box/terminals/-/text"); r.body != "<script>alert(1)</script>\n" ||
		!strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") ||
		r.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%q, %v", r.body, r.Header)
	}
}

var upgrade = []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13",
	"Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}

// TestTerminalsAreGuarded: an upgrade passes the guards of every other request,
// before anything is opened (invariant A1).
func TestTerminalsAreGuarded(t *testing.T) {
	f := &fakeProcesses{}
	h := start(t, func(o *Options) { withKeys(o); o.Processes = f })
	const path = "/sandboxes/box/terminal?new=true&arg=sh"
	right := append([]string{"X-API-Key", "cove_right"}, upgrade...)
	for _, c := range []struct {
		name   string
		header []string
		status int
	}{
		{"nobody", upgrade, 401},
		{"a wrong key", append([]string{"X-API-Key", "x"}, upgrade...), 401},
		{"another page", append([]string{"Origin", "https://evil.lab"}, right...), 403},
		{"a page of nowhere", append([]string{"Origin", "null"}, right...), 403},
		{"a rebound name", append([]string{"Host", "evil.lab"}, right...), 403},
		{"a script", append([]string{"Sec-Fetch-Site", "cross-site"}, right...), 403},
		{"no upgrade", []string{"X-API-Key", "cove_right"}, 400},
	} {
		if r := h.get(path, c.header...); r.StatusCode != c.status {
			t.Errorf("%s: %d, want %d: %s", c.name, r.StatusCode, c.status, r.body)
		}
	}
	if len(f.opened) > 0 {
		t.Fatalf("terminals were opened: %+v", f.opened)
	}
	r := h.get(
		"/sandboxes/box/terminal?id=t9&new=true&arg=sh&arg=-c&arg=a%20b,c&env=A=1,2&env=B=&rows=10&columns=20&term=xterm&truecolor=true&history=true&work_dir=src", right...)
	if r.StatusCode != 404 || r.error(t).Code != string(cove.NotFound) {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	q := f.opened[0]
	if q.ID != "t9" || !q.New || strings.Join(q.Args, "|") != "sh|-c|a b,c" || q.Env["A"] != "1,2" || q.Env["B"] != "" ||
		len(q.Env) != 2 || q.Size.Rows != 10 || q.Size.Columns != 20 ||
		q.Term != "xterm" || !q.TrueColor || !q.History || q.Dir != "src" {
		t.Errorf("asked for %+v", q)
	}
	if r := h.get("/sandboxes/box/terminal?env=A", right...); r.StatusCode != 400 {
		t.Errorf("a variable without a value: %d", r.StatusCode)
	}
}
