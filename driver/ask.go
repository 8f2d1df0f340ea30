package driver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/model"
)

// AskOptions configure one question to a model.
type AskOptions struct {
	Files        []File // texts that belong to the prompt
	Model        string
	Instructions string
	// Provider names a provider of models. A sandboxed driver takes the server's first with a key if it is empty, and a
	// local one what the variables of its environment say.
	Provider  string
	MaxTokens int              // of one answer, which is continued when it is cut off; 0: the provider's limit
	Budget    *api.ModelBudget // nil: the server's; a local driver has none
	Timeout   time.Duration    // 0: 10 minutes
	Schema    json.RawMessage  // nil: none
	// Text receives the answer as it comes, or with a schema once it is valid. It may be nil.
	Text func(string)
}

// File is a text that belongs to a prompt.
type File struct{ Name, Text string }

const askTimeout = 10 * time.Minute

func (o AskOptions) question(prompt, instructions string) model.Question {
	q := model.Question{Prompt: prompt, Instructions: cmp.Or(o.Instructions, instructions), Schema: o.Schema,
		MaxOutput: o.MaxTokens}
	for _, f := range o.Files {
		q.Files = append(q.Files, model.File{Name: f.Name, Text: f.Text})
	}
	return q
}

// Ask implements Driver. The server asks through its gateway, which sets the key.
func (s *sandboxed) Ask(ctx context.Context, prompt string, o AskOptions) (Result, error) {
	ctx, task, err := s.begin(ctx)
	if err != nil {
		return Result{}, err
	}
	defer task.end()
	if err := o.question(prompt, "").Check(); err != nil {
		return Result{}, err
	}
	q := api.GenerateRequest{Prompt: prompt, Instructions: o.Instructions, Model: cmp.Or(o.Model, s.config.Model),
		Provider: o.Provider, Schema: o.Schema, MaxTokens: o.MaxTokens, Budget: o.Budget,
		Timeout: api.Seconds(o.Timeout.Seconds()), Profile: s.config.Profile}
	for _, f := range o.Files {
		q.Files = append(q.Files, api.File{Path: f.Name, Content: f.Text})
	}
	var stream client.Stream
	if o.Text != nil {
		stream.Stdout = texts(o.Text)
	}
	g, err := s.c.Generate(ctx, q, stream)
	if err != nil {
		return Result{}, err
	}
	return task.answered(g)
}

type texts func(string)

func (t texts) Write(p []byte) (int, error) { t(string(p)); return len(p), nil }

var _ io.Writer = texts(nil)

// answered returns the result of an answer, and records its usage.
func (k *task) answered(g api.Generated) (Result, error) {
	k.recordUsage(api.Message{Type: api.MessageUsage, Usage: &g.Usage})
	r := Result{Text: g.Text, Data: g.Data, Usage: g.Usage}
	if g.Error == nil {
		return r, nil
	}
	err := &cove.Error{Code: cove.Code(g.Error.Code), Hint: g.Error.Hint,
		Message: strings.TrimSuffix(g.Error.Error, " ("+g.Error.Hint+")")}
	if err.Code == cove.AgentFailed {
		r.IsError, r.Text = true, strings.TrimSpace(g.Text+"\n\n"+err.Error())
		return r, nil
	}
	return r, err
}

// Ask implements Driver: with the key of the caller's environment, as providers' SDKs find it.
func (l *local) Ask(ctx context.Context, prompt string, o AskOptions) (Result, error) {
	ctx, task, err := l.begin(ctx)
	if err != nil {
		return Result{}, err
	}
	defer task.end()
	p := l.config.profile
	q := o.question(prompt, p.Instructions)
	if err := q.Check(); err != nil {
		return Result{}, err
	}
	c, name, err := l.endpoint(ctx, o)
	if err != nil {
		return Result{}, err
	}
	defer c.HTTP.CloseIdleConnections()
	if o.Schema == nil {
		c.Said = o.Text
	}
	timeout := cmp.Or(o.Timeout, apispec.Duration(p.Timeout), askTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeUp)
	defer cancel()
	began := time.Now()
	made, err := c.Generate(ctx, name, q)
	made.Usage.Duration = time.Since(began).Round(time.Millisecond).Seconds()
	if errors.Is(context.Cause(ctx), errTimeUp) && err != nil {
		err = cove.Errorf(cove.LimitReached, "there was no answer after %s", timeout).
			WithHint("allow more time, or ask for less")
	}
	if err == nil && o.Schema != nil && o.Text != nil {
		o.Text(string(made.Data))
	}
	g := api.Generated{Text: made.Text, Data: made.Data, Usage: made.Usage}
	if err != nil {
		g.Error = &api.Error{Code: string(cove.ErrorCode(err)), Error: cove.ErrorMessage(err), Hint: cove.ErrorHint(err)}
	}
	return task.answered(g)
}

// endpoint returns a client of the models that the caller's environment leads to, and the model to ask. Errors:
// Unsupported, Unavailable without a key, those of Endpoint.Choose.
func (l *local) endpoint(ctx context.Context, o AskOptions) (*model.Client, string, error) {
	provider := cmp.Or(o.Provider, l.config.profile.Provider, l.agent.Provider)
	kinds := map[string]model.Dialect{"anthropic": model.Anthropic, "openai": model.Responses}
	kind, known := kinds[provider]
	switch {
	case o.Budget != nil:
		return nil, "", cove.Errorf(cove.Unsupported, "nothing keeps to a budget without a server").
			WithHint("leave the budget out, or use a profile with sandboxes")
	case !known && o.Provider != "":
		return nil, "", cove.Errorf(cove.Unsupported, "without a server the provider %.80q is not known", o.Provider).
			WithHint("name anthropic or openai, or use a profile with sandboxes")
	}
	env := os.Environ()
	for _, more := range []map[string]string{l.config.profile.Env, l.config.New.Env} {
		for name, value := range more {
			env = append(env, name+"="+value)
		}
	}
	getenv := func(name string) string {
		for _, variable := range slices.Backward(env) {
			if key, value, _ := strings.Cut(variable, "="); key == name {
				return value
			}
		}
		return ""
	}
	if kind == model.Responses && getenv("OPENAI_BASE_URL") != "" {
		kind = model.Chat // the common one among compatible endpoints
	}
	e, err := model.Resolve(model.Wanted{Kind: string(kind), Model: cmp.Or(o.Model, l.config.Model,
		l.config.profile.Model)}, getenv)
	switch {
	case err != nil:
		return nil, "", err
	case e.Header.Get("Authorization")+e.Header.Get("X-Api-Key") == "" && strings.HasPrefix(e.Base.Host, "api."):
		return nil, "", cove.Errorf(cove.Unavailable, "there is no key for the models of %s", e.Base.Host).
			WithHint("export ANTHROPIC_API_KEY=… or OPENAI_API_KEY=…")
	}
	c := e.Client(nil, slog.New(slog.DiscardHandler))
	name, err := e.Choose(ctx, c)
	return c, name, err
}
