// Package proxy is the data path of the gateway: it takes the connections of
// one sandbox, finds out what each is for, asks policy, and carries what is
// allowed to the origin as messages it has written anew.
//
// # Entry points
//
// A listener tells whose connection it is; nothing that a client sends does.
// On a transparent listener the firewall says where a connection wanted to go
// (SO_ORIGINAL_DST). On an explicit one the client says it: CONNECT, a request
// in absolute form, or SOCKS5.
//
// # One connection
//
//	entry → LayerConnect → peek → TLS: intercepted, unless passed through
//	                              HTTP: served as it is
//	                              other: refused, unless passed through
//	      → for each request: one host, LayerConnect and LayerHTTP → Prepare →
//	        dial with LayerDial → round trip → Response → answer
//
// Every layer has to allow it. A request is judged by itself, however many its
// connection has carried: its Host or :authority has to be the name in the
// TLS handshake, and that the name in CONNECT or SOCKS.
//
// Whom a connection reaches follows from the name that was judged, which the
// Dialer resolves. The address that a sandbox connected to, or gave instead of
// a name, is a fact about the sandbox's own resolver: where the protocol says
// a name (SNI, Host), that name alone is judged and dialled, so an /etc/hosts
// entry leads to the real origin, and two names on one address do not disturb
// each other. Sandbox.Pinned is asked where the protocol says no name. An
// address without any name needs a rule for the address.
//
// Encrypted ClientHello: where TLS is intercepted the gateway ends the outer
// handshake, so a client that sent a real inner name gives up, one that only
// greases goes on, and no inner name leaves. Where TLS is passed through the
// inner name would decide and nobody could judge it: refused.
//
// # Before a request
//
// The first request to an origin would wait for two handshakes, one after the
// other. So when a connection has been allowed and is not passed through, its
// certificate is made and its origin connected to while the client makes its
// ClientHello, and the origin's handshake goes on beside the client's (early). It
// is not looked up once more for a connection to where the sandbox's question for
// its name has just led (Sandbox.Found): the addresses that were found are judged
// and dialled.
// Nothing is connected to where a rule looks at methods or paths, asks, or
// leaves an address to somebody's word (Sandbox.Early); nothing is said to an
// origin before a ClientHello has named it; and nothing but a handshake before a
// request for it has been allowed.
//
// # Endpoints
//
// Requests to the gateway's own name (policy.GatewayService), and those that the
// proxy itself is asked in origin form, are for its endpoints: answered, or
// sent on to an origin that Sandbox.Endpoint names. What is sent on takes the
// same way as every request, from the judgement of each layer on; it is judged
// as the gateway's (policy.Request.Endpoint), and shares no connection with what
// the sandbox asks for itself.
//
// # What is sent on
//
// No byte of a message is copied from one side to the other. HTTP/1 requests
// are read by net/http behind a reader that passes only what can be read in one
// way (framing); HTTP/2 by net/http. The request that leaves has the judged
// host, method and path, and no header that was meant for the next hop. The
// method CONNECT ends at the gateway; inside a tunnel it is refused. Upgrades
// are for WebSocket only, and only a 101 that answers one is believed.
//
// TLS of origins is verified, always. Connections to origins are never shared
// between sandboxes, nor between hosts of one.
//
// # Changes of policy
//
// Whoever narrows a policy makes Sandbox.Decide answer by the new one first and
// calls Server.Rejudge then, which cuts what is no longer allowed: connections,
// requests in flight, WebSockets, and connections to origins.
package proxy
