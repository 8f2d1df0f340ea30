package worker

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/version"
	"github.com/cove-sandbox/cove/internal/worker/model"
)

type endpoint struct {
	dialect model.Dialect
	base    *url.URL
	header  http.Header
	model   string // empty: the endpoint's first
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

// resolve determines the endpoint; missing values follow from the model's name and variables. Errors: InvalidArgument.
func (f flags) resolve(getenv func(string) string) (endpoint, error) {
	e := endpoint{dialect: model.Dialect(f.kind), model: f.model, header: http.Header{}}
	if f.kind == "" {
		e.dialect = guess(f.model, f.baseURL, getenv)
	} else if !slices.Contains(model.Dialects, e.dialect) {
		return e, cove.Errorf(cove.InvalidArgument, "there is no provider kind %.80q", f.kind).WithHint("there are %s",
			join(model.Dialects))
	}
	base, named := f.baseURL, openaiModel
	if e.dialect == model.Anthropic {
		base, named = cmp.Or(base, getenv(anthropicBase), "https://api.anthropic.com"), anthropicModel
	} else {
		base = cmp.Or(base, getenv(openaiBase), "https://api.openai.com/v1")
	}
	e.model = cmp.Or(e.model, getenv(named))
	var err error
	if e.base, err = url.Parse(base); err != nil || e.base.Host == "" ||
		e.base.Scheme != "http" && e.base.Scheme != "https" || e.base.RawQuery != "" || e.base.User != nil {
		return e, cove.Errorf(cove.InvalidArgument, "%.200q is no address of a model's API",
			base).WithHint("such as https://api.example.com/v1")
	}
	e.header.Set("User-Agent", "cove-worker/"+version.Version)
	e.header.Set("Accept", "text/event-stream, application/json")
	return e, e.authorize(f.keyEnv, getenv)
}

// authorize sets the key of the environment, which is a placeholder if the gateway has the real one.
func (e endpoint) authorize(keyEnv string, getenv func(string) string) error {
	bearer := func(key string) { e.header.Set("Authorization", "Bearer "+key) }
	key := func(key string) { bearer(key) }
	if e.dialect == model.Anthropic {
		e.header.Set("Anthropic-Version", "2023-06-01")
		key = func(key string) { e.header.Set("X-Api-Key", key) }
	}
	switch {
	case keyEnv != "" && getenv(keyEnv) == "":
		return cove.Errorf(cove.InvalidArgument, "the variable %s, which --key-env names, is not set", keyEnv)
	case keyEnv != "":
		key(getenv(keyEnv))
	case e.dialect != model.Anthropic:
		if k := getenv(openaiKey); k != "" {
			bearer(k)
		}
	case getenv(anthropicToken) != "":
		bearer(getenv(anthropicToken))
	case getenv(anthropicKey) != "":
		key(getenv(anthropicKey))
	case getenv(oauthToken) != "":
		bearer(getenv(oauthToken))
		e.header.Set("Anthropic-Beta", "oauth-2025-04-20")
	}
	return nil
}

func guess(name, base string, getenv func(string) string) model.Dialect {
	anthropic := getenv(anthropicBase)+getenv(anthropicKey)+getenv(anthropicToken)+getenv(oauthToken) != ""
	openai := getenv(openaiBase)+getenv(openaiKey) != ""
	switch {
	case strings.HasPrefix(name, "claude"), !openai, anthropic && name == "":
		return model.Anthropic
	case base != "" || getenv(openaiBase) != "":
		return model.Chat // the common one among compatible endpoints
	}
	return model.Responses
}

// choose asks the endpoint for its models if none is named. Anthropic lists the newest first; elsewhere the order is
// meaningless, so there must be exactly one.
func (e endpoint) choose(ctx context.Context, c *model.Client) (string, error) {
	if e.model != "" {
		return e.model, nil
	}
	names, err := c.Models(ctx)
	if err != nil {
		return "", err
	}
	if len(names) == 1 || len(names) > 1 && e.dialect == model.Anthropic {
		return names[0], nil
	}
	return "", cove.Errorf(cove.InvalidArgument, "which model is to be asked? %s has %d", e.base.Host, len(names)).
		WithHint("name it with --model: %s", join(names[:min(len(names), 10)]))
}

// window returns a model's default context window, in tokens; fit adapts when an endpoint reports a smaller one.
func (e endpoint) window() int {
	if e.dialect == model.Anthropic {
		return 200_000
	}
	return 128_000
}

func join[T ~string](names []T) string {
	var all []string
	for _, n := range names {
		all = append(all, string(n))
	}
	return strings.Join(all, ", ")
}
