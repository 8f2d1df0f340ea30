package gateway

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/redact"
)

// setting is the stage that sets credentials on requests, in place of any that the sandbox has sent; where keyed says
// no, requests leave without.
func setting(credentials *credential.Set, keyed func(policy.Request) bool, b *bodies) func(policy.Request,
	*http.Request) (leg, error) {
	return func(r policy.Request, h *http.Request) (leg, error) {
		if h == nil { // no credential is bound to what passes through
			return leg{}, nil
		}
		if !keyed(r) {
			return leg{}, credentials.Withhold(r, h)
		}
		held := &heldBody{}
		if _, err := credentials.Apply(r, h, b.digest(held)); err != nil {
			held.Close()
			return leg{}, err
		}
		return leg{end: func(error) { held.Close() }, response: func(h *http.Response) error {
			if h.StatusCode == http.StatusUnauthorized || h.StatusCode == http.StatusForbidden {
				credentials.Refused(r)
			}
			return nil
		}}, nil
	}
}

// secrets hold the values of credentials that may appear in answers to one sandbox, and redact them.
type secrets struct {
	known *credential.Set // the sandbox's own, and those of its providers

	mu      sync.Mutex
	version uint64 // of set
	set     *redact.Set
}

// compiled returns the set of the present values, which change when a source is read again; nil if there are none.
func (s *secrets) compiled() (*redact.Set, error) {
	known, version := s.known.Known()
	if len(known) == 0 {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set != nil && s.version == version {
		return s.set, nil
	}
	set, err := redact.New(known...)
	if err != nil {
		return nil, err
	}
	s.set, s.version = set, version
	return set, nil
}

// redact is the stage that removes the values of credentials from answers.
func (s *secrets) redact(_ policy.Request, h *http.Request) (leg, error) {
	if h == nil {
		return leg{}, nil
	}
	if known, _ := s.known.Known(); len(known) > 0 {
		redact.Request(h.Header)
	}
	return leg{response: func(h *http.Response) error {
		set, err := s.compiled()
		if set == nil {
			return err
		}
		return set.Response(h)
	}}, nil
}

// Conceal returns a text of the gateway's own without the values of credentials. Errors, reasons and log lines may
// quote an origin, which has seen them. While a value cannot be searched for, the text is withheld.
func (s *secrets) Conceal(text string) string {
	set, err := s.compiled()
	if err != nil {
		return withheld
	}
	return set.Text(text)
}

const withheld = "(withheld: it cannot be searched for credentials)"

// error returns an error whose message does not contain the values of credentials.
func (s *secrets) error(err error) error {
	if err == nil {
		return nil
	}
	said, hint := s.Conceal(cove.ErrorMessage(err)), s.Conceal(cove.ErrorHint(err))
	if said == cove.ErrorMessage(err) && hint == cove.ErrorHint(err) {
		return err
	}
	return cove.Errorf(cove.ErrorCode(err), "%s", said).WithHint("%s", hint)
}

// log returns a log without the values of credentials in the attributes of its lines.
func (s *secrets) log(log *slog.Logger) *slog.Logger { return slog.New(concealing{log.Handler(), s}) }

type concealing struct {
	slog.Handler
	secrets *secrets
}

func (c concealing) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(c.attr(a))
		return true
	})
	return c.Handler.Handle(ctx, clean)
}

func (c concealing) attr(a slog.Attr) slog.Attr {
	text := a.Value.String()
	if said := c.secrets.Conceal(text); said != text {
		return slog.String(a.Key, said)
	}
	return a
}

func (c concealing) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, 0, len(attrs))
	for _, a := range attrs {
		clean = append(clean, c.attr(a))
	}
	return concealing{c.Handler.WithAttrs(clean), c.secrets}
}

func (c concealing) WithGroup(name string) slog.Handler {
	return concealing{c.Handler.WithGroup(name), c.secrets}
}

// Concealed reads from a stream, in which the values of credentials are blanked; offsets stay. It holds back at most
// the bytes that may be the beginning of a value.
func (s *secrets) Concealed(from io.Reader) io.Reader { return redact.Follow(from, s.compiled) }
