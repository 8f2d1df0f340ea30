package httpapi

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// TestStrictRequests: a request that parsers could read in two ways, or that has no valid path, is answered as an Error
// and ends its connection, with TLS, without, and on the owner's socket; what follows it is not served.
func TestStrictRequests(t *testing.T) {
	const follows = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
	plain := start(t, nil)
	for name, h := range map[string]*harness{"plain": plain, "TLS": overTLS(t, nil), "socket": plain} {
		for what, request := range map[string]string{
			"two lengths": "POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
				"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			"a folded line":    "GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
			"a bare LF":        "GET /health HTTP/1.1\r\nHost: localhost\nX: a\r\n\r\n",
			"CONNECT":          "CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
			"a broken path":    "GET /sandboxes/%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
			"a path cut short": "GET /sandboxes/%4 HTTP/1.1\r\nHost: localhost\r\n\r\n",
			"a large head":     "GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n\r\n",
		} {
			network, address := "tcp", h.address
			if name == "socket" {
				network, address = "unix", h.socket
			}
			c, err := net.Dial(network, address)
			if err != nil {
				t.Fatal(err)
			}
			if name == "TLS" {
				c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
			}
			c.SetDeadline(time.Now().Add(10 * time.Second))
			io.WriteString(c, request+follows)
			reader := bufio.NewReader(c)
			res, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Errorf("%s, %s: %v", name, what, err)
				c.Close()
				continue
			}
			body, _ := io.ReadAll(res.Body)
			e := reply{res, string(body)}.error(t)
			if what == "a bare LF" && !strings.Contains(e.Error, "a line does not end in CRLF") {
				t.Errorf("%s, %s: %s", name, what, body)
			}
			if res.StatusCode/100 != 4 || res.Header.Get("Content-Type") != "application/json" || e.Hint == "" {
				t.Errorf("%s, %s: %s %v %s", name, what, res.Status, res.Header, body)
			}
			if rest, _ := io.ReadAll(reader); len(rest) > 0 {
				t.Errorf("%s, %s: then %.100q", name, what, rest)
			}
			c.Close()
		}
	}
}

// TestStrictUpgrade: after an upgrade the bytes of a WebSocket pass, which are no requests, with TLS and without.
func TestStrictUpgrade(t *testing.T) {
	made := httptest.NewUnstartedServer(nil) // for its certificate
	made.StartTLS()
	defer made.Close()
	for scheme, config := range map[string]*tls.Config{"http": nil,
		"https": {Certificates: made.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if (r.TLS != nil) != (config != nil) {
				t.Errorf("%s: TLS is %v", scheme, r.TLS)
			}
			conn, err := websocket.Accept(&response{ResponseWriter: w, timeout: time.Minute}, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.CloseNow()
			for {
				kind, p, err := conn.Read(r.Context())
				if err != nil || conn.Write(r.Context(), kind, p) != nil {
					return
				}
			}
		})}
		var serving sync.WaitGroup
		serving.Go(func() { server.Serve(newStrictListener(l, config, time.Minute)) })
		client := made.Client()
		conn, _, err := websocket.Dial(t.Context(), scheme+"://"+l.Addr().String(),
			&websocket.DialOptions{HTTPClient: client})
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"one", "two\r\n\r\n", strings.Repeat("x", 30_000)} {
			if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
				t.Fatal(err)
			}
			if _, p, err := conn.Read(t.Context()); err != nil || string(p) != text {
				t.Errorf("%s: %.20q, %v", scheme, p, err)
			}
		}
		conn.CloseNow()
		client.CloseIdleConnections()
		server.Close()
		serving.Wait()
	}
}
