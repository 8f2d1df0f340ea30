// Package fit equips sandboxes for coding agents: it installs the agents of a machine, states what a sandbox needs for
// one, and tests whether an agent can work.
package fit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/agent/install"
	"github.com/cove-sandbox/cove/internal/agent/userconfig"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/registry"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/profile"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
	"github.com/cove-sandbox/cove/message"
)

// Configuration reads the machine's configuration, anew at each call.
type Configuration interface {
	Profiles() ([]api.Profile, error)
	Providers() ([]model.Provider, error)
	Machine(context.Context) (policy.Machine, error)
	// Budget returns the budget of a sandbox with what counts besides: that of the key of a principal, and the usual one.
	Budget(who cove.Principal, b cove.Budget) cove.Budget
}

// Options configure Agents. All are required.
type Options struct {
	Executions    *execution.Executions // runs installations
	Store         store.Vault
	Dir           string // for installed programs
	Beside        string // directory with the agents that come with Cove
	Agents        func() []agent.Agent
	Configuration Configuration
	Credentials   credential.Host
}

// Agents are the coding agents of a machine, declared and installed.
type Agents struct {
	o      Options
	layers *install.Store
}

// installer is the part of Cove that installs agents.
const installer = "agents"

// New returns the agents of a machine.
func New(o Options) *Agents {
	a := &Agents{o: o}
	a.layers = install.Open(install.Options{Dir: o.Dir, Beside: o.Beside, Agents: o.Agents,
		Providers: o.Configuration.Providers, Run: a.run, Registry: registry.New().NPM})
	return a
}

// Layers returns the installed programs.
func (a *Agents) Layers() *install.Store { return a.layers }

// maxInstallOutput bounds what is read of the output of a job, in bytes.
const maxInstallOutput = 16 << 20

// run does a job in an execution of its own.
func (a *Agents) run(ctx context.Context, j install.Job) (install.Result, error) {
	q := execution.Request{
		Language: "sh", Code: []byte(j.Script), Args: j.Args, Attachments: j.Attachments, Own: j.Limits,
		Spec: cove.Spec{Network: j.Network},
	}
	r, err := a.o.Executions.Execute(ctx, cove.System(installer), q, nil, nil)
	if err != nil {
		return install.Result{}, err
	}
	defer r.Output.Release()
	stdout, err := r.Output.Stdout().String(maxInstallOutput)
	stderr, errs := r.Output.Stderr().String(maxInstallOutput)
	return install.Result{ExitCode: r.ExitCode, Stdout: stdout, Stderr: stderr, Limit: r.Limit, Killed: r.Killed},
		errors.Join(err, errs)
}

// Listed is an agent with its installs.
type Listed struct {
	Name      string
	Title     string
	Installed string   // the version that runs use
	Versions  []string // all that are installed
	Ready     bool     // its program is there
	Pinned    string   // the version that is installed by default
	Package   string   // of npm; empty for an agent of Cove or of an image
	Size      int64    // bytes on disk
	Provider  string   // the default provider of its models
	Hosts     []string // hosts that it may reach besides
	Builtin   bool     // declared by Cove, not by the configuration
}

// Report describes the needs of an agent, tested.
type Report struct {
	Agent   string
	Title   string
	Healthy bool
	Checks  []Check
}

// Check is one need. Fix is what to do when it is not met.
type Check struct {
	Name  string // "installed", "runs", "credential" or "network"
	OK    bool
	Found string
	Fix   string
}

// Agents lists the agents.
func (a *Agents) Agents(context.Context) ([]Listed, error) {
	var all []Listed
	for _, one := range a.layers.Agents() {
		shown, err := a.show(one)
		if err != nil {
			return nil, err
		}
		all = append(all, shown)
	}
	return all, nil
}

// show describes an agent and its installs.
func (a *Agents) show(of agent.Agent) (Listed, error) {
	versions, err := a.layers.Versions(of)
	if err != nil {
		return Listed{}, err
	}
	shown := Listed{
		Name: of.Name, Title: of.Title, Pinned: of.Package.Version, Versions: versions, Package: of.Package.Npm,
		Provider: of.Provider, Hosts: of.Hosts, Builtin: of.Builtin,
	}
	if l, err := a.layers.Layer(of); err == nil {
		shown.Ready, shown.Installed, shown.Size = true, l.Version, install.Size(l)
	}
	return shown, nil
}

// InstallAgent installs a version of an agent, the pinned one if empty. Errors: NotFound, InvalidArgument,
// RuntimeMissing, Unavailable, StorageFull, Corrupt, Unsupported, Canceled.
func (a *Agents) InstallAgent(ctx context.Context, name, version string, progress func(workspace.Step)) (
	Listed, error) {
	if _, err := a.layers.Install(ctx, name, version, progress); err != nil {
		return Listed{}, err
	}
	of, err := a.layers.Agent(name)
	if err != nil {
		return Listed{}, err
	}
	return a.show(of)
}

// RemoveAgent removes a version of an agent, or every version that no sandbox uses if empty. Errors: NotFound,
// Conflict, StorageFull.
func (a *Agents) RemoveAgent(ctx context.Context, name, version string) ([]string, error) {
	all, err := a.o.Store.For(cove.System(installer)).Sandboxes(ctx)
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

// Want is a choice of an agent, and of how it works.
type Want struct {
	Agent   string
	Model   string // empty is the agent's own choice
	WorkDir string // inside; empty is cove.Workspace
	// Provider names the provider of its models, instead of the agent's own choice; Access is the way to it, in the words
	// of a profile.
	Provider string
	Access   string
	// Network is the one that was asked for. Where Provider is empty, the agent asks a provider that it names.
	Network *cove.Network
	Tokens  bool // its sandbox contains a real token
	// Home are the files that a user brings into a new sandbox. Hooks says that hooks of the agent were brought before.
	Home  []provision.File
	Hooks bool
}

// choose settles the provider. The first of a network's that speaks as the agent's own provider does is preferred, then
// the first that the agent can ask, else the first; the gateway's address serves it.
func (a *Agents) choose(q *Want) error {
	if q.Provider != "" || q.Network == nil || len(q.Network.Providers) == 0 {
		return nil
	}
	of, err := a.layers.Agent(q.Agent)
	if err != nil {
		return err
	}
	all, err := a.o.Configuration.Providers()
	if err != nil {
		return err
	}
	q.Provider, q.Access = q.Network.Providers[0], profile.AccessProxy
	named := func(name string) *model.Provider {
		for i := range all {
			if all[i].Name == name {
				return &all[i]
			}
		}
		return nil
	}
	own := named(of.Provider)
	for _, fits := range []func(*model.Provider) bool{
		func(p *model.Provider) bool { return own != nil && p.Kind == own.Kind },
		of.CanAsk,
	} {
		for _, name := range q.Network.Providers {
			if p := named(name); p != nil && fits(p) {
				q.Provider = name
				return nil
			}
		}
	}
	return nil
}

// Equipment is an agent, and its needs where it works.
type Equipment struct {
	Agent   string
	Title   string
	Version string // of its program; empty when unknown
	// Provider names the provider of its models that the agent asks itself; empty: none.
	Provider string
	Model    string // that was chosen, in the agent's words
	Hooks    bool   // the user has brought hooks of it
	Missing  bool   // it is not installed, and Install does that
	agent.Outfit
	Trial   sandbox.Trial // in the image of a sandbox
	Command func(agent.Task) (agent.Command, error)
	// Parser returns the parser for a run of a conversation with a usage so far.
	Parser func(before message.AgentUsage) agent.Parser
}

// Fit returns a request for a sandbox in which the agent can work. What the request states itself takes precedence;
// layers, path and screen are the agent's. A principal other than the machine's owner has none of its credentials, and
// therefore states the whole network itself.
func (e Equipment) Fit(who cove.Principal, q sandbox.Request) sandbox.Request {
	if !who.IsOwner() {
		e.Network = cove.Network{}
	}
	q.Spec = e.Outfit.Equip(q.Spec)
	q.Agent, q.Trial, q.Hooks = e.Agent, e.Trial, e.Hooks
	return q
}

// Equip finds an agent, and states its needs; nothing is fetched. With missing, an agent that can be installed need not
// be. Errors: NotFound, RuntimeMissing, InvalidArgument, Unsupported.
func (a *Agents) Equip(q Want, missing bool) (Equipment, error) {
	if err := a.choose(&q); err != nil {
		return Equipment{}, err
	}
	hooks := q.Hooks
	if declared, err := a.layers.Agent(q.Agent); err == nil {
		hooks = hooks || slices.ContainsFunc(q.Home, func(f provision.File) bool {
			return userconfig.HasHooks(declared.Config, f.Path, f.Data)
		})
	}
	want := install.Want{ProviderName: q.Provider, Choice: agent.Choice{Model: q.Model, WorkDir: q.WorkDir,
		Gateway: q.Access == profile.AccessProxy, Tokens: q.Tokens, Hooks: hooks}}
	of, l, o, err := a.layers.Outfit(q.Agent, want)
	missing = missing && cove.ErrorCode(err) == cove.RuntimeMissing && of.Package.Npm != ""
	if err != nil && !missing {
		return Equipment{}, err
	}
	command := func(t agent.Task) (agent.Command, error) {
		t.Hooks = hooks
		return of.HeadlessCommand(t)
	}
	return Equipment{Agent: of.Name, Title: of.Title, Version: l.Version, Provider: of.Provider, Model: q.Model,
		Outfit: o, Hooks: hooks, Missing: missing, Trial: sandbox.Trial{Title: of.Title, Needs: of.Needs, Args: of.Version},
		Command: command, Parser: of.NewParser}, nil
}

// Install installs an agent that is missing, and returns it with its needs. progress receives the steps. Errors: those
// of InstallAgent and Equip.
func (a *Agents) Install(ctx context.Context, q Want, progress func(workspace.Step)) (Equipment, error) {
	if _, err := a.layers.Install(ctx, q.Agent, "", progress); err != nil {
		return Equipment{}, err
	}
	return a.Equip(q, false)
}

// ProviderIn returns the provider of the agent's models in a network that it works in: the default one of the gateway's
// endpoint, or the one that the agent asks itself with a credential of that name; empty if there is neither.
func (e Equipment) ProviderIn(n *cove.Network) string {
	switch {
	case n == nil:
		return ""
	case len(n.Providers) > 0:
		return n.Providers[0]
	case slices.Contains(n.Credentials, e.Provider):
		return e.Provider
	}
	return ""
}

// Ready tries the credential of the agent's models in a network that it is to work in, and whether a budget can be
// judged, before anything is made for it. Errors: Unavailable where it has no value, with what to do; NotFound;
// InvalidArgument.
func (a *Agents) Ready(ctx context.Context, who cove.Principal, e Equipment, n *cove.Network) error {
	name := e.ProviderIn(n)
	if name == "" {
		return nil
	}
	all, err := a.o.Configuration.Providers()
	if err != nil {
		return err
	}
	chosen, err := model.Choose(all, name)
	if err == nil {
		err = judge(chosen[0], a.o.Configuration.Budget(who, n.Budget), e.Model)
	}
	if cove.ErrorCode(err) == cove.InvalidArgument || err != nil && len(n.Providers) > 0 {
		return err
	}
	if len(n.Providers) > 0 {
		name = chosen[0].Credential
	}
	return a.hasKey(ctx, e.Title, name)
}

// hasKey tries a credential of models; none is needed where it has no name.
func (a *Agents) hasKey(ctx context.Context, title, credential string) error {
	if credential == "" {
		return nil
	}
	if _, err := a.o.Credentials.Ready(ctx, credential); err != nil {
		return cove.Errorf(cove.ErrorCode(err), "%s has no key for its models: %s", title, cove.ErrorMessage(err)).
			WithHint("%s", cove.ErrorHint(err))
	}
	return nil
}

// EquipSandbox adds the needs of a request's agent to it, for a sandbox whose terminal shows the agent. An agent that
// is not declared is a program of the image, and needs nothing. Errors: RuntimeMissing, InvalidArgument, Unsupported.
func (a *Agents) EquipSandbox(who cove.Principal, q *sandbox.Request) error {
	if _, err := a.layers.Agent(q.Agent); cove.ErrorCode(err) == cove.NotFound {
		return nil
	}
	var p api.Profile
	if q.Profile != "" {
		all, err := a.o.Configuration.Profiles()
		if err == nil {
			p, err = profile.Find(all, q.Profile)
		}
		if err != nil {
			return err
		}
	}
	e, err := a.Equip(Want{Agent: q.Agent, Model: p.Model, Provider: p.Provider, Access: p.Access,
		Network: q.Network, WorkDir: filepath.Join(cove.Workspace, q.WorkDir), Home: q.Home,
		Tokens: len(sandbox.Exposed(q.Mounts)) > 0}, false)
	if err != nil {
		return err
	}
	*q = e.Fit(who, *q)
	if err := a.Ready(context.Background(), who, e, q.Network); err != nil {
		return err
	}
	if q.Home, err = e.Home(q.Home); err != nil {
		return err
	}
	if q.Screen == nil && q.Tasks {
		q.Screen = []string{"sh", "-l"}
	}
	if q.Screen == nil {
		return cove.Errorf(cove.Unsupported, "%s has no screen of its own", e.Title).
			WithHint("give it a task: cove %s PROMPT", e.Agent)
	}
	return nil
}

// Home returns the files of a home: those that a user has brought, and the agent's own, which are laid over them key by
// key. Errors: InvalidArgument.
func (e Equipment) Home(brought []provision.File) ([]provision.File, error) {
	all := slices.Clone(brought)
	for _, f := range e.Files {
		own := provision.File{Path: f.Path, Mode: 0o600, Data: []byte(f.Content)}
		i := slices.IndexFunc(all, func(b provision.File) bool { return b.Path == f.Path })
		if i < 0 {
			all = append(all, own)
			continue
		}
		data, err := userconfig.Merge(f.Path, all[i].Data, own.Data)
		if err != nil {
			return nil, err
		}
		own.Data = data
		all[i] = own
	}
	return all, nil
}

// CheckAgent tests the needs of an agent. Errors: NotFound.
func (a *Agents) CheckAgent(ctx context.Context, name string) (Report, error) {
	of, err := a.layers.Agent(name)
	if err != nil {
		return Report{}, err
	}
	r := Report{Agent: of.Name, Title: of.Title, Healthy: true}
	note := func(what, found string, err error) bool {
		c := Check{Name: what, OK: err == nil, Found: found}
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

// reach returns an agent's way to its models, in words, and the name of the credential for it.
func (a *Agents) reach(ctx context.Context, of agent.Agent, l agent.Layer) (credential, found string, err error) {
	o, err := a.layers.OutfitOf(of, l, install.Want{})
	if err != nil {
		return "", "", err
	}
	all, err := a.o.Configuration.Providers()
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
	n, err := egress.NetworkOf(&o.Network)
	if err != nil {
		return of.Provider, "", err
	}
	m, err := a.o.Configuration.Machine(ctx)
	if err == nil {
		_, err = policy.Compile(m, n.Policy...)
	}
	if err != nil {
		return of.Provider, "", err
	}
	return of.Provider, "the preset " + of.Provider + " of policies, and nothing else", nil
}

// credential returns the source of a credential in words, without its value.
func (a *Agents) credential(ctx context.Context, name string) (found string, err error) {
	from, err := a.o.Credentials.Ready(ctx, name)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, from %s", name, from), nil
}
