package gateway

import (
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Documents returns the layers of a requested policy: each file, then the rest. Errors: InvalidArgument, with the
// place.
func Documents(p api.GatewayPolicy) ([]*policy.Document, error) {
	var layers []*policy.Document
	for _, text := range p.Policies {
		d, err := policy.Parse(text.Source, []byte(text.Text))
		if err != nil {
			return nil, err
		}
		layers = append(layers, d)
	}
	last, err := policy.Args("--allow", policy.Allow, p.Allow...)
	if err != nil {
		return nil, err
	}
	denied, err := policy.Args("--deny", policy.Deny, p.Deny...)
	if err != nil {
		return nil, err
	}
	last.Rules = append(last.Rules, denied.Rules...)
	if p.Mode != "" {
		if last.Mode, err = policy.ParseMode(p.Mode); err != nil {
			return nil, err
		}
	}
	if p.AllowPR {
		last.PullRequests = policy.Granted
	}
	if len(last.Rules) == 0 && last.Mode == "" && !p.AllowPR {
		return layers, nil
	}
	return append(layers, last), nil
}
