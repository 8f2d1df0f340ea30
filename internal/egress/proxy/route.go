package proxy

import (
	"net/netip"
	"slices"
	"unicode/utf8"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// route holds the facts about a connection beside its bytes.
type route struct {
	entry    Entry
	explicit bool   // requests state their host: absolute form, CONNECT
	self     string // the proxy's own address, if explicit: requests in origin form are for its endpoints
	tls      bool   // intercepted

	host policy.Host // the connection's target; zero if each request states it
	addr netip.Addr  // the address that the sandbox connected to, if it gave one
	port uint16      // 0 if each request states it

	admitted bool // LayerConnect has allowed host and port
}

// protocol returns the protocol of the connection's requests.
func (rt *route) protocol() decision.Protocol {
	if rt.tls {
		return decision.ProtocolHTTPS
	}
	return decision.ProtocolHTTP
}

// bind sets the connection's target. An address may still turn out to belong to one of its names.
func (rt *route) bind(host policy.Host) {
	if a, ok := host.Addr(); ok {
		rt.addr = a
	} else {
		rt.host = host
	}
}

func isASCII(b []byte) bool {
	return !slices.ContainsFunc(b, func(c byte) bool { return c >= utf8.RuneSelf })
}
