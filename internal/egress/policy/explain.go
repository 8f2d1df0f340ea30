package policy

import "encoding/json"

// Step is the verdict of one layer.
type Step struct {
	Layer   Layer
	Verdict Verdict
}

// Explain judges a request at each layer that its fields suffice for: the name, the connection, the request in it if
// there is a method and the connection is intercepted, and the address if there is one. The verdict is the strictest.
func (p *Policy) Explain(r Request) (Verdict, []Step) {
	var steps []Step
	judge := func(l Layer) Verdict {
		r.Layer = l
		v := p.Decide(r)
		steps = append(steps, Step{l, v})
		return v
	}
	if r.Host.Name() != "" {
		judge(LayerDNS)
	}
	if v := judge(LayerConnect); r.Method != "" && !v.PassThrough {
		judge(LayerHTTP)
	}
	if r.Address.IsValid() {
		judge(LayerDial)
	}
	least := steps[len(steps)-1].Verdict // of equally strict ones, the layer that saw most
	for _, s := range steps {
		if s.Verdict.Action < least.Action {
			least = s.Verdict
		}
	}
	return least, steps
}

// MarshalJSON encodes a verdict for the command line and the API.
func (v Verdict) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Verdict     string `json:"verdict"`
		Rule        string `json:"rule"`
		Reason      string `json:"reason"`
		Remedy      string `json:"remedy,omitempty"`
		PassThrough bool   `json:"pass_through,omitempty"`
	}{v.Action.String(), v.Rule, v.Reason, v.Remedy, v.PassThrough})
}

// MarshalJSON encodes a step with its layer's name.
func (s Step) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Layer   string  `json:"layer"`
		Verdict Verdict `json:"decision"`
	}{s.Layer.String(), s.Verdict})
}
