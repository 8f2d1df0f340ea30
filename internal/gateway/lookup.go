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

// lookups are the names that are being looked up for one sandbox: a program asks
// for both kinds of addresses of a name at once, which is one look-up. Its answer
// is for one connection, the one that the question was for, and for no longer
// than that takes. For any other a name is looked up when it is dialled. It is
// the addresses that are dialled that are judged, whatever a name led to before.
type lookups struct {
	resolver proxy.Resolver
	clock    clock.Clock

	mu    sync.Mutex
	now   map[policy.Host]*lookup // guarded by mu
	found map[policy.Host]found   // guarded by mu
}

// found are the addresses of a name, and when they were.
type found struct {
	addresses []netip.Addr
	at        clock.Instant
}

const (
	foundLife = time.Second // from an answer to its connection
	maxFound  = 64          // names at a time
)

// lookup is one that is under way; err is set when done is closed.
type lookup struct {
	done chan struct{}
	err  error
}

func newLookups(r proxy.Resolver, c clock.Clock) *lookups {
	return &lookups{resolver: r, clock: c, now: map[policy.Host]*lookup{}, found: map[policy.Host]found{}}
}

// exists looks up whether a name has an address. Errors: dns.ErrNoName.
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
		if !isCancelled(l.err) { // otherwise who looked it up has left
			return l.err
		}
	}
}

// place finds the look-up of a name or begins one, which is the caller's to make
// then.
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

// take gives out the addresses that have just been found, once; none if there
// are none.
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

// isCancelled reports whether a look-up failed because nobody waited for it.
func isCancelled(err error) bool {
	var failed *net.DNSError
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &failed) && failed.IsTimeout
}
