//go:build linux

// Package egress tests the ways out of real sandboxes, with real clients
// inside, against an internet of its own: a network namespace in which public
// addresses are this machine's.
package egress

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// inLab is set in the process that runs in the lab's network namespace.
const inLab = "COVE_TEST_EGRESS_LAB"

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 || os.Getenv(inLab) != "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inLab+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

// The lab's addresses: documentation and private ones would be refused.
var (
	web4      = netip.MustParseAddr("93.184.216.34")
	web6      = netip.MustParseAddr("2606:2800:220:1::34")
	resolver  = netip.MustParseAddr("9.9.9.9")
	private   = netip.MustParseAddr("10.9.9.9")
	addresses = []string{"93.184.216.34/32", "2606:2800:220:1::34/128", "9.9.9.9/32", "10.9.9.9/32"}
)

// lab is the internet, and where Cove keeps its state.
type lab struct {
	dir  string
	bin  string
	mu   sync.Mutex
	asks []string // names that reached the resolver
	seen []string // requests that reached an origin: method, host, path
	keys []string // credentials that did
}

// key is the canary: it must be nowhere but on requests to key.lab.test.
const key = "canary-7d1f4e5a90b2c3d4e5f60718293a4b5c"

const credentials = `
credentials:
  - name: lab
    source: env:LAB_KEY
    variables: LAB_TOKEN
    shape: lab_{32}
    to:
      - form: bearer
        hosts: key.lab.test
        ports: 443
        methods: GET
        paths: /**
`

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Getenv(inLab) == "" {
		t.Skip("needs root: a network namespace of its own, and sandboxes")
	}
	dir, err := os.MkdirTemp("", "cove-egress-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l := &lab{dir: dir}
	l.build(t)
	once.Do(func() { setUp(t) })
	l.serveNames(t)
	l.serveWeb(t)
	return l
}

var once sync.Once

// setUp gives this namespace the lab's addresses, and makes another one, which
// has no address of them, for Cove to run in.
func setUp(t *testing.T) {
	t.Helper()
	holder := exec.Command("sleep", "infinity")
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // until the end: the holder ends with the thread that started it
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	host = holder.Process.Pid
	ns, err := netns.GetFromPid(host)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	there, err := netlink.NewHandleAt(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	here, err := netlink.NewHandle()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	cable := netlink.NewLinkAttrs()
	cable.Name = "lab"
	if err := here.LinkAdd(&netlink.Veth{LinkAttrs: cable, PeerName: "uplink", PeerNamespace: netlink.NsPid(host)}); err != nil {
		t.Fatal(err)
	}
	for _, l := range []struct {
		handle    *netlink.Handle
		link      string
		addresses []string
	}{
		{here, "lo", addresses},
		{here, "lab", []string{"172.30.0.1/30", "fd1a:b::1/64"}},
		{there, "lo", nil},
		{there, "uplink", []string{"172.30.0.2/30", "fd1a:b::2/64"}},
	} {
		link, err := l.handle.LinkByName(l.link)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.handle.LinkSetUp(link); err != nil {
			t.Fatal(err)
		}
		for _, a := range l.addresses {
			address, err := netlink.ParseAddr(a)
			if err != nil {
				t.Fatal(err)
			}
			address.Flags = unix.IFA_F_NODAD
			if err := l.handle.AddrAdd(link, address); err != nil {
				t.Fatalf("%s on %s: %v", a, l.link, err)
			}
		}
	}
	for _, via := range []string{"172.30.0.1", "fd1a:b::1"} {
		if err := there.RouteAdd(&netlink.Route{Gw: net.ParseIP(via)}); err != nil {
			t.Fatalf("route by %s: %v", via, err)
		}
	}
}

// host is a process in the network namespace that Cove runs in.
var host int

// build finds the programs of this run, or builds them.
func (l *lab) build(t *testing.T) {
	t.Helper()
	if l.bin = os.Getenv("COVE_TEST_BIN"); l.bin != "" {
		return
	}
	l.bin = filepath.Join(l.dir, "bin")
	cmd := exec.Command("go", "build", "-trimpath", "-o", l.bin+"/", "github.com/cove-sandbox/cove/cmd/cove", "github.com/cove-sandbox/cove/cmd/cove-guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// serveNames is the resolver that the gateway uses.
func (l *lab) serveNames(t *testing.T) {
	pc, err := net.ListenPacket("udp", netip.AddrPortFrom(resolver, 53).String())
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg)
		a.SetReply(q)
		name := strings.ToLower(q.Question[0].Name)
		l.mu.Lock()
		l.asks = append(l.asks, name)
		times := len(slices.DeleteFunc(slices.Clone(l.asks), func(s string) bool { return s != name }))
		l.mu.Unlock()
		var found []netip.Addr
		switch {
		case name == "private.lab.test.":
			found = []netip.Addr{private}
		case name == "mixed.lab.test.":
			found = []netip.Addr{web4, private}
		case name == "rebound.lab.test.": // A and AAAA once each, then inside
			found = []netip.Addr{web4, web6}
			if times > 2 {
				found = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}
			}
		case name == "missing.lab.test.":
			a.Rcode = dns.RcodeNameError
		case strings.HasSuffix(name, ".lab.test."):
			found = []netip.Addr{web4, web6}
		}
		for _, address := range found {
			h := dns.RR_Header{Name: q.Question[0].Name, Class: dns.ClassINET}
			switch {
			case address.Is4() && q.Question[0].Qtype == dns.TypeA:
				h.Rrtype = dns.TypeA
				a.Answer = append(a.Answer, &dns.A{Hdr: h, A: address.AsSlice()})
			case address.Is6() && q.Question[0].Qtype == dns.TypeAAAA:
				h.Rrtype = dns.TypeAAAA
				a.Answer = append(a.Answer, &dns.AAAA{Hdr: h, AAAA: address.AsSlice()})
			}
		}
		w.WriteMsg(a)
	})}
	done := make(chan struct{})
	go func() { defer close(done); s.ActivateAndServe() }()
	t.Cleanup(func() { pc.Close(); <-done })
}

// serveWeb is every origin: what it is asked for is seen, and told.
func (l *lab) serveWeb(t *testing.T) {
	certificate := l.certificate(t)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		l.seen = append(l.seen, r.Method+" "+r.Host+r.URL.Path)
		l.keys = append(l.keys, r.Header.Values("Authorization")...)
		l.mu.Unlock()
		if r.URL.Path == "/mirror" {
			w.Header().Set("X-Seen", r.Header.Get("Authorization"))
			fmt.Fprintf(w, "you sent %q\n", r.Header["Authorization"])
			return
		}
		if r.URL.Path == "/slow" {
			w.WriteHeader(http.StatusOK)
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		fmt.Fprintf(w, "%s %s%s over %s\n", r.Method, r.Host, r.URL.Path, map[bool]string{true: "https", false: "http"}[r.TLS != nil])
	})
	for _, a := range []netip.Addr{web4, web6, private} {
		for _, port := range []uint16{80, 443} {
			ln, err := net.Listen("tcp", netip.AddrPortFrom(a, port).String())
			if err != nil {
				t.Fatal(err)
			}
			s := &http.Server{Handler: handler, ErrorLog: log.New(new(bytes.Buffer), "", 0)}
			if port == 443 {
				s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}}
				go s.ServeTLS(ln, "", "")
			} else {
				go s.Serve(ln)
			}
			t.Cleanup(func() { s.Close() })
		}
	}
}

// certificate is for every name of the lab, by an authority that the gateway
// is told of.
func (l *lab) certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the lab"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), DNSNames: []string{"*.lab.test"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.dir, "lab.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// forget empties what has been asked and seen.
func (l *lab) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asks, l.seen, l.keys = nil, nil, nil
}

func (l *lab) asked() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(l.asks)))
}

func (l *lab) requests() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.seen)
}

// result is how a command ended.
type result struct {
	stdout, stderr string
	code           int
}

// cove runs a command of Cove's.
func (l *lab) cove(t *testing.T, args ...string) result {
	t.Helper()
	config := filepath.Join(l.dir, "cove.yaml")
	text := fmt.Sprintf("gateway:\n  resolver: %s\n  extra_cas: [%s]\n  credentials: %s\n",
		netip.AddrPortFrom(resolver, 53), filepath.Join(l.dir, "lab.pem"), filepath.Join(l.dir, "credentials.yaml"))
	if err := os.WriteFile(filepath.Join(l.dir, "credentials.yaml"), []byte(credentials), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{fmt.Sprintf("--net=/proc/%d/ns/net", host), filepath.Join(l.bin, "cove")}, args...)...)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + l.dir, "NO_COLOR=1",
		"COVE_CONFIG=" + config, "COVE_HOME=" + filepath.Join(l.dir, "home"), "COVE_RUN_DIR=" + filepath.Join(l.dir, "run"),
		"LAB_KEY=" + key, "COVE_LISTEN=", "COVE_SANDBOX_CGROUP_PARENT=cove-egress-test", "COVE_SANDBOX_READY=0"}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// waiting is false, and the test has failed, once a command has ended.
func (l *lab) waiting(t *testing.T, done <-chan result) bool {
	t.Helper()
	select {
	case got := <-done:
		t.Errorf("it has ended already: %+v", got)
		return false
	case <-time.After(20 * time.Millisecond):
		return true
	}
}

// inside runs a shell script in a sandbox with a network.
func (l *lab) inside(t *testing.T, script string, flags ...string) result {
	t.Helper()
	return l.cove(t, append([]string{"run", "bash", "-c", script, "--timeout", "60s", "--pids", "200", "--memory", "1G"}, flags...)...)
}
