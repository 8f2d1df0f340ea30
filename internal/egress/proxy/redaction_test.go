package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/redact"
	"github.com/cove-sandbox/cove/internal/secret"
)

// TestRedaction: the sandbox gets the answer as Response leaves it: bodies, headers and trailers, also after a switch
// to WebSocket.
func TestRedaction(t *testing.T) {
	const key = "sk-canary-0123456789abcdef"
	values, err := redact.New(secret.New(key))
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t)
	l.permit("allowed.lab")
	l.prepare = func(_ policy.Request, h *http.Request) error { redact.Request(h.Header); return nil }
	l.response = func(_ policy.Request, h *http.Response) error { return values.Response(h) }
	l.serve("allowed.lab", "203.0.113.1", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			w.Header().Set("X-Echo", key)
			w.Header().Set("Trailer", "X-Trailer")
			fmt.Fprint(w, "echo "+key)
			w.Header().Set("X-Trailer", key)
			return
		}
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		// The answer to the nonce of RFC 6455, section 1.3.
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: "+
			"Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
		frame := make([]byte, 6+4)
		if _, err := io.ReadFull(buffered, frame); err != nil {
			t.Errorf("nothing arrived: %v", err)
		}
		fmt.Fprintf(conn, "\x81%c%s", len(key), key)
	})

	res, body := get(t, l.client(), "https://allowed.lab/")
	if all := fmt.Sprint(body, res.Header, res.Trailer); strings.Contains(all, key) ||
		strings.Count(all, strings.Repeat("*", len(key))) != 3 {
		t.Errorf("the answer is %s", all)
	}

	w := dialWire(t, l.transparent("203.0.113.1:80"))
	w.send("GET / HTTP/1.1\r\nHost: allowed.lab\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: " +
		"13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	res, err = http.ReadResponse(w.r, &http.Request{Method: "GET"})
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("%v, %v", res, err)
	}
	w.send("\x81\x84\x00\x00\x00\x00ping")
	frame, err := io.ReadAll(w.r)
	if want := fmt.Sprintf("\x81%c%s", len(key), strings.Repeat("*", len(key))); !bytes.Equal(frame, []byte(want)) {
		t.Errorf("the frame is %q, %v", frame, err)
	}
}
