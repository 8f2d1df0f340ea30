package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// TestUnreadBodies: an answer before the end of a request's body reaches a client that sends all of its request first,
// and one that waits before it sends the rest. The connection takes another request after it, or it has said that it
// does not.
func TestUnreadBodies(t *testing.T) {
	l := newLab(t, func(o *Options) { o.Timeouts.Leaving = patience })
	l.permit("refused.lab", "nowhere.lab", "early.lab", "all.lab")
	l.prepare = func(r policy.Request, _ *http.Request) error {
		if r.Host.String() == "refused.lab" {
			return &Refusal{Code: cove.Forbidden, Reason: "a stage refuses it"}
		}
		return nil
	}
	l.rawOrigin("early.lab", "203.0.113.1", func(c net.Conn) {
		io.WriteString(c, "HTTP/1.1 409 Conflict\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		io.Copy(io.Discard, c)
	})
	l.serve("all.lab", "203.0.113.2", nil)
	ways := map[string]func(*testing.T, string) *wire{
		"plain": func(t *testing.T, _ string) *wire { return dialWire(t, l.explicit) },
		"TLS": func(t *testing.T, host string) *wire {
			return mustSecure(t, l.connect(t, host+":443"), l.trust(host))
		},
	}
	zeros := func(n int) string { return strings.Repeat("0", n) }
	declared := func(n int) body { return body{fmt.Sprintf("Content-Length: %d\r\n", n), zeros(n), n <= 256<<10} }
	bodies := map[string]body{
		"2 bytes": declared(2), "100 KiB": declared(100 << 10), "1 MiB": declared(1 << 20), "16 MiB": declared(16 << 20),
		"a chunk": {"Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n", false},
		"16 MiB, chunked": {"Transfer-Encoding: chunked\r\n",
			fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", 16<<20, zeros(16<<20)), false},
	}
	statuses := map[string]int{"blocked.lab": 403, "refused.lab": 403, "nowhere.lab": 502, "early.lab": 409,
		"all.lab": 200}
	for way, enter := range ways {
		for host, status := range statuses {
			if host == "early.lab" && way == "TLS" { // an origin without
				continue
			}
			for name, b := range bodies {
				head := "POST / HTTP/1.1\r\nHost: " + host + "\r\n"
				if way == "plain" {
					head = strings.Replace(head, "/", "http://"+host+"/", 1)
				}
				t.Run(strings.Join([]string{way, host, name}, " "), func(t *testing.T) {
					w := enter(t, host)
					if _, err := io.WriteString(w, head+b.head+"\r\n"+b.content); err != nil {
						t.Errorf("the request is cut off: %v", err)
					}
					more := b.small || host == "all.lab"
					if closes := testEnd(t, w, head, status); closes == more && host != "early.lab" { // which may have it all
						t.Errorf("the connection closes: %t", closes)
					}

					w = enter(t, host)
					if _, err := io.WriteString(w, head+"Connection: close\r\n"+b.head+"\r\n"+b.content); err != nil {
						t.Errorf("the last request is cut off: %v", err)
					}
					if !testEnd(t, w, head, status) {
						t.Error("the connection does not close")
					}
					if host == "all.lab" {
						return
					}
					w = enter(t, host)
					w.send(head + b.head + "\r\n" + b.content[:1])
					res, _ := w.response("POST")
					if res.StatusCode != status || res.Close == b.small {
						t.Errorf("before its body: %s, closed: %t", res.Status, res.Close)
					}
					if b.small {
						w.send(b.content[1:] + head + b.head + "\r\n" + b.content)
						testEnd(t, w, head, status)
					} else if got, err := io.ReadAll(w.r); len(got) > 0 || err != nil {
						t.Errorf("before its body, then: %q %v", got, err)
					}
				})
			}
		}
	}
}

type body struct {
	head, content string
	small         bool // read for the sake of a further request
}

// testEnd reads an answer, and has another on the same connection, or reports its end.
func testEnd(t *testing.T, w *wire, head string, status int) (closes bool) {
	t.Helper()
	res, _ := w.response("POST")
	if res.StatusCode != status {
		t.Errorf("it is answered with %s", res.Status)
	}
	if !res.Close {
		w.send(head + "Content-Length: 2\r\n\r\n{}")
		if res, _ := w.response("POST"); res.StatusCode != status {
			t.Errorf("the next is answered with %s", res.Status)
		}
	} else if got, err := io.ReadAll(w.r); len(got) > 0 || err != nil {
		t.Errorf("after the last answer: %q %v", got, err)
	}
	return res.Close
}
