package outlet

import (
	"net/url"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/gateway"
)

// Questions describe the use of one provider of models by a part of Cove.
type Questions struct {
	Who      cove.Principal // in whose name
	Name     string         // of what asks, in records
	Provider string
	Budget   cove.Budget
}

// Models is a way to the models of one provider. As in a sandbox there is no key on it: the gateway sets it, counts the
// use, and records what leaves.
type Models struct {
	Proxy    *url.URL
	provider string
	route    *gateway.Route
	env      map[string]string
}

// Models opens a way to models. Errors: InvalidArgument, NotFound, Unavailable.
func (o Outlet) Models(q Questions) (*Models, error) {
	route, proxy, err := o.listen(gateway.Spec{Name: q.Name, Object: q.Name, Owner: q.Who,
		Policy:    []*policy.Document{{Source: "generate", Mode: cove.NetworkLimited}},
		Providers: []string{q.Provider}, Budget: q.Budget})
	if err != nil {
		return nil, err
	}
	return &Models{proxy, q.Provider, route, route.EnvAt("", route.Files())}, nil
}

// Getenv returns a variable of the environment that a program in a sandbox with this provider has.
func (m *Models) Getenv(name string) string { return m.env[name] }

// Refused returns why the provider cannot be asked with its credential, or nil.
func (m *Models) Refused() error {
	err, _ := m.route.Providers().Of(m.provider)
	return err
}

// Close ends the way, and returns what was used.
func (m *Models) Close() []model.ProviderUsage {
	m.route.Shut()
	used := m.route.Models()
	m.route.Close()
	return used
}
