package credential

import (
	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// API is the API for a repository's pull requests: the paths of a host below a prefix.
type API struct {
	Host   policy.Host
	Port   uint16
	Prefix string
}

// ForRemote returns the machine's own credentials for a repository at an https URL, bound to git's requests for it and,
// with pulls, to GitHub's API. If the machine has none, requests go without. Errors: InvalidArgument.
func ForRemote(remote string, pulls *API) ([]Credential, error) {
	d, err := policy.ForRepository(remoteName, remote, "", nil, false)
	if err != nil {
		return nil, err
	}
	d.Git = nil // policy judges git operations
	r, err := policy.ParseRemote(remote)
	if err != nil {
		return nil, err
	}
	git, err := machines(remoteName, Form{header: "Authorization", basic: true}, d, probe{r.Host, r.Port})
	if err != nil || pulls == nil {
		return []Credential{git}, err
	}
	api := &policy.Document{Source: apiName}
	for _, method := range []string{"GET", "HEAD", "POST"} {
		rule, err := policy.Exactly(apiName, pulls.Host, pulls.Port, method, pulls.Prefix+"/**")
		if err != nil {
			return nil, err
		}
		api.Rules = append(api.Rules, rule)
	}
	gh, err := machines(apiName, Bearer(), api, probe{pulls.Host, pulls.Port})
	gh.Variables, gh.Shape = []string{"GH_TOKEN", "GITHUB_TOKEN"}, "ghp_{36}"
	return []Credential{git, gh}, err
}

// Names of the credentials of ForRemote.
const (
	remoteName = "repository"
	apiName    = "repository-api"
)

// machines returns a credential that the machine may have.
func machines(name string, form Form, where *policy.Document, at probe) (Credential, error) {
	where.Mode = cove.NetworkLimited
	p, err := policy.Compile(policy.Machine{}, where)
	return Credential{
		Name: name, Source: Source{kind: fromMachine}, Shape: defaultShape, optional: true,
		Bindings: []Binding{{ID: name, Form: form, where: p, probes: []probe{at}}},
	}, err
}
