package github

import (
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Servers are the hosts that speak GitHub's API. The zero value knows GitHub's
// own.
type Servers struct {
	enterprise []string // names or addresses
}

// NewServers adds GitHub Enterprise servers, each as what people call it
// ("github.example.com").
func NewServers(enterprise ...policy.Host) Servers {
	var s Servers
	for _, h := range enterprise {
		s.enterprise = append(s.enterprise, h.String())
	}
	return s
}

// At finds what a path of a host is to the API: the path that the API's own
// documentation has for it ("/repos/…"), or false where the host has no API
// there.
func (s Servers) At(h policy.Host, path string) (apiPath string, ok bool) {
	if s.dedicated(h) {
		return path, true
	}
	if !slices.Contains(s.enterprise, h.String()) {
		return "", false
	}
	first, rest := nextSegment(path)
	switch plain, _, encoded := strings.Cut(first, "%"); {
	case !strings.EqualFold(plain, "api"):
		return "", false // git, and pages for people
	case encoded: // a slash, for some servers
		return path, true
	}
	switch second, below := nextSegment(rest); {
	case strings.EqualFold(second, "v3"), strings.EqualFold(second, "uploads"):
		return below, true
	}
	return rest, true
}

// API is where the API of a server is. Its paths are below Prefix.
type API struct {
	Host   policy.Host
	Prefix string
	Own    bool // it is a host of its own, at port 443
}

// API finds the API for the repositories that a host has.
func (s Servers) API(h policy.Host) (API, bool) {
	name := h.Name()
	switch {
	case slices.Contains(s.enterprise, h.String()):
		return API{Host: h, Prefix: "/api/v3"}, true
	case name == "github.com", strings.HasSuffix(name, ".ghe.com") && !s.dedicated(h):
		api, err := policy.ParseHost("api." + name)
		return API{Host: api, Own: true}, err == nil
	}
	return API{}, false
}

// Port is the API's, where git's is at another.
func (a API) Port(git uint16) uint16 {
	if a.Own {
		return 443
	}
	return git
}

// Has reports whether a host speaks the API, on some path.
func (s Servers) Has(h policy.Host) bool {
	return s.dedicated(h) || slices.Contains(s.enterprise, h.String())
}

// dedicated hosts have the API and nothing else.
func (s Servers) dedicated(h policy.Host) bool {
	label, rest, _ := strings.Cut(h.Name(), ".")
	if label != "api" && label != "uploads" {
		return false
	}
	return rest == "github.com" || strings.HasSuffix(rest, ".ghe.com") || slices.Contains(s.enterprise, rest)
}

// nextSegment takes the first segment off a path.
func nextSegment(path string) (first, rest string) {
	first, rest, more := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !more {
		return first, ""
	}
	return first, "/" + rest
}
