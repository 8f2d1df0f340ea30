package daemon

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/repos"
	"github.com/cove-sandbox/cove/internal/sandbox"
)

// outlet lets git on this machine out through the gateway, as a client like
// every sandbox: to one repository, with the credential that the gateway sets.
type outlet struct{ d *Daemon }

// Open implements repos.Outlet. Errors: InvalidArgument, Forbidden, Unavailable.
func (o outlet) Open(_ context.Context, who cove.Principal, address string, push bool) (repos.Way, error) {
	if strings.HasPrefix(address, "http://") { // on this machine's loopback, where only its owner gets
		return repos.Way{Close: func() error { return nil }}, nil
	}
	document, err := openTo(address, push)
	if err != nil {
		return repos.Way{}, err
	}
	spec := gateway.Spec{Name: "git", Owner: cove.MachineOwner(), Policy: []*policy.Document{document}, Remote: address}
	if !who.IsOwner() {
		spec.Remote = ""
		if err := document.Foreign(nil); err != nil {
			return repos.Way{}, err
		}
	}
	_, way, err := o.way(spec)
	return way, err
}

// askingOutlet is an outlet for a push that somebody has to allow first, as what
// a sandbox asks that its policy asks about.
type askingOutlet struct {
	outlet
	manager *sandbox.Manager
	of      cove.Principal // who pushes
	id      cove.SandboxID
	name    string // of the sandbox
	what    string // it is that is asked for
}

// Open implements repos.Outlet.
func (o askingOutlet) Open(_ context.Context, _ cove.Principal, address string, push bool) (repos.Way, error) {
	if !strings.HasPrefix(address, "https://") {
		return repos.Way{}, cove.Errorf(cove.Unsupported, "a push to %s does not go through the gateway, which asks", address).WithHint("say yes to it yourself")
	}
	document, err := openTo(address, push)
	if err != nil {
		return repos.Way{}, err
	}
	first := &document.Rules[0] // git begins by reading, once: that is where it waits
	first.Action, first.Note = policy.Ask, o.what
	opened, way, err := o.way(gateway.Spec{Name: o.name, Owner: cove.MachineOwner(), Policy: []*policy.Document{document}, Remote: address})
	if err != nil {
		return repos.Way{}, err
	}
	done, end := o.manager.Errand(o.of, o.id, o.name, opened), way.Close
	way.Close = func() error { done(); return end() }
	return way, nil
}

// way opens a way out for a program of this machine's: a proxy that takes only
// who knows its address.
func (o outlet) way(spec gateway.Spec) (*gateway.Way, repos.Way, error) {
	g, err := o.d.openGateway()
	if err != nil {
		return nil, repos.Way{}, err
	}
	spec.Sandbox = g.Next()
	way, err := g.Open(spec)
	if err != nil {
		return nil, repos.Way{}, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		way.Close()
		return nil, repos.Way{}, cove.Errorf(cove.Unavailable, "cannot listen for git: %w", err)
	}
	password := rand.Text()
	way.ServeProxy(newAdmission(ln, "git:"+password))
	return way, repos.Way{
		Proxy: "http://git:" + password + "@" + ln.Addr().String(),
		CA:    way.EnvAt("", way.Files())["GIT_SSL_CAINFO"],
		Close: func() error { way.Close(); return nil },
	}, nil
}

// openTo opens what git asks for to read a repository, and to push to it, the
// reading that it begins with first. Which
// branches those are is not judged here: it is the machine's own git.
func openTo(address string, push bool) (*policy.Document, error) {
	r, err := policy.ParseRemote(address)
	if err != nil {
		return nil, err
	}
	d := &policy.Document{Source: "repository", Mode: cove.NetworkLimited}
	services := []string{"/git-upload-pack"}
	if push {
		services = append(services, "/git-receive-pack")
	}
	for _, asks := range []struct {
		method string
		paths  []string
	}{{"GET", []string{"/info/refs"}}, {"POST", services}} {
		var paths []string
		for _, p := range asks.paths {
			paths = append(paths, r.Path+p, r.Path+".git"+p)
		}
		rule, err := policy.Exactly(d.Source, r.Host, r.Port, asks.method, paths...)
		if err != nil {
			return nil, err
		}
		d.Rules = append(d.Rules, rule)
	}
	return d, nil
}

const (
	maxAdmission     = 16 << 10 // bytes of a request's head
	admissionTimeout = 10 * time.Second
)

// admission is a proxy's listener that lets nobody in but who says a password
// first: everybody on this machine can connect to it.
type admission struct {
	net.Listener
	want     string // of Proxy-Authorization
	accepted chan net.Conn

	mu      sync.Mutex
	closed  chan struct{}
	err     error             // of Accept, once closed is
	waiting map[net.Conn]bool // connections that have not said it yet; nil once closed is
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

// Accept implements net.Listener.
func (a *admission) Accept() (net.Conn, error) {
	select {
	case c := <-a.accepted:
		return c, nil
	case <-a.closed:
		return nil, a.err
	}
}

// Close implements net.Listener.
func (a *admission) Close() error {
	a.end(net.ErrClosed)
	return a.Listener.Close()
}

// admit reads the head of a connection's first request, and passes the
// connection on if that says the password.
func (a *admission) admit(c net.Conn) {
	c.SetReadDeadline(time.Now().Add(admissionTimeout))
	head, err := readHead(c)
	if err == nil && !a.admits(head) {
		_, err = io.WriteString(c, "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"cove\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
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
	case a.accepted <- &begun{Conn: c, head: bytes.NewReader(head)}:
	case <-a.closed:
		c.Close()
	}
}

// readHead reads as far as the end of a head, and perhaps beyond.
func readHead(c net.Conn) (head []byte, err error) {
	buf := make([]byte, maxAdmission)
	n := 0
	for n < len(buf) {
		m, err := c.Read(buf[n:])
		n += m
		if bytes.Contains(buf[:n], []byte("\r\n\r\n")) {
			return buf[:n], nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, cove.Errorf(cove.TooLarge, "the head of a request has more than %d bytes", maxAdmission)
}

// admits reports whether a head says the password.
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

// begun is a connection of which something has been read.
type begun struct {
	net.Conn
	head *bytes.Reader
}

func (b *begun) Read(p []byte) (int, error) {
	if b.head.Len() > 0 {
		return b.head.Read(p)
	}
	return b.Conn.Read(p)
}

// CloseWrite lets the proxy end its side first.
func (b *begun) CloseWrite() error {
	if half, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
