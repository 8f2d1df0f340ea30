package model

import (
	"bytes"
	"cmp"
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
	idle       = 10 * time.Minute
	maxEvent   = 16 << 20 // bytes
	maxAnswer  = 64 << 20
	maxError   = 64 << 10
)

type codec struct {
	path    string // below the base
	encode  func(Request) any
	decoder func(said func(text string)) decoder // said receives the text of the answer as it comes
}

var codecs = map[Dialect]codec{
	Anthropic: {"/v1/messages", encodeAnthropic, newAnthropicDecoder},
	Chat:      {"/chat/completions", encodeChat, func(said func(string)) decoder { return &chatDecoder{said: said} }},
	Responses: {"/responses", encodeResponses, func(said func(string)) decoder { return &responsesDecoder{said: said} }},
}

// Client sends requests to one endpoint.
type Client struct {
	HTTP    *http.Client
	Dialect Dialect
	Base    *url.URL    // prefix of the API's paths
	Header  http.Header // of every request: authentication
	Log     *slog.Logger
	// Wait pauses between tries, until the context ends.
	Wait  func(context.Context, time.Duration) error
	Tries int    // of one request, at most; 0: 8
	Name  string // of the endpoint, in errors; empty: its host
	// Said receives the text of an answer as it comes; it may be nil. What was said cannot be taken back, so an answer
	// that breaks off after that is not requested again.
	Said func(text string)
}

// NewHTTP returns an HTTP client that uses a proxy, the environment's if nil, follows no redirect, which would pass the
// key to another host, and keeps a proxy's message of refusal.
func NewHTTP(proxy *url.URL) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	if proxy != nil {
		t.Proxy = http.ProxyURL(proxy)
	}
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
	said := "" // to the caller
	say := func(text string) {
		if c.Said != nil {
			said += text
			c.Said(text)
		}
	}
	err = c.try(ctx, func(ctx context.Context) error {
		d := codec.decoder(say)
		err := c.stream(ctx, codec.path, body, d)
		a, ended := d.answer()
		if err == nil && !ended {
			err = &broken{eventstream.ErrBrokenOff}
		}
		if err != nil && said != "" && ctx.Err() == nil {
			f := *c.failed(err)
			f.again = false
			return &f
		}
		answer = a
		return err
	})
	if rest, ok := strings.CutPrefix(answer.Message.Texts(Text), said); err == nil && ok && rest != "" {
		say(rest) // of an endpoint that sends it at the end only
	}
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
		if !f.again || n == cmp.Or(c.Tries, maxTries) || f.after > maxAfter {
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
		return nil, judge(resp.StatusCode, resp.Header, said, c.name())
	}
	return resp, nil
}

func (c *Client) name() string { return cmp.Or(c.Name, c.Base.Host) }

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
			c.name(), kind).WithHint("is its address that of a model's API?")}
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
				return &Failure{err: cove.Errorf(cove.ModelUnreachable, "the answer of %s is longer than %d MiB", c.name(),
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
			c.name(), b.error)}
	}
	if where, ok := errors.AsType[*url.Error](err); ok {
		err = where.Err // its text contains the whole address
	}
	f := &Failure{again: true, err: cove.Errorf(cove.ModelUnreachable, "the model's endpoint %s cannot be reached: %w",
		c.name(), err)}
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
