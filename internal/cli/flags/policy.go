package flags

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Policy are the flags that make up a policy, wherever one can be stated.
type Policy struct {
	Files   []string // --policy
	Network string   // --network
	allow   []string // --allow
	deny    []string // --deny
	allowPR bool     // --allow-pr

	Dir string // that files are relative to; empty is where the command runs
}

func (f *Policy) Add(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.Files, "policy", nil, "policy `FILE` (repeatable: layers, first to last)")
	flags.StringVar(&f.Network, "network", "", "network `MODE`: none, limited, host-only or open")
	flags.StringArrayVar(&f.allow, "allow", nil, "allow `HOST[:PORT]`: a name, *.name, address or range; "+
		"tcp://HOST:PORT for what is neither HTTP nor TLS (repeatable)")
	flags.StringArrayVar(&f.deny, "deny", nil, "deny `HOST[:PORT]` (repeatable); a denial wins")
	flags.BoolVar(&f.allowPR, "allow-pr", false,
		"where GitHub's API may be reached, let it open pull requests and comment, not only read")
}

// Given reports whether there is any.
func (f *Policy) Given() bool {
	return len(f.Files)+len(f.allow)+len(f.deny) > 0 || f.Network != "" || f.allowPR
}

// Texts is the policy that the flags make up, as it is sent to others.
func (f *Policy) Texts() (api.GatewayPolicy, error) {
	p := api.GatewayPolicy{Mode: f.Network, Allow: f.allow, Deny: f.deny, AllowPR: f.allowPR}
	for _, file := range f.Files {
		path := file
		if !filepath.IsAbs(path) {
			path = filepath.Join(f.Dir, path)
		}
		text, err := ReadPolicyFile(path)
		if err != nil {
			return p, err
		}
		p.Policies = append(p.Policies, api.PolicyText{Source: file, Text: string(text)})
	}
	_, err := policy.Documents(apispec.Policy(p)) // said with the names of this command's flags and files
	return p, err
}

// Documents are the layers that the flags name: each file, then the rest.
func (f *Policy) Documents() ([]*policy.Document, error) {
	p, err := f.Texts()
	if err != nil {
		return nil, err
	}
	return policy.Documents(apispec.Policy(p))
}

// maxPolicyFile is more than any policy has; policy.Parse says what is too much.
const maxPolicyFile = 2 << 20

func ReadPolicyFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cove.Errorf(cove.NotFound, "there is no file %s", path)
	}
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "cannot read %s: %w", path, ui.Cause(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPolicyFile))
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "cannot read %s: %w", path, ui.Cause(err))
	}
	return data, nil
}

// Models are the flags that say which models may be used, and how much.
type Models struct {
	providers []string // --model-provider
	budget    string   // --budget
}

func (f *Models) Add(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.providers, "model-provider", nil, "let it use the models of the provider `NAME`, "+
		"such as anthropic, openai or openrouter (repeatable; the first that fits is the default)")
	flags.StringVar(&f.budget, "budget", "",
		"end its use of models at `requests=N,tokens=N,cost=DOLLARS`, each of which may be left out")
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
