package daemon

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/agent/layers"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/registry"
	"github.com/cove-sandbox/cove/internal/httpapi"
	"github.com/cove-sandbox/cove/internal/profile"
	"github.com/cove-sandbox/cove/internal/run"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// agents are the coding agents of this machine: what is declared, and what is
// installed.
type agents struct {
	layers  *layers.Store
	manager *sandbox.Manager
	store   store.Vault
	cfg     *config.Config
}

var (
	_ httpapi.Agents = &agents{}
	_ run.Agents     = &agents{}
)

// installer is the part of Cove that installs agents.
const installer = "agents"

// newAgents makes the agents. Files of the configuration are read when they are
// needed.
func (d *Daemon) newAgents() *agents {
	a := &agents{manager: d.manager, store: store.NewVault(d.store), cfg: d.cfg}
	a.layers = layers.Open(layers.Options{
		Dir: filepath.Join(d.cfg.Home, "agents"), Beside: filepath.Dir(GuestPath(d.cfg)), Agents: agent.Merge(d.cfg.Agents),
		Providers: func() ([]model.Provider, error) { return providers(d.cfg.Gateway) },
		Run:       a.run, Registry: registry.New().NPM,
	})
	return a
}

// run does a job in an execution of its own.
func (a *agents) run(ctx context.Context, j layers.Job) (layers.Result, error) {
	q := sandbox.Request{
		Language: "sh", Code: []byte(j.Script), Args: j.Args, Attachments: j.Attachments, Own: j.Limits,
		Spec: cove.Spec{Network: j.Network},
	}
	r, err := a.manager.Execute(ctx, cove.System(installer), q, nil, nil)
	return layers.Result{ExitCode: r.ExitCode, Stdout: string(r.Stdout), Stderr: string(r.Stderr), Limit: r.Limit, Killed: r.Killed}, err
}

// Agents implements httpapi.Agents.
func (a *agents) Agents(context.Context) ([]api.Agent, error) {
	var all []api.Agent
	for _, one := range a.layers.Agents() {
		shown, err := a.show(one)
		if err != nil {
			return nil, err
		}
		all = append(all, shown)
	}
	return all, nil
}

// show is an agent as the API has it.
func (a *agents) show(of agent.Agent) (api.Agent, error) {
	versions, err := a.layers.Versions(of)
	if err != nil {
		return api.Agent{}, err
	}
	shown := api.Agent{
		Name: of.Name, Title: of.Title, Pinned: of.Package.Version, Versions: versions, Package: of.Package.Npm,
		Provider: of.Provider, Hosts: of.Hosts, Builtin: of.Builtin,
	}
	if l, err := a.layers.Layer(of); err == nil {
		shown.Ready, shown.Installed, shown.Size = true, l.Version, layers.Size(l)
	}
	return shown, nil
}

// InstallAgent implements httpapi.Agents.
func (a *agents) InstallAgent(ctx context.Context, name, version string, progress func(workspace.Step)) (api.Agent, error) {
	if _, err := a.layers.Install(ctx, name, version, progress); err != nil {
		return api.Agent{}, err
	}
	of, err := a.layers.Agent(name)
	if err != nil {
		return api.Agent{}, err
	}
	return a.show(of)
}

// RemoveAgent implements httpapi.Agents.
func (a *agents) RemoveAgent(ctx context.Context, name, version string) ([]string, error) {
	all, err := a.store.For(cove.System(installer)).Sandboxes(ctx)
	if err != nil {
		return nil, err
	}
	return a.layers.Remove(ctx, name, version, func(layer string) (holders []string) {
		for _, b := range all {
			if slices.ContainsFunc(b.Spec.Layers, func(l cove.Layer) bool { return l.Name == layer }) {
				holders = append(holders, b.Name)
			}
		}
		return holders
	})
}

// Equip implements run.Agents.
func (a *agents) Equip(ctx context.Context, q run.Want, install bool, progress func(workspace.Step)) (run.Equipment, error) {
	want := choice(q)
	of, l, o, err := a.layers.Outfit(q.Agent, want)
	if cove.ErrorCode(err) == cove.RuntimeMissing && install && of.Package.Npm != "" {
		if _, err = a.layers.Install(ctx, q.Agent, "", progress); err == nil {
			of, l, o, err = a.layers.Outfit(q.Agent, want)
		}
	}
	if err != nil {
		return run.Equipment{}, err
	}
	return run.Equipment{
		Agent: of.Name, Version: l.Version, Outfit: o, Command: of.HeadlessCommand, Parser: of.NewParser,
	}, nil
}

// choice is what is decided of an agent, as its declaration takes it.
func choice(q run.Want) layers.Want {
	return layers.Want{Choice: agent.Choice{Model: q.Model, WorkDir: q.WorkDir, Gateway: q.Access == profile.AccessProxy, Tokens: q.Tokens}, ProviderName: q.Provider}
}

// EquipSandbox implements httpapi.Agents.
func (a *agents) EquipSandbox(who cove.Principal, q *sandbox.LastingRequest) error {
	if _, err := a.layers.Agent(q.Agent); cove.ErrorCode(err) == cove.NotFound {
		return nil // a program of the image
	}
	var p api.Profile
	if q.Profile != "" {
		all, err := Profiles(a.cfg)
		if err == nil {
			p, err = profile.Find(all, q.Profile)
		}
		if err != nil {
			return err
		}
	}
	want := choice(run.Want{Model: p.Model, WorkDir: filepath.Join(cove.Workspace, q.WorkDir), Provider: p.Provider, Access: p.Access, Tokens: len(sandbox.Exposed(q.Mounts)) > 0})
	of, _, o, err := a.layers.Outfit(q.Agent, want)
	if err != nil {
		return err
	}
	if !who.IsOwner() { // others have no credentials of the machine's
		o.Network = cove.Network{}
	}
	q.Spec = o.Equip(q.Spec)
	for _, f := range o.Files {
		q.Home = append(q.Home, sandbox.File{Path: f.Path, Mode: 0o600, Data: []byte(f.Content)})
	}
	if q.Screen == nil {
		return cove.Errorf(cove.Unsupported, "%s has no screen of its own", of.Title).WithHint("give it a task: cove %s PROMPT", of.Name)
	}
	return nil
}

// CheckAgent implements httpapi.Agents.
func (a *agents) CheckAgent(ctx context.Context, name string) (api.AgentReport, error) {
	of, err := a.layers.Agent(name)
	if err != nil {
		return api.AgentReport{}, err
	}
	r := api.AgentReport{Agent: of.Name, Title: of.Title, Healthy: true, Checks: []api.AgentCheck{}}
	note := func(what, found string, err error) bool {
		c := api.AgentCheck{Name: what, OK: err == nil, Found: found}
		if err != nil {
			c.Fix = cove.ErrorHint(err)
			c.Found = strings.TrimSuffix(err.Error(), " ("+c.Fix+")")
			r.Healthy = false
		}
		r.Checks = append(r.Checks, c)
		return err == nil
	}
	l, err := a.layers.Layer(of)
	if note("installed", cmp.Or(l.Version, "it comes with Cove, or with the image"), err) {
		said, err := a.layers.Try(ctx, of, l)
		note("runs", said, err)
	}
	if of.Provider == "" {
		return r, nil
	}
	provider, found, err := a.reach(ctx, of, l)
	note("network", found, err)
	if provider != "" {
		found, err = a.credential(ctx, provider)
		note("credential", found, err)
	}
	return r, nil
}

// reach says how an agent gets at its models, and the name of the credential that
// this takes.
func (a *agents) reach(ctx context.Context, of agent.Agent, l agent.Layer) (credential, found string, err error) {
	o, err := a.layers.OutfitOf(of, l, layers.Want{})
	if err != nil {
		return "", "", err
	}
	all, err := providers(a.cfg.Gateway)
	if err != nil {
		return "", "", err
	}
	if len(o.Network.Providers) > 0 {
		chosen, err := model.Choose(all, o.Network.Providers[0])
		if err != nil {
			return "", "", err
		}
		return chosen[0].Credential, "the models of " + chosen[0].Name + ", at the gateway's address", nil
	}
	n, err := sandbox.NetworkOf(&o.Network)
	if err != nil {
		return of.Provider, "", err
	}
	m, err := Machine(ctx, a.cfg.Gateway)
	if err == nil {
		_, err = policy.Compile(m, n.Policy...)
	}
	if err != nil {
		return of.Provider, "", err
	}
	return of.Provider, "the preset " + of.Provider + " of policies, and nothing else", nil
}

// credential says from where a credential is had, and never what it is.
func (a *agents) credential(ctx context.Context, name string) (found string, err error) {
	own, err := credentials(a.cfg.Gateway)
	if err != nil {
		return "", err
	}
	chosen, err := credential.Choose(own, name)
	if err != nil {
		return "", err
	}
	from, err := chosen[0].Ready(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, from %s", name, from), nil
}

// credentials are those that the configuration describes.
func credentials(g config.Gateway) ([]credential.Credential, error) {
	if g.Credentials == "" {
		return nil, nil
	}
	data, err := os.ReadFile(g.Credentials)
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "gateway.credentials: %w", err)
	}
	return credential.Parse(g.Credentials, data)
}

// providers are those of models that there are.
func providers(g config.Gateway) ([]model.Provider, error) {
	if g.Providers == "" {
		return model.Known()
	}
	data, err := os.ReadFile(g.Providers)
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "gateway.providers: %w", err)
	}
	return model.Parse(g.Providers, data)
}
