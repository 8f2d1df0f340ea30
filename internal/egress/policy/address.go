package policy

import (
	"net/netip"
	"slices"
	"strings"
)

// special is a range of addresses that rules by name do not open.
type special struct {
	class string
	net   netip.Prefix
}

// specials lists reserved ranges with their class; the first range that contains an address gives its class. Sources:
// IANA's IPv4 and IPv6 special-purpose registries, the documentation of cloud providers. Ranges for documentation are
// left out: no host uses them, and laboratories use them as the public internet.
var specials = []special{
	// Metadata services of clouds, which return keys among other data.
	{"cloud metadata", netip.MustParsePrefix("169.254.169.254/32")}, // AWS, GCP, Azure and most others
	{"cloud metadata", netip.MustParsePrefix("169.254.169.253/32")}, // AWS resolver
	{"cloud metadata", netip.MustParsePrefix("169.254.170.2/32")},   // AWS ECS credentials
	{"cloud metadata", netip.MustParsePrefix("169.254.170.23/32")},  // AWS EKS credentials
	{"cloud metadata", netip.MustParsePrefix("100.100.100.200/32")}, // Alibaba
	{"cloud metadata", netip.MustParsePrefix("168.63.129.16/32")},   // Azure
	{"cloud metadata", netip.MustParsePrefix("192.0.0.192/32")},     // Oracle
	{"cloud metadata", netip.MustParsePrefix("fd00:ec2::/32")},      // AWS: ::254, ::253, ::23
	{"cloud metadata", netip.MustParsePrefix("fd20:ce::254/128")},   // GCP

	{"this network", netip.MustParsePrefix("0.0.0.0/8")}, // Linux takes 0.0.0.0 for loopback
	{"private", netip.MustParsePrefix("10.0.0.0/8")},
	{"shared (CGNAT)", netip.MustParsePrefix("100.64.0.0/10")},
	{"loopback", netip.MustParsePrefix("127.0.0.0/8")},
	{"link-local", netip.MustParsePrefix("169.254.0.0/16")},
	{"private", netip.MustParsePrefix("172.16.0.0/12")},
	{"protocol assignments", netip.MustParsePrefix("192.0.0.0/24")},
	{"6to4 relay", netip.MustParsePrefix("192.88.99.0/24")},
	{"private", netip.MustParsePrefix("192.168.0.0/16")},
	{"benchmarking", netip.MustParsePrefix("198.18.0.0/15")},
	{"multicast", netip.MustParsePrefix("224.0.0.0/4")},
	{"broadcast", netip.MustParsePrefix("255.255.255.255/32")},
	{"reserved", netip.MustParsePrefix("240.0.0.0/4")},

	{"loopback", netip.MustParsePrefix("::1/128")},
	{"unspecified", netip.MustParsePrefix("::/128")},
	{"IPv4-compatible", netip.MustParsePrefix("::/96")},
	{"IPv4-translated", netip.MustParsePrefix("::ffff:0:0:0/96")},
	{"NAT64", netip.MustParsePrefix("64:ff9b::/96")},
	{"NAT64", netip.MustParsePrefix("64:ff9b:1::/48")},
	{"Teredo", netip.MustParsePrefix("2001::/32")},
	{"benchmarking", netip.MustParsePrefix("2001:2::/48")},
	{"protocol assignments", netip.MustParsePrefix("2001::/23")},
	{"6to4", netip.MustParsePrefix("2002::/16")},
	{"unique local", netip.MustParsePrefix("fc00::/7")},
	{"link-local", netip.MustParsePrefix("fe80::/10")},
	{"site-local", netip.MustParsePrefix("fec0::/10")},
	{"multicast", netip.MustParsePrefix("ff00::/8")},
}

// globalV6 is the part of IPv6 that is allocated for the internet.
var globalV6 = netip.MustParsePrefix("2000::/3")

const classMetadata = "cloud metadata"

// Reserved reports whether rules by name never lead to an address, and its class in a few words ("private", "loopback",
// "NAT64 of 10.0.0.1"). Mapped IPv4 is judged as IPv4; every other form that embeds IPv4 is reserved.
func Reserved(a netip.Addr) (class string, reserved bool) {
	if !a.IsValid() {
		return "no address", true
	}
	if a.Zone() != "" {
		return "with a zone", true
	}
	a = a.Unmap()
	for _, s := range specials {
		if s.net.Contains(a) {
			if v4, ok := embedded(a); ok {
				return s.class + " of " + v4.String(), true
			}
			return s.class, true
		}
	}
	if a.Is4() {
		return "", false
	}
	if !globalV6.Contains(a) {
		return "not assigned", true
	}
	if v4, ok := embedded(a); ok {
		return "ISATAP of " + v4.String(), true
	}
	return "", false
}

// metadata reports whether a, or its embedded IPv4 address, is a cloud's metadata service.
func metadata(a netip.Addr) bool {
	a = a.Unmap()
	v4, ok := embedded(a)
	return ok && metadata(v4) ||
		slices.ContainsFunc(specials, func(s special) bool { return s.class == classMetadata && s.net.Contains(a) })
}

// embedded returns the IPv4 address that an IPv6 address leads to.
func embedded(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() || a.Is4In6() {
		return netip.Addr{}, false
	}
	b := a.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	group := func(i int) uint16 { return uint16(b[2*i])<<8 | uint16(b[2*i+1]) }
	switch {
	case group(0) == 0x2002: // 6to4, RFC 3056
		return at(2), true
	case group(0) == 0x2001 && group(1) == 0: // Teredo, RFC 4380: the client's, inverted
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}), true
	case group(0) == 0x64 && group(1) == 0xff9b && group(2) == 1: // RFC 8215: /96 below it is usual
		return at(12), true
	case group(0) == 0x64 && group(1) == 0xff9b: // RFC 6052
		return at(12), true
	case group(4)&^0x0200 == 0 && group(5) == 0x5efe: // ISATAP, RFC 5214
		return at(12), true
	}
	for i := 0; i < 8; i++ {
		if b[i] != 0 {
			return netip.Addr{}, false
		}
	}
	compatible := group(4) == 0 && group(5) == 0 && (group(6) != 0 || group(7) > 1)
	translated := group(4) == 0xffff && group(5) == 0 // RFC 2765
	return at(12), compatible || translated
}

// never are the ranges that no rule opens, neither entirely nor in part.
var never = []special{
	{"this machine", netip.MustParsePrefix("127.0.0.0/8")},
	{"this machine", netip.MustParsePrefix("0.0.0.0/8")},
	{"this machine", netip.MustParsePrefix("::1/128")},
	{"this machine", netip.MustParsePrefix("::/128")},
}

// HostService is the name of the machine's own services inside a sandbox, each opened by a rule with its port. The
// gateway dials loopback for it. No wildcard matches it.
const HostService = "host.cove.internal"

// HostServiceAlias is HostService under the name that programs made for containers know.
const HostServiceAlias = "host.docker.internal"

// GatewayService is the name of the gateway's endpoints inside a sandbox, by HTTP on port 80. No rule opens it: the
// gateway decides on its endpoints. Rules may deny it (see Policy.Denied).
const GatewayService = "gateway.cove.internal"

const ownDomain = ".cove.internal"

// closedNames lead to the machine itself or to a cloud's metadata service. They resolve to addresses that are refused
// anyway; refusing the name gives a better reason.
var closedNames = map[string]string{
	"localhost":                  "this machine",
	"localhost.localdomain":      "this machine",
	"ip6-localhost":              "this machine",
	"ip6-loopback":               "this machine",
	"metadata":                   "cloud metadata",
	"metadata.google.internal":   "cloud metadata",
	"metadata.goog":              "cloud metadata",
	"instance-data":              "cloud metadata",
	"instance-data.ec2.internal": "cloud metadata",
	"metadata.tencentyun.com":    "cloud metadata",
}

// closedName returns the target of a name that no rule can open, or "".
func closedName(name string) string {
	if why := closedNames[name]; why != "" {
		return why
	}
	switch {
	case strings.HasSuffix(name, ".localhost"):
		return "this machine"
	case strings.HasSuffix(name, ownDomain) && name != HostService, name == ownDomain[1:]:
		return "Cove itself"
	case strings.HasSuffix(name, ".metadata.google.internal"):
		return "cloud metadata"
	}
	return ""
}
