//go:build linux

// Package lab owns an internet for tests: a network namespace in which public addresses, private ones and those of a
// cloud's metadata are local, with a resolver and origins that remember what reached them, and a look at every packet
// that arrives. The test itself, and the Cove under test, run in another namespace, whose default routes lead there; so
// whatever would leave a real machine is seen.
package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// inside is set in the process that has network namespaces of its own.
const inside = "COVE_TEST_LAB"

// Main is TestMain for packages that use the lab: it runs the tests in a network namespace of their own, where it may
// make one, and returns what to exit with.
func Main(m *testing.M) int {
	if os.Geteuid() != 0 || os.Getenv(inside) != "" {
		return m.Run()
	}
	runtime.LockOSThread() // the tests end with the thread that started them
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

// Addresses of the lab. Documentation ranges would do for policies, but not for clients that know them.
var (
	Web4     = netip.MustParseAddr("93.184.216.34") // of every name that is not said otherwise
	Web6     = netip.MustParseAddr("2606:2800:220:1::34")
	Evil4    = netip.MustParseAddr("93.184.216.66") // of evil.lab and names below it
	Evil6    = netip.MustParseAddr("2606:2800:220:1::66")
	Nowhere  = netip.MustParseAddr("93.184.216.35") // where nobody listens
	Resolver = netip.MustParseAddr("9.9.9.9")
	Private  = netip.MustParseAddr("10.9.9.9")

	// What the hostile corpus allows by address.
	ByAddress4 = netip.MustParseAddr("198.51.100.7")
	ByAddress6 = netip.MustParseAddr("2001:db8::7")

	// Others are other people's resolvers, clouds, a translated address.
	Others = []netip.Addr{
		netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("2001:4860:4860::8888"),
		netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("168.63.129.16"),
		netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("64:ff9b::a9fe:a9fe"),
	}
)

// The cable between the machine under test and the lab.
var (
	Host4  = netip.MustParseAddr("172.30.0.2") // the machine's own
	Host6  = netip.MustParseAddr("fd1a:b::2")
	cable4 = netip.MustParsePrefix("172.30.0.0/30")
	cable6 = netip.MustParsePrefix("fd1a:b::/64")
	far4   = netip.MustParseAddr("172.30.0.1")
	far6   = netip.MustParseAddr("fd1a:b::1")
)

// Missing is why there can be no lab here, or nothing.
func Missing() string {
	if os.Getenv(inside) == "" {
		return "needs root: network namespaces of its own, and sandboxes"
	}
	return ""
}

// world is the namespace of the internet, one for the process.
var world = sync.OnceValues(makeWorld)

func makeWorld() (netns.NsHandle, error) {
	type made struct {
		ns  netns.NsHandle
		err error
	}
	done := make(chan made)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		ns, err := netns.New()
		done <- made{ns, err}
	}()
	m := <-done
	if m.err != nil {
		return 0, fmt.Errorf("a network namespace: %w", m.err)
	}
	there, err := netlink.NewHandleAt(m.ns)
	if err != nil {
		return 0, err
	}
	defer there.Close()
	public := append([]netip.Addr{Web4, Web6, Evil4, Evil6, Nowhere, Resolver, Private, ByAddress4, ByAddress6}, Others...)
	if err := raise(there, "lo", alone(public)...); err != nil || os.Getenv(inside) == "" {
		return m.ns, err
	}
	here, err := netlink.NewHandle()
	if err != nil {
		return 0, err
	}
	defer here.Close()
	return m.ns, cable{cableName, cable4, cable6, Host4, Host6, far4, far6}.lay(m.ns, there, here)
}

// cable joins a machine and the internet.
type cable struct {
	name             string // of its end in the internet
	prefix4, prefix6 netip.Prefix
	host4, host6     netip.Addr
	far4, far6       netip.Addr
}

// lay makes the cable, and leads the machine's default routes over it.
func (c cable) lay(ns netns.NsHandle, there, here *netlink.Handle) error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "uplink"
	if err := here.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: c.name,
		PeerNamespace: netlink.NsFd(int(ns))}); err != nil {
		return err
	}
	in := func(a netip.Addr, p netip.Prefix) netip.Prefix { return netip.PrefixFrom(a, p.Bits()) }
	if err := errors.Join(raise(there, c.name, in(c.far4, c.prefix4), in(c.far6, c.prefix6)), raise(here, "lo"),
		raise(here, "uplink", in(c.host4, c.prefix4), in(c.host6, c.prefix6))); err != nil {
		return err
	}
	for _, via := range []netip.Addr{c.far4, c.far6} {
		if err := here.RouteAdd(&netlink.Route{Gw: net.IP(via.AsSlice())}); err != nil {
			return fmt.Errorf("route by %s: %w", via, err)
		}
	}
	return nil
}

const cableName = "lab"

// raise gives a link addresses, and sets it up.
func raise(h *netlink.Handle, name string, addresses ...netip.Prefix) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return err
	}
	if err := h.LinkSetUp(link); err != nil {
		return err
	}
	for _, a := range addresses {
		address, err := netlink.ParseAddr(a.String())
		if err != nil {
			return err
		}
		address.Flags = unix.IFA_F_NODAD
		if err := h.AddrAdd(link, address); err != nil {
			return fmt.Errorf("%s on %s: %w", a, name, err)
		}
	}
	return nil
}

// Join lays a cable between the internet and the network namespace of a process. The number is the cable's own, from
// 1 to 60.
func Join(number, process int) error {
	ns, err := world()
	if err != nil {
		return err
	}
	theirs, err := netns.GetFromPid(process)
	if err != nil {
		return err
	}
	defer theirs.Close()
	there, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer there.Close()
	here, err := netlink.NewHandleAt(theirs)
	if err != nil {
		return err
	}
	defer here.Close()
	host4, host6 := netip.AddrFrom4([4]byte{172, 30, byte(number), 2}),
		netip.MustParseAddr(fmt.Sprintf("fd1a:b:%x::2", number))
	return cable{fmt.Sprint(cableName, number), netip.PrefixFrom(host4, 30), netip.PrefixFrom(host6, 64), host4, host6,
		host4.Prev(), host6.Prev()}.lay(ns, there, here)
}

func alone(addresses []netip.Addr) (all []netip.Prefix) {
	for _, a := range addresses {
		all = append(all, netip.PrefixFrom(a, a.BitLen()))
	}
	return all
}

// there runs f in the internet's namespace; sockets that f makes stay there.
func there[T any](f func() (T, error)) (T, error) {
	type made struct {
		value T
		err   error
	}
	done := make(chan made)
	go func() {
		runtime.LockOSThread() // for good: the thread is not given back
		var m made
		ns, err := world()
		if err == nil {
			err = netns.Set(ns)
		}
		if m.err = err; err == nil {
			m.value, m.err = f()
		}
		done <- m
	}()
	m := <-done
	return m.value, m.err
}

// Listen listens in the lab for TCP.
func Listen(address netip.AddrPort) (net.Listener, error) {
	return there(func() (net.Listener, error) { return net.Listen("tcp", address.String()) })
}

// ListenPacket listens in the lab for UDP.
func ListenPacket(address netip.AddrPort) (net.PacketConn, error) {
	return there(func() (net.PacketConn, error) { return net.ListenPacket("udp", address.String()) })
}
