package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
)

// door describes how a connection came in; it is a property of the listener, so no header can change it.
type door int

const (
	fromNetwork  door = iota // anywhere
	fromLoopback             // this machine: any user, and any web page in a browser
	fromOwner                // a socket that only the owner can open, or this process
)

// origin is a listener that knows its door.
type origin struct {
	net.Listener
	door door
}

type doorKey struct{}

func baseContext(ln net.Listener) context.Context {
	d := fromNetwork
	if o, ok := ln.(origin); ok {
		d = o.door
	}
	return context.WithValue(context.Background(), doorKey{}, d)
}

func doorOf(ctx context.Context) door {
	d, _ := ctx.Value(doorKey{}).(door) // absent: the strictest
	return d
}

func network(a net.Addr) door {
	if isLoopback(a) {
		return fromLoopback
	}
	return fromNetwork
}

func isLoopback(a net.Addr) bool {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// checkOrigin keeps web pages out: a browser on this machine reaches loopback too, by name (DNS rebinding, which the
// Host header shows) or across origins (which Origin and Sec-Fetch-Site show).
func (s *Server) checkOrigin(ex *exchange) error {
	if ex.door == fromOwner {
		return nil
	}
	r := ex.r
	if ex.door == fromLoopback && !s.hostAllowed(r.Host) {
		return cove.Errorf(cove.Forbidden, "the host name %.100q is not this server's", r.Host).
			WithHint("use localhost or 127.0.0.1, or add the name to allowed_hosts")
	}
	foreign := cove.Errorf(cove.Forbidden, "requests from web pages of other origins are refused").
		WithHint("call the API from a program, or from a page that this server delivers")
	if origins := r.Header.Values("Origin"); len(origins) > 0 {
		if len(origins) > 1 || !sameOrigin(origins[0], r) {
			return foreign
		}
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none":
		return nil
	default:
		if isNavigation(r) {
			return nil // a link to the documentation page reads nothing
		}
		return foreign
	}
}

func isNavigation(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
		r.Header.Get("Sec-Fetch-Dest") == "document"
}

// hostAllowed accepts the names of loopback, which no DNS answer can forge because the browser asks none for them.
func (s *Server) hostAllowed(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	return host == "localhost" || slices.ContainsFunc(s.AllowedHosts,
		func(h string) bool { return strings.EqualFold(h, host) })
}

func sameOrigin(o string, r *http.Request) bool {
	u, err := url.Parse(o)
	if err != nil || u.Host == "" || u.Path != "" {
		return false
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return u.Scheme == scheme && strings.EqualFold(u.Host, r.Host)
}
