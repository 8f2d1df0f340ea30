package policy

import (
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
)

// overrides are headers from which some servers take the method or the path of a request, in place of its first line:
// those of web frameworks (method overriding), of IIS and its URL rewriting, and of reverse proxies.
var overrides = []string{"x-http-method-override", "x-http-method", "x-method-override", "x-override-method",
	"x-method", "x-http-verb", "x-original-method", "x-forwarded-method", "x-override-url", "x-original-url",
	"x-original-uri", "x-original-path", "x-envoy-original-path", "x-rewrite-url", "x-rewrite-uri",
	"x-forwarded-uri", "x-forwarded-url", "x-forwarded-path"}

// Overrides reports whether a header can change the method or the path of a request for the server that receives it.
// Servers that hand headers to programs as variables take "_" for "-".
func Overrides(header string) bool {
	return slices.Contains(overrides, strings.ToLower(strings.ReplaceAll(header, "_", "-")))
}

// Limits reports whether rules look at the methods or paths of requests to a host and port, so that one of them may be
// refused where another is allowed.
func (p *Policy) Limits(r Request) bool {
	if p == nil {
		return false
	}
	q := query{Request: r}
	looks := func(x *Rule) bool { return x.inner() && x.about(q.Host) && hasPort(x.reach(), q.Port) }
	switch {
	case slices.ContainsFunc(p.deny, looks):
		return true
	case cover(p.allow, &q, true):
		return false
	case slices.ContainsFunc(p.ask, looks):
		return true
	}
	open := p.Mode() == cove.NetworkOpen && p.isOpen(&q)
	return !open && slices.ContainsFunc(p.allow, looks)
}
