package proxy

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Resolver looks up the addresses of a name; *net.Resolver implements it.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// ResolverAt returns a resolver that asks the DNS server at an address (address:port) alone. Its errors name it.
func ResolverAt(address string) Resolver {
	return &resolverAt{address, net.Resolver{PreferGo: true,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}}}
}

type resolverAt struct {
	address string
	net.Resolver
}

// LookupNetIP implements Resolver. net.Resolver takes the server for the one in resolv.conf, whatever is dialled.
func (r *resolverAt) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	found, err := r.Resolver.LookupNetIP(ctx, network, host)
	var failed *net.DNSError
	if errors.As(err, &failed) && failed.Server != "" {
		named := *failed
		named.Server = r.address
		err = &named
	}
	return found, err
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

const maxAddresses = 16 // of one name that are considered

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
	c, err := d.race(ctx, addresses, port)
	if err != nil {
		return nil, dialFailed(host, port, err)
	}
	return c, nil
}

func (d *Direct) resolve(ctx context.Context, host policy.Host) ([]netip.Addr, error) {
	if a, ok := host.Addr(); ok {
		return []netip.Addr{a}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout())
	defer cancel()
	resolver := cmp.Or[Resolver](d.Resolver, net.DefaultResolver)
	found, err := resolver.LookupNetIP(ctx, "ip", host.Name()+".") // the dot: no search list
	if err != nil {
		return nil, lookupFailed(host, err)
	}
	return found, nil
}

// lookupFailed says inside what became of a lookup. The cause, with the resolver's address, is for the record.
func lookupFailed(host policy.Host, err error) error {
	failed := &cove.Error{Code: cove.Unavailable, Message: fmt.Sprintf("the name %s cannot be looked up", host), Err: err}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		failed.Message = fmt.Sprintf("there is no host named %s", host)
	}
	return failed
}

// dialFailed says inside why a host was not connected to. The cause, with the addresses that were dialled, is for the
// record.
func dialFailed(host policy.Host, port uint16, err error) error {
	failed := &cove.Error{Code: cove.Unavailable, Message: fmt.Sprintf("%s cannot be connected to on port %d", host, port),
		Err: err}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		failed.Message = fmt.Sprintf("nothing listens on port %d of %s", port, host)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		failed.Message = fmt.Sprintf("this machine has no route to %s", host)
	}
	return failed
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
	for i, a := range other[:min(len(first), len(other))] {
		first = slices.Insert(first, 2*i+1, a)
	}
	return append(first, other[min(len(first), len(other)):]...)
}

// race tries one address after another, with a short delay between them. The first connection wins (RFC 8305).
func (d *Direct) race(ctx context.Context, addresses []netip.Addr, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout())
	defer cancel()
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
	pause := cmp.Or(d.Stagger, 250*time.Millisecond)
	stagger := time.NewTimer(pause)
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
				stagger.Reset(pause)
			} else if pending == 0 {
				return nil, failure
			}
		case <-stagger.C: // either: the next round has the other
			if begun < len(addresses) {
				next()
				stagger.Reset(pause)
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

func (d *Direct) timeout() time.Duration { return cmp.Or(d.Timeout, 10*time.Second) }

func (d *Direct) dialUpstream(ctx context.Context, host policy.Host, port uint16,
	check func(netip.Addr) error) (net.Conn, error) {
	if a, ok := host.Addr(); ok {
		if err := check(a); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout())
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", d.Upstream.Host)
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

func (d *Direct) connect(c net.Conn, authority string) (net.Conn, error) {
	request := "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n"
	if user := d.Upstream.User; user != nil {
		password, _ := user.Password()
		basic := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
		request += "Proxy-Authorization: Basic " + basic + "\r\n"
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
	return &aheadConn{c, reader}, nil
}

// aheadConn is a connection of which some bytes have been read already.
type aheadConn struct {
	net.Conn
	reader *bufio.Reader
}

func (a *aheadConn) Read(p []byte) (int, error) { return a.reader.Read(p) }
func (a *aheadConn) CloseWrite() error          { return closeWrite(a.Conn) }
