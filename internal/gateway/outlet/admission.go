package outlet

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/subtle"
	"encoding/base64"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
)

const (
	maxAdmission     = 16 << 10 // bytes of a request's head
	admissionTimeout = 10 * time.Second
)

// admission is a listener for a proxy on loopback, to which every user of this machine can connect. It hands on only
// connections whose first request carries the password in Proxy-Authorization; it answers others with status 407.
type admission struct {
	net.Listener
	want     string // of Proxy-Authorization
	accepted chan net.Conn

	mu      sync.Mutex
	closed  chan struct{}
	err     error             // of Accept, after closed is closed
	waiting map[net.Conn]bool // connections without a password yet; nil after closed is closed
}

func newAdmission(ln net.Listener, login string) *admission {
	a := &admission{
		Listener: ln, want: "Basic " + base64.StdEncoding.EncodeToString([]byte(login)),
		accepted: make(chan net.Conn), closed: make(chan struct{}), waiting: map[net.Conn]bool{},
	}
	go a.accept()
	return a
}

func (a *admission) accept() {
	for {
		c, err := a.Listener.Accept()
		if err != nil {
			a.end(err)
			return
		}
		a.mu.Lock()
		if a.waiting == nil {
			a.mu.Unlock()
			c.Close()
			continue
		}
		a.waiting[c] = true
		a.mu.Unlock()
		go a.admit(c)
	}
}

func (a *admission) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		return
	}
	a.err = err
	close(a.closed)
	for c := range a.waiting {
		c.Close()
	}
	a.waiting = nil
}

func (a *admission) Accept() (net.Conn, error) {
	select {
	case c := <-a.accepted:
		return c, nil
	case <-a.closed:
		return nil, a.err
	}
}

func (a *admission) Close() error {
	a.end(net.ErrClosed)
	return a.Listener.Close()
}

// admit reads the head of a connection's first request, and hands on the connection if that carries the password.
func (a *admission) admit(c net.Conn) {
	c.SetReadDeadline(time.Now().Add(admissionTimeout))
	ahead := bufio.NewReaderSize(c, maxAdmission)
	head, err := readHead(ahead)
	if err == nil && !a.admits(head) {
		_, err = io.WriteString(c, "HTTP/1.1 407 Proxy Authentication Required\r\n"+
			"Proxy-Authenticate: Basic realm=\"cove\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		err = cmp.Or(err, net.ErrClosed)
	}
	a.mu.Lock()
	delete(a.waiting, c)
	a.mu.Unlock()
	if err != nil {
		c.Close()
		return
	}
	c.SetReadDeadline(time.Time{})
	select {
	case a.accepted <- &begun{c, ahead}:
	case <-a.closed:
		c.Close()
	}
}

// readHead returns the bytes to the end of a head, and perhaps beyond, to be read again.
func readHead(r *bufio.Reader) (head []byte, err error) {
	for r.Buffered() < maxAdmission {
		if _, err := r.Peek(r.Buffered() + 1); err != nil {
			return nil, err
		}
		if head, _ = r.Peek(r.Buffered()); bytes.Contains(head, []byte("\r\n\r\n")) {
			return head, nil
		}
	}
	return nil, cove.Errorf(cove.TooLarge, "the head of a request has more than %d bytes", maxAdmission)
}

func (a *admission) admits(head []byte) bool {
	text, _, _ := strings.Cut(string(head), "\r\n\r\n")
	for line := range strings.SplitSeq(text, "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		if strings.EqualFold(name, "Proxy-Authorization") {
			return subtle.ConstantTimeCompare([]byte(strings.TrimSpace(value)), []byte(a.want)) == 1
		}
	}
	return false
}

type begun struct {
	net.Conn
	ahead *bufio.Reader
}

func (b *begun) Read(p []byte) (int, error) { return b.ahead.Read(p) }

// CloseWrite lets the proxy end its side first.
func (b *begun) CloseWrite() error {
	if half, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
