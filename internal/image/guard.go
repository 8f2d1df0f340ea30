package image

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
)

// guard protects connections to a registry. It checks the dialled address, not names: a resolver may map the name of a
// registry, or of a redirect's target, to any address.
//
//   - Link-local addresses, the place of clouds' metadata, are never a registry's.
//   - A redirect or token service may not lead inside (loopback, private) when
//     the registry itself is outside.
//   - Plain HTTP goes to loopback only, unless the user allows it.
type guard struct {
	host     string // the registry named by the user
	insecure bool
	inside   atomic.Bool // the registry itself has a private address
	proxies  map[string]bool
	tls      *http.Transport // https
	plain    *http.Transport // http
}

// parallel bounds concurrent downloads of layers.
const parallel = 3

func newGuard(registry string, insecure bool) *guard {
	g := &guard{host: hostOf(registry), insecure: insecure, proxies: map[string]bool{}}
	for _, scheme := range []string{"https", "http"} {
		req, err := http.NewRequest(http.MethodGet, scheme+"://"+registry+"/", nil)
		if err != nil {
			continue
		}
		if u, err := http.ProxyFromEnvironment(req); err == nil && u != nil {
			g.proxies[u.Hostname()] = true
		}
	}
	g.tls, g.plain = g.transport(false), g.transport(true)
	return g
}

func (g *guard) transport(plain bool) *http.Transport {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: parallel + 1,
		IdleConnTimeout:     30 * time.Second,
		TLSHandshakeTimeout: 15 * time.Second, ResponseHeaderTimeout: time.Minute, MaxResponseHeaderBytes: 256 << 10,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			host := hostOf(addr)
			d := net.Dialer{Timeout: 15 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
				return g.check(host, address, plain)
			}}
			return d.DialContext(ctx, network, addr)
		},
	}
	if plain && !g.insecure {
		t.Proxy = nil // loopback is on this machine
	}
	return t
}

func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == "https" {
		return g.tls.RoundTrip(req)
	}
	return g.plain.RoundTrip(req)
}

func (g *guard) closeIdle() {
	g.tls.CloseIdleConnections()
	g.plain.CloseIdleConnections()
}

// check judges an address before it is dialled for a host.
func (g *guard) check(host, address string, plain bool) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	addr := reached(ap.Addr())
	if g.proxies[host] {
		return nil // the proxy judges
	}
	if never(addr) {
		return cove.Errorf(cove.Forbidden, "%s leads to %s, which is no registry's address", host, addr)
	}
	if plain && !g.insecure && !addr.IsLoopback() {
		return cove.Errorf(cove.Forbidden, "%s is asked for plain HTTP, which is for registries on this machine", host).
			WithHint("serve it with TLS, or say --insecure")
	}
	if host == g.host {
		if private(addr) {
			g.inside.Store(true)
		}
		return nil
	}
	if private(addr) && !g.inside.Load() {
		return cove.Errorf(cove.Forbidden, "the registry sends to %s, which leads inside (%s)", host, addr)
	}
	return nil
}

// reached returns the address that packets reach: for IPv4 inside IPv6 the IPv4 address.
func reached(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	b := a.As16()
	switch {
	case nat64.Contains(a):
		return netip.AddrFrom4([4]byte(b[12:16]))
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}

func never(a netip.Addr) bool {
	return !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() ||
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || a == awsMetadata6 || a == alibabaMetadata
}

var (
	awsMetadata6    = netip.MustParseAddr("fd00:ec2::254")
	alibabaMetadata = netip.MustParseAddr("100.100.100.200")
	nat64           = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour       = netip.MustParsePrefix("2002::/16")
	sharedSpace     = netip.MustParsePrefix("100.64.0.0/10") // carrier-grade NAT
)

func private(a netip.Addr) bool { return a.IsLoopback() || a.IsPrivate() || sharedSpace.Contains(a) }

// hostOf removes brackets and an optional port.
func hostOf(hostPort string) string {
	if host, _, err := net.SplitHostPort(hostPort); err == nil {
		return host
	}
	if len(hostPort) > 1 && hostPort[0] == '[' {
		return hostPort[1 : len(hostPort)-1]
	}
	return hostPort
}
