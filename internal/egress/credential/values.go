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
	// lifetime is how long what a program gave is used without asking again.
	lifetime = 5 * time.Minute
	// settled is how old it has to be for a refusal to count: a sandbox that
	// gets itself refused must not make programs run on the host at will.
	settled = 30 * time.Second
	// pause is how long after a failure no program is run again.
	pause = 10 * time.Second
	// maxFormer is how many replaced values of one source are still known.
	maxFormer = 4
)

// Values reads sources and remembers what they gave, in memory. Environment
// variables and files are read each time; programs are run when what they gave
// has become old.
type Values struct {
	clock  clock.Clock
	flight singleflight.Group

	mu      sync.Mutex
	held    map[place]*held // by what was asked of whom
	version uint64          // counts changes of any value
}

type place struct{ source, account string }

// held is what a source gave.
type held struct {
	login  login
	former []secret.Value
	at     clock.Instant
	old    bool
	err    error // of the last attempt, made at
}

// NewValues returns Values that know nothing yet.
func NewValues(c clock.Clock) *Values {
	return &Values{clock: c, held: map[place]*held{}}
}

// get gives the value for a host.
func (v *Values) get(ctx context.Context, s Source, host policy.Host, port uint16) (login, error) {
	p := place{s.key(), s.account(host, port)}
	if !s.program() {
		return v.read(ctx, s, p)
	}
	if l, ok, err := v.fresh(p); ok {
		return l, err
	}
	// Whoever waits for the same value gets it even if the first one leaves.
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
	if n := len(value); n < redact.MinLength || n > redact.MaxLength {
		return login{}, cove.Errorf(cove.InvalidArgument, "it has %d bytes, and must have %d to %d to be kept out of answers", n, redact.MinLength, redact.MaxLength)
	}
	if !printable(value) || strings.TrimSpace(value) != value {
		return login{}, cove.Errorf(cove.InvalidArgument, "it has control characters, or spaces at an end")
	}
	l := login{user: user, value: secret.New(value)}
	v.keep(p, l)
	return l, nil
}

// fresh is what a program gave, or the error it ended with, if that is new
// enough.
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
	return h.login, !h.old && v.clock.Since(h.at) < lifetime, nil
}

func (v *Values) fail(p place, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.at(p)
	h.err, h.at = err, v.clock.Monotonic()
}

// at is the place's entry; v.mu is held.
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
	if !h.login.value.Equal(l.value) {
		if !h.login.value.IsZero() {
			h.former = append(h.former, h.login.value)
			h.former = h.former[max(0, len(h.former)-maxFormer):]
		}
		v.version++
	}
	h.login, h.at, h.old, h.err = l, v.clock.Monotonic(), false, nil
}

// expire makes a program be asked again at the next use.
func (v *Values) expire(s Source, host policy.Host, port uint16) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if h := v.held[place{s.key(), s.account(host, port)}]; h != nil && v.clock.Since(h.at) > settled {
		h.old = true
	}
}

// known is every value of the sources chosen, now and before.
func (v *Values) known(chosen func(source string) bool) ([]secret.Value, uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []secret.Value
	for p, h := range v.held {
		if chosen(p.source) && !h.login.value.IsZero() {
			all = append(append(all, h.login.value), h.former...)
		}
	}
	return all, v.version
}
