package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/sony/gobreaker/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

const (
	maxFailures = 5                // consecutive failures that open a circuit
	maxPause    = 10 * time.Second // delay before one request probes the upstream
)

// errGateway is the failure of an origin that answers for another: 502, 503 or 504. Others, such as 500, do not count.
var errGateway = errors.New("it reports a failure of the server behind it")

// breakers are the circuit breakers of one sandbox, one for each upstream: no sandbox can open a circuit for others.
type breakers struct {
	log *slog.Logger

	mu  sync.Mutex
	one *simplelru.LRU[upstream, *breaker]
}

type breaker struct {
	*gobreaker.TwoStepCircuitBreaker[struct{}]
	opened atomic.Pointer[time.Time]
	last   atomic.Pointer[error] // last failure
}

func (b *breaker) failed(err error) error {
	if err != nil && !errors.Is(err, proxy.ErrUnfinished) {
		b.last.Store(&err)
	}
	return err
}

func newBreakers(log *slog.Logger) *breakers {
	return &breakers{log: log, one: newRecent[*breaker]()}
}

func (s *breakers) of(to upstream) *breaker {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.one.Get(to)
	if !ok {
		b = s.newBreaker(to)
		s.one.Add(to, b)
	}
	return b
}

func (s *breakers) newBreaker(to upstream) *breaker {
	b := new(breaker)
	b.TwoStepCircuitBreaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:     maxPause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= maxFailures },
		IsExcluded:  func(err error) bool { return errors.Is(err, proxy.ErrUnfinished) },
		OnStateChange: func(_ string, from, now gobreaker.State) {
			if now == gobreaker.StateOpen {
				at := time.Now()
				b.opened.Store(&at)
			}
			s.log.Info("circuit of an upstream", "upstream", to.String(), "from", from.String(), "to", now.String())
		},
	})
	return b
}

// closed reports whether requests to an upstream are admitted.
func (s *breakers) closed(to upstream) bool { return s.of(to).State() == gobreaker.StateClosed }

// enter is the stage that refuses requests to an upstream that fails repeatedly. It counts whether an answer begins. An
// answer that breaks off later, such as a model's stream, does not prove an outage, and a retry must be admitted.
func (s *breakers) enter(r policy.Request, h *http.Request) (leg, error) {
	to := upstreamOf(r)
	b := s.of(to)
	done, err := b.Allow()
	if err != nil {
		return leg{}, b.refuse(to)
	}
	return leg{
		response: func(h *http.Response) error {
			answered := error(nil)
			switch h.StatusCode {
			case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
				answered = errGateway
			}
			done(b.failed(answered))
			done = nil
			return nil
		},
		end: func(failure error) {
			if done != nil {
				done(b.failed(failure))
			}
		},
	}, nil
}

func (b *breaker) refuse(to upstream) error {
	after := time.Second
	if at := b.opened.Load(); at != nil {
		after = max(after, maxPause-time.Since(*at))
	}
	why := ""
	var cause error
	if err := b.last.Load(); err != nil {
		cause, why = *err, "; the last time: "+cove.ErrorMessage(*err)
	}
	return &proxy.Refusal{
		Code: cove.Unavailable, Rule: "gateway: circuit breaker",
		Reason: fmt.Sprintf("%s failed %d times in a row, and is left alone for %s%s", to, maxFailures, maxPause, why),
		After:  after, Err: cause,
	}
}

func (s *breakers) states() (open, halfOpen int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.one.Values() {
		switch b.State() {
		case gobreaker.StateOpen:
			open++
		case gobreaker.StateHalfOpen:
			halfOpen++
		}
	}
	return open, halfOpen
}
