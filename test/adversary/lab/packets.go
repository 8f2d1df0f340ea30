//go:build linux

package lab

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// Packet is one that arrived from the machine under test and begins something:
// of TCP those that open a connection, and all others.
type Packet struct {
	Protocol byte           // of IP: 6 is TCP, 17 UDP
	To       netip.AddrPort // port 0 where the protocol has none
	Question string         // of DNS over UDP: the name that is asked for
}

// watch remembers packets that arrive over the cable, whether anybody listens for them or not. Those that a machine
// sends by itself, to find out who is beside it, are left out.
func (i *Internet) watch(t testing.TB) {
	t.Helper()
	f, err := there(func() (*os.File, error) {
		link, err := net.InterfaceByName(cableName)
		if err != nil {
			return nil, err
		}
		const ethAll = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, ethAll)
		if err != nil {
			return nil, err
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: ethAll, Ifindex: link.Index}); err != nil {
			unix.Close(fd)
			return nil, err
		}
		return os.NewFile(uintptr(fd), "packets"), nil
	})
	if err != nil {
		t.Fatal("the lab cannot see packets: ", err)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 64<<10)
		for {
			var n int
			var from unix.Sockaddr
			var failed error
			err := raw.Read(func(fd uintptr) bool {
				n, from, failed = unix.Recvfrom(int(fd), b, 0)
				return failed != unix.EAGAIN
			})
			if err != nil || failed != nil {
				return
			}
			if link, ok := from.(*unix.SockaddrLinklayer); ok && link.Pkttype == unix.PACKET_OUTGOING {
				continue // the lab's own
			}
			if p, ok := readPacket(b[:n]); ok {
				i.mu.Lock()
				i.packets = append(i.packets, p)
				i.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() { f.Close(); <-done })
}

func readPacket(b []byte) (p Packet, ok bool) {
	var rest []byte
	var to netip.Addr
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		p.Protocol, to = b[9], netip.AddrFrom4([4]byte(b[16:20]))
		rest = b[min(len(b), int(b[0]&15)*4):]
	case len(b) >= 40 && b[0]>>4 == 6:
		p.Protocol, to = b[6], netip.AddrFrom16([16]byte(b[24:40]))
		rest = b[40:]
	default:
		return p, false // ARP
	}
	port := uint16(0)
	switch p.Protocol {
	case unix.IPPROTO_TCP:
		const syn, ack = 2, 16
		if len(rest) < 14 || rest[13]&(syn|ack) != syn {
			return p, false
		}
		port = binary.BigEndian.Uint16(rest[2:])
	case unix.IPPROTO_UDP:
		if len(rest) < 4 {
			return p, false
		}
		port = binary.BigEndian.Uint16(rest[2:])
		if port == 53 && len(rest) > 8 {
			p.Question = question(rest[8:])
		}
	case unix.IPPROTO_ICMPV6: // router and neighbour discovery, group membership
		if len(rest) == 0 || rest[0] >= 130 {
			return p, false
		}
	case unix.IPPROTO_HOPOPTS:
		return p, false
	}
	p.To = netip.AddrPortFrom(to, port)
	return p, true
}

// Packets are those that have arrived since Forget.
func (i *Internet) Packets() []Packet {
	i.settle()
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]Packet(nil), i.packets...)
}

// settle sends a packet of its own and waits until it has been seen: then so have those before it.
func (i *Internet) settle() {
	i.mu.Lock()
	i.marks++
	mark := netip.AddrPortFrom(Resolver, 20000+uint16(i.marks%40000))
	i.mu.Unlock()
	c, err := net.Dial("udp", mark.String())
	if err != nil {
		return
	}
	defer c.Close()
	for tries := range 1000 {
		if tries%10 == 0 {
			c.Write([]byte("mark"))
		}
		time.Sleep(500 * time.Microsecond)
		i.mu.Lock()
		for at := len(i.packets) - 1; at >= 0; at-- {
			if i.packets[at] == (Packet{Protocol: unix.IPPROTO_UDP, To: mark}) {
				kept := i.packets[:0]
				for _, p := range i.packets {
					if p.To != mark {
						kept = append(kept, p)
					}
				}
				i.packets = kept
				i.mu.Unlock()
				return
			}
		}
		i.mu.Unlock()
	}
}

// question is the first name that a message of DNS asks for; empty: it is none.
func question(text []byte) string {
	var m dns.Msg
	if m.Unpack(text) != nil || len(m.Question) == 0 {
		return ""
	}
	return m.Question[0].Name
}
