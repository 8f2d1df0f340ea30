package adversary

import (
	"fmt"
)

// Families, types and protocols by their kernel numbers.
const (
	afUnix, afInet, afInet6, afAppletalk, afAX25, afX25  = 1, 2, 10, 5, 3, 9
	afKey, afNetlink, afPacket, afRDS, afCAN, afTIPC     = 15, 16, 17, 21, 29, 30
	afBluetooth, afPhonet, afALG, afNFC, afVsock, afQRTR = 31, 35, 38, 39, 40, 42
	afSMC, afXDP, afIPX, afPPPoX, afLLC, afIUCV          = 43, 44, 4, 24, 26, 32

	stream, dgram, raw, seqpacket, oldPacket = 1, 2, 3, 5, 10
)

// family is a row that asks for one kind of socket through every door: the call itself, the call with bits that the
// kernel ignores and a filter might not, with the flags that go with the type, and through the 32-bit table by both of
// its calls.
func family(id, what string, family, kind, protocol int) row {
	plain := fmt.Sprintf("%d %d %d", family, kind, protocol)
	return row{
		id: "K2." + id, invariant: "H3", what: what,
		attempts: []string{
			"socket " + plain,
			fmt.Sprintf("socket %#x %d %d", 1<<32|family, kind, protocol),
			fmt.Sprintf("socket %d %#x %d", family, 0o2004000|kind, protocol),
			fmt.Sprintf("socket %d %#x %d", family, 1<<32|kind, protocol),
			fmt.Sprintf("socket %d %d %#x", family, kind, 1<<32|protocol),
			"int80_socket " + plain,
			"int80_sockcall " + plain,
		},
		deny: append([]string{"EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT"}, denied...),
		inside: []string{
			fmt.Sprintf("socket %d %d 0", afInet, stream), fmt.Sprintf("socket %d %d 17", afInet6, dgram),
			fmt.Sprintf("socket %d %d 0", afUnix, stream),
		},
	}
}

// socketRows are sockets that reach past the sandbox's network namespace, or into code that nobody needs (K2).
func socketRows() []row {
	return []row{
		family("vsock", "the hypervisor's socket, which knows no namespaces", afVsock, stream, 0),
		family("alg", "the kernel's cryptography", afALG, seqpacket, 0),
		family("packet", "raw frames", afPacket, raw, 0x0300),
		family("packet_dgram", "cooked frames", afPacket, dgram, 0x0300),
		family("packet_old", "raw frames by the old type", afInet, oldPacket, 0x0300),
		family("xdp", "frames past the stack", afXDP, raw, 0),
		family("key", "the IPsec key table", afKey, raw, 2),
		family("netfilter", "the firewall's table", afNetlink, raw, 12),
		family("audit", "the audit log", afNetlink, raw, 9),
		family("kobject", "device events", afNetlink, raw, 15),
		family("generic", "generic netlink, many drivers behind one door", afNetlink, raw, 16),
		family("sock_diag", "other sockets of the host", afNetlink, raw, 4),
		family("xfrm", "IPsec by netlink", afNetlink, raw, 6),
		family("connector", "process events", afNetlink, dgram, 11),
		family("crypto", "cryptography by netlink", afNetlink, raw, 21),
		family("raw", "raw IPv4", afInet, raw, 255),
		family("raw_icmp", "raw ICMP", afInet, raw, 1),
		family("raw6", "raw IPv6", afInet6, raw, 58),
		family("mptcp", "a protocol that is a module", afInet, stream, 262),
		family("sctp", "a protocol that is a module", afInet, stream, 132),
		family("dccp", "a protocol that is a module", afInet, 6, 33),
		family("bluetooth", "radio", afBluetooth, raw, 1),
		family("can", "a vehicle's bus", afCAN, raw, 1),
		family("tipc", "a cluster's sockets", afTIPC, seqpacket, 0),
		family("rds", "reliable datagrams", afRDS, seqpacket, 0),
		family("smc", "shared-memory sockets", afSMC, stream, 0),
		family("qrtr", "the modem's sockets", afQRTR, dgram, 0),
		family("llc", "link layer", afLLC, dgram, 0),
		family("pppox", "tunnels", afPPPoX, dgram, 0),
		family("legacy", "protocols of the last century", afAppletalk, dgram, 0),
		family("x25", "protocols of the last century", afX25, seqpacket, 0),
		family("nfc", "near field", afNFC, raw, 0),
		family("phonet", "the phone's bus", afPhonet, dgram, 0),
		{id: "K2.socketpair", invariant: "H3", what: "a pair of some other family",
			attempts: []string{"socketpair 30 5 0", "socketpair 0x10000001e 5 0", "socketpair 2 1 0"},
			deny:     append([]string{"EAFNOSUPPORT", "EOPNOTSUPP"}, denied...),
			inside:   []string{"socketpair 1 1 0", "socketpair 1 2 0"}},
		{id: "K2.link", invariant: "H3", what: "configure an interface over the netlink family that is left",
			attempts: []string{"netlink_link_up"}, inside: []string{"netlink_route"}},
	}
}
