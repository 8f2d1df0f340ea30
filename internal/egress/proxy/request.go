package proxy

import (
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// target is the target of a request, in the form that is judged and forwarded.
type target struct {
	policy.Request        // Layer is LayerHTTP
	scheme         string // of the connection to the origin
	query          string // as received
	hasQuery       bool
}

var (
	errForm       = errors.New("the target of the request is not a path")
	errNotProxied = errors.New("the target of the request is not http://host/path; for https use CONNECT")
	errTwoHosts   = errors.New("Host and :authority differ")
	errNotASCII   = errors.New("the host has letters that must be encoded")
	errOtherHost  = errors.New("the request is for another host than its connection")
	errOtherPort  = errors.New("the request is for another port than its connection")
	errMethod     = errors.New("methods are made of capital letters")
	errTarget     = errors.New("the target of the request has characters that must be encoded")
)

// misdirected is a well-formed request for another host than the connection's.
type misdirected struct{ error }

// read determines the target of r. It changes nothing; an ambiguous target is an error.
func (rt *route) read(r *http.Request) (target, error) {
	t := target{Request: policy.Request{Layer: policy.LayerHTTP, Method: r.Method}, scheme: "http"}
	if rt.tls {
		t.scheme = "https"
	}
	if r.Method == "" || len(r.Method) > maxMethod || strings.Trim(r.Method, methodLetters) != "" {
		return t, errMethod
	}
	if fields(r.Header) > maxHeadFields {
		return t, errTooMany
	}
	authority, rest, err := rt.split(r)
	if err != nil {
		return t, err
	}
	if strings.ContainsFunc(rest, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '#' }) {
		return t, errTarget
	}
	var path string
	path, t.query, t.hasQuery = strings.Cut(rest, "?")
	if t.Path, err = policy.CanonicalPath(path); err != nil {
		return t, err
	}
	return t, rt.readAuthority(&t, authority)
}

// fields counts header fields as framing does; HTTP/2 does not pass framing.
func fields(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

func (rt *route) split(r *http.Request) (authority, rest string, err error) {
	if rt.explicit {
		if strings.HasPrefix(r.RequestURI, "/") && r.Host == rt.self {
			return policy.GatewayService, r.RequestURI, nil // a request to the proxy itself
		}
		const scheme = "http://"
		if len(r.RequestURI) < len(scheme) || !strings.EqualFold(r.RequestURI[:len(scheme)], scheme) {
			return "", "", errNotProxied
		}
		rest = r.RequestURI[len(scheme):]
		end := strings.IndexAny(rest, "/?")
		if end < 0 {
			return rest, "", nil
		}
		return rest[:end], rest[end:], nil
	}
	if !strings.HasPrefix(r.RequestURI, "/") {
		return "", "", errForm
	}
	if hosts := r.Header["Host"]; r.ProtoMajor == 2 && (len(hosts) > 1 || len(hosts) == 1 && hosts[0] != r.Host) {
		return "", "", errTwoHosts
	}
	return r.Host, r.RequestURI, nil
}

// readAuthority checks that a request's host is that of its connection.
func (rt *route) readAuthority(t *target, authority string) (err error) {
	port := rt.port
	if rt.explicit {
		port = 80
	}
	if !isASCII([]byte(authority)) {
		return errNotASCII // the client must apply IDNA
	}
	if t.Host, t.Port, err = policy.ParseAuthority(authority, port); err != nil {
		return err
	}
	if rt.explicit {
		return nil
	}
	if !rt.host.IsZero() && t.Host != rt.host {
		return misdirected{errOtherHost}
	}
	if a, isAddr := t.Host.Addr(); isAddr && rt.addr != a {
		return misdirected{errOtherHost}
	}
	if t.Port != rt.port {
		return misdirected{errOtherPort}
	}
	return nil
}

func (t target) url() *url.URL {
	decoded, err := url.PathUnescape(t.Path)
	if err != nil { // cannot fail: canonical paths decode
		decoded = t.Path
	}
	return &url.URL{
		Scheme: t.scheme, Host: t.Host.Authority(t.Port),
		Opaque: t.Path, // the judged bytes, unchanged
		Path:   decoded, RawPath: t.Path, RawQuery: t.query, ForceQuery: t.hasQuery && t.query == "",
	}
}

// hostHeader returns the Host header for the origin, in its one form.
func (t target) hostHeader() string {
	if t.scheme == "https" && t.Port == 443 || t.scheme == "http" && t.Port == 80 {
		if a, ok := t.Host.Addr(); ok && a.Is6() {
			return "[" + a.String() + "]"
		}
		return t.Host.String()
	}
	return t.Host.Authority(t.Port)
}

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

// hopByHop are headers for the next hop, or for a proxy.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
	"Proxy-Authentication-Info", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings",
}

// elsewhere are headers that would lead a client to the origin around the gateway.
var elsewhere = []string{"Alt-Svc", "Alt-Used"}

// strip removes hop-by-hop headers, those named by Connection, and routes around the gateway.
func strip(h http.Header) {
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			h.Del(textproto.TrimString(name))
		}
	}
	maps.DeleteFunc(h, func(name string, _ []string) bool {
		return slices.Contains(hopByHop, name) || slices.Contains(elsewhere, name)
	})
}

func has(h http.Header, name, token string) bool {
	return httpguts.HeaderValuesContainsToken(h[name], token)
}

// trailerAllowed reports whether a field may be a trailer: fields that belong before the body may not.
func trailerAllowed(name string) bool {
	switch name {
	case "Host", "Authorization", "Cookie", "Set-Cookie", "Content-Length", "Content-Encoding", "Content-Type",
		"Content-Range", "Expect", "Cache-Control", "Max-Forwards", "Range", "Www-Authenticate", "Location":
		return false
	}
	return !slices.Contains(hopByHop, name) && !slices.Contains(elsewhere, name)
}
