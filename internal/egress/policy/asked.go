package policy

import "github.com/cove-sandbox/cove"

// Documents are the layers of the policy that a network asks for: each file, then the rest. Errors: InvalidArgument,
// with the place.
func Documents(n cove.Network) ([]*Document, error) {
	var layers []*Document
	for _, text := range n.Policies {
		d, err := Parse(text.Source, []byte(text.Text))
		if err != nil {
			return nil, err
		}
		layers = append(layers, d)
	}
	last, err := Args("--allow", Allow, n.Allow...)
	if err != nil {
		return nil, err
	}
	denied, err := Args("--deny", Deny, n.Deny...)
	if err != nil {
		return nil, err
	}
	last.Rules = append(last.Rules, denied.Rules...)
	if n.Mode != "" {
		if last.Mode, err = ParseMode(string(n.Mode)); err != nil {
			return nil, err
		}
	}
	if n.AllowPR {
		last.PullRequests = Granted
	}
	if len(last.Rules) == 0 && last.Mode == "" && !n.AllowPR {
		return layers, nil
	}
	return append(layers, last), nil
}
