//go:build linux

package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// Internet is what one test has of the lab.
type Internet struct {
	authority *x509.Certificate
	key       *ecdsa.PrivateKey

	mu        sync.Mutex
	pages     map[string]http.HandlerFunc
	sites     map[string]http.Handler
	names     map[string][]netip.Addr
	leaves    map[string]*tls.Certificate
	questions []Question
	requests  []Request
	packets   []Packet
	marks     int
}

// Request is one that reached an origin.
type Request struct {
	At      netip.AddrPort // the origin's
	Secure  bool
	Name    string // in the TLS handshake
	Proto   string // "HTTP/1.1"
	Method  string
	Host    string
	Target  string // as it stood in the request
	Header  http.Header
	Trailer http.Header
	Body    string // the first 64 KiB
}

// String is "GET host/path", as far as a request has these.
func (r Request) String() string { return r.Method + " " + r.Host + r.Target }

// Open makes an internet for one test, which is over when the test is. There is one at a time.
func Open(t testing.TB) *Internet {
	t.Helper()
	if why := Missing(); why != "" {
		t.Skip(why)
	}
	i := open(t)
	i.watch(t)
	return i
}

// OpenBeside makes an internet that the test and its process are not in: machines are joined to it by Join, and packets
// are not recorded.
func OpenBeside(t testing.TB) *Internet {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	return open(t)
}

func open(t testing.TB) *Internet {
	t.Helper()
	if _, err := world(); err != nil {
		t.Fatal("the lab: ", err)
	}
	i := &Internet{pages: map[string]http.HandlerFunc{}, sites: map[string]http.Handler{},
		names: map[string][]netip.Addr{}, leaves: map[string]*tls.Certificate{}}
	i.certify(t)
	i.serveNames(t)
	i.serveWeb(t)
	return i
}

// certify makes the authority that vouches for every origin.
func (i *Internet) certify(t testing.TB) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the lab"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	i.key = key
	if i.authority, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
}

// Authority is who vouches for origins, as PEM.
func (i *Internet) Authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.authority.Raw})
}

// leaf is a certificate for whatever name a client asks for.
func (i *Internet) leaf(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if c := i.leaves[h.ServerName]; c != nil {
		return c, nil
	}
	template := &x509.Certificate{NotBefore: i.authority.NotBefore, NotAfter: i.authority.NotAfter,
		DNSNames: []string{h.ServerName}}
	if h.ServerName == "" {
		template.DNSNames = nil
		if a, ok := h.Conn.LocalAddr().(*net.TCPAddr); ok {
			template.IPAddresses = []net.IP{a.IP}
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, i.authority, i.key.Public(), i.key)
	if err != nil {
		return nil, err
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: i.key}
	if h.ServerName != "" {
		i.leaves[h.ServerName] = c
	}
	return c, nil
}

// Page says what every origin answers for a path, once the request has been remembered.
func (i *Internet) Page(path string, h http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pages[path] = h
}

// Site serves all of a host, which may be outside .lab. Of its requests
// everything is remembered but the body, which is for h to read.
func (i *Internet) Site(host string, h http.Handler) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.sites[host] = h
	i.names[host] = []netip.Addr{Web4, Web6}
}

// KeyPair is a certificate for a name and its key, as PEM, for origins that are programs.
func (i *Internet) KeyPair(name string) (certificate, key []byte, err error) {
	leaf, err := i.leaf(&tls.ClientHelloInfo{ServerName: name})
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// serveWeb is every origin, on ports 80 (HTTP), 443 and 8443 (TLS or HTTP).
func (i *Internet) serveWeb(t testing.TB) {
	t.Helper()
	config := &tls.Config{GetCertificate: i.leaf, NextProtos: []string{"h2", "http/1.1"}}
	for _, a := range append([]netip.Addr{Web4, Web6, Evil4, Evil6, Private, ByAddress4, ByAddress6}, Others...) {
		for _, port := range []uint16{80, 443, 8443} {
			at := netip.AddrPortFrom(a, port)
			l, err := Listen(at)
			if err != nil {
				t.Fatal(err)
			}
			s := &http.Server{Handler: i.handler(at), ErrorLog: log.New(io.Discard, "", 0), TLSConfig: config.Clone()}
			if port != 80 {
				l = &either{Listener: l, config: config}
			}
			go s.Serve(l)
			t.Cleanup(func() { s.Close() })
		}
	}
}

// either takes HTTP with TLS and without on one port: what a client is denied in one form it may not get in the other.
type either struct {
	net.Listener
	config *tls.Config
}

func (e *either) Accept() (net.Conn, error) {
	c, err := e.Listener.Accept()
	if err != nil {
		return nil, err
	}
	first := make([]byte, 1)
	c.SetReadDeadline(time.Now().Add(time.Minute))
	n, _ := c.Read(first)
	c.SetReadDeadline(time.Time{})
	begun := &begunConn{Conn: c, first: first[:n]}
	if n == 1 && first[0] == 22 {
		return tls.Server(begun, e.config), nil
	}
	return begun, nil
}

// begunConn is a connection whose first byte has been read.
type begunConn struct {
	net.Conn
	first []byte
}

func (b *begunConn) Read(p []byte) (int, error) {
	if len(b.first) > 0 {
		n := copy(p, b.first)
		b.first = b.first[n:]
		return n, nil
	}
	return b.Conn.Read(p)
}

const maxBody = 64 << 10

func (i *Internet) handler(at netip.AddrPort) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		page, site := i.pages[r.URL.Path], i.sites[r.Host]
		i.mu.Unlock()
		seen := Request{At: at, Secure: r.TLS != nil, Proto: r.Proto, Method: r.Method, Host: r.Host, Target: r.RequestURI,
			Header: r.Header.Clone()}
		if r.TLS != nil {
			seen.Name = r.TLS.ServerName
		}
		if site == nil && r.Header.Get("Upgrade") == "" {
			body, _ := io.ReadAll(io.LimitReader(r.Body, maxBody)) // what there is of it
			seen.Body, seen.Trailer = string(body), r.Trailer
		}
		i.mu.Lock()
		i.requests = append(i.requests, seen)
		i.mu.Unlock()
		if site != nil {
			site.ServeHTTP(w, r)
			return
		}
		if page != nil {
			page(w, r)
			return
		}
		fmt.Fprintf(w, "%s over %s\n", seen, map[bool]string{true: "https", false: "http"}[seen.Secure])
	})
}

// Requests are those that have come since Forget.
func (i *Internet) Requests() []Request {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.requests)
}

// Forget empties what has been asked for, requested and seen.
func (i *Internet) Forget() {
	i.settle()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.questions, i.requests, i.packets = nil, nil, nil
}
