package policy

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	git "github.com/cove-sandbox/cove/internal/git/policy"
)

// Compile merges documents, first to last, into one policy. Errors: InvalidArgument with the place, those of Registry.
func Compile(m Machine, layers ...*Document) (*Policy, error) {
	p := &Policy{private: slices.Clone(m.Private), own: slices.Clone(m.Own)}
	for _, d := range layers {
		if d == nil {
			continue
		}
		if d.Replace {
			p.allow, p.ask = nil, nil
			p.git = dropGit(p.git)
			if p.pullRequests == Granted {
				p.pullRequests = Unsaid
			}
		}
		if p.pullRequests != Refused && d.PullRequests != Unsaid {
			p.pullRequests = d.PullRequests
		}
		p.repositories = append(p.repositories, d.Repositories...)
		p.git = mergeGit(p.git, d.Git)
		p.unshared = p.unshared || d.Unshared
		if d.Mode != "" {
			p.mode = d.Mode
		} else if p.mode == "" {
			p.mode = cove.NetworkLimited
		}
		for _, use := range d.Presets {
			rules, err := use.expand(m.Registry)
			if err != nil {
				return nil, err
			}
			if err := p.add(rules); err != nil {
				return nil, err
			}
		}
		if err := p.add(d.Rules); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *Policy) add(rules []Rule) error {
	for _, r := range rules { // a copy, since a Policy never changes
		switch r.Action {
		case Deny:
			p.deny = append(p.deny, &r)
			continue
		case Allow:
			p.allow = append(p.allow, &r)
		case Ask:
			p.ask = append(p.ask, &r)
		}
		for _, c := range r.cidrs {
			if err := p.opens(c); err != nil {
				return cove.Errorf(cove.InvalidArgument, "%s: %s", r.ID, bare(err)).WithHint("%s", cove.ErrorHint(err))
			}
		}
	}
	return nil
}

// opens refuses a range inside one that no rule opens. A wider range is accepted and does not open it.
func (p *Policy) opens(c netip.Prefix) error {
	for _, s := range append(slices.Clone(never), specials...) {
		if s.class != "this machine" && s.class != classMetadata || !within(s.net, c) {
			continue
		}
		if p.configured(c.Addr()) {
			return nil
		}
		hint := "only the gateway's own configuration can"
		if s.class == "this machine" {
			hint = "a service of this machine is " + HostService + " with its port"
		}
		return cove.Errorf(cove.InvalidArgument, "%s is %s, which no rule opens", c, s.class).WithHint("%s", hint)
	}
	return nil
}

// MayForce reports whether a policy may admit forced pushes to a remote: its git section allows them, or asks.
func MayForce(layers []*Document, remote string) (bool, error) {
	if !strings.HasPrefix(remote, "https://") {
		return false, nil
	}
	r, err := ParseRemote(remote)
	if err != nil {
		return false, err
	}
	var sections []*Document
	for _, d := range layers { // the rest cannot change the answer
		sections = append(sections, &Document{Source: d.Source, Mode: d.Mode, Replace: d.Replace, Git: d.Git})
	}
	p, err := Compile(Machine{}, sections...)
	if err != nil {
		return false, err
	}
	of := p.Git(r.Host, r.Port, r.Path)
	return of != nil && of.Force != git.Deny, nil
}

// Documents are the layers that a network asks for: each file, then one for each kind of flag, named for it. Errors:
// InvalidArgument, with the place.
func Documents(n cove.Network) ([]*Document, error) {
	return documents(n, origins{mode: "--network", allow: "--allow", passThrough: "--pass-through", deny: "--deny",
		preset: "--preset", pullRequests: "--allow-pr"})
}

// Changes are the layers of a network that was changed later, named for the commands that change it. Errors:
// InvalidArgument, with the place.
func Changes(n cove.Network) ([]*Document, error) {
	const allow = "cove policy allow"
	return documents(n, origins{mode: "cove policy mode", allow: allow, passThrough: allow + " --pass-through",
		deny: "cove policy deny", preset: allow + " --preset", pullRequests: allow + " --allow-pr"})
}

// origins are the sources of what a network asks for beside its files.
type origins struct{ mode, allow, passThrough, deny, preset, pullRequests string }

func documents(n cove.Network, from origins) (layers []*Document, err error) {
	for _, text := range n.Policies {
		d, err := Parse(text.Source, []byte(text.Text))
		if err != nil {
			return nil, err
		}
		layers = append(layers, d)
	}
	allowed, err := Args(from.allow, Allow, n.Allow...)
	if err != nil {
		return nil, err
	}
	denied, err := Args(from.deny, Deny, n.Deny...)
	if err != nil {
		return nil, err
	}
	passed, err := Args(from.passThrough, Allow, n.PassThrough...)
	if err != nil {
		return nil, err
	}
	for i := range passed.Rules {
		passed.Rules[i].PassThrough = true
	}
	presets := &Document{Source: from.preset}
	for _, name := range n.Presets {
		if err := KnownPreset(name); err != nil {
			return nil, err
		}
		presets.Presets = append(presets.Presets, PresetUse{Name: name, ID: from.preset + " " + name})
	}
	for _, d := range []*Document{presets, allowed, passed, denied} {
		if len(d.Rules)+len(d.Presets) > 0 {
			layers = append(layers, d)
		}
	}
	if n.AllowPR {
		layers = append(layers, &Document{Source: from.pullRequests, PullRequests: Granted})
	}
	if n.Mode != "" {
		mode, err := ParseMode(string(n.Mode))
		if err != nil {
			return nil, err
		}
		layers = append(layers, &Document{Source: from.mode, Mode: mode})
	}
	return layers, nil
}
