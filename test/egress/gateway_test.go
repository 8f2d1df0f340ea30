//go:build linux

package egress

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/test/await"
	"github.com/cove-sandbox/cove/test/holdings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/api"
)

// background is a command of Cove's that goes on.
type background struct {
	*exec.Cmd
	ended          chan struct{}
	stdout, stderr output
}

// output can be read while it is written.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// stays begins a command that stays, and waits until it has said something on standard error.
func (l *lab) stays(t *testing.T, until string, args ...string) *background {
	t.Helper()
	b := &background{Cmd: l.command(t, t.Context(), args...), ended: make(chan struct{})}
	b.Stdout, b.Stderr = &b.stdout, &b.stderr
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(b.ended); b.Wait() }()
	t.Cleanup(func() { b.kill() })
	await.That(t, fmt.Sprintf("%q says %q", args, until), func() bool {
		select {
		case <-b.ended:
			t.Fatalf("%q has ended: %s", args, b.stderr.String())
		default:
		}
		return strings.Contains(b.stderr.String(), until)
	})
	return b
}

// kill ends it at once, and waits.
func (b *background) kill() {
	b.Process.Kill()
	<-b.ended
}

// stop ends it as a user does, and is its exit code.
func (b *background) stop() int {
	b.Process.Signal(syscall.SIGTERM)
	<-b.ended
	return b.ProcessState.ExitCode()
}

// gateway starts one of its own.
func (l *lab) gateway(t *testing.T, flags ...string) *background {
	t.Helper()
	return l.stays(t, "clients are registered", append([]string{"gateway"}, flags...)...)
}

// client runs a shell script on this machine with the environment that Cove has printed for it.
func client(t *testing.T, env, script string) result {
	t.Helper()
	return inNamespace(t, 0, env, script)
}

// inNamespace runs it in the network namespace of a process.
func inNamespace(t *testing.T, pid int, env, script string) result {
	t.Helper()
	args := []string{"bash", "-c", script}
	if pid != 0 {
		args = append([]string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid)}, args...)
	}
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append([]string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/nonexistent"},
		strings.Fields(env)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Run()
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

func (l *lab) register(t *testing.T, name string, flags ...string) api.GatewayClient {
	t.Helper()
	got := l.cove(t, append([]string{"gateway", "add", name, "--json"}, flags...)...)
	var c api.GatewayClient
	if err := json.Unmarshal([]byte(got.stdout), &c); err != nil || got.code != 0 {
		t.Fatalf("register %s: %+v", name, got)
	}
	return c
}

func environ(c api.GatewayClient) string {
	var all []string
	for k, v := range c.Env {
		all = append(all, k+"="+v)
	}
	return strings.Join(all, "\n")
}

// TestGatewayDefaultClient: what the command line allows arrives, whichever way
// the proxy is asked, and nothing else does.
func TestGatewayDefaultClient(t *testing.T) {
	l := newLab(t)
	policy := filepath.Join(l.dir, "policy.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(policy, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("rules:\n  - hosts: good.lab.test\n")
	g := l.gateway(t, "--listen", "127.0.0.1:3128", "--policy", policy, "--health", "127.0.0.1:3127", "--credential",
		"lab", "--allow", "key.lab.test")
	var clients api.GatewayClientList
	if err := json.Unmarshal([]byte(l.cove(t, "gateway", "list", "--json").stdout), &clients); err != nil ||
		len(clients.Clients) != 1 {
		t.Fatalf("%+v, %v", clients, err)
	}
	env := environ(clients.Clients[0])
	for _, how := range []string{"curl -sS", "curl -sS --http1.1", "curl -sS --proxytunnel",
		"curl -sS --proxy socks5h://127.0.0.1:3128"} {
		for _, scheme := range []string{"http", "https"} {
			l.Forget()
			got := client(t, env, how+` --max-time 30 `+scheme+`://good.lab.test/a`)
			if want := "GET good.lab.test/a over " + scheme + "\n"; got.stdout != want {
				t.Errorf("%s, %s: %+v", how, scheme, got)
			}
			l.Forget()
			got = client(t, env, how+` --max-time 30 `+scheme+`://bad.lab.test/a`)
			if len(l.seen()) > 0 || len(l.Asked()) > 0 {
				t.Errorf("%s, %s, denied: %q arrived, %q was looked up, %+v", how, scheme, l.seen(), l.Asked(), got)
			}
		}
	}
	l.Forget()
	if got := client(t, env,
		`curl -sS --max-time 30 https://key.lab.test/mirror -H "Authorization: Bearer $LAB_TOKEN"`); !slices.Equal(l.keys(),
		[]string{"Bearer " + key}) || strings.Contains(got.stdout, key) {
		t.Errorf("with a credential: %q arrived, %+v", l.keys(), got)
	}
	if got := client(t, "",
		`curl -sS http://127.0.0.1:3127/health; curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:3127/clients`); !strings.HasPrefix(got.stdout, `{"status":"ok",`) || !strings.HasSuffix(got.stdout, "404") {
		t.Errorf("health: %+v", got)
	}

	// A narrower policy cuts what is under way.
	stream := make(chan result, 1)
	l.Forget()
	go func() { stream <- client(t, env, `curl -sS --no-buffer http://good.lab.test/slow`) }()
	await.That(t, "the stream begins", func() bool { return slices.Contains(l.seen(), "GET good.lab.test/slow") })
	write("rules:\n  - hosts: good.lab.test\n    paths: /only\n")
	g.Process.Signal(syscall.SIGHUP)
	if got := <-stream; got.code == 0 {
		t.Errorf("the stream went on: %+v", got)
	}
	got := client(t, env,
		`for p in a only; do curl -sS -o /dev/null -w '%{http_code} ' --max-time 30 http://good.lab.test/$p; done`)
	if got.stdout != "403 200 " {
		t.Errorf("after the change: %+v", got)
	}
	write("rules: {")
	g.Process.Signal(syscall.SIGHUP)
	await.That(t, "a broken policy is said",
		func() bool { return strings.Contains(g.stderr.String(), "the policy stays as it is") })
	if got := client(t, env,
		`curl -sS -o /dev/null -w '%{http_code}' --max-time 30 http://good.lab.test/only`); got.stdout != "200" {
		t.Errorf("after a broken change: %+v", got)
	}
	if code := g.stop(); code != 0 {
		t.Errorf("exit code %d: %s", code, g.stderr.String())
	}
	if left, _ := filepath.Glob(filepath.Join(l.dir, "run", "*.sock")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestGatewayRefusals: what would let strangers out, or two gateways into one state.
func TestGatewayRefusals(t *testing.T) {
	l := newLab(t)
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--listen", "0.0.0.0:3128"}, "--beyond-loopback"},
		{[]string{"--listen", "[::]:3128"}, "--beyond-loopback"},
		{[]string{"--health", "172.30.0.2:3127"}, "--beyond-loopback"},
		{[]string{"--listen", "3128"}, "write 127.0.0.1:3128"},
		{[]string{"--listen", "unix:relative"}, "absolute"},
		{[]string{"--listen", "unix:" + l.dir + "/cove.yaml"}, "something else"},
		{[]string{"--allow", "good.lab.test"}, "--listen"},
		{[]string{"--listen", "127.0.0.1:3128", "--policy", "/nonexistent"}, "no file"},
		{[]string{"--listen", "127.0.0.1:3128", "--credential", "nobody"}, "no credential"},
	} {
		if got := l.cove(t, append([]string{"gateway"}, c.flags...)...); got.code == 0 ||
			!strings.Contains(got.stderr, c.want) {
			t.Errorf("%q: %+v", c.flags, got)
		}
	}
	l.gateway(t)
	if got := l.cove(t, "gateway", "--socket", l.dir+"/other.sock"); got.code == 0 ||
		!strings.Contains(got.stderr, "another gateway uses") {
		t.Errorf("a second one: %+v", got)
	}
	if got := l.cove(t, "gateway", "--state", l.dir+"/other"); got.code == 0 ||
		!strings.Contains(got.stderr, "another program listens") {
		t.Errorf("a second one on the socket: %+v", got)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"add", "default"}, "command line"},
		{[]string{"add", "a/b"}, "name:"},
		{[]string{"add", "x", "--listen", "0.0.0.0:1"}, "--beyond-loopback"},
		{[]string{"add", "x", "--transparent", "--listen", "127.0.0.1:4444"}, "leave out"},
		{[]string{"add", "x", "--allow", "a b"}, "a b"},
		{[]string{"remove", "nobody"}, "no client"},
	} {
		if got := l.cove(t, append([]string{"gateway"}, c.args...)...); got.code == 0 ||
			!strings.Contains(got.stderr, c.want) {
			t.Errorf("%q: %+v", c.args, got)
		}
	}
	l.register(t, "x", "--allow", "good.lab.test")
	if got := l.cove(t, "gateway", "add", "x", "--listen", "127.0.0.1:4444"); got.code == 0 ||
		!strings.Contains(got.stderr, "another address") {
		t.Errorf("another address: %+v", got)
	}
	if got := l.cove(t, "gateway", "list", "--socket", l.dir+"/nobody.sock"); got.code == 0 ||
		!strings.Contains(got.stderr, "no gateway answers") {
		t.Errorf("no gateway: %+v", got)
	}
}

// TestGatewayClients: the listener tells who asks, and nobody's certificates convince another.
func TestGatewayClients(t *testing.T) {
	l := newLab(t)
	l.gateway(t)
	a, b := l.register(t, "a", "--allow", "good.lab.test"),
		l.register(t, "b", "--allow", "key.lab.test", "--listen", "unix:"+l.dir+"/b.sock", "--dir", "/etc/cove")
	if b.Env["SSL_CERT_FILE"] != "/etc/cove/ca-certificates.crt" || b.Env["HTTP_PROXY"] != "" ||
		b.Listen != "unix:"+l.dir+"/b.sock" {
		t.Errorf("b is %+v", b)
	}
	if info, err := os.Stat(l.dir + "/b.sock"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its socket: %v, %v", info, err)
	}
	// curl has no proxies that are unix sockets.
	bridge, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer bridge.Close()
	go func() {
		for {
			c, err := bridge.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				up, err := net.Dial("unix", l.dir+"/b.sock")
				if err != nil {
					return
				}
				defer up.Close()
				go func() { io.Copy(up, c); up.(*net.UnixConn).CloseWrite() }()
				io.Copy(c, up)
			}()
		}
	}()
	try := func(proxy, files, host string) string {
		t.Helper()
		got := client(t, "",
			fmt.Sprintf(
				`curl -sS --max-time 30 --proxy http://%s --cacert %s/ca.pem -w ' %%{http_code} %%{http_connect}' https://%s/x`,
				proxy, files, host))
		return got.stdout + got.stderr
	}
	atB := bridge.Addr().String()
	if got := try(a.Listen, a.Files, "good.lab.test"); got != "GET good.lab.test/x over https\n 200 200" {
		t.Errorf("a: %s", got)
	}
	if got := try(atB, b.Files, "key.lab.test"); got != "GET key.lab.test/x over https\n 200 200" {
		t.Errorf("b: %s", got)
	}
	l.Forget()
	for _, c := range [][3]string{{a.Listen, a.Files, "key.lab.test"}, {atB, b.Files, "good.lab.test"}} {
		if got := try(c[0], c[1], c[2]); !strings.Contains(got, "403") {
			t.Errorf("the other's host: %s", got)
		}
	}
	for _, c := range [][3]string{{a.Listen, b.Files, "good.lab.test"}, {atB, a.Files, "key.lab.test"}} {
		if got := try(c[0], c[1], c[2]); !strings.Contains(got, "certificate") {
			t.Errorf("the other's certificate: %s", got)
		}
	}
	if seen := l.seen(); len(seen) > 0 {
		t.Errorf("arrived: %q", seen)
	}
	await.That(t, "decisions are recorded", func() bool {
		got := l.cove(t, "network", "log", "--server", "unix:"+l.dir+"/run/gateway.sock", "--json")
		return strings.Contains(got.stdout, `"client": "a"`) && strings.Contains(got.stdout, `"client": "b"`) &&
			strings.Contains(got.stdout, `"deny"`)
	})
	if got := l.cove(t, "ca", "export", "a"); got.stdout != read(t, a.Files+"/ca.pem") ||
		strings.Contains(got.stdout, "PRIVATE") {
		t.Errorf("a's authority: %+v", got)
	}
	if got := l.cove(t, "policy", "allow", "a", "key.lab.test"); got.code != 0 ||
		!strings.HasSuffix(try(a.Listen, a.Files, "key.lab.test"), " 200 200") {
		t.Errorf("allowed later: %+v", got)
	}
	if got := l.register(t, "a", "--allow", "good.lab.test"); got.Listen != a.Listen ||
		!strings.Contains(try(a.Listen, a.Files, "key.lab.test"), "403") {
		t.Errorf("registered again: %+v", got)
	}
	if got := l.cove(t, "gateway", "remove", "a"); got.code != 0 {
		t.Errorf("remove: %+v", got)
	}
	if got := try(a.Listen, b.Files, "good.lab.test"); !strings.Contains(got, "onnect") {
		t.Errorf("after it was removed: %s", got)
	}
	if _, err := os.Stat(a.Files); err == nil {
		t.Error("its files are still there")
	}
	found, n, err := holdings.Search("PRIVATE KEY", filepath.Join(l.dir, "run"))
	if len(found) != 0 || err != nil || n == 0 {
		t.Errorf("there is a key in %q of %d files, %v", found, n, err)
	}
}

// TestGatewayAsks: what a rule asks about waits for clients of a gateway, too, and the same command answers.
func TestGatewayAsks(t *testing.T) {
	l := newLab(t)
	l.gateway(t)
	c := l.register(t, "builder", "--policy", askFirst(t, l, ""))
	for _, answer := range []struct {
		args []string
		want string
	}{
		{nil, "GET asked.lab.test/x over https"},
		{[]string{"--deny", "--scope", "once"}, "approval was asked for, and denied"},
	} {
		done := make(chan result, 1)
		go func() {
			done <- client(t, "",
				fmt.Sprintf(`curl -sS --max-time 100 --proxy http://%s --cacert %s/ca.pem https://asked.lab.test/x`,
					c.Listen, c.Files))
		}()
		held := l.held(t, done, 1)
		if held[0].Client != "builder" || held[0].Execution != "" || held[0].Host != "asked.lab.test" {
			t.Errorf("held is %+v", held[0])
		}
		if len(l.seen()) > 0 {
			t.Errorf("it has arrived before it was approved: %q", l.seen())
		}
		l.approve(t, append([]string{held[0].ID}, answer.args...)...)
		if got := <-done; !strings.Contains(got.stdout, answer.want) {
			t.Errorf("%q: %+v", answer.args, got)
		}
		l.Forget()
	}
	got := l.cove(t, "audit", "--server", "unix:"+filepath.Join(l.dir, "run", "gateway.sock"))
	if strings.Count(got.stdout, "approve") != 2 || strings.Count(got.stdout, "builder") != 2 {
		t.Errorf("the audit log: %+v", got)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

// container is a process with a network namespace of its own, which has loopback only and knows nothing of Cove.
func container(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd.Process.Pid
}

// TestGatewayAttach: everything that leaves a namespace is led to the gateway.
func TestGatewayAttach(t *testing.T) {
	l := newLab(t)
	g := l.gateway(t)
	pid := container(t)
	if got := l.cove(t, "gateway", "attach", "--pid", fmt.Sprint(g.Process.Pid)); got.code == 0 ||
		!strings.Contains(got.stderr, "of this machine") {
		t.Errorf("this machine: %+v", got)
	}
	around := container(t)
	if got := inNamespace(t, around, "", "ip link add out0 type veth peer name out1"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if got := l.cove(t, "gateway", "attach", "--pid", fmt.Sprint(around)); got.code == 0 ||
		!strings.Contains(got.stderr, "way around the gateway: out") {
		t.Errorf("a way around: %+v", got)
	}
	if got := l.cove(t, "gateway", "attach", "--pid", "99999999"); got.code == 0 ||
		!strings.Contains(got.stderr, "no process") {
		t.Errorf("nobody: %+v", got)
	}

	a := l.stays(t, "attached process", "gateway", "attach", "--pid", fmt.Sprint(pid), "--name", "box", "--allow",
		"good.lab.test", "--env")
	var env string
	await.That(t, "the environment is printed",
		func() bool { env = a.stdout.String(); return strings.HasSuffix(env, "\n") })
	l.tryAttached(t, func(script string) result { return inNamespace(t, pid, env, script) })
	if got := l.cove(t, "gateway", "attach", "--pid", fmt.Sprint(pid), "--name", "box"); got.code == 0 ||
		!strings.Contains(got.stderr, "attached already") {
		t.Errorf("attached twice: %+v", got)
	}
	if code := a.stop(); code == 0 {
		t.Errorf("ended by a signal with exit code %d: %s", code, a.stderr.String())
	}
	l.Forget()
	if got := inNamespace(t, pid, env,
		`curl -sS --noproxy '*' --max-time 20 http://93.184.216.34/x; curl -sS --max-time 20 http://good.lab.test/x`); got.code == 0 || len(l.Packets()) > 0 {
		t.Errorf("after it was let go: %+v, %d packets", got, len(l.Packets()))
	}

	// Again, by the policy that it has; and it ends with the process.
	b := l.stays(t, "attached process", "gateway", "attach", "--pid", fmt.Sprint(pid), "--name", "box")
	if got := inNamespace(t, pid, env,
		`curl -sS --max-time 30 https://good.lab.test/x`); got.stdout != "GET good.lab.test/x over https\n" {
		t.Errorf("attached again: %+v", got)
	}
	syscall.Kill(pid, syscall.SIGKILL)
	<-b.ended
	if b.ProcessState.ExitCode() != 0 {
		t.Errorf("at the end of the process: %s", b.stderr.String())
	}
}

// tryAttached tries from within a container that good.lab.test is what it reaches.
func (l *lab) tryAttached(t *testing.T, inside func(script string) result) {
	t.Helper()
	for _, c := range []struct{ script, want string }{
		{`curl -sS --max-time 30 https://good.lab.test/x`, "GET good.lab.test/x over https\n"},
		{`curl -sS --noproxy '*' --max-time 30 https://good.lab.test/x`, "GET good.lab.test/x over https\n"},
		{`curl -sS --noproxy '*' --max-time 30 --resolve good.lab.test:80:192.0.2.1 http://good.lab.test/x`,
			"GET good.lab.test/x over http\n"},
		{`curl -sS -6 --noproxy '*' --max-time 30 --resolve 'good.lab.test:80:[2001:db8::1]' http://good.lab.test/x`,
			"GET good.lab.test/x over http\n"},
	} {
		if got := inside(c.script); got.stdout != c.want {
			t.Errorf("%s: %+v", c.script, got)
		}
	}
	l.Forget()
	for _, script := range []string{
		`curl -sS --max-time 30 https://bad.lab.test/x`,
		`curl -sS --noproxy '*' --max-time 30 --resolve bad.lab.test:443:93.184.216.34 https://bad.lab.test/x`,
		`curl -sS --noproxy '*' --max-time 30 http://93.184.216.34/x`,
		`curl -sS --noproxy '*' --max-time 30 http://169.254.169.254/x`,
	} {
		inside(script)
	}
	if len(l.seen()) > 0 || len(l.Asked()) > 0 {
		t.Errorf("arrived: %q; looked up: %q", l.seen(), l.Asked())
	}
}

// TestGatewayKilled: when the gateway is killed, streams break and nothing goes
// out; when it is back, clients that have never heard of it go on.
func TestGatewayKilled(t *testing.T) {
	l := newLab(t)
	g := l.gateway(t, "--listen", "127.0.0.1:3128", "--allow", "good.lab.test")
	pid := container(t)
	a := l.stays(t, "attached process", "gateway", "attach", "--pid", fmt.Sprint(pid), "--name", "box", "--allow",
		"good.lab.test", "--env")
	var attached string
	await.That(t, "the environment is printed",
		func() bool { attached = a.stdout.String(); return strings.HasSuffix(attached, "\n") })
	explicit := l.register(t, "explicit", "--allow", "good.lab.test")
	var before []string
	for _, name := range []string{"default", "box", "explicit"} {
		before = append(before, l.cove(t, "ca", "export", name).stdout)
	}

	streams := make(chan result, 2)
	l.Forget()
	go func() {
		streams <- inNamespace(t, pid, attached, `curl -sS --no-buffer --noproxy '*' https://good.lab.test/slow`)
	}()
	go func() { streams <- client(t, environ(explicit), `curl -sS --no-buffer https://good.lab.test/slow`) }()
	await.That(t, "the streams begin", func() bool { return len(l.seen()) == 2 })
	g.kill()
	for range 2 {
		if got := <-streams; got.code == 0 {
			t.Errorf("a stream ended well: %+v", got)
		}
	}
	await.That(t, "it is noticed", func() bool { return strings.Contains(a.stderr.String(), "nothing leaves") })
	l.Forget()
	for _, script := range []string{`curl -sS --max-time 3 https://good.lab.test/x`,
		`curl -sS --noproxy '*' --max-time 3 http://93.184.216.34/x`} {
		if got := inNamespace(t, pid, attached, script); got.code == 0 {
			t.Errorf("without a gateway: %+v", got)
		}
		if got := client(t, environ(explicit), `curl -sS --max-time 3 https://good.lab.test/x`); got.code == 0 {
			t.Errorf("without a gateway: %+v", got)
		}
	}
	if packets := l.Packets(); len(packets) > 0 {
		t.Errorf("without a gateway %d packets left: %+v", len(packets), packets[0])
	}

	l.gateway(t, "--listen", "127.0.0.1:3128", "--allow", "good.lab.test")
	await.That(t, "it is attached again",
		func() bool { return strings.Contains(a.stderr.String(), "the gateway is back") })
	const script = `curl -sS --max-time 30 https://good.lab.test/x; curl -s -o /dev/null -w '%{http_code}' --max-time 30 http://bad.lab.test/x`
	const want = "GET good.lab.test/x over https\n403"
	if got := inNamespace(t, pid, attached, script); got.stdout != want {
		t.Errorf("attached: %+v", got)
	}
	if got := client(t, environ(explicit), script); got.stdout != want {
		t.Errorf("explicit: %+v", got)
	}
	for i, name := range []string{"default", "box", "explicit"} {
		if got := l.cove(t, "ca", "export", name); got.stdout != before[i] || got.stdout == "" {
			t.Errorf("%s has another authority", name)
		}
	}
	// A client that was removed is not taken back.
	if got := l.cove(t, "gateway", "remove", "box"); got.code != 0 {
		t.Errorf("remove: %+v", got)
	}
	<-a.ended
	if a.ProcessState.ExitCode() == 0 || !strings.Contains(a.stderr.String(), "no client") {
		t.Errorf("after it was removed: %s", a.stderr.String())
	}
}

// TestGatewayFullDisk: what cannot be kept is refused, in words.
func TestGatewayFullDisk(t *testing.T) {
	l := newLab(t)
	state := filepath.Join(l.dir, "small")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(state, unix.MNT_DETACH) })
	if got := l.cove(t, "gateway", "--state", state); got.code == 0 || !strings.Contains(got.stderr, "free space") {
		t.Errorf("no place for the database: %+v", got)
	}
	if err := unix.Mount("tmpfs", state, "tmpfs", unix.MS_REMOUNT, "size=2m"); err != nil {
		t.Fatal(err)
	}
	l.gateway(t, "--state", state)
	before := l.register(t, "before", "--allow", "good.lab.test")
	if err := os.WriteFile(filepath.Join(state, "fill"), make([]byte, 4<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	if got := l.cove(t, "gateway", "add", "late", "--allow", "good.lab.test"); got.code == 0 || !strings.Contains(got.stderr, "free") {
		t.Errorf("a client that cannot be kept: %+v", got)
	}
	if got := client(t, environ(before), `curl -sS --max-time 30 https://good.lab.test/x`); got.stdout != "GET good.lab.test/x over https\n" {
		t.Errorf("one that is there: %+v", got)
	}
}
