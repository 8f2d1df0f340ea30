package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
)

const maxAfter = 5 * time.Minute // longest delay accepted from an endpoint

// ErrUsedUp is wrapped by a LimitReached: an exhausted budget or quota.
var ErrUsedUp = errors.New("the budget or quota is exhausted")

// Failure is the reason why an endpoint gave no answer, and whether to retry.
type Failure struct {
	err   *cove.Error
	again bool
	after time.Duration // minimum, requested by the endpoint
}

func (f *Failure) Error() string { return f.err.Error() }
func (f *Failure) Unwrap() error { return f.err }

func (f *Failure) final(tries int) error {
	e := *f.err
	if f.again && f.after > maxAfter {
		e.Hint = "the endpoint wants to be asked again after " + f.after.Round(time.Second).String()
	} else if tries > 1 {
		e.Message += fmt.Sprintf(" (tried %d times)", tries)
	}
	return &e
}

type fault struct {
	Type    string          `json:"type"`
	Code    json.RawMessage `json:"code"` // a string or a number
	Message string          `json:"message"`
}

func (f *fault) word() string {
	if code := strings.Trim(string(f.Code), `"`); code != "" && code != "null" {
		return code
	}
	return f.Type
}

// failure returns the error of an event in a stream, which has no status.
func failure(f *fault) error {
	if f == nil {
		f = &fault{}
	}
	status := http.StatusInternalServerError
	switch {
	case tooLong(f):
		status = http.StatusBadRequest
	case f.Type == "invalid_request_error", f.Type == "authentication_error", f.Type == "permission_error":
		status = http.StatusBadRequest
	case f.word() == "insufficient_quota":
		status = http.StatusTooManyRequests
	}
	body, _ := json.Marshal(map[string]any{"error": f})
	return judge(status, nil, body, "the model's endpoint")
}

// tooLong reports that the conversation exceeds the model's window; each provider has its own message.
func tooLong(f *fault) bool {
	said := strings.ToLower(f.Message)
	words := []string{"prompt is too long", "context length", "context window", "exceed context limit"}
	return f.word() == "context_length_exceeded" || f.Type == "request_too_large" ||
		f.Type == "exceed_context_size_error" ||
		slices.ContainsFunc(words, func(w string) bool { return strings.Contains(said, w) })
}

// refusal is an answer of Cove's gateway itself (docs/gateway.md).
type refusal struct {
	Error   json.RawMessage `json:"error"` // a fault, or a string
	Message string          `json:"message"`
	Host    string          `json:"host"`
	Port    int             `json:"port"`
	Rule    string          `json:"rule"`
	Reason  string          `json:"reason"`
	Allow   string          `json:"allow"`
	Cove    *struct {
		Error  string `json:"error"`
		Budget string `json:"budget"`
		Limit  string `json:"limit"`
		Used   string `json:"used"`
	} `json:"cove"`
}

func judge(status int, header http.Header, body []byte, host string) *Failure {
	var r refusal
	var f fault
	if json.Unmarshal(body, &r) == nil && len(r.Error) > 0 && json.Unmarshal(r.Error, &f) != nil {
		json.Unmarshal(r.Error, &f.Message) // some send a string
	}
	said := clip(f.Message, r.Message, string(body), http.StatusText(status))
	switch {
	case r.Reason != "" && r.Host != "" && f.Type == "blocked":
		e := cove.Errorf(cove.ModelUnreachable, "the gateway of this sandbox does not let %s port %d be reached: %s", r.Host,
			r.Port, r.Reason)
		if r.Allow != "" {
			e = e.WithHint("to allow it: %s", r.Allow)
		}
		return &Failure{err: e}
	case r.Cove != nil && r.Cove.Error == "budget_exhausted":
		return &Failure{err: cove.Errorf(cove.LimitReached, "%w: %s", ErrUsedUp,
			said).WithHint("a larger one is given outside: --budget, or gateway.budget or a key's model_budget in the " +
			"configuration")}
	case tooLong(&f) || status == http.StatusRequestEntityTooLarge:
		return &Failure{err: cove.Errorf(cove.TooLarge, "the conversation does not fit the model: %s", said)}
	case f.word() == "insufficient_quota":
		return &Failure{err: cove.Errorf(cove.LimitReached, "%w: %s: %s", ErrUsedUp, host, said)}
	case status == http.StatusUnauthorized:
		return &Failure{err: cove.Errorf(cove.ModelUnreachable, "%s does not accept the key: %s", host, said).
			WithHint("the real one belongs into a credential on the host: docs/credentials.md")}
	}
	out := &Failure{after: after(header, time.Now()),
		err: cove.Errorf(cove.ModelUnreachable, "%s answers %d: %s", host, status, said)}
	switch {
	case header.Get("X-Should-Retry") == "false":
	// 529 is Anthropic's: overloaded
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
		out.again = true
	}
	return out
}

func after(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms >= 0 && ms < 1e12 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	said := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(said, 64); err == nil && s >= 0 && s < 1e9 {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(said); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// clip returns the first nonempty text, on one line and truncated.
func clip(texts ...string) string {
	const most = 500
	for _, s := range texts {
		if s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " "); s == "" {
			continue
		}
		if len(s) > most {
			s = strings.ToValidUTF8(s[:most], "") + "…"
		}
		return s
	}
	return ""
}
