//go:build linux

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/miekg/dns"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

const (
	domain   = "bench.test"
	bodySize = 1 << 10 // bytes of an answer
)

// origin is where the origin is.
type origin struct {
	Address string // 127.0.0.1:port, TLS
	Names   string // of a DNS server for which every name of the domain is here
}

func (o origin) port() uint16 { return netip.MustParseAddrPort(o.Address).Port() }

// pair names the files of a certificate, and of the authority that vouches for it.
type pair struct{ Authority, Certificate, Key string }

// newPair makes them, for the domain and for this machine, as programs on it and in sandboxes call it.
func newPair(dir string) (p pair, err error) {
	p = pair{filepath.Join(dir, "authority.pem"), filepath.Join(dir, "origin.pem"), filepath.Join(dir, "origin.key")}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return p, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return p, err
	}
	from, until := time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of the benchmark"}, NotBefore: from,
		NotAfter: until,
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{"*." + domain, "localhost", policy.HostService}, NotBefore: from,
		NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, made := range []struct {
		template *x509.Certificate
		file     string
		key      *ecdsa.PrivateKey
	}{{root, p.Authority, signer}, {leaf, p.Certificate, key}} {
		der, err := x509.CreateCertificate(rand.Reader, made.template, root, made.key.Public(), signer)
		if err == nil {
			err = os.WriteFile(made.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
		}
		if err != nil {
			return p, err
		}
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return p, err
	}
	return p, os.WriteFile(p.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600)
}

// listenTLS offers both versions of HTTP.
func (p pair) listenTLS() (net.Listener, error) {
	certificate, err := tls.LoadX509KeyPair(p.Certificate, p.Key)
	if err != nil {
		return nil, err
	}
	return tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate},
		NextProtos: []string{"h2", "http/1.1"}})
}

var quiet = log.New(io.Discard, "", 0)

// originRole is a TLS origin, and the DNS server that leads to it.
func originRole(setup []byte, out *json.Encoder) error {
	var p pair
	if err := json.Unmarshal(setup, &p); err != nil {
		return err
	}
	ln, err := p.listenTLS()
	if err != nil {
		return err
	}
	body := []byte(strings.Repeat("x", bodySize))
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { w.Write(body) })
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: 1\n\n")
		http.NewResponseController(w).Flush()
		select { // the second is late: whoever waits for the end shows it
		case <-r.Context().Done():
		case <-time.After(secondEvent):
			io.WriteString(w, "data: 2\n\n")
		}
	})
	mux.HandleFunc("/websocket", echo)
	go (&http.Server{Handler: mux, ErrorLog: quiet}).Serve(ln)

	names, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go (&dns.Server{PacketConn: names, Handler: dns.HandlerFunc(here)}).ActivateAndServe()
	if err := out.Encode(origin{ln.Addr().String(), names.LocalAddr().String()}); err != nil {
		return err
	}
	untilInputEnds()
	return nil
}

const secondEvent = 20 * time.Millisecond

func echo(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer c.CloseNow()
	for {
		kind, message, err := c.Read(r.Context())
		if err != nil || c.Write(r.Context(), kind, message) != nil {
			return
		}
	}
}

// here answers that a name is on this machine.
func here(w dns.ResponseWriter, q *dns.Msg) {
	a := new(dns.Msg).SetReply(q)
	if q.Question[0].Qtype == dns.TypeA {
		a.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET},
			A: net.IPv4(127, 0, 0, 1)}}
	}
	w.WriteMsg(a)
}

// reverseSetup is where a reverse proxy leads.
type reverseSetup struct {
	Pair   pair
	Origin string
}

// reverseRole is a plain reverse proxy of the standard library, with TLS on both sides and one certificate.
func reverseRole(setup []byte, out *json.Encoder) error {
	var s reverseSetup
	if err := json.Unmarshal(setup, &s); err != nil {
		return err
	}
	ln, err := s.Pair.listenTLS()
	if err != nil {
		return err
	}
	var dialer net.Dialer
	transport := &http.Transport{ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, s.Origin)
		}}
	proxy := &httputil.ReverseProxy{Transport: transport, ErrorLog: quiet, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "https", r.In.Host, r.In.Host
	}}
	go (&http.Server{Handler: proxy, ErrorLog: quiet}).Serve(ln)
	if err := out.Encode(ln.Addr().String()); err != nil {
		return err
	}
	untilInputEnds()
	return nil
}
