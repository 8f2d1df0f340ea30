package dns

import (
	"encoding/binary"
	"net/netip"
	"sync"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Names assigns addresses to the names that one sandbox may look up, and maps them back when the sandbox connects.
// Inside, every address is local anyway; outside, the gateway resolves the name itself. So a name cannot be rebound,
// two names never share an address, and a sandbox neither learns nor chooses a real address.
//
// The addresses are of 198.18.0.0/15, which no network routes (RFC 2544), and of a unique local IPv6 prefix.
type Names struct {
	mu    sync.Mutex
	index map[policy.Host]uint32
	names []policy.Host // by index
}

// maxNames bounds the names of one sandbox, by the IPv4 range without its ends, and by memory.
const maxNames = 1 << 16

var (
	base4 = binary.BigEndian.Uint32(netip.MustParseAddr("198.18.0.1").AsSlice())
	base6 = netip.MustParseAddr("fd63:6f76:6500::1").As16()
)

// Addresses returns the addresses of a name, the same each time; false when the table is full.
func (n *Names) Addresses(name policy.Host) (four, six netip.Addr, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, ok := n.index[name]
	if !ok {
		if len(n.names) == maxNames {
			return four, six, false
		}
		if n.index == nil {
			n.index = map[policy.Host]uint32{}
		}
		i = uint32(len(n.names))
		n.index[name], n.names = i, append(n.names, name)
	}
	b := base6
	binary.BigEndian.PutUint32(b[12:], binary.BigEndian.Uint32(b[12:])+i)
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, base4+i))), netip.AddrFrom16(b), true
}

// Name returns the name that an address stands for.
func (n *Names) Name(a netip.Addr) (policy.Host, bool) {
	var i uint32
	if a = a.Unmap(); a.Is4() {
		i = binary.BigEndian.Uint32(a.AsSlice()) - base4
	} else {
		b := a.As16()
		if [12]byte(b[:12]) != [12]byte(base6[:12]) {
			return policy.Host{}, false
		}
		i = binary.BigEndian.Uint32(b[12:]) - binary.BigEndian.Uint32(base6[12:])
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if i >= uint32(len(n.names)) {
		return policy.Host{}, false
	}
	return n.names[i], true
}
