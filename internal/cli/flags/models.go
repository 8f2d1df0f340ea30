package flags

import (
	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/egress/model"
)

// Models are the flags that say which models may be used, and how much.
type Models struct {
	providers []string // --model-provider
	budget    string   // --budget
}

func (f *Models) Add(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.providers, "model-provider", nil, "let it use the models of the provider `NAME`, such as anthropic, openai or openrouter (repeatable; the first that fits is the default)")
	flags.StringVar(&f.budget, "budget", "", "end its use of models at `requests=N,tokens=N,cost=DOLLARS`, each of which may be left out")
}

func (f *Models) Given() bool { return len(f.providers) > 0 || f.budget != "" }

func (f *Models) Permission() (api.ModelPermission, error) {
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
