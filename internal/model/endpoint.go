package model

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
)

// Wanted is a choice of an endpoint. What is empty follows from the model's name and variables of the environment.
type Wanted struct {
	Kind   string // a Dialect
	Base   string // URL that the API is below
	Model  string
	KeyEnv string // name of the variable with the key
}

// Endpoint is the address of a model's API, and how it is spoken to.
type Endpoint struct {
	Dialect Dialect
	Base    *url.URL
	Header  http.Header
	Model   string // empty: the endpoint's first
}

// Variables of the environment, named as by the providers' SDKs.
const (
	anthropicBase  = "ANTHROPIC_BASE_URL"
	anthropicKey   = "ANTHROPIC_API_KEY"
	anthropicToken = "ANTHROPIC_AUTH_TOKEN"
	oauthToken     = "CLAUDE_CODE_OAUTH_TOKEN"
	anthropicModel = "ANTHROPIC_MODEL"
	openaiBase     = "OPENAI_BASE_URL"
	openaiKey      = "OPENAI_API_KEY"
	openaiModel    = "OPENAI_MODEL"
)

// Resolve determines the endpoint of a program with an environment. Errors: InvalidArgument.
func Resolve(w Wanted, getenv func(string) string) (Endpoint, error) {
	e := Endpoint{Dialect: Dialect(w.Kind), Model: w.Model, Header: http.Header{}}
	if w.Kind == "" {
		e.Dialect = guess(w.Model, w.Base, getenv)
	} else if !slices.Contains(Dialects, e.Dialect) {
		return e, cove.Errorf(cove.InvalidArgument, "there is no provider kind %.80q", w.Kind).WithHint("there are %s",
			Join(Dialects))
	}
	base, named := w.Base, openaiModel
	if e.Dialect == Anthropic {
		base, named = cmp.Or(base, getenv(anthropicBase), "https://api.anthropic.com"), anthropicModel
	} else {
		base = cmp.Or(base, getenv(openaiBase), "https://api.openai.com/v1")
	}
	e.Model = cmp.Or(e.Model, getenv(named))
	var err error
	if e.Base, err = url.Parse(base); err != nil || e.Base.Host == "" ||
		e.Base.Scheme != "http" && e.Base.Scheme != "https" || e.Base.RawQuery != "" || e.Base.User != nil {
		return e, cove.Errorf(cove.InvalidArgument, "%.200q is no address of a model's API",
			base).WithHint("such as https://api.example.com/v1")
	}
	e.Header.Set("Accept", "text/event-stream, application/json")
	return e, e.authorize(w.KeyEnv, getenv)
}

// Client returns a client of the endpoint, which uses a proxy, the environment's if nil.
func (e Endpoint) Client(proxy *url.URL, log *slog.Logger) *Client {
	return &Client{HTTP: NewHTTP(proxy), Dialect: e.Dialect, Base: e.Base, Header: e.Header, Log: log, Wait: Pause}
}

// authorize sets the key of the environment, which is a placeholder if the gateway has the real one.
func (e Endpoint) authorize(keyEnv string, getenv func(string) string) error {
	bearer := func(key string) { e.Header.Set("Authorization", "Bearer "+key) }
	key := func(key string) { bearer(key) }
	if e.Dialect == Anthropic {
		e.Header.Set("Anthropic-Version", "2023-06-01")
		key = func(key string) { e.Header.Set("X-Api-Key", key) }
	}
	switch {
	case keyEnv != "" && getenv(keyEnv) == "":
		return cove.Errorf(cove.InvalidArgument, "the variable %s, which --key-env names, is not set", keyEnv)
	case keyEnv != "":
		key(getenv(keyEnv))
	case e.Dialect != Anthropic:
		if k := getenv(openaiKey); k != "" {
			bearer(k)
		}
	case getenv(anthropicToken) != "":
		bearer(getenv(anthropicToken))
	case getenv(anthropicKey) != "":
		key(getenv(anthropicKey))
	case getenv(oauthToken) != "":
		bearer(getenv(oauthToken))
		e.Header.Set("Anthropic-Beta", "oauth-2025-04-20")
	}
	return nil
}

func guess(name, base string, getenv func(string) string) Dialect {
	anthropic := getenv(anthropicBase)+getenv(anthropicKey)+getenv(anthropicToken)+getenv(oauthToken) != ""
	openai := getenv(openaiBase)+getenv(openaiKey) != ""
	switch {
	case strings.HasPrefix(name, "claude"), !openai, anthropic && name == "":
		return Anthropic
	case base != "" || getenv(openaiBase) != "":
		return Chat // the common one among compatible endpoints
	}
	return Responses
}

// Choose asks the endpoint for its models if none is named. Anthropic lists the newest first; elsewhere the order is
// meaningless, so there must be exactly one.
func (e Endpoint) Choose(ctx context.Context, c *Client) (string, error) {
	if e.Model != "" {
		return e.Model, nil
	}
	names, err := c.Models(ctx)
	if err != nil {
		return "", err
	}
	if len(names) == 1 || len(names) > 1 && e.Dialect == Anthropic {
		return names[0], nil
	}
	return "", cove.Errorf(cove.InvalidArgument, "which model is to be asked? %s has %d", c.name(), len(names)).
		WithHint("name it with --model: %s", Join(names[:min(len(names), 10)]))
}

// Window returns a model's default context window, in tokens; an endpoint may report a smaller one.
func (e Endpoint) Window() int {
	if e.Dialect == Anthropic {
		return 200_000
	}
	return 128_000
}

// Join returns names as a list in a sentence.
func Join[T ~string](names []T) string {
	var all []string
	for _, n := range names {
		all = append(all, string(n))
	}
	return strings.Join(all, ", ")
}
