package adversary

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/test/adversary/lab"
	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// wayRows are attempts to get a packet out by another way than the gateway (N1, N2, N13 to N16).
func wayRows() []row {
	return []row{
		{id: "N1.default", engine: true, invariant: "E1", what: "reach anything under a policy that allows nothing",
			test: nothingAllowed},
		{id: "N2.past_the_proxy", engine: true, invariant: "E1",
			what: "connect without regard to any proxy, by name and by address, over IPv4 and IPv6", test: pastTheProxy},
		{id: "N13.resolvers", engine: true, invariant: "E4",
			what: "ask another resolver: by UDP, TCP, TLS, HTTPS, QUIC, and its neighbours' protocols", test: otherResolvers},
		{id: "N14.datagrams", engine: true, invariant: "E1", what: "send datagrams: QUIC, STUN, NTP, WireGuard and any",
			test: datagrams},
		{id: "N14.protocols", engine: true, invariant: "E1",
			what: "open a socket of another protocol: ICMP, SCTP, GRE, IPIP, IGMP, packets", test: protocols},
		{id: "N15.ipv6", engine: true, invariant: "E1", what: "find an IPv6 that policy does not know of",
			test: onlyLoopbackOnline},
		{id: "N16.source", engine: true, invariant: "E3",
			what: "take another sandbox's or the machine's address as one's own", test: takenSource},
	}
}

func nothingAllowed(c *trial) {
	c.internet().Forget()
	for _, text := range []string{"", "mode: limited\n", "mode: none\n", "mode: host-only\n"} {
		b := c.outward(text)
		for _, host := range []string{"allowed.lab", "evil.lab"} {
			for _, e := range everyEntry(host) {
				b.stays(e.name, b.get(e, host, "/"))
			}
			b.try(c, "ask udp 127.0.0.1:53 "+host+" 1")
		}
		b.quiet()
	}
	c.control(c.outward(allow("allowed.lab")), "allowed.lab")
}

// control shows that every entry leads to an allowed host.
func (c *trial) control(b *outward, host string) {
	c.Helper()
	for _, e := range everyEntry(host) {
		b.arrives(e, host)
	}
}

// straight are conversations with addresses, as a program that has its own idea of where things are would have them.
func straight() (all []outcome.Talk) {
	for _, a := range []netip.Addr{lab.Evil4, lab.Evil6, netip.AddrFrom16(lab.Evil4.As16())} {
		for _, port := range []uint16{80, 443, 8443} {
			to := netip.AddrPortFrom(a, port).String()
			all = append(all, outcome.Talk{By: outcome.Direct, At: to,
				Send: "GET / HTTP/1.1\r\nHost: " + to + "\r\nConnection: close\r\n\r\n"})
			if port != 80 {
				all = append(all, outcome.Talk{By: outcome.Direct, At: to, TLS: true, Name: "evil.lab",
					Send: "GET / HTTP/1.1\r\nHost: evil.lab\r\nConnection: close\r\n\r\n"})
			}
		}
	}
	return all
}

func pastTheProxy(c *trial) {
	b := c.outward(allow("allowed.lab"))
	c.internet().Forget()
	for _, t := range straight() {
		b.stays(t.At, b.talk(t))
	}
	for _, port := range []string{"22", "25", "53", "853", "6667"} { // whoever speaks first hears nothing
		r := b.try(c, "connect tcp "+lab.Evil4.String()+":"+port)
		if r.Detail != "" && r.Outcome == outcome.Succeeded {
			c.Errorf("HOLE: something answers on port %s: %s", port, say(r))
		}
	}
	b.quiet()
	for _, t := range straight() {
		if a := c.talkOutside(t); !a.ok() {
			c.Errorf("not tested: %s from the machine itself: %s", t.At, a)
		}
	}
	for _, port := range []uint16{22, 25} {
		c.suite.machine.try("connect tcp " + netip.AddrPortFrom(lab.Evil4, port).String())
		c.wouldBeSeen(6, netip.AddrPortFrom(lab.Evil4, port))
	}
	c.control(b, "allowed.lab")
}

// wouldBeSeen is a control: the packet that has been sent from the machine.
func (c *trial) wouldBeSeen(protocol byte, to netip.AddrPort) {
	c.Helper()
	if !slices.Contains(c.internet().Packets(), lab.Packet{Protocol: protocol, To: to}) {
		c.Errorf("not tested: the lab does not see a packet to %s from the machine itself", to)
	}
}

func otherResolvers(c *trial) {
	b := c.outward(allow("allowed.lab"))
	c.internet().Lead("dns.google")
	c.internet().Forget()
	resolvers := []string{"8.8.8.8", "1.1.1.1", "[2001:4860:4860::8888]", lab.Resolver.String()}
	for _, resolver := range resolvers {
		for _, network := range []string{"udp", "tcp"} {
			r := b.try(c, "ask "+network+" "+resolver+":53 evil.lab 1")
			if r.Outcome != outcome.Succeeded || len(r.Lines) != 1 || !strings.Contains(r.Lines[0], " at 198.18.") {
				c.Errorf("HOLE: %s by %s says of a denied name: %s, %v; want an address of the gateway's own", resolver, network,
					say(r), r.Lines)
			}
		}
		to := func(port string) string { return resolver + ":" + port }
		hello := "GET /dns-query?dns=AAABAAABAAAAAAAABGV2aWwDbGFiAAABAAE HTTP/1.1\r\nHost: dns.google\r\nConnection: " +
			"close\r\n\r\n"
		for _, t := range []outcome.Talk{
			{By: outcome.Direct, At: to("853"), TLS: true, Name: "dns.google"},
			{By: outcome.Direct, At: to("443"), TLS: true, Name: "dns.google", Send: hello},
			{By: outcome.Direct, At: to("443"), TLS: true, Name: strings.Trim(resolver, "[]"),
				Send: strings.Replace(hello, "dns.google", resolver, 1)},
			{By: outcome.Direct, At: to("80"), Send: hello},
			{By: outcome.Connect, To: to("443"), TLS: true, Name: "dns.google", Send: hello},
			{By: outcome.Connect, To: "dns.google:443", TLS: true, Name: "dns.google", Send: hello},
			{By: outcome.SOCKS, To: to("853"), TLS: true, Name: "dns.google"},
			{By: outcome.Proxy, Send: strings.Replace(hello, "GET /", "GET http://dns.google/", 1)},
		} {
			b.stays(t.At+t.To, b.talk(t))
		}
		for _, port := range []string{"443", "784", "853", "5353", "8853"} { // QUIC, DNSCrypt
			b.refusedDatagram(to(port))
		}
	}
	for _, to := range []string{"224.0.0.251:5353", "224.0.0.252:5355", "255.255.255.255:137", "172.30.0.3:137",
		"[ff02::fb%lo]:5353", "[ff02::1:3%lo]:5355"} {
		b.refusedDatagram(to)
	}
	b.quiet()
	for _, network := range []string{"udp", "tcp"} { // whomever it asks, the filter answers
		b.works(c, "ask "+network+" 8.8.8.8:53 allowed.lab 1")
		b.works(c, "ask "+network+" [2001:4860:4860::8888]:53 allowed.lab 28")
	}
	for _, p := range c.internet().Packets() {
		if p.To != lab.ResolverAt() {
			c.Errorf("HOLE: a packet was sent to %s", p.To)
		}
	}
	if asked := c.internet().Asked(); !slices.Equal(asked, []string{"allowed.lab"}) {
		c.Errorf("the gateway's resolver was asked for %v", asked)
	}
	c.suite.machine.try("datagram 8.8.8.8:53")
	c.wouldBeSeen(17, netip.MustParseAddrPort("8.8.8.8:53"))
	c.suite.machine.try("datagram [2001:4860:4860::8888]:853")
	c.wouldBeSeen(17, netip.MustParseAddrPort("[2001:4860:4860::8888]:853"))
}

// works is a control in this sandbox.
func (b *outward) works(c *trial, attempt string) {
	c.Helper()
	c.works(b.box, attempt)
}

// refusedDatagram: it is refused at once, rather than dropped, so that programs
// that would rather have QUIC go on with TCP without waiting.
func (b *outward) refusedDatagram(to string) {
	b.c.Helper()
	r := b.try(b.c, "datagram "+to)
	if r.Outcome != outcome.Refused ||
		!slices.Contains([]string{"ECONNREFUSED", "EPERM", "EACCES", "ENETUNREACH", "EADDRNOTAVAIL", "EINVAL"}, r.Errno) {
		b.c.Errorf("a datagram to %s: %s", to, say(r))
	}
}

func datagrams(c *trial) {
	b := c.outward("mode: open\n" + allow("allowed.lab"))
	c.internet().Forget()
	ports := []string{"443", "80", "3478", "123", "51820", "500", "4500", "67", "69", "161", "1900", "4789", "5349"}
	for _, port := range ports {
		for _, a := range []string{lab.Evil4.String(), "[" + lab.Evil6.String() + "]", lab.Web4.String(),
			"[::ffff:" + lab.Evil4.String() + "]", "10.9.9.9", "169.254.169.254"} {
			b.refusedDatagram(a + ":" + port)
		}
	}
	b.quiet()
	for _, port := range []uint16{443, 51820} {
		for _, a := range []netip.Addr{lab.Evil4, lab.Evil6} {
			to := netip.AddrPortFrom(a, port)
			c.suite.machine.try("datagram " + to.String())
			c.wouldBeSeen(17, to)
		}
	}
	b.works(c, "connect udp 127.0.0.1:9")
	c.control(b, "allowed.lab")
}

// protocols: there is no socket to speak them with, even for a sandbox that
// has a network. That they exist on this machine, K2's rows show.
func protocols(c *trial) {
	b := c.outward("mode: open\n")
	c.internet().Forget()
	c.row.deny = append([]string{"EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "EAFNOSUPPORT"}, denied...)
	for _, s := range []string{
		"2 3 1", "2 3 2", "2 3 4", "2 3 6", "2 3 17", "2 3 47", "2 3 50", "2 3 132", "2 3 255", // raw
		"10 3 58", "10 3 4", "10 3 41", "10 3 47", "10 3 255",
		"2 2 1", "10 2 58", // ping without a right
		"2 1 132", "2 5 132", "10 1 132", // SCTP
		"2 6 33", "2 2 136", // DCCP, UDP-Lite
		"2 10 0", "17 3 3", "17 2 768", // old packet sockets, packet sockets
	} {
		c.denied(b.box, "socket "+s)
	}
	c.row.inside = nil
	b.works(c, "socket 2 1 6")
	b.works(c, "socket 10 2 17")
	b.quiet()
}

// onlyLoopbackOnline: a network adds no interface, no address and no way out of
// the namespace; extension headers and fragments need one to be sent by.
func onlyLoopbackOnline(c *trial) {
	b := c.outward("mode: open\n")
	c.internet().Forget()
	r := c.works(b.box, "interfaces")
	for _, line := range r.Lines {
		if strings.HasPrefix(line, "link ") && !strings.HasPrefix(line, "link lo ") {
			c.Errorf("HOLE: there is an interface: %s", line)
		}
	}
	for _, a := range []string{"[fe80::1%lo]:80", "[ff02::2%lo]:80", "[" + lab.Host6.String() + "]:80",
		"[::ffff:" + lab.Host4.String() + "]:80", "[2002:ac1e:2::1]:80", "[64:ff9b::ac1e:2]:80"} {
		b.stays(a, b.talk(outcome.Talk{By: outcome.Direct, At: a,
			Send: "GET / HTTP/1.1\r\nHost: " + a + "\r\nConnection: close\r\n\r\n"}))
	}
	c.row.deny = append([]string{"EADDRNOTAVAIL", "ENOPROTOOPT", "ENETUNREACH"}, denied...)
	for _, option := range []string{"lsrr", "ssrr", "transparent", "freebind", "rthdr", "hopopts", "v6transparent",
		"mark", "device"} {
		if r := b.try(c, "sockopt "+option); r.Outcome == outcome.Succeeded {
			c.remark("%s can be set, on sockets that lead to the gateway", option)
		}
	}
	b.quiet()
	c.control(b, "allowed.lab")
}

// takenSource: whose a connection is, the socket tells that it arrives on; its addresses tell nothing.
func takenSource(c *trial) {
	wide, narrow := c.outward(allow("allowed.lab", "also.lab")), c.outward(allow("allowed.lab"))
	c.internet().Forget()
	for _, from := range []string{"127.0.0.1", "127.0.0.2", "10.9.9.9", lab.Host4.String(), "198.18.0.1",
		lab.Host6.String(), "fd63:6f76:6500::1"} {
		t := outcome.Talk{By: outcome.Direct, From: from, At: "203.0.113.5:80",
			Send: "GET /spoofed HTTP/1.1\r\nHost: also.lab\r\nConnection: close\r\n\r\n"}
		if strings.Contains(from, ":") {
			t.At = "[2001:db8:5::5]:80"
		}
		narrow.stays("from "+from, narrow.talk(t))
	}
	narrow.quiet()
	c.control(wide, "also.lab")
	c.control(narrow, "allowed.lab")
}
