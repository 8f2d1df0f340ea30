package proxy

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Resolver looks up the addresses of a name; *net.Resolver implements it.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Direct is the Dialer that connects to origins itself or through an upstream proxy.
type Direct struct {
	Resolver Resolver // nil: the host's own

	// Upstream, if set, is an HTTP proxy (http://[user:password@]host:port) that Direct asks to CONNECT to every origin.
	// The upstream then resolves the names, so only addresses in requests are checked here.
	Upstream *url.URL

	Timeout time.Duration // for one connection; 10 s
	Stagger time.Duration // delay before the next address is tried in parallel; 250 ms (RFC 8305)
}

const (
	defaultDialTimeout = 10 * time.Second
	defaultStagger     = 250 * time.Millisecond

	maxAddresses = 16 // of one name that are considered
)

// Dial resolves host once, checks every address, and connects to one of them. One refused address refuses them all: a
// name that leads inside as well as outside is an attack or a mistake.
func (d *Direct) Dial(ctx context.Context, host policy.Host, port uint16, known []netip.Addr,
	check func(netip.Addr) error) (net.Conn, error) {
	if d.Upstream != nil {
		return d.dialUpstream(ctx, host, port, check)
	}
	found := known
	if len(found) == 0 {
		var err error
		if found, err = d.resolve(ctx, host); err != nil {
			return nil, err
		}
	}
	addresses, err := inOrder(host, found)
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		if err := check(a); err != nil {
			return nil, err
		}
	}
	return d.race(ctx, addresses, port)
}

func (d *Direct) resolve(ctx context.Context, host policy.Host) ([]netip.Addr, error) {
	if a, ok := host.Addr(); ok {
		return []netip.Addr{a}, nil
	}
	resolver := d.Resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout())
	defer cancel()
	found, err := resolver.LookupNetIP(ctx, "ip", host.Name()+".") // the dot: no search list
	if err != nil {
		return nil, cove.Errorf(cove.Unavailable, "look up %s: %w", host, err)
	}
	return found, nil
}

// inOrder returns the distinct addresses in the order in which they are tried.
func inOrder(host policy.Host, found []netip.Addr) ([]netip.Addr, error) {
	var addresses []netip.Addr
	for _, a := range found {
		if a = a.Unmap(); a.IsValid() && a.Zone() == "" && !slices.Contains(addresses, a) {
			addresses = append(addresses, a)
		}
	}
	if len(addresses) == 0 || len(addresses) > maxAddresses {
		return nil, cove.Errorf(cove.Unavailable, "look up %s: %d addresses", host, len(addresses))
	}
	return interleave(addresses), nil
}

// interleave alternates families, beginning with the resolver's first choice.
func interleave(addresses []netip.Addr) []netip.Addr {
	first, other := []netip.Addr{}, []netip.Addr{}
	for _, a := range addresses {
		if a.Is4() == addresses[0].Is4() {
			first = append(first, a)
		} else {
			other = append(other, a)
		}
	}
	var mixed []netip.Addr
	for i := range max(len(first), len(other)) {
		if i < len(first) {
			mixed = append(mixed, first[i])
		}
		if i < len(other) {
			mixed = append(mixed, other[i])
		}
	}
	return mixed
}

// race tries one address after another, with a short delay between them. The first connection wins (RFC 8305).
func (d *Direct) race(ctx context.Context, addresses []netip.Addr, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout())
	defer cancel()
	if len(addresses) == 1 {
		c, err := connectTo(ctx, netip.AddrPortFrom(addresses[0], port))
		if err != nil {
			return nil, cove.Errorf(cove.Unavailable, "connect: %w", err)
		}
		return c, nil
	}
	type attempt struct {
		conn net.Conn
		err  error
	}
	attempts := make(chan attempt)
	begun, pending := 0, 0
	next := func() {
		to := netip.AddrPortFrom(addresses[begun], port)
		begun++
		pending++
		go func() {
			c, err := connectTo(ctx, to)
			attempts <- attempt{c, err}
		}()
	}
	defer func() { // close the losers, whose attempts are cancelled
		cancel()
		for range pending {
			if a := <-attempts; a.conn != nil {
				a.conn.Close()
			}
		}
	}()
	stagger := time.NewTimer(d.stagger())
	defer stagger.Stop()
	next()
	var failure error
	for {
		select {
		case a := <-attempts:
			pending--
			if a.err == nil {
				return a.conn, nil
			}
			if failure == nil {
				failure = a.err
			}
			if begun < len(addresses) {
				next()
				stagger.Reset(d.stagger())
			} else if pending == 0 {
				return nil, cove.Errorf(cove.Unavailable, "connect: %w", failure)
			}
		case <-stagger.C:
			if begun < len(addresses) {
				next()
				stagger.Reset(d.stagger())
			}
		}
	}
}

func connectTo(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	c, err := new(net.Dialer).DialTCP(ctx, "tcp", netip.AddrPort{}, to)
	if err != nil {
		return nil, err // not a nil *net.TCPConn in an interface
	}
	return c, nil
}

func (d *Direct) timeout() time.Duration {
	if d.Timeout > 0 {
		return d.Timeout
	}
	return defaultDialTimeout
}

func (d *Direct) stagger() time.Duration {
	if d.Stagger > 0 {
		return d.Stagger
	}
	return defaultStagger
}

// dialUpstream requests a connection from the upstream proxy.
func (d *Direct) dialUpstream(ctx context.Context, host policy.Host, port uint16,
	check func(netip.Addr) error) (net.Conn, error) {
	if a, ok := host.Addr(); ok {
		if err := check(a); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout())
	defer cancel()
	dialer := net.Dialer{Resolver: nil}
	c, err := dialer.DialContext(ctx, "tcp", d.Upstream.Host)
	if err != nil {
		return nil, cove.Errorf(cove.Unavailable, "connect to the upstream proxy: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	joined, err := d.connect(c, host.Authority(port))
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, cove.Errorf(cove.Unavailable, "connect through the upstream proxy: %w", err)
	}
	return joined, nil
}

// connect speaks CONNECT on a fresh connection to a proxy.
func (d *Direct) connect(c net.Conn, authority string) (net.Conn, error) {
	request := "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n"
	if user := d.Upstream.User; user != nil {
		password, _ := user.Password()
		request += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)) +
			"\r\n"
	}
	if _, err := c.Write([]byte(request + "\r\n")); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(c)
	res, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered %s", res.Status)
	}
	if reader.Buffered() == 0 {
		return c, nil
	}
	ahead, _ := reader.Peek(reader.Buffered())
	return &aheadConn{Conn: c, ahead: ahead}, nil
}

// aheadConn is a connection of which some bytes have been read already.
type aheadConn struct {
	net.Conn
	ahead []byte
}

func (a *aheadConn) Read(p []byte) (int, error) {
	if len(a.ahead) > 0 {
		n := copy(p, a.ahead)
		a.ahead = a.ahead[n:]
		return n, nil
	}
	return a.Conn.Read(p)
}

func (a *aheadConn) CloseWrite() error { return closeWrite(a.Conn) }
