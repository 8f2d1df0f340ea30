package credential

import (
	"context"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/redact"
	"github.com/cove-sandbox/cove/internal/secret"
)

const (
	// lifetime is how long a program's value is used.
	lifetime = 5 * time.Minute
	// settled is how old a value must be for a refusal to count: no sandbox makes programs run on the host at will.
	settled = 30 * time.Second
	// pause is the delay after a failure before a program is run again.
	pause = 10 * time.Second
	// maxFormer bounds the replaced values of one source that stay known; keys of AWS may have two each.
	maxFormer = 4
)

// Values caches the values of sources in memory. Variables and files are read each time, programs run for an old value.
type Values struct {
	clock  clock.Clock
	flight singleflight.Group

	mu      sync.Mutex
	held    map[place]*held // by source and account
	version uint64          // counts changes of any value
}

type place struct{ source, account string }

// secrets returns the values of a login that answers must not have in them.
func (l login) secrets() (all []secret.Value) {
	for _, v := range []secret.Value{l.value, l.session} {
		if !v.IsZero() {
			all = append(all, v)
		}
	}
	return all
}

type held struct {
	login  login
	former []secret.Value
	at     clock.Instant
	old    bool
	err    error // of the last attempt
}

// NewValues returns an empty cache.
func NewValues(c clock.Clock) *Values {
	return &Values{clock: c, held: map[place]*held{}}
}

func (v *Values) get(ctx context.Context, s Source, host policy.Host, port uint16) (login, error) {
	p := place{s.key(), s.account(host, port)}
	if !s.program() {
		return v.read(ctx, s, p)
	}
	if l, ok, err := v.fresh(p); ok {
		return l, err
	}
	// Other waiters get the value even if the first one leaves.
	result, err, _ := v.flight.Do(p.source+"\x00"+p.account, func() (any, error) {
		if l, ok, err := v.fresh(p); ok {
			return l, err
		}
		l, err := v.read(context.WithoutCancel(ctx), s, p)
		if err != nil {
			v.fail(p, err)
		}
		return l, err
	})
	if err != nil {
		return login{}, err
	}
	return result.(login), nil
}

func (v *Values) read(ctx context.Context, s Source, p place) (login, error) {
	user, value, err := s.read(ctx, p.account)
	if err != nil {
		return login{}, err
	}
	l, keys, err := keysOfAWS(value)
	switch {
	case err != nil:
		return login{}, err
	case keys && l.ended(v.clock.Now().Add(-early)):
		return login{}, cove.Errorf(cove.InvalidArgument, "the keys of AWS have ended, at %s",
			l.expires.Format(time.RFC3339))
	case keys:
		v.keep(p, l)
		return l, nil
	}
	if n := len(value); n < redact.MinLength || n > redact.MaxLength {
		return login{}, cove.Errorf(cove.InvalidArgument, "it has %d bytes, and must have %d to %d to be kept out of answers",
			n, redact.MinLength, redact.MaxLength)
	}
	if !printable(value) || strings.TrimSpace(value) != value {
		return login{}, cove.Errorf(cove.InvalidArgument, "it has control characters, or spaces at an end")
	}
	l = login{user: user, value: secret.New(value)}
	v.keep(p, l)
	return l, nil
}

// fresh returns a program's value, or its error, if it is recent enough.
func (v *Values) fresh(p place) (l login, ok bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.held[p]
	switch {
	case h == nil:
		return login{}, false, nil
	case h.err != nil:
		return login{}, v.clock.Since(h.at) < pause, h.err
	}
	return h.login, !h.old && v.clock.Since(h.at) < lifetime && !h.login.ended(v.clock.Now()), nil
}

func (v *Values) fail(p place, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.at(p)
	h.err, h.at = err, v.clock.Monotonic()
}

// at returns the place's entry; v.mu must be held.
func (v *Values) at(p place) *held {
	if v.held[p] == nil {
		v.held[p] = &held{}
	}
	return v.held[p]
}

func (v *Values) keep(p place, l login) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.at(p)
	if !h.login.equal(l) {
		h.former = append(h.former, h.login.secrets()...)
		h.former = h.former[max(0, len(h.former)-maxFormer):]
		v.version++
	}
	h.login, h.at, h.old, h.err = l, v.clock.Monotonic(), false, nil
}

// expire makes the next use run the program again.
func (v *Values) expire(s Source, host policy.Host, port uint16) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if h := v.held[place{s.key(), s.account(host, port)}]; h != nil && v.clock.Since(h.at) > settled {
		h.old = true
	}
}

// renew makes the next use of each value run its program again: what the programs read has changed.
func (v *Values) renew() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, h := range v.held {
		h.old, h.err = true, nil
	}
}

// known returns every value of the chosen sources, current and replaced.
func (v *Values) known(chosen func(source string) bool) ([]secret.Value, uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []secret.Value
	for p, h := range v.held {
		if chosen(p.source) && !h.login.value.IsZero() {
			all = append(append(all, h.login.secrets()...), h.former...)
		}
	}
	return all, v.version
}
