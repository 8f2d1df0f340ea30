package gateway

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/cove-sandbox/cove/internal/egress/dns"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

// lookups are the names that are being looked up for one sandbox: a program asks
// for both kinds of addresses of a name at once, which is one look-up. Nothing is
// remembered: a name is looked up again when it is dialled, and it is those
// addresses that are judged, whatever it led to before.
type lookups struct {
	resolver proxy.Resolver

	mu  sync.Mutex
	now map[policy.Host]*lookup // guarded by mu
}

// lookup is one that is under way; err is set when done is closed.
type lookup struct {
	done chan struct{}
	err  error
}

func newLookups(r proxy.Resolver) *lookups {
	return &lookups{resolver: r, now: map[policy.Host]*lookup{}}
}

// exists looks up whether a name has an address. Errors: dns.ErrNoName.
func (s *lookups) exists(ctx context.Context, name policy.Host) error {
	for {
		l, mine := s.place(name)
		if mine {
			l.err = s.ask(ctx, name)
			s.settle(name, l)
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

func (s *lookups) settle(name policy.Host, l *lookup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.now, name)
	close(l.done)
}

func (s *lookups) ask(ctx context.Context, name policy.Host) error {
	found, err := s.resolver.LookupNetIP(ctx, "ip", name.Name()+".") // the dot: no search list
	var missing *net.DNSError
	if errors.As(err, &missing) && missing.IsNotFound || err == nil && len(found) == 0 {
		return dns.ErrNoName
	}
	return err
}

// isCancelled reports whether a look-up failed because nobody waited for it.
func isCancelled(err error) bool {
	var failed *net.DNSError
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &failed) && failed.IsTimeout
}
