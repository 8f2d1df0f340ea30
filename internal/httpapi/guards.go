package httpapi

import (
	"math"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/share"
)

// guard refuses a request by returning an error.
type guard func(*exchange) error

// guards stand before every route. Each may refuse a request.
type guards struct {
	*common
	first   *edge        // has the routes that one command is about to ask for; nil where all are made at once
	all     func() *edge // with every route, once
	access  access.Table
	keys    keyring
	rates   *limiter
	places  *share.Pool // requests in progress, without streams
	streams *share.Pool // in progress
	bodies  *share.Pool // bytes
}

// inOrder lists the guards in the order in which a request passes them.
func (s *guards) inOrder() []guard {
	return []guard{checkPeer, s.checkOrigin, s.identify, s.limitRate, s.authorize, s.takePlace, s.findRoute, s.limitBody}
}

// edgeOf returns the edge that has the route of a request, and the route's pattern, which is empty if there is none.
func (s *guards) edgeOf(r *http.Request) (*edge, string) {
	if s.first != nil {
		if _, pattern := s.first.mux.Handler(r); pattern != "" {
			return s.first, pattern
		}
	}
	_, pattern := s.all().mux.Handler(r)
	return s.all(), pattern
}

// checkOrigin keeps web pages out: a browser on this machine reaches loopback too, by name (DNS rebinding, which the
// Host header shows) or across origins (which Origin and Sec-Fetch-Site show).
func (s *guards) checkOrigin(ex *exchange) error {
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
func (s *guards) hostAllowed(hostport string) bool {
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

// identify finds out who asks.
func (s *guards) identify(ex *exchange) error {
	switch {
	case ex.door == fromOwner:
		ex.who, ex.known = cove.MachineOwner(), true
	case len(s.keys) == 0:
		// Only loopback is served without keys; see CheckListener. Its users are told apart, and none of them is the owner,
		// also where the server runs as that user: a browser and a forwarder of others' connections are such users, too.
		if uid, err := localUserOf(ex.r.Context()); err == nil {
			ex.who, ex.known, ex.scopes = cove.LocalUser(uid), true, access.Usual
		} else {
			s.Log.Debug("the local user of a connection is not known", "error", err)
			ex.unknown = access.NoUser()
		}
	default:
		if presented, ok := presentedKey(ex.r.Header); ok {
			if name, ok := s.keys.find(presented); ok {
				ex.who = cove.KeyHolder(name)
				g := s.Grants.Of(ex.who)
				if ex.scopes, ex.known = g.Scopes, !g.Expired(s.Clock.Now()); !ex.known {
					ex.unknown = access.Expired(name)
				}
			}
		}
	}
	return nil
}

// authorize refuses strangers (invariant A1), and callers whose key has no scope for the route. It comes after the
// rate, so that guessing is rated like everything else.
func (s *guards) authorize(ex *exchange) error { return s.access.Check(ex.caller(), ex.pattern) }

// limitRate refuses a caller that asks too often. The owner is not limited.
func (s *guards) limitRate(ex *exchange) error {
	if ex.who.IsOwner() {
		return nil
	}
	// A time made of the monotonic clock, so that no jump fills or empties a bucket.
	now := time.Unix(1, 0).Add(s.Clock.Since(s.base))
	ok, wait := s.rates.allow(ex.who.String(), now)
	if ok {
		return nil
	}
	return cove.Errorf(cove.Overloaded, "too many requests: more than %g a second",
		s.rates.of(ex.who.String()).PerSecond).
		WithRetry(time.Duration(max(1, math.Ceil(wait.Seconds()))) * time.Second)
}

// streams are the routes whose requests last as long as their caller likes. They are counted apart from others, so that
// a caller with many of them can still ask for something else.
var streams = map[string]bool{"GET /network/decisions/stream": true, "GET /executions/{id}/stream": true,
	"GET /runs/{run}/events": true, "GET /sandboxes/{sandbox}/terminal": true, "POST /sandboxes/{sandbox}/exec": true,
	"GET /sandboxes/{sandbox}/ports/{port}": true}

// takePlace bounds requests in progress, and each caller's share of them. Health and killing always have one.
func (s *guards) takePlace(ex *exchange) error {
	if ex.pattern == "GET /health" || ex.r.Method == http.MethodDelete {
		return nil
	}
	places, what := s.places, "requests"
	if streams[ex.pattern] {
		places, what = s.streams, "streams"
	}
	if who := ex.sharer(); places.Take(who, 1) {
		ex.release = append(ex.release, func() { places.Give(who, 1) })
		return nil
	}
	return beyondShare("as many %s are in progress as you may have beside those of others", what)
}

// canonicalPath refuses what the mux would answer with a redirect, which no
// client of an API follows and which shows what exists.
func canonicalPath(r *http.Request) bool {
	p := r.URL.EscapedPath()
	return strings.HasPrefix(p, "/") && !strings.Contains(p, "//") && !strings.Contains(p, "/./") &&
		!strings.Contains(p, "/../") &&
		!strings.HasSuffix(p, "/.") && !strings.HasSuffix(p, "/..")
}

// findRoute answers in the API's own form where the mux would in its.
func (s *guards) findRoute(ex *exchange) error {
	if ex.pattern != "" {
		return nil
	}
	if allowed := s.methodsOf(ex.r); len(allowed) > 0 {
		ex.w.Header().Set("Allow", strings.Join(allowed, ", "))
		return &statusError{http.StatusMethodNotAllowed,
			cove.Errorf(cove.InvalidArgument, "%.20q is not a method of this path", ex.r.Method).
				WithHint("use %s", strings.Join(allowed, " or "))}
	}
	return cove.Errorf(cove.NotFound, "there is no such path").WithHint("GET /openapi.json lists them")
}

func (s *guards) methodsOf(r *http.Request) []string {
	if !canonicalPath(r) {
		return nil
	}
	var allowed []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
		probe := *r
		probe.Method = m
		if _, pattern := s.all().mux.Handler(&probe); pattern != "" {
			allowed = append(allowed, m)
		}
	}
	return allowed
}

// limitBody bounds the size, the kind and the time of the request's body, and the memory that all bodies take together.
func (s *guards) limitBody(ex *exchange) error {
	r := ex.r
	if !jsonRoutes[ex.pattern] {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return problem(http.StatusUnsupportedMediaType, "", nil)
	}
	if r.Header.Get("Content-Encoding") != "" {
		return &statusError{http.StatusUnsupportedMediaType,
			cove.Errorf(cove.InvalidArgument, "encoded request bodies are not taken").WithHint("send the JSON as it is")}
	}
	if r.ContentLength > maxBody {
		return problem(http.StatusRequestEntityTooLarge, "", nil)
	}
	who := ex.sharer()
	if 2*r.ContentLength > s.bodies.Room(who) {
		return errMemory()
	}
	b := &countedBody{ReadCloser: http.MaxBytesReader(ex.w, r.Body, maxBody), who: who,
		control: http.NewResponseController(ex.w), deadline: time.Now().Add(s.ReadTimeout), budget: s.bodies}
	ex.release = append(ex.release, b.settle)
	r.Body = b
	return nil
}
