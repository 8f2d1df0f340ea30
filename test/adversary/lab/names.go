//go:build linux

package lab

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// Question is one that reached the resolver.
type Question struct {
	Name string // in lower case, without the last dot
	Type string // "A", "AAAA", "TXT"
}

// ResolverAt is where the machine under test asks for names.
func ResolverAt() netip.AddrPort { return netip.AddrPortFrom(Resolver, 53) }

// serveNames is the resolver that the gateway uses.
func (i *Internet) serveNames(t testing.TB) {
	t.Helper()
	pc, err := ListenPacket(ResolverAt())
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter,
		q *dns.Msg) {
		w.WriteMsg(i.answer(q))
	})}
	done := make(chan struct{})
	go func() { defer close(done); s.ActivateAndServe() }()
	t.Cleanup(func() { pc.Close(); <-done })
}

func (i *Internet) answer(q *dns.Msg) *dns.Msg {
	a := new(dns.Msg)
	a.SetReply(q)
	asked := q.Question[0]
	name := strings.TrimSuffix(strings.ToLower(asked.Name), ".")
	i.mu.Lock()
	i.questions = append(i.questions, Question{name, dns.TypeToString[asked.Qtype]})
	times := 0
	for _, one := range i.questions {
		if one.Name == name {
			times++
		}
	}
	found, exists := i.names[name], true
	i.mu.Unlock()
	if found == nil {
		found, exists = addressesOf(name, times)
	}
	if !exists {
		a.Rcode = dns.RcodeNameError
	}
	owner := asked.Name
	if alias := aliases[name]; alias != "" {
		a.Answer = append(a.Answer, &dns.CNAME{Hdr: dns.RR_Header{Name: owner, Rrtype: dns.TypeCNAME, Class: dns.ClassINET},
			Target: alias + "."})
		owner = alias + "."
	}
	for _, address := range found {
		h := dns.RR_Header{Name: owner, Class: dns.ClassINET} // TTL 0
		switch {
		case address.Is4() && asked.Qtype == dns.TypeA:
			h.Rrtype = dns.TypeA
			a.Answer = append(a.Answer, &dns.A{Hdr: h, A: address.AsSlice()})
		case address.Is6() && asked.Qtype == dns.TypeAAAA:
			h.Rrtype = dns.TypeAAAA
			a.Answer = append(a.Answer, &dns.AAAA{Hdr: h, AAAA: address.AsSlice()})
		}
	}
	return a
}

// Lead has a name lead to these addresses, or to the lab's web.
func (i *Internet) Lead(name string, to ...netip.Addr) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if to == nil {
		to = []netip.Addr{Web4, Web6}
	}
	i.names[name] = to
}

// aliases are names that lead to others.
var aliases = map[string]string{"alias.lab": "internal.corp"}

// addressesOf is where names lead when they are asked for the times-th time.
func addressesOf(name string, times int) (found []netip.Addr, exists bool) {
	to := func(all ...string) ([]netip.Addr, bool) {
		for _, a := range all {
			found = append(found, netip.MustParseAddr(a))
		}
		return found, true
	}
	first, _, _ := strings.Cut(name, ".")
	switch {
	case !strings.HasSuffix(name, ".lab") && !strings.HasSuffix(name, ".lab.test"):
		return nil, false
	case name == "evil.lab" || strings.HasSuffix(name, ".evil.lab"):
		return []netip.Addr{Evil4, Evil6}, true
	}
	switch first {
	case "missing":
		return nil, false
	case "private":
		return []netip.Addr{Private}, true
	case "mixed":
		return []netip.Addr{Web4, Private}, true
	case "rebound": // A and AAAA once each, then inside
		if times > 2 {
			return to("127.0.0.1", "::1")
		}
	case "metadata":
		return to("169.254.169.254", "fd00:ec2::254")
	case "six": // AAAA ::1
		return to("::1")
	case "nat64":
		return to("64:ff9b::a9fe:a9fe")
	case "mapped":
		return to("::ffff:169.254.169.254")
	case "host":
		return []netip.Addr{Host4, Host6}, true
	case "alias":
		return []netip.Addr{Private}, true
	case "second": // its first address does not answer
		return []netip.Addr{Nowhere, Web4}, true
	}
	return []netip.Addr{Web4, Web6}, true
}

// Questions are those that have come since Forget.
func (i *Internet) Questions() []Question {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.questions)
}

// Asked are the different names in Questions.
func (i *Internet) Asked() []string {
	var names []string
	for _, q := range i.Questions() {
		names = append(names, q.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
