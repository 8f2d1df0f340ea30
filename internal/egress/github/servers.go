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
