package gitapi

import (
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/gitservice/internal/wire"
)

// window is how far a request's time may be from now, in either direction.
const window = 60 * time.Second

// maxNonces bounds the memory for nonces. Requests come at no rate that fills it
// within the time that a nonce is remembered.
const maxNonces = 3*int(2*window/time.Second)*perSecond/2 + burst

// guard accepts each signed request once.
type guard struct {
	key   []byte
	clock clock.Clock
	base  clock.Instant
	rate  *rate.Limiter

	mu   sync.Mutex
	seen map[string]clock.Instant // nonces, and until when they count
}

func newGuard(key []byte, c clock.Clock) *guard {
	return &guard{key: key, clock: c, base: c.Monotonic(), rate: rate.NewLimiter(perSecond, burst),
		seen: map[string]clock.Instant{}}
}

// accept returns the body of a request that is signed and new. What is wrong
// with one that is not is not told apart further than its sender can see.
func (g *guard) accept(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	// A time made of the monotonic clock, so that no jump fills or empties it.
	if !g.rate.AllowN(time.Unix(1, 0).Add(g.clock.Since(g.base)), 1) {
		return nil, cove.Errorf(cove.Overloaded, "too many git commands: more than %d a second", perSecond)
	}
	header := func(name string) string {
		if v := r.Header.Values(name); len(v) == 1 {
			return v[0]
		}
		return ""
	}
	sent, nonce, signature := header(wire.HeaderTime), header(wire.HeaderNonce), header(wire.HeaderSignature)
	seconds, err := strconv.ParseInt(sent, 10, 64)
	if err != nil || strconv.FormatInt(seconds, 10) != sent || !isHex(nonce, wire.NonceSize) || !isHex(signature, 32) {
		return nil, cove.Errorf(cove.Unauthenticated, "the request is not signed")
	}
	if r.ContentLength < 0 || len(r.TransferEncoding) > 0 || r.Header.Get("Content-Encoding") != "" ||
		r.URL.RawQuery != "" {
		return nil, cove.Errorf(cove.InvalidArgument, "the request must say its length, and be as it is")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, cove.Errorf(cove.TooLarge, "a request to git has more than %d MiB", wire.MaxBody>>20)
	}
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "the request ended early: %w", err)
	}
	if !wire.Signed(g.key, r.Method, r.RequestURI, body, sent, nonce, signature) {
		return nil, cove.Errorf(cove.Unauthenticated, "the request's signature is wrong")
	}
	return body, g.once(nonce, time.Unix(seconds, 0))
}

// once accepts a nonce that has not been there, at a time that is now.
func (g *guard) once(nonce string, sent time.Time) error {
	now := g.clock.Now()
	if d := now.Sub(sent); d > window || d < -window {
		return cove.Errorf(cove.Unauthenticated, "the request's time is not now").WithHint("it may be at most %s off", window)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	tick := g.clock.Monotonic()
	if len(g.seen) >= maxNonces {
		for n, until := range g.seen {
			if tick > until {
				delete(g.seen, n)
			}
		}
	}
	if _, again := g.seen[nonce]; again {
		return cove.Errorf(cove.Unauthenticated, "the request has been here before")
	}
	if len(g.seen) >= maxNonces {
		return cove.Errorf(cove.Overloaded, "too many git commands at once")
	}
	g.seen[nonce] = tick.Add(2 * window) // its time is accepted no longer than that
	return nil
}

func isHex(s string, size int) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == size && hex.EncodeToString(b) == s
}
