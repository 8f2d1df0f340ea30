package gateway

import (
	"slices"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/dns"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/egress/redact"
	"github.com/cove-sandbox/cove/internal/secret"
)

// Open makes a sandbox's route, which admits nothing until Serve. Errors: InvalidArgument for an invalid policy,
// NotFound for a credential or provider, Conflict, StorageFull.
func (g *Gateway) Open(s Spec) (*Route, error) {
	r, err := g.newRoute(s)
	if err != nil {
		g.authorities.discard(g.authorities.claim(s.Sandbox))
		return nil, err
	}
	if !g.add(r) {
		r.Close()
		return nil, cove.Errorf(cove.Conflict, "sandbox %s has an egress route already, or the gateway is closing",
			s.Sandbox)
	}
	return r, nil
}

// Check refuses a spec that Open would refuse for what it names: credentials, providers and presets that are not there,
// and policies that are invalid. It may lack the rules and the credentials of a repository. Errors: InvalidArgument,
// NotFound.
func (g *Gateway) Check(s Spec) error {
	if _, err := g.resolve(s); err != nil {
		return err
	}
	_, err := policy.Compile(g.o.Machine, s.Policy...)
	return err
}

// resolved holds what a spec names, of what the machine has.
type resolved struct {
	remote []credential.Credential // for its remote
	own    *credential.Set         // set on the sandbox's own requests
	known  *credential.Set         // with those of the providers
	models *models
}

// resolve finds what a spec names. Errors: InvalidArgument, NotFound.
func (g *Gateway) resolve(s Spec) (m resolved, err error) {
	if m.remote, err = g.forRemote(s); err != nil {
		return m, err
	}
	described, err := g.described()
	if err != nil {
		return m, err
	}
	if m.own, err = g.credentials(described, m.remote, s.Credentials); err != nil {
		return m, err
	}
	if err := usable(described, s.Credentials); err != nil {
		return m, err
	}
	var names []string
	if m.models, names, err = newModels(&g.o, described, s.Owner, s.Providers, s.Budget); err != nil {
		return m, err
	}
	m.known, err = g.credentials(described, m.remote, unique(slices.Concat(s.Credentials, names)))
	return m, err
}

func (g *Gateway) newRoute(s Spec) (*Route, error) {
	m, err := g.resolve(s)
	if err != nil {
		return nil, err
	}
	models, known := m.models, m.known
	hidden := &secrets{known: known}
	log := hidden.log(g.o.Log)
	r := &Route{
		identity: s.identity(), models: models, secrets: hidden, placeholders: known.Placeholders(),
		authorities: g.authorities, lookups: newLookups(g.resolver, g.o.Clock), rates: newRates(g.o.Rate, g.o.Clock),
		breakers: newBreakers(log.With("sandbox", s.Sandbox)), clock: g.o.Clock, log: log,
		presets: g.presets, done: make(chan struct{}),
	}
	r.shut = sync.OnceFunc(func() {
		if !r.stays.Load() {
			r.takeBack() // before what serves them closes them
		}
		close(r.done)
		if r.back != nil {
			r.back.End()
		}
	})
	hasEndpoints := len(models.providers)+len(s.Credentials)+len(m.remote) > 0
	r.rules = &rules{identity: r.identity, machine: g.o.Machine, credentials: m.own, documents: s.Policy}
	r.decider = &decider{rules: r.rules, models: models, github: g.o.GitHub, ownPort: g.o.OwnPort, endpoints: hasEndpoints,
		neighbours: newNeighbours(s.Neighbours)}
	concealed, err := setOf(r.placeholders)
	if err != nil {
		return nil, err
	}
	r.journal = &journal{identity: r.identity, recorder: g.o.Recorder, secrets: r.secrets, placeholders: concealed}
	p, err := r.compile(s.Policy)
	if err != nil {
		return nil, err
	}
	r.policy.Store(p)
	started, err := digest(p, append(slices.Clip(s.Credentials), s.Remote))
	if err != nil {
		return nil, err
	}
	r.holds = &holds{identity: r.identity, decider: r.decider, clock: g.o.Clock, patience: g.o.Patience,
		approvals: g.o.Approvals, started: started, peers: g.holds, closed: r.done, log: log}
	if r.trust, err = g.authorities.of(s.Sandbox); err != nil {
		return nil, err
	}
	r.forget = func() { g.remove(r) }
	r.filter = dns.New(dnsView{r}, &r.names)
	r.proxy = proxy.New(proxyView{r},
		proxy.Options{Dialer: neighbourDialer{r.neighbours, &g.o.Dialer}, Roots: g.o.Roots, Timeouts: g.o.Timeouts,
			Bandwidth: g.o.Bandwidth, Log: log})
	r.git = &gitStage{decider: r.decider, holds: r.holds, proxy: r.proxy, packs: g.o.Packs, pushed: g.o.Pushed,
		dir: g.o.Spool, log: log, places: make(chan struct{}, maxSpooled)}
	r.api = newGitHubStage(r.decider, r.proxy)
	r.bodies = &bodies{dir: g.o.Spool, places: make(chan struct{}, maxLarge)}
	r.pipeline = r.stages(m.own, nil)
	r.git.after = r.pipeline[1+slices.IndexFunc(r.pipeline, func(s stage) bool { return s.name == decision.StageGit }):]
	r.api.after = r.git.after
	r.packages = &packageStage{decider: r.decider, cache: g.o.Packages, registries: g.registries,
		signers: g.signers, sums: g.sums,
		asker:  &indexAsker{decider: r.decider, proxy: func() *proxy.Server { return r.proxy }, indexes: g.indexes},
		behind: g.o.Dialer.Upstream != nil, clock: g.o.Clock, log: log}
	r.pipeline = append(r.pipeline, stage{decision.StagePackages, r.packages.stage(m.own)})
	for _, p := range models.providers {
		p.pipeline = r.stages(p.credentials, p.Provider)
	}
	return r, nil
}

// stages returns the stages in the order of requests. Policy is asked before the first; the proxy dials after the last,
// and records the outcome. They apply to the sandbox's own requests, or to those for a provider of models.
func (r *Route) stages(credentials *credential.Set, of *model.Provider) []stage {
	return []stage{
		{decision.StageProtocol, r.refuseOverrides},
		{decision.StageGitHub, r.api.enter},
		{decision.StageGit, r.git.enter},
		{decision.StageRate, r.rates.enter},
		{decision.StageBreaker, r.missing(of, r.breakers.enter)},
		{decision.StageBudget, r.counting(of)},
		{decision.StageCredentials, r.watching(of, setting(credentials, r.keyed, r.bodies))},
		{decision.StageUpstream, r.redact},
	}
}

// credentials returns the named credentials of this machine, and those for a remote.
func (g *Gateway) credentials(d Described, remote []credential.Credential, names []string) (*credential.Set, error) {
	chosen, err := credential.Choose(d.Credentials, names...)
	if err != nil {
		return nil, err
	}
	return credential.NewSet(g.o.Values, append(chosen, remote...)...)
}

// usable refuses credentials that are set for providers of models only, where a sandbox is to have them itself.
func usable(d Described, names []string) error {
	chosen, err := credential.Choose(d.Credentials, names...)
	if err != nil {
		return err
	}
	for _, c := range chosen {
		if c.Unbound() {
			return cove.Errorf(cove.InvalidArgument, "the credential %s is bound to no host", c.Name).
				WithHint("it is for the model providers that name it: --model-provider NAME; to, in its description, binds it")
		}
	}
	return nil
}

func unique(list []string) (once []string) {
	for _, s := range list {
		if !slices.Contains(once, s) {
			once = append(once, s)
		}
	}
	return once
}

// forRemote returns the machine's own credentials for the remote of a spec.
func (g *Gateway) forRemote(s Spec) ([]credential.Credential, error) {
	if s.Remote == "" {
		return nil, nil
	}
	var pulls *credential.API
	if s.PullRequests {
		r, err := policy.ParseRemote(s.Remote)
		if err != nil {
			return nil, err
		}
		if api, ok := g.o.GitHub.API(r.Host); ok {
			pulls = &credential.API{Host: api.Host, Port: api.Port(r.Port), Prefix: api.Prefix}
		}
	}
	return credential.ForRemote(s.Remote, pulls)
}

// setOf returns the set of placeholders that are long enough to be found.
func setOf(placeholders map[string]string) (*redact.Set, error) {
	var values []secret.Value
	for _, p := range placeholders {
		if len(p) >= redact.MinLength {
			values = append(values, secret.New(p))
		}
	}
	return redact.New(values...)
}

func (g *Gateway) holds() (all []*holds) {
	for _, r := range g.all() {
		all = append(all, r.holds)
	}
	return all
}
