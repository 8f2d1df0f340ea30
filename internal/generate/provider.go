package generate

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	providers "github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/model"
)

// openAI is the host whose models are asked by Responses; those of others are by chat completions.
const openAI = "api.openai.com"

// dialectOf returns how a provider is asked. Errors: Unsupported.
func dialectOf(p *providers.Provider) (model.Dialect, error) {
	switch p.Kind {
	case providers.Anthropic:
		if p.Has(providers.Messages) {
			return model.Anthropic, nil
		}
	case providers.OpenAI:
		switch {
		case p.Has(providers.Responses) && (p.Base.Hostname() == openAI || !p.Has(providers.Chat)):
			return model.Responses, nil
		case p.Has(providers.Chat):
			return model.Chat, nil
		case p.Has(providers.Messages):
			return model.Anthropic, nil
		}
	default:
		return "", cove.Errorf(cove.Unsupported, "the model provider %s is of the kind %s, which cannot be asked for a "+
			"single answer", p.Name, p.Kind).WithHint("name a provider of the kind anthropic or openai, or ask an agent")
	}
	return "", cove.Errorf(cove.Unsupported, "the model provider %s has no endpoint that answers", p.Name).
		WithHint("it needs messages, chat/completions or responses among its endpoints")
}

// provider returns the provider of a request, whose key is there, and how it is asked. Errors: NotFound, Unsupported,
// Forbidden for a model that the provider's description leaves out, Unavailable without a key.
func (s *Service) provider(ctx context.Context, q Request) (*providers.Provider, model.Dialect, error) {
	all, err := s.o.Providers()
	if err != nil {
		return nil, "", err
	}
	if q.Provider != "" {
		chosen, err := providers.Choose(all, q.Provider)
		if err != nil {
			return nil, "", err
		}
		p := chosen[0]
		dialect, err := dialectOf(p)
		switch {
		case err != nil:
			return nil, "", err
		case q.Model != "" && !p.Allows(q.Model):
			return nil, "", cove.Errorf(cove.Forbidden, "the model %.80q is none of the provider %s's that may be used",
				q.Model, p.Name).WithHint("name one of %s", strings.Join(p.Models, ", "))
		}
		return p, dialect, s.hasKey(ctx, p)
	}
	var missing error // the reason for the best one
	for _, p := range suitable(all, q.Model) {
		dialect, _ := dialectOf(p)
		err := s.hasKey(ctx, p)
		if err == nil {
			return p, dialect, nil
		}
		missing = cmp.Or(missing, err)
	}
	return nil, "", cmp.Or(missing, error(cove.Errorf(cove.Unavailable, "no model provider has the model %.80q", q.Model).
		WithHint("describe one in the file of gateway.providers")))
}

// suitable returns the providers that a question may go to which names none, the best first: those that speak as the
// model's name suggests, in the order of their descriptions. It is pure.
func suitable(all []providers.Provider, name string) []*providers.Provider {
	kind := providers.OpenAI
	if name == "" || strings.HasPrefix(name, "claude") {
		kind = providers.Anthropic
	}
	var found []*providers.Provider
	for i := range all {
		if _, err := dialectOf(&all[i]); err == nil && (name == "" || all[i].Allows(name)) {
			found = append(found, &all[i])
		}
	}
	slices.SortStableFunc(found, func(a, b *providers.Provider) int {
		rank := func(p *providers.Provider) int {
			if p.Kind == kind {
				return 0
			}
			return 1
		}
		return rank(a) - rank(b)
	})
	return found
}

// hasKey tries the credential of a provider. Errors: Unavailable, with what to do.
func (s *Service) hasKey(ctx context.Context, p *providers.Provider) error {
	if p.Credential == "" {
		return nil
	}
	if _, err := s.o.Credentials.Ready(ctx, p.Credential); err != nil {
		return cove.Errorf(cove.ErrorCode(err), "there is no key for the models of %s: %s", p.Name, cove.ErrorMessage(err)).
			WithHint("%s", cove.ErrorHint(err))
	}
	return nil
}
