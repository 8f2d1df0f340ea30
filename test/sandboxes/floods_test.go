package sandboxes

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
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
