//go:build linux

// Package transparent plans a network namespace whose only way out is the gateway.
//
// The namespace has no interface except loopback. Every address counts as local there, so that any program may connect
// anywhere. The firewall redirects every TCP connection to one port and every DNS query to another, where the gateway
// listens, and refuses everything else at once. Traffic to loopback addresses stays inside.
//
// The package is pure: it makes the messages for the kernel, and a thread in the namespace sends them (package
// netsetup).
package transparent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/netsetup"
)

// Plan lists the ports of the gateway's listeners.
type Plan struct {
	TCPPort uint16 // target of redirected TCP connections, on loopback
	DNSPort uint16 // target of DNS queries, over UDP and TCP
	// Again makes messages for a namespace that has been set up before: they replace its rules at once.
	Again bool
}

// loopbackIndex is the interface index of lo, the first of every namespace.
const loopbackIndex = 1

// Messages returns all messages for a namespace, whether it has been set up before or not.
func (p Plan) Messages() (m netsetup.Messages, err error) {
	p.Again = true
	if m.Routes, err = p.Routes(); err == nil {
		m.Firewall, err = p.Firewall()
	}
	return m, err
}

// Routes returns messages for NETLINK_ROUTE that make every IPv4 and IPv6 destination local, with a loopback source.
func (p Plan) Routes() ([]byte, error) {
	flags := netlink.Request | netlink.Acknowledge | netlink.Create
	if p.Again {
		flags |= netlink.Replace
	}
	var messages []netlink.Message
	for _, source := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		family := byte(unix.AF_INET)
		if source.Is6() {
			family = unix.AF_INET6
		}
		attributes := netlink.NewAttributeEncoder()
		attributes.Uint32(unix.RTA_OIF, loopbackIndex)
		attributes.Bytes(unix.RTA_PREFSRC, source.AsSlice())
		encoded, err := attributes.Encode()
		if err != nil {
			return nil, err
		}
		// struct rtmsg: family, lengths of destination and source, tos, table, protocol, scope, type, flags
		header := []byte{family, 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST,
			unix.RTN_LOCAL, 0, 0, 0, 0}
		messages = append(messages, netlink.Message{
			Header: netlink.Header{Type: unix.RTM_NEWROUTE, Flags: flags},
			Data:   append(header, encoded...),
		})
	}
	return encode(messages)
}

func encode(messages []netlink.Message) ([]byte, error) {
	var all []byte
	for i, m := range messages {
		m.Header.Sequence = uint32(i + 1)
		m.Header.Length = uint32(unix.NLMSG_HDRLEN + (len(m.Data)+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1))
		for len(m.Data)%unix.NLMSG_ALIGNTO != 0 {
			m.Data = append(m.Data, 0)
		}
		b, err := m.MarshalBinary()
		if err != nil {
			return nil, fmt.Errorf("encode a netlink message: %w", err)
		}
		all = append(all, b...)
	}
	return all, nil
}

var errCaptured = errors.New("captured")

// Firewall returns the rule set as one batch of messages for NETLINK_NETFILTER.
func (p Plan) Firewall() ([]byte, error) {
	var sent []netlink.Message
	conn, err := nftables.New(nftables.WithTestDial(func(batch []netlink.Message) ([]netlink.Message, error) {
		sent = batch
		return nil, errCaptured // instead of the kernel's answers
	}))
	if err != nil {
		return nil, err
	}
	p.addRules(conn)
	if err := conn.Flush(); err != nil && !errors.Is(err, errCaptured) {
		return nil, fmt.Errorf("encode the firewall: %w", err)
	}
	return encode(sent)
}

func (p Plan) addRules(conn *nftables.Conn) {
	table := &nftables.Table{Name: "cove", Family: nftables.TableFamilyINet}
	conn.AddTable(table)
	if p.Again {
		conn.DelTable(table) // the old table, whether or not it exists
		conn.AddTable(table)
	}
	accept := []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	add := func(c *nftables.Chain, parts ...[]expr.Any) {
		conn.AddRule(&nftables.Rule{Table: table, Chain: c, Exprs: slices.Concat(parts...)})
	}

	chain := func(name string, kind nftables.ChainType, priority *nftables.ChainPriority) *nftables.Chain {
		return conn.AddChain(&nftables.Chain{Name: name, Table: table, Type: kind, Hooknum: nftables.ChainHookOutput,
			Priority: priority})
	}
	turn := chain("turn", nftables.ChainTypeNAT, nftables.ChainPriorityNATDest)
	for _, protocol := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		add(turn, transport(protocol), destinationPort(53), redirect(p.DNSPort))
	}
	for _, own := range loopback() {
		add(turn, own, accept)
	}
	add(turn, transport(unix.IPPROTO_TCP), redirect(p.TCPPort))
	refuse := chain("refuse", nftables.ChainTypeFilter, nftables.ChainPriorityFilter)
	add(refuse, established(), accept)
	for _, own := range loopback() { // redirected traffic has a loopback destination now
		add(refuse, own, accept)
	}
	add(refuse, []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH}})
}

// equal matches when what load puts into register 1 equals data.
func equal(load expr.Any, data []byte) []expr.Any {
	return []expr.Any{load, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data}}
}

func transport(protocol byte) []expr.Any {
	return equal(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, []byte{protocol})
}

func destinationPort(port uint16) []expr.Any {
	return equal(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		binary.BigEndian.AppendUint16(nil, port))
}

// loopback returns, for each family, a match on loopback destinations.
func loopback() [2][]expr.Any {
	family := func(f byte, offset uint32, destination []byte) []expr.Any {
		return append(equal(&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, []byte{f}),
			equal(&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset,
				Len: uint32(len(destination))}, destination)...)
	}
	return [2][]expr.Any{
		family(unix.NFPROTO_IPV4, 16, []byte{127}), // 127.0.0.0/8
		family(unix.NFPROTO_IPV6, 24, netip.IPv6Loopback().AsSlice()),
	}
}

func established() []expr.Any {
	state := binary.NativeEndian.AppendUint32(nil, expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED)
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: state, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

func redirect(port uint16) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: binary.BigEndian.AppendUint16(nil, port)},
		&expr.Redir{RegisterProtoMin: 1},
	}
}
