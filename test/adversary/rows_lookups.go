package adversary

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/test/adversary/lab"
	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// lookupRows are attempts with names and what they lead to (N8, N9, N12).
func lookupRows() []row {
	return []row{
		{id: "N8.rebinding", invariant: "E4",
			what: "have an allowed name lead inside: at once, later, among others, by CNAME, over IPv6, translated",
			test: rebinding},
		{id: "N9.hosts_file", engine: true, invariant: "E4", what: "say oneself where an allowed name is", test: ownHosts},
		{id: "N12.denied", invariant: "E4", what: "carry data out in names that are denied, of every type",
			test: tunnelDenied},
		{id: "N12.requests", invariant: "E4",
			what: "carry data out in names below an allowed domain that are not asked for, but connected to",
			test: tunnelRequests},
		{id: "N12.allowed", invariant: "E4", what: "carry data out in names below an allowed domain", test: tunnelAllowed},
	}
}

// insides are allowed names that lead to where they must not.
var insides = []string{"private.lab", "mixed.lab", "rebound.lab", "alias.lab", "six.lab", "nat64.lab", "mapped.lab",
	"metadata.lab", "host.lab"}

func rebinding(c *trial) {
	b := c.outward(allow(append(insides, "allowed.lab")...))
	for _, host := range insides {
		for _, e := range everyEntry(host) {
			c.internet().Forget()
			before := len(b.decisions())
			if host == "rebound.lab" { // its first answer is a public one
				b.try(c, "ask udp 127.0.0.1:53 rebound.lab 1")
			}
			b.stays(e.name+", "+host, b.get(e, host, "/inside"))
			b.quiet(host, "internal.corp")
			if !slices.Contains(c.internet().Asked(), host) {
				c.Errorf("not tested: %s, %s was not looked up", e.name, host)
			}
			if !slices.ContainsFunc(b.decisions()[before:], func(d decision.Decision) bool {
				return d.Verdict == decision.Deny &&
					d.Rule == "address"
			}) {
				c.Errorf("%s, %s: no decision says that its address is refused: %+v", e.name, host, b.decisions()[before:])
			}
		}
	}
	c.control(b, "allowed.lab")
	for _, at := range []netip.Addr{lab.Private, lab.Others[3], lab.Others[6]} { // they are there
		if a := c.talkOutside(outcome.Talk{By: outcome.Direct, At: netip.AddrPortFrom(at, 80).String(),
			Send: insideTLS}); !a.ok() {
			c.Errorf("not tested: %s from the machine itself: %s", at, a)
		}
	}
}

func ownHosts(c *trial) {
	b := c.outward(allow("allowed.lab"))
	for _, at := range []netip.Addr{lab.Evil4, lab.Evil6, lab.Private, lab.Others[0],
		netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("198.18.0.77"),
		netip.MustParseAddr("fd63:6f76:6500::4d")} {
		for _, secure := range []bool{false, true} {
			c.internet().Forget()
			port := map[bool]uint16{false: 80, true: 443}[secure]
			t := outcome.Talk{By: outcome.Direct, At: netip.AddrPortFrom(at, port).String(), TLS: secure, Name: "allowed.lab",
				Send: insideTLS}
			a := b.talk(t)
			seen := c.internet().Requests()
			if !a.ok() || len(seen) != 1 || seen[0].At.Addr() != lab.Web4 && seen[0].At.Addr() != lab.Web6 {
				c.Errorf("HOLE or not tested: allowed.lab at %s: %s, seen %v", t.At, a, seen)
			}
			for _, p := range c.internet().Packets() {
				if to := p.To.Addr(); to != lab.Resolver && to != lab.Web4 && to != lab.Web6 {
					c.Errorf("HOLE: the sandbox chose the address: %s", p.To)
				}
			}
		}
	}
}

// Types of questions (IANA's DNS parameters).
var kinds = map[string]int{"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "NULL": 10, "PTR": 12, "MX": 15, "TXT": 16,
	"AAAA": 28, "SRV": 33, "NAPTR": 35, "DNSKEY": 48, "SVCB": 64, "HTTPS": 65,
	"SPF": 99, "ANY": 255, "AXFR": 252, "PRIVATE": 65280}

func tunnelDenied(c *trial) {
	b := c.outward(allow("allowed.lab"))
	c.internet().Forget()
	for kind, number := range kinds {
		for _, name := range []string{"evil.lab", strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + ".evil.lab",
			`\x01\x02\xff\xfe.evil.lab`, "allowed.lab.evil.lab", "x.allowed.lab"} {
			r := b.try(c, fmt.Sprintf("ask udp 127.0.0.1:53 %s %d", name, number))
			if r.Outcome != outcome.Succeeded {
				continue
			}
			for _, line := range r.Lines { // only addresses of the gateway's own
				if !strings.HasSuffix(line, " 0 answers") && number != 28 && !strings.Contains(line, " at 198.18.") {
					c.Errorf("HOLE: %s for %s: %s", kind, name, line)
				}
			}
		}
	}
	for _, network := range []string{"udp", "tcp"} {
		for _, line := range b.try(c, "ask "+network+" 127.0.0.1:53 data.evil.lab 16 100").Lines {
			if !strings.HasSuffix(line, " 0 answers") {
				c.Errorf("HOLE: names were answered: %s", line)
			}
		}
	}
	if n := len(c.internet().Questions()); n > 0 {
		c.Errorf("HOLE: %d questions of %v reached the resolver", n, c.internet().Asked())
	}
	b.quiet()
	b.works(c, "ask udp 127.0.0.1:53 allowed.lab 1")
	if asked := c.internet().Asked(); !slices.Equal(asked, []string{"allowed.lab"}) {
		c.Errorf("not tested: the resolver was asked for %v", asked)
	}
}

// tunnelAllowed counts what really gets out.
func tunnelAllowed(c *trial) {
	b := c.outward("rules:\n  - {hosts: \"*.wild.lab\", depth: 5}\n")
	c.internet().Forget()
	r := c.works(b.box, "ask udp 127.0.0.1:53 wild.lab 1 1000")
	out := len(c.internet().Asked())
	if out == 0 || out > 200 {
		c.Errorf("HOLE or not tested: %d of 1000 names below one domain reached the resolver: %v", out, r.Lines)
	}
	other := c.outward("rules:\n  - {hosts: \"*.wild.lab\", depth: 5}\n")
	c.internet().Forget()
	for _, name := range []string{strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + ".wild.lab",
		"a.b.c.d.e.f.wild.lab"} {
		other.try(c, "ask udp 127.0.0.1:53 "+name+" 1") // of a denied name, which gets an address of the gateway's own
	}
	other.quiet()
	for kind, number := range kinds { // types that carry data are asked of nobody
		other.try(c, fmt.Sprintf("ask udp 127.0.0.1:53 a.wild.lab %d", number))
		for _, q := range c.internet().Questions() {
			if q.Type != "A" && q.Type != "AAAA" {
				c.Errorf("HOLE: the resolver was asked for %s (%s)", q.Type, kind)
			}
		}
	}
	c.remark("%d of 1000 names below one domain got out, and answers carry nothing in", out)
}

// tunnelRequests: the gateway looks a name up for whoever connects to it, so that it counts there as well.
func tunnelRequests(c *trial) {
	most := 0
	for i, e := range everyEntry("") {
		if e.At == "" && e.By == outcome.Direct || strings.Contains(e.name, "IPv6") || e.TLS && e.At == "" {
			continue // it is asked for first; as IPv4; as without TLS
		}
		b := c.outward("rules:\n  - hosts: \"*.wild.lab\"\n")
		c.internet().Forget()
		for n := range 250 {
			host := fmt.Sprintf("d%d.wild.lab", n)
			b.get(everyEntry(host)[i], host, "/")
		}
		out := len(c.internet().Asked())
		if out == 0 || out > 200 {
			c.Errorf("HOLE or not tested: %s: %d of 250 names below one domain reached the resolver", e.name, out)
		}
		most = max(most, out)
		b.arrives(everyEntry("d1.wild.lab")[i], "d1.wild.lab") // which was there before
	}
	c.remark("at most %d of 250 names below one domain got out", most)
}
