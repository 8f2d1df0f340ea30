package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/eventstream"
)

// Limits of one request. Models think for minutes before their first byte.
const (
	maxTries   = 8
	firstDelay = 500 * time.Millisecond // doubled after each try
	maxDelay   = 30 * time.Second
	maxAfter   = 5 * time.Minute // longest delay accepted from an endpoint
	idle       = 10 * time.Minute
	maxEvent   = 16 << 20 // bytes
	maxAnswer  = 64 << 20
	maxError   = 64 << 10
)

// Client sends requests to one endpoint.
type Client struct {
	HTTP    *http.Client
	Dialect Dialect
	Base    *url.URL    // prefix of the API's paths
	Header  http.Header // of every request: authentication
	Log     *slog.Logger
	// Wait pauses between tries, until the context ends.
	Wait func(context.Context, time.Duration) error
}

// NewHTTP returns an HTTP client that uses the environment's proxy, follows no redirect, which would pass the key to
// another host, and keeps a proxy's message of refusal.
func NewHTTP() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = idle
	t.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, asked *http.Request, resp *http.Response) error {
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxError))
		return judge(resp.StatusCode, resp.Header, body, asked.URL.Host)
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// Pause waits for a duration.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Ask sends one question. It retries transient failures, and repeats the whole question if an answer broke off. Errors:
// ModelUnreachable, LimitReached (ErrUsedUp), TooLarge for a conversation that exceeds the model's window, Canceled.
func (c *Client) Ask(ctx context.Context, r Request) (Answer, error) {
	codec := codecs[c.Dialect]
	body, err := json.Marshal(codec.encode(r))
	if err != nil {
		return Answer{}, err
	}
	var answer Answer
	err = c.try(ctx, func(ctx context.Context) error {
		d := codec.decoder()
		if err := c.stream(ctx, codec.path, body, d); err != nil {
			return err
		}
		a, ended := d.answer()
		if !ended {
			return &broken{eventstream.ErrBrokenOff}
		}
		answer = a
		return nil
	})
	return answer, err
}

// Models returns the models that the endpoint lists. Errors: those of Ask.
func (c *Client) Models(ctx context.Context) ([]string, error) {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	path := "/models"
	if c.Dialect == Anthropic {
		path = "/v1/models"
	}
	err := c.try(ctx, func(ctx context.Context) error {
		resp, err := c.send(ctx, http.MethodGet, path, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&list)
	})
	var names []string
	for _, m := range list.Data {
		names = append(names, m.ID)
	}
	return names, err
}

// try repeats an operation until it succeeds, fails permanently, or exceeds the number of tries.
func (c *Client) try(ctx context.Context, do func(context.Context) error) error {
	for n := 1; ; n++ {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return cove.Errorf(cove.Canceled, "the model's answer was given up: %w", context.Cause(ctx))
		}
		f := c.failed(err)
		delay := f.delay(n)
		if !f.again || n == maxTries || f.after > maxAfter {
			return f.final(n)
		}
		c.Log.Warn("the model is asked again", "after", delay.Round(time.Millisecond), "try", n, "error", f.err.Message)
		if err := c.Wait(ctx, delay); err != nil {
			return cove.Errorf(cove.Canceled, "the model's answer was given up: %w", err)
		}
	}
}

func (c *Client) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url(path), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, c.Header)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		said, _ := io.ReadAll(io.LimitReader(resp.Body, maxError))
		return nil, judge(resp.StatusCode, resp.Header, said, c.Base.Host)
	}
	return resp, nil
}

// url returns the URL of an API path. A base may contain the version with which Anthropic's paths begin.
func (c *Client) url(path string) string {
	base := strings.TrimSuffix(c.Base.String(), "/")
	if rest, versioned := strings.CutPrefix(path, "/v1/"); versioned && strings.HasSuffix(base, "/v1") {
		path = "/" + rest
	}
	return base + path
}

var errSilent = fmt.Errorf("nothing came for %s", idle)

func (c *Client) stream(ctx context.Context, path string, body []byte, d decoder) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	resp, err := c.send(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		return &Failure{err: cove.Errorf(cove.ModelUnreachable, "%s answers with %q instead of a stream of events",
			c.Base.Host, kind).WithHint("is %s the address of a model's API?", c.Base)}
	}
	timer := time.AfterFunc(idle, func() { cancel(errSilent) })
	defer timer.Stop()
	limited := &io.LimitedReader{R: resp.Body, N: maxAnswer}
	events := eventstream.NewReader(limited, maxEvent)
	for {
		e, err := events.Next()
		timer.Reset(idle)
		if err == io.EOF || err == eventstream.ErrBrokenOff {
			if limited.N <= 0 {
				return &Failure{err: cove.Errorf(cove.ModelUnreachable, "the answer of %s is longer than %d MiB", c.Base.Host,
					maxAnswer>>20)}
			}
			return nil // the content shows whether it is complete
		}
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return &broken{err}
		}
		if err := d.event([]byte(e.Data)); err != nil {
			if f, ok := errors.AsType[*Failure](err); ok {
				return f
			}
			return &broken{fmt.Errorf("an event makes no sense (%.200q): %w", e.Data, err)}
		}
	}
}

type broken struct{ error }

func (c *Client) failed(err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	if b, ok := errors.AsType[*broken](err); ok {
		return &Failure{again: true, err: cove.Errorf(cove.ModelUnreachable, "the answer of %s did not come to its end: %w",
			c.Base.Host, b.error)}
	}
	if where, ok := errors.AsType[*url.Error](err); ok {
		err = where.Err // its text contains the whole address
	}
	f := &Failure{again: true, err: cove.Errorf(cove.ModelUnreachable, "the model's endpoint %s cannot be reached: %w",
		c.Base.Host, err)}
	if strings.Contains(err.Error(), "x509:") || strings.Contains(err.Error(), "certificate") {
		f.again = false
		f.err = f.err.WithHint("SSL_CERT_FILE names the authorities that are trusted")
	}
	return f
}

// delay returns the wait before the try after the n-th: the endpoint's own, or twice the last one, randomised.
func (f *Failure) delay(n int) time.Duration {
	d := min(firstDelay<<(n-1), maxDelay)
	d = d/2 + rand.N(d/2+1)
	return max(d, f.after)
}

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
			said).WithHint("a larger one is given outside: --budget, or gateway.budget in the configuration")}
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
