package sandboxes

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// keys writes the configuration of a server with API keys of some names, which are the keys as well, without a rate:
// the floods of tests are fast.
func (l *lab) keys(more string, names ...string) {
	text := "rate_limit: {per_second: 0}\n" + more
	if len(names) > 0 {
		text += "api_keys:\n"
	}
	for _, name := range names {
		text += fmt.Sprintf("  - {name: %s, hash: %x}\n", name, sha256.Sum256([]byte("cove_"+name)))
	}
	l.write("cove.yaml", text)
}

// callers are a flooding caller and a calm one, of a server with keys or without, whose configuration may say more.
func (l *lab) callers(kind, more string) (flooder, calm user) {
	if kind == "key" {
		l.keys(more, "flooder", "calm")
		base := l.serve("--config", l.in("cove.yaml"))
		flooder, calm = l.user(base, 0), l.user(base, 0)
		flooder.key, calm.key = "cove_flooder", "cove_calm"
		return flooder, calm
	}
	l.keys(more)
	base := l.serve("--config", l.in("cove.yaml"))
	return l.user(base, 4242), l.user(base, 4243)
}

// slowBody is a request's body that begins, and does not end until it is closed.
type slowBody struct {
	begins io.Reader
	ended  chan struct{}
}

func (b slowBody) Read(p []byte) (int, error) {
	if n, err := b.begins.Read(p); err == nil {
		return n, nil
	}
	<-b.ended
	return 0, io.ErrUnexpectedEOF
}

// flood has so many requests in progress until the test ends, or as many of them as are let in, and returns how many
// are refused.
func (u user) flood(n int, method, path string, body func(ended chan struct{}) io.Reader) (refused int) {
	u.t.Helper()
	ctx, cancel := context.WithCancel(u.t.Context())
	ended := make(chan struct{})
	var asking sync.WaitGroup
	u.t.Cleanup(func() { cancel(); close(ended); asking.Wait() })
	answers := make(chan int, n)
	for range n {
		r, err := http.NewRequestWithContext(ctx, method, u.base+path, body(ended))
		if err != nil {
			u.t.Fatal(err)
		}
		u.sign(r)
		asking.Go(func() {
			answer, err := u.client.Do(r)
			if err != nil {
				answers <- 0
				return
			}
			defer answer.Body.Close()
			answers <- answer.StatusCode
			io.Copy(io.Discard, answer.Body)
		})
	}
	for {
		select {
		case code := <-answers:
			if code == http.StatusServiceUnavailable {
				refused++
			}
		case <-time.After(3 * time.Second): // what has no answer by now is in progress
			return refused
		}
	}
}

// TestFloods: a key, or a user of the machine, with as many requests, streams or bodies in progress as the server lets
// in keeps neither the machine's owner nor another caller from anything.
func TestFloods(t *testing.T) {
	unfinished := func(size int) func(chan struct{}) io.Reader {
		return func(ended chan struct{}) io.Reader {
			return slowBody{strings.NewReader(`{"code":"` + strings.Repeat("x", size)), ended}
		}
	}
	for _, c := range []struct {
		name, method, path string
		n                  int
		body               func(ended chan struct{}) io.Reader
		refused            bool // the flooder is, when it asks for a further one
	}{
		{"streams", "GET", "/network/decisions/stream", 1100, func(chan struct{}) io.Reader { return nil }, true},
		{"requests", "POST", "/execute", 1100, unfinished(1), true},
		{"small bodies", "POST", "/execute", 8, unfinished(1), false},
		{"large bodies", "POST", "/execute", 8, unfinished(30 << 20), true},
	} {
		for _, kind := range []string{"key", "local user"} {
			t.Run(c.name+"/"+kind, func(t *testing.T) {
				l := newLab(t)
				flooder, calm := l.callers(kind, "")
				if refused := flooder.flood(c.n, c.method, c.path, c.body); refused > 0 != c.refused {
					t.Fatalf("%d requests of the flood were refused", refused)
				}
				began := time.Now()
				const snippet = `{"language":"bash","code":"echo $((6 * 7))"}`
				code, text := calm.ask(t.Context(), "POST", "/execute", snippet)
				if code != http.StatusOK || !strings.Contains(text, `"output":"42\n"`) {
					t.Errorf("another caller: %d %s", code, text)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if code, text := calm.ask(ctx, "GET", "/network/decisions/stream", ""); code != http.StatusOK {
					t.Errorf("a stream of another caller: %d %s", code, text)
				}
				for _, args := range [][]string{{"run", "bash", "-c", "echo $((6 * 7))"}, {"list"}, {"ps"},
					{"new", "--empty", "--no-attach", "--name", "calm"}} {
					if out, err := l.run(append([]string{"cove"}, args...)...); err != nil {
						t.Errorf("the owner's %v: %s %v", args, out, err)
					}
				}
				if took := time.Since(began); took > 25*time.Second {
					t.Errorf("it took %v: the flood may be over", took)
				}
			})
		}
	}
}

// elsewhere starts a server with keys in a network namespace of its own, and returns clients there that have addresses
// of their own.
func (l *lab) elsewhere(keys ...string) []user {
	l.t.Helper()
	const network = "198.51.100."
	l.keys("", keys...)
	script := "set -e; ip link set lo up; ip addr add " + network + "1/32 dev lo"
	for i := range keys {
		script += fmt.Sprintf("; ip addr add %s%d/32 dev lo", network, i+2)
	}
	base, pid := l.listen(l.command("unshare", "--net", "sh", "-c",
		script+"; exec "+filepath.Join(bin, "cove")+" serve --config "+l.in("cove.yaml")+" --listen "+network+"1:0"))
	var all []user
	for i, key := range keys {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("%s%d", network, i+2))}}
		u := l.dialer(base, func(ctx context.Context, network, address string) (c net.Conn, err error) {
			err = inNetworkOf(pid, func() error { c, err = from.DialContext(ctx, network, address); return err })
			return c, err
		})
		u.key = "cove_" + key
		all = append(all, u)
	}
	return all
}

// inNetworkOf calls f in the network namespace of a process.
func inNetworkOf(pid int, f func() error) error {
	runtime.LockOSThread()
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer here.Close()
	there, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	err = f()
	if back := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); back != nil {
		return back // the thread stays locked, and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// connect opens so many connections, which have an answer each and stay open until the test ends, and returns how many
// more were closed at once.
func (u user) connect(n int) (refused int) {
	u.t.Helper()
	var closed atomic.Int64
	var asking sync.WaitGroup
	for range n {
		c, err := u.dial(u.t.Context(), "tcp", strings.TrimPrefix(u.base, "http://"))
		if err != nil {
			u.t.Fatal(err)
		}
		u.t.Cleanup(func() { c.Close() })
		asking.Go(func() {
			io.WriteString(c, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
			if _, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 200"))); err != nil {
				closed.Add(1)
			}
		})
	}
	asking.Wait()
	return int(closed.Load())
}

// TestFloodsOfConnections: an address, or a user of the machine, that opens connections without end keeps neither the
// machine's owner nor another address or user out. As many as the users of a proxy need are open.
func TestFloodsOfConnections(t *testing.T) {
	for _, kind := range []string{"address", "local user"} {
		t.Run(kind, func(t *testing.T) {
			l := newLab(t)
			var flooder, calm user
			if kind == "address" {
				all := l.elsewhere("flooder", "calm")
				flooder, calm = all[0], all[1]
			} else {
				flooder, calm = l.callers(kind, "")
			}
			const many, few = 4500, 2000
			began := time.Now()
			if refused := flooder.connect(many); refused == 0 || refused > many-few {
				t.Fatalf("%d connections of %d were refused", refused, many)
			}
			code, text := calm.ask(t.Context(), "POST", "/execute", `{"language":"bash","code":"echo $((6 * 7))"}`)
			if code != http.StatusOK || !strings.Contains(text, `"output":"42\n"`) {
				t.Errorf("another caller: %d %s", code, text)
			}
			if refused := calm.connect(1000); refused > 0 {
				t.Errorf("%d connections of another caller were refused", refused)
			}
			l.must("cove", "run", "bash", "-c", "echo $((6 * 7))")
			if took := time.Since(began); took > 100*time.Second { // the server closes connections that are idle for longer
				t.Errorf("it took %v: the flood may be over", took)
			}
		})
	}
}
