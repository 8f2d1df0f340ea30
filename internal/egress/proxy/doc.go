// Package proxy is the data path of the gateway. It accepts the connections of one sandbox, determines their targets,
// asks policy, and carries allowed messages to the origin, written anew.
//
// # Entry points
//
// The listener alone identifies the sandbox; a client's own claims never do. On a transparent listener the firewall
// knows the original destination (SO_ORIGINAL_DST). On an explicit one the client states it: CONNECT, a request in
// absolute form, or SOCKS5.
//
// # One connection
//
//	entry → LayerConnect → peek → TLS: intercepted, unless passed through
//	                              HTTP: served as it is
//	                              other: refused, unless passed through
//	      → for each request: one host, LayerConnect and LayerHTTP → Prepare →
//	        dial with LayerDial → round trip → Response → answer
//
// Every layer must allow. Each request is judged separately, however many its connection has carried: its Host or
// :authority must equal the name in the TLS handshake, and that the name in CONNECT or SOCKS.
//
// The Dialer resolves the name that was judged, and so determines the origin. The address that a sandbox connected to,
// or gave instead of a name, only reflects the sandbox's own resolver. Where the protocol states a name (SNI, Host),
// only that name is judged and dialled: an /etc/hosts entry leads to the real origin, and two names on one address stay
// apart. Where the protocol states no name, Sandbox.Pinned is consulted. An address without any name needs a rule for
// the address.
//
// Encrypted ClientHello: where TLS is intercepted the gateway ends the outer handshake. A client that sent a real inner
// name therefore gives up, a client that only greases continues, and no inner name leaves. Where TLS is passed through,
// the inner name would decide but could not be judged: it is refused.
//
// # When policy is asked
//
//	layer         when                                        by
//	LayerDNS      a name is looked up                         egress/dns
//	LayerConnect  a connection's host is known (admit); again for a request
//	              whose connection was not admitted for its host
//	LayerHTTP     each request                                Server.judge
//	LayerDial     each address, before it is dialled          Server.dial
//	Early         LayerConnect and LayerDial, before any request
//	Rejudge       every flow in progress, after each change of policy
//
// # Before a request
//
// The first request to an origin would wait for two handshakes, one after the other. So when a connection has been
// allowed and is not passed through, the proxy makes its certificate and connects to its origin while the client makes
// its ClientHello, and both handshakes run in parallel (early). A connection that follows a DNS query of the sandbox
// uses the query's addresses (Sandbox.Found) without a second look-up; they are judged like any other.
//
// The proxy makes no early connection where a rule looks at methods or paths, asks, or makes an address depend on an
// approval (Sandbox.Early). An origin receives no byte before a ClientHello has named it, and nothing except a
// handshake before a request for it has been allowed.
//
// # Endpoints
//
// Requests to the gateway's own name (policy.GatewayService), and requests in origin form to the proxy itself, are for
// the gateway's endpoints. They are answered, or forwarded to an origin that Sandbox.Endpoint names. A forwarded
// request takes the same path as every request, through each layer's decision. It is judged as the gateway's
// (policy.Request.Endpoint), and shares no connection with the sandbox's own requests.
//
// # Forwarding
//
// The proxy copies no byte of a message head. HTTP/1 requests are read by net/http behind a reader that passes only
// unambiguous messages (framing); HTTP/2 requests by net/http. The outgoing request has the judged host, method and
// path, and no hop-by-hop header. CONNECT ends at the gateway; inside a tunnel it is refused. Upgrades are for
// WebSocket only, and only a 101 that answers one is accepted.
//
// The TLS certificates of origins are always verified. Connections to origins are never shared between sandboxes, nor
// between hosts of one sandbox.
//
// # Changes of policy
//
// To narrow a policy, the gateway first makes Sandbox.Decide answer by the new policy and then calls Server.Rejudge,
// which cuts everything no longer allowed: connections, requests in flight, WebSockets, and connections to origins.
package proxy
