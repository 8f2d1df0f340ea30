package policy

import "encoding/json"

// Step is the verdict of one layer.
type Step struct {
	Layer   Layer
	Verdict Verdict
}

// Explain judges a request at each layer that is known before anything is
// dialled: name, connection, and the request in it unless that passes
// through. The verdict is the first of the least reach.
func (p *Policy) Explain(method string, u URL) (Verdict, []Step) {
	var steps []Step
	judge := func(l Layer) Verdict {
		v := p.Decide(Request{Layer: l, Host: u.Host, Port: u.Port, Method: method, Path: u.Path})
		steps = append(steps, Step{l, v})
		return v
	}
	if u.Host.Name() != "" {
		judge(LayerDNS)
	}
	if v := judge(LayerConnect); !v.PassThrough {
		judge(LayerHTTP)
	}
	least := steps[len(steps)-1].Verdict // the one that saw most, unless another is stricter
	for _, s := range steps {
		if s.Verdict.Action < least.Action {
			least = s.Verdict
		}
	}
	return least, steps
}

// MarshalJSON gives a verdict as the command line and the API show it.
func (v Verdict) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Verdict     string `json:"verdict"`
		Rule        string `json:"rule"`
		Reason      string `json:"reason"`
		Remedy      string `json:"remedy,omitempty"`
		PassThrough bool   `json:"pass_through,omitempty"`
	}{v.Action.String(), v.Rule, v.Reason, v.Remedy, v.PassThrough})
}

// MarshalJSON gives a step with its layer's name.
func (s Step) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Layer   string  `json:"layer"`
		Verdict Verdict `json:"decision"`
	}{s.Layer.String(), s.Verdict})
}
