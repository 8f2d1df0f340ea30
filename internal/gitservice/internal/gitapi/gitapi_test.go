package gitapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/gitservice/internal/command"
	"github.com/cove-sandbox/cove/internal/gitservice/internal/wire"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait")) // a moment after a refusal
}

// runner stands in for git: it remembers what it was to run.
type runner struct {
	mu   sync.Mutex
	ran  []command.Run
	then func(context.Context, command.Run) (int, error)
}

func (r *runner) Context(context.Context) (command.Context, error) {
	return command.Context{Branch: "own", Shared: []string{"main"}}, nil
}

func (r *runner) Run(ctx context.Context, c command.Run) (int, error) {
	r.mu.Lock()
	r.ran = append(r.ran, c)
	r.mu.Unlock()
	if r.then != nil {
		return r.then(ctx, c)
	}
	return 0, nil
}

func (r *runner) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ran)
}

type service struct {
	t      *testing.T
	key    []byte
	addr   string
	clock  *clocktest.Manual
	runner *runner

	mu     sync.Mutex
	events []Event
}

func start(t *testing.T) *service {
	t.Helper()
	s := &service{t: t, key: make([]byte, wire.KeySize), clock: clocktest.NewManual(time.Unix(1_800_000_000, 0)), runner: &runner{}}
	rand.Read(s.key)
	server, err := New(Options{Key: s.key, Runner: s.runner, Clock: s.clock, Log: slog.New(slog.DiscardHandler), Audit: func(e Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events = append(s.events, e)
	}})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- server.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s
}

func nonce() string {
	b := make([]byte, wire.NonceSize)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// request is one that is sent byte by byte as it says.
type request struct {
	method, path string
	body         []byte
	headers      [][2]string
}

// signed is a right one.
func (s *service) signed(path string, body any) request {
	b, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	now, n := strconv.FormatInt(s.clock.Now().Unix(), 10), nonce()
	return request{"POST", path, b, [][2]string{
		{"Host", "localhost"}, {"Content-Length", strconv.Itoa(len(b))},
		{wire.HeaderTime, now}, {wire.HeaderNonce, n}, {wire.HeaderSignature, wire.Sign(s.key, "POST", path, b, now, n)},
	}}
}

func (r *request) set(name, value string) {
	r.unset(name)
	r.headers = append(r.headers, [2]string{name, value})
}

func (r *request) unset(name string) {
	r.headers = slices.DeleteFunc(r.headers, func(h [2]string) bool { return h[0] == name })
}

func (r *request) get(name string) string {
	for _, h := range r.headers {
		if h[0] == name {
			return h[1]
		}
	}
	return ""
}

func (s *service) send(r request) *http.Response {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", r.method, r.path)
	for _, h := range r.headers {
		fmt.Fprintf(&b, "%s: %s\r\n", h[0], h[1])
	}
	b.WriteString("\r\n")
	b.Write(r.body)
	if _, err := conn.Write(b.Bytes()); err != nil {
		s.t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: r.method})
	if err != nil {
		s.t.Fatal(err)
	}
	return res
}

func (s *service) status(r request) int {
	s.t.Helper()
	res := s.send(r)
	defer res.Body.Close()
	io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// answer reads frames to their end.
func (s *service) answer(res *http.Response) (stdout, stderr string, code int) {
	s.t.Helper()
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(res.Body)
		s.t.Fatalf("%s: %s", res.Status, b)
	}
	for {
		kind, p, err := wire.ReadFrame(res.Body)
		if err != nil {
			s.t.Fatalf("before the exit: %v", err)
		}
		switch kind {
		case wire.FrameStdout:
			stdout += string(p)
		case wire.FrameStderr:
			stderr += string(p)
		case wire.FrameExit:
			var e wire.Exit
			if err := json.Unmarshal(p, &e); err != nil {
				s.t.Fatal(err)
			}
			return stdout, stderr, e.Code
		}
	}
}

func ask(args ...string) wire.Request { return wire.Request{Args: args, Dir: cove.Workspace} }

func TestRuns(t *testing.T) {
	s := start(t)
	s.runner.then = func(_ context.Context, r command.Run) (int, error) {
		fmt.Fprint(r.Stdout, strings.Repeat("x", 200_000))
		fmt.Fprint(r.Stderr, "hint: y\n")
		return 7, nil
	}
	req := ask("-c", "color.branch=auto", "commit", "-F", "/tmp/m")
	req.Stdin, req.Color = []byte("message"), true
	req.Env = map[string]string{"GIT_AUTHOR_NAME": "A", "GIT_DIR": "/etc", "GIT_SSH_COMMAND": "evil", "TZ": ":/etc/passwd", "COLUMNS": "80x", "LD_PRELOAD": "/x"}
	req.Config = [][2]string{{"user.name", "B"}, {"core.pager", "evil"}, {"color.diff", "auto"}, {"alias.x", "!evil"}}
	stdout, stderr, code := s.answer(s.send(s.signed(wire.CommandPath, req)))
	if len(stdout) != 200_000 || stderr != "hint: y\n" || code != 7 {
		t.Errorf("%d bytes, %q, %d", len(stdout), stderr, code)
	}
	got := s.runner.ran[0]
	if want := []string{"commit", "--file=-"}; !slices.Equal(got.Args, want) {
		t.Errorf("%q was run", got.Args)
	}
	if want := []string{"GIT_AUTHOR_NAME=A"}; !slices.Equal(got.Env, want) {
		t.Errorf("with %q", got.Env)
	}
	if want := [][2]string{{"color.ui", "always"}, {"user.name", "B"}, {"color.diff", "always"}}; !slices.Equal(got.Settings, want) {
		t.Errorf("with the settings %q", got.Settings)
	}
	if string(got.Stdin) != "message" || got.Edit != nil {
		t.Errorf("with the input %q", got.Stdin)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) != 1 || s.events[0].Verb != "commit" || s.events[0].Exit != 7 || s.events[0].Code != "" {
		t.Errorf("audited: %+v", s.events)
	}
}

func TestRefusedByTheTable(t *testing.T) {
	s := start(t)
	for _, c := range []struct {
		args   []string
		dir    string
		code   int
		stderr string
	}{
		{[]string{"push", "--receive-pack=evil"}, cove.Workspace, 128, "fatal: the option '--receive-pack' of 'git push' is not allowed"},
		{[]string{"log", "-n"}, cove.Workspace, 129, "fatal: switch `n' requires a value"},
		{[]string{"status"}, "/tmp", 128, "fatal: not a git repository"},
		{nil, cove.Workspace, 129, "fatal: no command"},
	} {
		_, stderr, code := s.answer(s.send(s.signed(wire.CommandPath, wire.Request{Args: c.args, Dir: c.dir})))
		if code != c.code || !strings.HasPrefix(stderr, c.stderr) {
			t.Errorf("git %q: %d %q", c.args, code, stderr)
		}
	}
	if n := s.runner.count(); n != 0 {
		t.Errorf("%d were run", n)
	}
	if len(s.events) != 4 || s.events[0].Code != cove.Forbidden || s.events[0].Args[0] != "push" {
		t.Errorf("audited: %+v", s.events)
	}
}

// TestSignatures is row G9: nothing but a request that is signed, new and now
// is accepted.
func TestSignatures(t *testing.T) {
	other := make([]byte, wire.KeySize)
	for name, c := range map[string]struct {
		change func(s *service, r *request)
		status int
	}{
		"nothing changed": {func(*service, *request) {}, 200},
		"no signature":    {func(_ *service, r *request) { r.unset(wire.HeaderSignature) }, 401},
		"no time":         {func(_ *service, r *request) { r.unset(wire.HeaderTime) }, 401},
		"no nonce":        {func(_ *service, r *request) { r.unset(wire.HeaderNonce) }, 401},
		"empty signature": {func(_ *service, r *request) { r.set(wire.HeaderSignature, "") }, 401},
		"wrong signature": {func(_ *service, r *request) { r.set(wire.HeaderSignature, strings.Repeat("0", 64)) }, 401},
		"short signature": {func(_ *service, r *request) { r.set(wire.HeaderSignature, r.get(wire.HeaderSignature)[:62]) }, 401},
		"signature in capitals": {func(_ *service, r *request) {
			r.set(wire.HeaderSignature, strings.ToUpper(r.get(wire.HeaderSignature)[:32])+r.get(wire.HeaderSignature)[32:])
		}, 401},
		"last digit": {func(_ *service, r *request) {
			s := r.get(wire.HeaderSignature)
			r.set(wire.HeaderSignature, s[:63]+flip(s[63:]))
		}, 401},
		"other sandbox's": {func(_ *service, r *request) { r.sign(other) }, 401},
		"empty key":       {func(_ *service, r *request) { r.sign(nil) }, 401},
		"body swapped":    {func(_ *service, r *request) { r.body = bytes.Replace(r.body, []byte("status"), []byte("commit"), 1) }, 401},
		"body longer": {func(_ *service, r *request) {
			r.body = append(r.body, ' ')
			r.set("Content-Length", strconv.Itoa(len(r.body)))
		}, 401},
		"time swapped":      {func(s *service, r *request) { r.set(wire.HeaderTime, fmt.Sprint(s.clock.Now().Unix()+1)) }, 401},
		"nonce swapped":     {func(_ *service, r *request) { r.set(wire.HeaderNonce, nonce()) }, 401},
		"path swapped":      {func(_ *service, r *request) { r.path = wire.EditedPath }, 401},
		"path re-encoded":   {func(_ *service, r *request) { r.path = "/git/v1/%63ommand" }, 404},
		"path with a query": {func(_ *service, r *request) { r.path += "?x=1" }, 404},
		"path with a slash": {func(_ *service, r *request) { r.path += "/" }, 404},
		"path with a dot":   {func(_ *service, r *request) { r.path = "/git/v1/./command" }, 404},
		"absolute path":     {func(s *service, r *request) { r.path = "http://" + s.addr + r.path }, 404},
		"signed absolute":   {func(s *service, r *request) { r.path = "http://" + s.addr + r.path; r.sign(s.key) }, 404},
		"other method":      {func(_ *service, r *request) { r.method = "PUT" }, 400},
		"other method, overridden": {func(s *service, r *request) {
			r.method = "GET"
			r.set("X-HTTP-Method-Override", "POST")
			r.sign(s.key)
		}, 400},
		"expired":           {func(s *service, r *request) { r.at(s, -61*time.Second) }, 401},
		"nearly expired":    {func(s *service, r *request) { r.at(s, -59*time.Second) }, 200},
		"in the future":     {func(s *service, r *request) { r.at(s, 62*time.Second) }, 401},
		"a little early":    {func(s *service, r *request) { r.at(s, 59*time.Second) }, 200},
		"long ago":          {func(s *service, r *request) { r.set(wire.HeaderTime, "-9223372036854775808"); r.sign(s.key) }, 401},
		"time with a zero":  {func(s *service, r *request) { r.set(wire.HeaderTime, "0"+r.get(wire.HeaderTime)); r.sign(s.key) }, 401},
		"time with a plus":  {func(s *service, r *request) { r.set(wire.HeaderTime, "+"+r.get(wire.HeaderTime)); r.sign(s.key) }, 401},
		"time in hex":       {func(s *service, r *request) { r.set(wire.HeaderTime, "0x65"); r.sign(s.key) }, 401},
		"short nonce":       {func(s *service, r *request) { r.set(wire.HeaderNonce, nonce()[:16]); r.sign(s.key) }, 401},
		"long nonce":        {func(s *service, r *request) { r.set(wire.HeaderNonce, nonce()+"00"); r.sign(s.key) }, 401},
		"nonce in capitals": {func(s *service, r *request) { r.set(wire.HeaderNonce, "A"+nonce()[1:]); r.sign(s.key) }, 401},
		"signature twice":   {func(_ *service, r *request) { r.twice(wire.HeaderSignature) }, 401},
		"time twice":        {func(_ *service, r *request) { r.twice(wire.HeaderTime) }, 401},
		"nonce twice":       {func(_ *service, r *request) { r.twice(wire.HeaderNonce) }, 401},
		"a second, other signature": {func(_ *service, r *request) {
			r.headers = append(r.headers, [2]string{"cove-signature", strings.Repeat("0", 64)})
		}, 401},
		"an algorithm asked for": {func(_ *service, r *request) {
			r.set(wire.HeaderSignature, "none:"+r.get(wire.HeaderSignature))
			r.headers = append(r.headers, [2]string{"Cove-Algorithm", "none"})
		}, 401},
		"algorithm none": {func(_ *service, r *request) { r.set(wire.HeaderSignature, "none") }, 401},
		"bearer": {func(s *service, r *request) {
			r.unset(wire.HeaderSignature)
			r.set("Authorization", "Bearer "+hex.EncodeToString(s.key))
		}, 401},
		"compressed": {func(_ *service, r *request) { r.set("Content-Encoding", "gzip") }, 400},
		"chunked": {func(_ *service, r *request) {
			r.unset("Content-Length")
			r.set("Transfer-Encoding", "chunked")
			r.body = fmt.Appendf(nil, "%x\r\n%s\r\n0\r\n\r\n", len(r.body), r.body)
		}, 400},
		"no length": {func(_ *service, r *request) { r.unset("Content-Length"); r.body = nil }, 401},
		"too large": {func(s *service, r *request) {
			r.body = make([]byte, wire.MaxBody+1)
			r.set("Content-Length", fmt.Sprint(len(r.body)))
			r.sign(s.key)
		}, 413},
		"unknown field":   {func(s *service, r *request) { r.replace(s, `{"args":["status"],"dir":"/workspace","user":"root"}`) }, 400},
		"two values":      {func(s *service, r *request) { r.replace(s, `{"args":["status"],"dir":"/workspace"}{}`) }, 400},
		"not JSON":        {func(s *service, r *request) { r.replace(s, `args=status`) }, 400},
		"wrong type":      {func(s *service, r *request) { r.replace(s, `{"args":"status"}`) }, 400},
		"nobody's answer": {func(s *service, r *request) { r.path = wire.EditedPath; r.replace(s, `{"id":"1","ok":true}`) }, 404},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			r := s.signed(wire.CommandPath, ask("status"))
			c.change(s, &r)
			if got := s.status(r); got != c.status {
				t.Errorf("status %d, want %d", got, c.status)
			}
			if n := s.runner.count(); n > 0 != (c.status == 200) {
				t.Errorf("%d commands were run", n)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.events) != 1 || (s.events[0].Code == "") != (c.status == 200) {
				t.Errorf("audited: %+v", s.events)
			}
		})
	}
}

func flip(digit string) string {
	if digit == "0" {
		return "1"
	}
	return "0"
}

// sign signs a request once more, as it is now.
func (r *request) sign(key []byte) {
	r.set(wire.HeaderSignature, wire.Sign(key, r.method, r.path, r.body, r.get(wire.HeaderTime), r.get(wire.HeaderNonce)))
}

func (r *request) at(s *service, d time.Duration) {
	r.set(wire.HeaderTime, fmt.Sprint(s.clock.Now().Add(d).Unix()))
	r.sign(s.key)
}

func (r *request) twice(name string) { r.headers = append(r.headers, [2]string{name, r.get(name)}) }

func (r *request) replace(s *service, body string) {
	r.body = []byte(body)
	r.set("Content-Length", strconv.Itoa(len(body)))
	r.sign(s.key)
}

// TestReplays: a request is accepted once, for as long as its time is now, and
// however many copies come at once.
func TestReplays(t *testing.T) {
	s := start(t)
	r := s.signed(wire.CommandPath, ask("status"))
	if got := s.status(r); got != 200 {
		t.Fatalf("status %d", got)
	}
	for range 3 {
		if got := s.status(r); got != 401 {
			t.Errorf("a replay: status %d", got)
		}
		s.clock.Advance(25 * time.Second)
	}
	late := s.signed(wire.CommandPath, ask("status"))
	late.at(s, 50*time.Second)
	if got := s.status(late); got != 200 {
		t.Fatalf("status %d", got)
	}
	s.clock.Advance(100 * time.Second) // its time is accepted still
	if got := s.status(late); got != 401 {
		t.Errorf("a late replay: status %d", got)
	}
	before := s.runner.count()
	r = s.signed(wire.CommandPath, ask("status"))
	var wait sync.WaitGroup
	statuses := make([]int, maxRunning)
	for i := range statuses {
		wait.Go(func() { statuses[i] = s.status(r) })
	}
	wait.Wait()
	if n := s.runner.count() - before; n != 1 {
		t.Errorf("of %d copies at once %d were run: %v", len(statuses), n, statuses)
	}
}

// TestNoncesAreBounded: memory does not grow with requests, and none is
// forgotten while it could come again.
func TestNoncesAreBounded(t *testing.T) {
	c := clocktest.NewManual(time.Unix(1_800_000_000, 0))
	g := newGuard(make([]byte, wire.KeySize), c)
	first := nonce()
	if err := g.once(first, c.Now()); err != nil {
		t.Fatal(err)
	}
	for range maxNonces - 1 {
		if err := g.once(nonce(), c.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.once(nonce(), c.Now()); cove.ErrorCode(err) != cove.Overloaded {
		t.Errorf("one too many: %v", err)
	}
	if err := g.once(first, c.Now()); cove.ErrorCode(err) != cove.Unauthenticated {
		t.Errorf("the first again: %v", err)
	}
	c.Advance(2*window + time.Second)
	if err := g.once(nonce(), c.Now()); err != nil || len(g.seen) != 1 {
		t.Errorf("later: %v, %d are remembered", err, len(g.seen))
	}
}

func TestRateIsBounded(t *testing.T) {
	s := start(t)
	for range burst {
		if got := s.status(s.signed(wire.CommandPath, ask("status"))); got != 200 {
			t.Fatalf("status %d", got)
		}
	}
	if got := s.status(s.signed(wire.CommandPath, ask("status"))); got != 429 {
		t.Errorf("one too many: status %d", got)
	}
	s.clock.Advance(time.Second)
	if got := s.status(s.signed(wire.CommandPath, ask("status"))); got != 200 {
		t.Errorf("a second later: status %d", got)
	}
}

func TestNumberIsBounded(t *testing.T) {
	s := start(t)
	entered, leave := make(chan bool), make(chan bool)
	s.runner.then = func(context.Context, command.Run) (int, error) {
		entered <- true
		<-leave
		return 0, nil
	}
	var wait sync.WaitGroup
	for range maxRunning {
		wait.Go(func() { s.status(s.signed(wire.CommandPath, ask("status"))) })
	}
	for range maxRunning {
		<-entered
	}
	if got := s.status(s.signed(wire.CommandPath, ask("status"))); got != 429 {
		t.Errorf("one too many: status %d", got)
	}
	close(leave)
	wait.Wait()
}

// TestCancelled: a command ends when its caller goes away.
func TestCancelled(t *testing.T) {
	s := start(t)
	ended := make(chan error, 1)
	s.runner.then = func(ctx context.Context, r command.Run) (int, error) {
		fmt.Fprint(r.Stdout, "begun")
		<-ctx.Done()
		ended <- ctx.Err()
		return 0, ctx.Err()
	}
	r := s.signed(wire.CommandPath, ask("log"))
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\n", r.method, r.path)
	for _, h := range r.headers {
		fmt.Fprintf(conn, "%s: %s\r\n", h[0], h[1])
	}
	fmt.Fprintf(conn, "\r\n%s", r.body)
	if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if err := <-ended; err != context.Canceled {
		t.Error(err)
	}
}

// TestEditing: a text goes in and comes back while the command waits.
func TestEditing(t *testing.T) {
	for _, ok := range []bool{true, false} {
		s := start(t)
		s.runner.then = func(ctx context.Context, r command.Run) (int, error) {
			text, err := r.Edit(ctx, "COMMIT_EDITMSG", []byte("# template\n"))
			if err != nil {
				return 1, nil
			}
			r.Stdout.Write(text)
			return 0, nil
		}
		req := ask("commit")
		req.Edits = true
		res := s.send(s.signed(wire.CommandPath, req))
		kind, p, err := wire.ReadFrame(res.Body)
		var e wire.Edit
		if err != nil || kind != wire.FrameEdit || json.Unmarshal(p, &e) != nil || e.Name != "COMMIT_EDITMSG" || string(e.Text) != "# template\n" {
			t.Fatalf("%d %q, %v", kind, p, err)
		}
		if got := s.status(s.signed(wire.EditedPath, wire.Edited{ID: e.ID + "0", OK: true})); got != 404 {
			t.Errorf("an answer to nothing: status %d", got)
		}
		answer := s.signed(wire.EditedPath, wire.Edited{ID: e.ID, OK: ok, Text: []byte("done")})
		if got := s.status(answer); got != 200 {
			t.Errorf("status %d", got)
		}
		if got := s.status(answer); got != 401 {
			t.Errorf("the answer again: status %d", got)
		}
		want, wantCode := "done", 0
		if !ok {
			want, wantCode = "", 1
		}
		if out, _, code := s.answer(res); out != want || code != wantCode {
			t.Errorf("%q, %d", out, code)
		}
	}
}
