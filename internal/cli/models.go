package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/egress/model"
)

// modelFlags are the flags that say which models may be used, and how much.
type modelFlags struct {
	providers []string // --model-provider
	budget    string   // --budget
}

func (f *modelFlags) add(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.providers, "model-provider", nil, "let it use the models of the provider `NAME`, such as anthropic, openai or openrouter (repeatable; the first that fits is the default)")
	flags.StringVar(&f.budget, "budget", "", "end its use of models at `requests=N,tokens=N,cost=DOLLARS`, each of which may be left out")
}

func (f *modelFlags) given() bool { return len(f.providers) > 0 || f.budget != "" }

func (f *modelFlags) permission() (api.ModelPermission, error) {
	p := api.ModelPermission{Providers: f.providers}
	if f.budget == "" {
		return p, nil
	}
	b, err := model.ParseBudget(f.budget)
	if err != nil {
		return p, inFlag("--budget", err)
	}
	p.Budget = &api.ModelBudget{Requests: b.Requests, Tokens: b.Tokens, Cost: b.Cost}
	return p, nil
}

// modelsUsed says in one line what was used of models; nothing if nothing was.
func modelsUsed(all []api.ModelUsage) string {
	var parts []string
	for _, u := range all {
		requests := "requests"
		if u.Requests == 1 {
			requests = "request"
		}
		in := fmt.Sprintf("%d tokens in", u.InputTokens+u.CacheReadTokens+u.CacheWriteTokens)
		if u.CacheReadTokens > 0 {
			in += fmt.Sprintf(" (%d from cache)", u.CacheReadTokens)
		}
		part := fmt.Sprintf("%s %d %s, %s, %d out", u.Provider, u.Requests, requests, in, u.OutputTokens)
		if u.Cost > 0 {
			part += fmt.Sprintf(", $%.4f", u.Cost)
		}
		if u.Estimated > 0 {
			part += " (estimated)"
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return ""
	}
	return "models: " + strings.Join(parts, "; ")
}
