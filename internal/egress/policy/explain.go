package policy

import "encoding/json"

// Step is the verdict of one layer.
type Step struct {
	Layer   Layer
	Verdict Verdict
}

// Explain judges a request at each layer that it says enough for: the name,
// the connection, the request in it if there is a method and it is looked
// into, and the address if there is one. The verdict is that of least reach.
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
