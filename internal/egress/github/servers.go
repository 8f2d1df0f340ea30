package github

import (
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Servers are the hosts that serve GitHub's API. The zero value contains GitHub's own.
type Servers struct {
	enterprise []string // names or addresses
}

// NewServers adds GitHub Enterprise servers, each by its web host ("github.example.com").
func NewServers(enterprise ...policy.Host) Servers {
	var s Servers
	for _, h := range enterprise {
		s.enterprise = append(s.enterprise, h.String())
	}
	return s
}

// At returns the API path of a host's path, as the API's documentation writes it ("/repos/…"), or false where the host
// serves no API.
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
		return "", false // git, and web pages
	case encoded: // some servers decode it to a slash
		return path, true
	}
	switch second, below := nextSegment(rest); {
	case strings.EqualFold(second, "v3"), strings.EqualFold(second, "uploads"):
		return below, true
	}
	return rest, true
}

// API is the location of a server's API. Its paths are below Prefix.
type API struct {
	Host   policy.Host
	Prefix string
	Own    bool // the API has its own host, at port 443
}

// API returns the location of the API for a host's repositories.
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

// Port returns the API's port, given git's.
func (a API) Port(git uint16) uint16 {
	if a.Own {
		return 443
	}
	return git
}

// Has reports whether a host serves the API, on some path.
func (s Servers) Has(h policy.Host) bool {
	return s.dedicated(h) || slices.Contains(s.enterprise, h.String())
}

// dedicated reports whether a host serves only the API.
func (s Servers) dedicated(h policy.Host) bool {
	label, rest, _ := strings.Cut(h.Name(), ".")
	if label != "api" && label != "uploads" {
		return false
	}
	return rest == "github.com" || strings.HasSuffix(rest, ".ghe.com") || slices.Contains(s.enterprise, rest)
}

// nextSegment removes the first segment of a path.
func nextSegment(path string) (first, rest string) {
	first, rest, more := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !more {
		return first, ""
	}
	return first, "/" + rest
}
