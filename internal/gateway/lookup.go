package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/dns"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

// lookups holds the look-ups of one sandbox. A program asks for both address families of a name at once, in one
// look-up. Its result serves the connection that follows the query, once and within a second; for any other, the name
// is looked up when it is dialled. Policy judges the dialled addresses, whatever an earlier look-up returned.
type lookups struct {
	resolver proxy.Resolver
	clock    clock.Clock

	mu    sync.Mutex
	now   map[policy.Host]*lookup // guarded by mu
	found map[policy.Host]found   // guarded by mu
}

type found struct {
	addresses []netip.Addr
	at        clock.Instant
}

const (
	foundLife = time.Second // from an answer to its connection
	maxFound  = 64          // names at a time
)

// lookup is a look-up in progress; err is set before done is closed.
type lookup struct {
	done chan struct{}
	err  error
}

func newLookups(r proxy.Resolver, c clock.Clock) *lookups {
	return &lookups{resolver: r, clock: c, now: map[policy.Host]*lookup{}, found: map[policy.Host]found{}}
}

func (s *lookups) exists(ctx context.Context, name policy.Host) error {
	for {
		l, mine := s.place(name)
		if mine {
			var addresses []netip.Addr
			addresses, l.err = s.ask(ctx, name)
			s.settle(name, l, addresses)
			return l.err
		}
		select {
		case <-l.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !isCancelled(l.err) { // otherwise the caller that made it has left
			return l.err
		}
	}
}

// place returns the look-up of a name in progress, or a new one, which the caller then has to make.
func (s *lookups) place(name policy.Host) (l *lookup, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.now[name]; ok {
		return l, false
	}
	l = &lookup{done: make(chan struct{})}
	s.now[name] = l
	return l, true
}

func (s *lookups) settle(name policy.Host, l *lookup, addresses []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.now, name)
	delete(s.found, name)
	if len(s.found) >= maxFound {
		clear(s.found)
	}
	if l.err == nil {
		s.found[name] = found{addresses, s.clock.Monotonic()}
	}
	close(l.done)
}

// take returns the addresses of the last look-up, once; none if there are none.
func (s *lookups) take(name policy.Host) []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.found[name]
	delete(s.found, name)
	if !ok || s.clock.Since(f.at) > foundLife {
		return nil
	}
	return f.addresses
}

func (s *lookups) ask(ctx context.Context, name policy.Host) ([]netip.Addr, error) {
	addresses, err := s.resolver.LookupNetIP(ctx, "ip", name.Name()+".") // the dot: no search list
	var missing *net.DNSError
	if errors.As(err, &missing) && missing.IsNotFound || err == nil && len(addresses) == 0 {
		return nil, dns.ErrNoName
	}
	return addresses, err
}

// isCancelled reports whether a look-up failed because its caller left.
func isCancelled(err error) bool {
	var failed *net.DNSError
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &failed) && failed.IsTimeout
}
