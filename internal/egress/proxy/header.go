package proxy

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// hopByHop are headers for the next hop, or for a proxy.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
	"Proxy-Authentication-Info",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings",
}

// elsewhere are headers that would lead a client to the origin around the gateway.
var elsewhere = []string{"Alt-Svc", "Alt-Used"}

// strip removes headers that must not be forwarded: hop-by-hop headers, those named by Connection, and routes around
// the gateway.
func strip(h http.Header) {
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			h.Del(textproto.TrimString(name))
		}
	}
	for _, name := range hopByHop {
		delete(h, name)
	}
	for _, name := range elsewhere {
		delete(h, name)
	}
}

// has reports whether a comma-separated header contains a token.
func has(h http.Header, name, token string) bool {
	for _, v := range h[name] {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(textproto.TrimString(t), token) {
				return true
			}
		}
	}
	return false
}

// trailerAllowed reports whether a field may be a trailer: fields that belong before the body may not.
func trailerAllowed(name string) bool {
	switch name {
	case "Host", "Authorization", "Cookie", "Set-Cookie", "Content-Length", "Content-Encoding", "Content-Type",
		"Content-Range",
		"Expect", "Cache-Control", "Max-Forwards", "Range", "Www-Authenticate", "Location":
		return false
	}
	return !slices.Contains(hopByHop, name) && !slices.Contains(elsewhere, name)
}
