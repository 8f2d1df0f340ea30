package gateway

import (
	"io"
	"net/http"
	"sync"

	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/redact"
	"github.com/cove-sandbox/cove/internal/secret"
)

// setting is the stage that sets real values in the place of whatever the
// sandbox has sent.
func setting(credentials *credential.Set) func(policy.Request, *http.Request) (leg, error) {
	return func(r policy.Request, h *http.Request) (leg, error) {
		if h == nil { // no credential is bound to what passes through
			return leg{}, nil
		}
		if _, err := credentials.Apply(r, h); err != nil {
			return leg{}, err
		}
		return leg{response: func(h *http.Response) error {
			if h.StatusCode == http.StatusUnauthorized || h.StatusCode == http.StatusForbidden {
				credentials.Refused(r)
			}
			return nil
		}}, nil
	}
}

// redact is the stage that takes values that were set out of answers.
func (w *Way) redact(_ policy.Request, h *http.Request) (leg, error) {
	if h == nil {
		return leg{}, nil
	}
	if known, _ := w.known.Known(); len(known) > 0 {
		redact.Request(h.Header)
	}
	return leg{response: func(h *http.Response) error {
		known, version := w.known.Known()
		if len(known) == 0 {
			return nil
		}
		set, err := w.redactor.of(known, version)
		if err != nil {
			return err
		}
		return set.Response(h)
	}}, nil
}

// Concealed reads from without values that are set, in which their places are
// filled: offsets stay. It holds back no more than what may be the beginning of
// one.
func (w *Way) Concealed(from io.Reader) io.Reader {
	return redact.Follow(from, func() (*redact.Set, error) {
		known, version := w.known.Known()
		if len(known) == 0 {
			return nil, nil
		}
		return w.redactor.of(known, version)
	})
}

// redactor compiles the values of a sandbox's credentials when they change.
type redactor struct {
	mu      sync.Mutex
	version uint64
	set     *redact.Set
}

func (r *redactor) of(known []secret.Value, version uint64) (*redact.Set, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.set != nil && r.version == version {
		return r.set, nil
	}
	set, err := redact.New(known...)
	if err != nil {
		return nil, err
	}
	r.set, r.version = set, version
	return set, nil
}
