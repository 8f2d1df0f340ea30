package adversary

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/policy/policytest"
	"github.com/cove-sandbox/cove/test/adversary/lab"
	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// place is where a program can write a host, a port, an authority, a path or a URL.
type place struct {
	name string
	kind policytest.Kind
	talk func(input, word string) outcome.Talk // word is to be seen at the origin; nil: a question for a name
	// want is what must become of a case here, where that is something else.
	want func(policytest.Case) policytest.Outcome
}

func places(judge *policy.Policy) []place {
	over := func(e outcome.Talk, target, host string) outcome.Talk {
		e.Send = "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"
		return e
	}
	toProxy := outcome.Talk{By: outcome.Proxy}
	paths := func(by string) outcome.Talk {
		return outcome.Talk{By: by, To: "paths.lab:443", TLS: true, Name: "paths.lab"}
	}
	return []place{
		{"connect_authority", policytest.Authority, func(in, _ string) outcome.Talk {
			return outcome.Talk{By: outcome.Connect, To: in, Ended: true}
		}, nil},
		{"connect_host", policytest.Host, func(in, _ string) outcome.Talk {
			return outcome.Talk{By: outcome.Connect, To: in + ":443", Ended: true}
		}, bracketed},
		{"connect_port", policytest.Port, func(in, _ string) outcome.Talk {
			return outcome.Talk{By: outcome.Connect, To: "allowed.lab:" + in, Ended: true}
		}, nil},
		{"absolute_host", policytest.Host, func(in, word string) outcome.Talk {
			return over(toProxy, "http://"+in+":443/"+word, in+":443")
		}, bracketed},
		{"absolute_url", policytest.URL, func(in, _ string) outcome.Talk {
			return over(toProxy, in, authorityOf(in))
		}, func(c policytest.Case) policytest.Outcome {
			if !strings.HasPrefix(strings.ToLower(c.Input), "http://") {
				return policytest.Malformed // https goes by CONNECT
			}
			return c.Outcome
		}},
		{"socks_host", policytest.Host, func(in, word string) outcome.Talk {
			host := in
			if strings.Contains(in, ":") && !strings.HasPrefix(in, "[") {
				host = "[" + in + "]"
			}
			return over(outcome.Talk{By: outcome.SOCKS, To: in + ":443"}, "/"+word, host)
		}, func(c policytest.Case) policytest.Outcome {
			if len(c.Input) > 255 {
				return "" // there is no room for it
			}
			return c.Outcome
		}},
		{"host_header", policytest.Host, func(in, word string) outcome.Talk {
			return over(outcome.Talk{By: outcome.Direct, At: "203.0.113.5:443"}, "/"+word, in)
		}, func(c policytest.Case) policytest.Outcome {
			if strings.Contains(c.Input, "\r\n") {
				return "" // begins another header
			}
			h, port, err := policy.ParseAuthority(strings.Trim(c.Input, " \t"), 443)
			if _, isAddr := h.Addr(); err != nil || isAddr || port != 443 {
				return policytest.Malformed
			}
			if judge.Decide(policy.Request{Layer: policy.LayerConnect, Host: h, Port: port}).Action != policy.Allow {
				return policytest.Denied
			}
			return policytest.Allowed // spaces around it are not part of it
		}},
		{"server_name", policytest.Host, func(in, _ string) outcome.Talk {
			return outcome.Talk{By: outcome.Direct, At: "203.0.113.5:443", TLS: true, Hello: outcome.HelloRaw, Name: in}
		}, func(c policytest.Case) policytest.Outcome {
			if c.Input == "" || len(c.Input) > 1000 {
				return ""
			}
			if c.Outcome != policytest.Allowed || !strings.EqualFold(c.Input, c.Canonical) ||
				strings.ContainsAny(c.Canonical, ":") || strings.Trim(c.Canonical, "0123456789.") == "" {
				return policytest.Malformed // RFC 6066 knows names only, without a last dot
			}
			return c.Outcome
		}},
		{"question", policytest.Host, nil, func(c policytest.Case) policytest.Outcome {
			if c.Outcome == policytest.Allowed && strings.Trim(c.Canonical, "0123456789.:abcdef[]") == "" {
				return policytest.Malformed // an address is no name
			}
			return c.Outcome
		}},
		{"path", policytest.Path, func(in, _ string) outcome.Talk {
			return over(paths(outcome.Direct), in, "paths.lab")
		}, emptyPath},
		{"path_in_tunnel", policytest.Path, func(in, _ string) outcome.Talk {
			return over(paths(outcome.Connect), in, "paths.lab")
		}, emptyPath},
		{"path_of_stream", policytest.Path, func(in, _ string) outcome.Talk {
			t := paths(outcome.Direct)
			t.Fields = [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", in}, {":authority", "paths.lab"}}
			return t
		}, emptyPath},
	}
}

// bracketed: where a port follows, IPv6 addresses have brackets.
func bracketed(c policytest.Case) policytest.Outcome {
	if strings.Contains(c.Input, ":") && !strings.HasPrefix(c.Input, "[") {
		return policytest.Malformed
	}
	return c.Outcome
}

// emptyPath: a request's target has no empty path, and a query is no part of it.
func emptyPath(c policytest.Case) policytest.Outcome {
	switch {
	case strings.Contains(c.Input, "?"):
		return ""
	case c.Input == "":
		return policytest.Malformed
	}
	return c.Outcome
}

func authorityOf(url string) string {
	_, rest, ok := strings.Cut(url, "//")
	if !ok {
		return url
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	return rest
}

// corpus takes the hostile corpus through one place: what is refused makes no
// packet, what is allowed is judged, dialled and read by the origin as the same.
func corpus(c *trial, name string) {
	all := places(policytest.Policy(c))
	p := all[slices.IndexFunc(all, func(p place) bool { return p.name == name })]
	b := c.outward(policytest.Text)
	c.internet().Forget()
	allowed, refused, last := 0, 0, ""
	for _, one := range policytest.Cases(c, p.kind) {
		want := one.Outcome
		if p.want != nil {
			want = p.want(one)
		}
		if want == "" {
			continue
		}
		if !isASCII(one.Input) {
			want = policytest.Malformed // on the wire it is ASCII
		}
		word := token()
		before := len(b.decisions())
		if want != policytest.Allowed {
			refused++
		} else {
			b.onlyAllowed() // what was refused before
			c.internet().Forget()
			allowed++
		}
		var a answer
		if p.talk == nil {
			a.Result = b.try(c, "ask udp 127.0.0.1:53 "+inQuestion(one.Input)+" 1")
			a.Count = 0 // how many were answered
			if len(one.Input) > 400 || strings.Contains(a.Detail, "invalid syntax") {
				continue
			}
		} else {
			a = b.talk(p.talk(one.Input, word))
		}
		went := a.Outcome == outcome.Succeeded && (a.Count == 200 || a.Count == 0) &&
			(want == policytest.Allowed || !b.onlyExplained(before, last))
		if went != (want == policytest.Allowed) {
			c.Errorf("HOLE or not tested: %s is %s: %s", one.Name(), want, a)
		}
		if want == policytest.Allowed {
			last = b.oneMeaning(one, last, before)
		}
	}
	if allowed == 0 || refused == 0 {
		c.Errorf("not tested: %d cases allowed, %d refused", allowed, refused)
	}
	c.remark("%d spellings allowed, %d refused", allowed, refused)
	b.onlyAllowed()
}

// onlyExplained reports whether all decisions after the first ones were denials: a refused name resolves, and a tunnel
// to it opens, so that a client reads the reason there. A decision on the last allowed host may come late.
func (b *outward) onlyExplained(first int, last string) bool {
	var since []decision.Decision
	for end := time.Now().Add(patience); len(since) == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		since = slices.DeleteFunc(b.decisions()[first:], func(d decision.Decision) bool {
			return d.Host == last && d.Verdict != decision.Deny
		})
	}
	return len(since) > 0 && !slices.ContainsFunc(since, func(d decision.Decision) bool { return d.Verdict != decision.Deny })
}

// onlyAllowed: since Forget nothing has gone anywhere but to what the corpus allows.
func (b *outward) onlyAllowed() {
	b.c.Helper()
	for _, name := range b.c.internet().Asked() {
		if !slices.Contains([]string{"allowed.lab", "xn--bcher-kva.lab", "r3---sn-x.lab", "paths.lab"}, name) &&
			!strings.HasSuffix(name, ".wild.lab") {
			b.c.Errorf("HOLE: the resolver was asked for %s", name)
		}
	}
	for _, p := range b.c.internet().Packets() {
		to := p.To.Addr()
		if !slices.Contains([]netip.Addr{lab.Resolver, lab.Web4, lab.Web6, lab.ByAddress4, lab.ByAddress6}, to) {
			b.c.Errorf("HOLE: a packet to %s", p.To)
		}
	}
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}

// inQuestion writes a name as an argument: without spaces, for strconv.Unquote.
func inQuestion(s string) string {
	q := outcome.Quoted(s)
	return strings.ReplaceAll(q[1:len(q)-1], " ", `\x20`)
}

// oneMeaning: what was judged is what was dialled and what the origin read. A connection that was left may be recorded
// late, so the host of the case before is passed over.
func (b *outward) oneMeaning(one policytest.Case, last string, before int) (host string) {
	b.c.Helper()
	host = one.Canonical
	if one.Outcome == policytest.Malformed { // the record has the name without the spaces around it
		host = strings.Trim(one.Input, " \t")
	}
	switch one.Kind {
	case policytest.Port:
		host = "allowed.lab"
	case policytest.Path:
		host = "paths.lab"
	case policytest.Authority:
		host = host[:strings.LastIndexByte(host, ':')]
	case policytest.URL:
		host, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(host, "http://"), "https://"), "/")
		host = strings.TrimSuffix(strings.TrimSuffix(host, ":443"), ":8443")
	}
	host = strings.Trim(host, "[]")
	for _, d := range b.decisions()[before:] {
		if d.Host != host && d.Host != last {
			b.c.Errorf("HOLE: %s was judged as %s, not as %s", one.Name(), d.Host, host)
		}
	}
	for _, r := range b.c.internet().Requests() {
		read := strings.TrimSuffix(strings.TrimSuffix(r.Host, ":443"), ":8443")
		if strings.Trim(read, "[]") != host {
			b.c.Errorf("HOLE: %s: the origin read %s", one.Name(), r.Host)
		}
		if one.Kind == policytest.Path && r.Target != one.Canonical {
			b.c.Errorf("HOLE: %s: the origin read the path %s", one.Name(), r.Target)
		}
	}
	return host
}
