package sandboxes

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// counter listens at a port of its loopback. To each connection it sends how many bytes have come until their end, and
// then as many.
const counter = `
import socket, sys, threading
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
def serve(c):
    n = 0
    while True:
        got = c.recv(65536)
        if not got: break
        n += len(got)
    c.sendall(b"%d\n" % n + b"x" * n)
    c.close()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
`

// listening is "cove forward --json" while it runs.
type listening struct {
	cmd    *exec.Cmd
	errs   *bytes.Buffer
	locals []string
}

func (l *lab) forward(args ...string) *listening {
	l.t.Helper()
	f := &listening{cmd: l.command(append([]string{"cove", "forward", "--json"}, args...)...), errs: &bytes.Buffer{}}
	f.cmd.Stderr = f.errs
	out, err := f.cmd.StdoutPipe()
	if err == nil {
		err = f.cmd.Start()
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { f.cmd.Process.Kill() })
	var said struct {
		Forwards []struct{ Local string }
	}
	if err := json.NewDecoder(out).Decode(&said); err != nil {
		f.cmd.Wait()
		l.t.Fatalf("%v: %s", err, f.errs)
	}
	for _, one := range said.Forwards {
		f.locals = append(f.locals, one.Local)
	}
	return f
}

// counts returns what the counter behind a port of this machine answers to n bytes.
func counts(local string, n int) error {
	c, err := net.Dial("tcp", local)
	if err != nil {
		return err
	}
	defer c.Close()
	go func() {
		c.Write(make([]byte, n))
		c.(*net.TCPConn).CloseWrite()
	}()
	from := bufio.NewReader(c)
	line, err := from.ReadString('\n')
	if err != nil {
		return err
	}
	back, err := io.Copy(io.Discard, from)
	if line != fmt.Sprintf("%d\n", n) || int(back) != n {
		return fmt.Errorf("of %d bytes %q arrived, and %d came back: %v", n, line, back, err)
	}
	return err
}

// count has the counter listen at port 4000 of a sandbox.
func (l *lab) count(sandbox string) {
	l.t.Helper()
	l.must("cove", "exec", sandbox, "-d", "--", "/usr/bin/python3", "-c", counter, "4000")
	l.eventually("a program that listens", func() bool {
		return strings.Contains(l.must("cove", "exec", sandbox, "--", "cat", "/proc/net/tcp"), ":0FA0 00000000:0000 0A")
	})
}

// TestForward: programs of this machine reach ports of a sandbox without a network, at both addresses of the loopback,
// with each direction's end, many at once; and nothing else reaches it.
func TestForward(t *testing.T) { forwards(t, newLab(t)) }

// TestForwardOfDocker: so it is with the containers of a daemon.
func TestForwardOfDocker(t *testing.T) { forwards(t, newLab(t).docker(), "--engine", "docker") }

// TestForwardWithoutRoot: so it is for an ordinary user.
func TestForwardWithoutRoot(t *testing.T) { forwards(t, newLab(t).asUser("")) }

func forwards(t *testing.T, l *lab, engine ...string) {
	l.must(append([]string{"cove", "new", "--empty", "--name", "web", "--no-attach"}, engine...)...)
	l.count("web")
	f := l.forward("web", "0:4000", "0:4001", "0:3128")
	local := f.locals[0]
	_, number, _ := net.SplitHostPort(local)
	var all sync.WaitGroup
	for i := range 40 {
		to := net.JoinHostPort([]string{"127.0.0.1", "::1"}[i%2], number)
		all.Go(func() {
			if err := counts(to, i*100_000); err != nil {
				t.Errorf("%s: %v", to, err)
			}
		})
	}
	all.Wait()
	// Where nothing listens, and where the gateway does, the connection ends, and the reason is said once.
	for _, to := range []string{f.locals[1], f.locals[1], f.locals[2]} {
		if err := counts(to, 1); err == nil {
			t.Errorf("%s answers", to)
		}
	}
	// Only the loopback listens.
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		ip := a.(*net.IPNet).IP
		if ip.IsLoopback() || ip.IsLinkLocalUnicast() {
			continue
		}
		if c, err := net.Dial("tcp", net.JoinHostPort(ip.String(), number)); err == nil {
			c.Close()
			t.Errorf("it listens at %s", ip)
		}
	}
	// A port that is taken is refused, with another to take.
	if out, err := l.run("cove", "forward", "web", number+":4000"); err == nil ||
		!strings.Contains(err.Error(), "in use") || !strings.Contains(err.Error(), "0:4000") {
		t.Errorf("%q, %v", out, err)
	}
	// One that is renamed is reached all the same.
	l.must("cove", "rename", "web", "site")
	if err := counts(local, 10); err != nil {
		t.Errorf("after a new name: %v", err)
	}
	l.must("cove", "rename", "site", "web")
	// A sandbox that stops is not reached, and is again when it runs. One that is gone ends the command.
	l.must("cove", "stop", "web")
	if err := counts(local, 1); err == nil {
		t.Error("a sandbox that is stopped answers")
	}
	l.must("cove", "start", "web")
	l.count("web")
	if err := counts(local, 10); err != nil {
		t.Errorf("after a start: %v", err)
	}
	l.must("cove", "destroy", "web", "--yes")
	if err := counts(local, 1); err == nil {
		t.Error("a sandbox that is gone answers")
	}
	if err := f.cmd.Wait(); err == nil {
		t.Error("it ends well without its sandbox")
	}
	for _, want := range []string{"nothing listens on port 4001", "port 3128 of the sandbox web is the gateway's",
		"the sandbox web is stopped", "the sandbox web has gone"} {
		if n := strings.Count(f.errs.String(), want); n != 1 {
			t.Errorf("%q is said %d times:\n%s", want, n, f.errs)
		}
	}
	if audit := l.must("cove", "audit"); !strings.Contains(audit, "sandbox-connect") ||
		!strings.Contains(audit, "web: port 4000") {
		t.Errorf("the audit has:\n%s", audit)
	}
}

// TestForwardEnds: a command that is killed, and a server that is, leave the program inside no connection that is open.
func TestForwardEnds(t *testing.T) {
	l := newLab(t)
	l.must("cove", "new", "--empty", "--name", "web", "--no-attach")
	l.count("web")
	// The counter answers at the end of what is sent, and so does not of itself.
	open := func(local string) net.Conn {
		c, err := net.Dial("tcp", local)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.Write([]byte("x"))
		return c
	}
	established := func() bool {
		out := l.must("cove", "exec", "web", "--", "cat", "/proc/net/tcp")
		return strings.Contains(out, "0100007F:0FA0 0100007F:") && strings.Contains(out, " 01 ")
	}
	for _, kill := range []string{"the command", "the server"} {
		f := l.forward("web", "0:4000")
		open(f.locals[0])
		l.eventually("a connection", established)
		if kill == "the command" {
			f.cmd.Process.Kill()
		} else if err := syscall.Kill(l.serverPID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		l.eventually("the end of the connection of "+kill, func() bool { return !established() })
		if kill == "the server" { // the next one carries on
			if err := counts(f.locals[0], 100); err != nil {
				t.Errorf("with the next server: %v", err)
			}
		}
	}
}

// TestForwardOfDevContainer: without a port, those of the dev container are forwarded; one that is taken gets another
// number.
func TestForwardOfDevContainer(t *testing.T) { forwardsDevContainer(t, newLab(t), "native") }

// TestForwardOfDockersDevContainer: so it is with a container of a daemon.
func TestForwardOfDockersDevContainer(t *testing.T) {
	forwardsDevContainer(t, newLab(t).docker(), "docker")
}

func forwardsDevContainer(t *testing.T, l *lab, engine string) {
	l.write("src/.devcontainer.json", `{"forwardPorts": [4000], "appPort": ["0.0.0.0:4002:4001", "5000/udp"]}`)
	l.must("git", "-C", l.in("src"), "add", ".")
	l.must("git", "-C", l.in("src"), "commit", "-q", "-m", "dev")
	taken, err := net.Listen("tcp", "127.0.0.1:4000")
	if err == nil {
		defer taken.Close()
	}
	up := l.command("cove", "devcontainer", "up", "--workspace-folder", "src", "--name", "web", "--engine", engine)
	text, err := up.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "(4000, 4002:4001) by: cove forward web") ||
		!strings.Contains(string(text), "appPort 5000/udp is left out") {
		t.Fatalf("%v: %s", err, text)
	}
	l.must("cove", "exec", "web", "-d", "--", "/usr/bin/python3", "-m", "http.server", "4001", "--bind", "127.0.0.1")
	f := l.forward("web")
	if len(f.locals) != 2 || f.locals[0] == "localhost:4000" {
		t.Fatalf("%v", f.locals)
	}
	l.eventually("an answer", func() bool {
		answer, err := http.Get("http://" + f.locals[1] + "/a.txt")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return string(body) == "one\n"
	})
	f.cmd.Process.Signal(os.Interrupt)
	if err := f.cmd.Wait(); err != nil {
		t.Errorf("ctrl-c: %v: %s", err, f.errs)
	}
}
