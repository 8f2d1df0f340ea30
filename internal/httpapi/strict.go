package httpapi

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

// strictConn is a connection with HTTP/1. A request that two parsers could read as different ones ends it. A request
// that net/http refuses by itself is answered in the form of other errors.
type strictConn struct {
	*proxy.StrictConn
	secure *tls.Conn // nil without TLS
}

// secureConn is a strictConn over TLS, from which net/http takes Request.TLS.
type secureConn struct{ strictConn }

func (c secureConn) ConnectionState() tls.ConnectionState { return c.secure.ConnectionState() }

// bareHead is the rest of the head with which net/http refuses a request before any handler.
const bareHead = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

// inClear is why a server of HTTPS refuses a request.
const inClear = "this is a server of HTTPS, and the request came in clear"

// Write implements net.Conn.
func (c strictConn) Write(p []byte) (int, error) {
	line, said, bare := bytes.Cut(p, []byte(bareHead))
	if !bare || bytes.Contains(line, []byte("\r\n")) {
		return c.StrictConn.Write(p)
	}
	status, ok := strings.CutPrefix(string(line), "HTTP/1.1 ")
	if !ok || len(status) < 3 {
		return c.StrictConn.Write(p)
	}
	id := requestID(nil)
	code, hint := cove.InvalidArgument, "send a request as HTTP/1.1 defines it (RFC 9112)"
	_, text, _ := strings.Cut(string(said), ": ")
	switch text {
	case "":
		text = "the request is malformed"
	case inClear:
		hint = "write https:// in the address, and not http://"
	}
	reason, tooLong := c.Refused()
	if reason != nil {
		text = "the request is malformed: " + reason.Error()
	}
	const tooLarge = "431 Request Header Fields Too Large"
	if tooLong || status == tooLarge {
		status, code, text, hint = tooLarge, cove.TooLarge, "the headers are too large", "send fewer or shorter headers"
	}
	body, err := json.Marshal(api.Error{Error: text + " (" + hint + ")", Code: string(code), Hint: hint,
		RequestID: id})
	if err != nil {
		return 0, err
	}
	head := "HTTP/1.1 " + status + "\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " +
		strconv.Itoa(len(body)+1) + "\r\nX-Content-Type-Options: nosniff\r\nX-Request-Id: " + id + "\r\n\r\n"
	if _, err := c.StrictConn.Write(append(append([]byte(head), body...), '\n')); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Hijack implements http.Hijacker: what follows on the connection is no HTTP.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if strict, ok := c.(interface{ Release() }); err == nil && ok {
		strict.Release()
	}
	return c, buffered, err
}

// strictListener hands out connections as strict ones, except those with HTTP/2. With TLS it makes the handshakes.
type strictListener struct {
	net.Listener
	config  *tls.Config   // nil: no TLS
	timeout time.Duration // of a handshake

	ready  chan net.Conn
	failed chan error    // of Accept, once
	closed chan struct{} // by Close
	once   sync.Once
	begin  sync.Once
	active sync.WaitGroup
}

func newStrictListener(l net.Listener, config *tls.Config, timeout time.Duration) *strictListener {
	return &strictListener{Listener: l, config: config, timeout: timeout, ready: make(chan net.Conn),
		failed: make(chan error, 1), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *strictListener) Accept() (net.Conn, error) {
	if l.config == nil {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		return strictConn{proxy.Strict(c), nil}, nil
	}
	l.begin.Do(func() { l.active.Go(l.accept) })
	select {
	case c := <-l.ready:
		return c, nil
	case err := <-l.failed:
		return nil, err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// accept accepts connections until that fails. A handshake holds up no other.
func (l *strictListener) accept() {
	for {
		c, err := l.Listener.Accept()
		if temporary, ok := err.(interface{ Temporary() bool }); ok && temporary.Temporary() {
			select { // out of descriptors: wait until others are closed
			case <-time.After(50 * time.Millisecond): // either: Accept fails then
				continue
			case <-l.closed:
				return
			}
		}
		if err != nil {
			l.failed <- err
			return
		}
		l.active.Go(func() { l.shake(tls.Server(c, l.config)) })
	}
}

func (l *strictListener) shake(c *tls.Conn) {
	c.SetDeadline(time.Now().Add(l.timeout))
	stop := make(chan struct{})
	defer close(stop)
	l.active.Go(func() {
		select {
		case <-l.closed:
			c.NetConn().Close()
		case <-stop:
		}
	})
	if err := c.Handshake(); err != nil {
		refuseHandshake(c, err)
		return
	}
	c.SetDeadline(time.Time{})
	var ready net.Conn = c
	if c.ConnectionState().NegotiatedProtocol != "h2" {
		ready = secureConn{strictConn{proxy.Strict(c), c}}
	}
	select {
	case l.ready <- ready:
	case <-l.closed:
		c.NetConn().Close()
	}
}

// refuseHandshake ends a connection without TLS. HTTP is told so, as net/http does.
func refuseHandshake(c *tls.Conn, err error) {
	plain, ok := err.(tls.RecordHeaderError)
	if ok && plain.Conn != nil && 'A' <= plain.RecordHeader[0] && plain.RecordHeader[0] <= 'Z' { // no record of TLS
		strictConn{proxy.Strict(plain.Conn), nil}.Write([]byte("HTTP/1.1 400 Bad Request" + bareHead +
			"400: " + inClear))
	}
	c.NetConn().Close()
}

// Close implements net.Listener. It waits for handshakes.
func (l *strictListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	err := l.Listener.Close()
	l.active.Wait()
	return err
}
