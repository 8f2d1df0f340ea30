package cove

import (
	"cmp"
	"maps"
	"slices"
)

// Spec describes a sandbox, as far as its request says. A zero field says nothing, and takes the default: see Over. It
// is plain data, which services, records and engines carry whole. Records have its fields by their names.
type Spec struct {
	Profile  string `json:",omitzero"` // the one that was applied; empty is none
	Engine   string `json:",omitzero"` // a name, or "auto"
	Image    string `json:",omitzero"` // host, dir:PATH, tar:PATH or a reference
	UserName string `json:",omitzero"` // USER[:GROUP] of the image, names or ids; empty is what the image says
	// ImageUser takes the place of the user that the image says, and weighs no more: it may be ignored.
	ImageUser string `json:",omitzero"`
	Shape
	Network     *Network          `json:",omitzero"` // nil says nothing; one that is not enabled is no network
	Env         map[string]string `json:",omitzero"` // of every process
	Mounts      []Mount           `json:",omitzero"`
	Volumes     []Volume          `json:",omitzero"`
	MountsAllow []string          `json:",omitzero"` // what Mounts and Bind may hold or leave writable besides
	Bind        string            `json:",omitzero"` // host directory that is attached at Workspace
	WorkDir     string            `json:",omitzero"` // inside, where processes begin
	Labels      map[string]string `json:",omitzero"`
	Layers      []Layer           `json:",omitzero"` // of its agent
	Agent       string            `json:",omitzero"` // whose screen its terminal shows, or a program of the image
	Path        string            `json:",omitzero"` // directory inside that comes first where programs are looked for
	Screen      []string          `json:",omitzero"` // what its terminal shows; nil is the program named Agent, or a shell
	Brought     []string          `json:",omitzero"` // of a user's own configuration of its agent, in words
	LeftOut     []string          `json:",omitzero"` // of the same
	Hooks       bool              `json:",omitzero"` // of the same: it has hooks, which the agent runs
	AllowPR     bool              `json:",omitzero"` // pull requests may be opened and commented on
	SSHAgent    string            `json:",omitzero"` // socket on the host, whose agent signs for the sandbox
	Git         *GitIdentity      `json:",omitzero"`
}

// Shape is the part of a Spec from which an engine makes a sandbox, for any
// principal. It is comparable: sandboxes of one shape can stand in for each other.
type Shape struct {
	Isolation Isolation `json:",omitzero"` // of the engine's choice when empty
	User      User      `json:",omitzero"`
	Limits    Limits    `json:",omitzero"`
	Lifetime  Lifetime  `json:",omitzero"`
	NoExec    bool      `json:",omitzero"` // nothing in temporary places can be run
	Debuggers bool      `json:",omitzero"` // programs may trace others of the sandbox
}

// Lifetime says what ends a sandbox.
type Lifetime string

const (
	// LifetimeAttached ends a sandbox with the process of Cove that made it, at the latest.
	LifetimeAttached Lifetime = ""
	// LifetimeDetached lets a sandbox run on, until it is destroyed.
	LifetimeDetached Lifetime = "detached"
)

// Network holds the network that was asked for a sandbox. Package internal/egress/policy makes documents of it.
type Network struct {
	Enabled  bool         `json:"enabled"` // there is a network at all
	Policies []PolicyText `json:"policies,omitempty"`
	Mode     NetworkMode  `json:"mode,omitempty"`
	Allow    []string     `json:"allow,omitempty"` // HOST, *.HOST, ADDRESS or CIDR, each with :PORT or without
	Deny     []string     `json:"deny,omitempty"`  // the same; a denial wins
	Presets  []string     `json:"presets,omitempty"`
	// PassThrough is like Allow, for connections that the gateway does not look into.
	PassThrough []string `json:"pass_through,omitempty"`
	AllowPR     bool     `json:"allow_pr,omitempty"`
	// Credentials are the names of those that the gateway sets on requests.
	Credentials []string `json:"credentials,omitempty"`
	Providers   []string `json:"providers,omitempty"` // of models, by name
	Budget      Budget   `json:"budget,omitzero"`
}

// PolicyText is a policy document before it is read.
type PolicyText struct {
	Source string `json:"source"` // the name by which verdicts refer to it
	Text   string `json:"text"`   // YAML
}

// Budget is the most that may be used of models; zero is no bound of its own.
type Budget struct {
	Requests int64   `json:"requests,omitempty"`
	Tokens   int64   `json:"tokens,omitempty"` // in and out, those of caches included
	Cost     float64 `json:"cost,omitempty"`   // dollars
}

// GitIdentity is the author of a sandbox's commits.
type GitIdentity struct {
	Name  string `json:"name,omitempty"`
	Email string `json:"email,omitempty"`
}

// Over lays s over defaults: what s says wins, and what it leaves out is as defaults say. A request is laid over its
// profile, that over what an agent needs, that over the configuration, and that over what is built in.
//
// Values are replaced whole, limits, budgets and the parts of an identity each by itself. Variables and labels are
// those of both, by name; mounts by their place inside. Networks and MountsAllow add up (see Network.Over). AllowPR,
// NoExec, Debuggers and Hooks are set by either.
func (s Spec) Over(defaults Spec) Spec {
	s.Profile = cmp.Or(s.Profile, defaults.Profile)
	s.Engine = cmp.Or(s.Engine, defaults.Engine)
	s.Image = cmp.Or(s.Image, defaults.Image)
	s.Isolation = cmp.Or(s.Isolation, defaults.Isolation)
	switch {
	case s.User == User{} && s.UserName == "":
		s.User, s.UserName = defaults.User, defaults.UserName
	case s.User == User{} && !defaults.User.IsRoot():
		s.User = defaults.User // until the image is known
	}
	s.ImageUser = cmp.Or(s.ImageUser, defaults.ImageUser)
	s.Limits = s.Limits.Over(defaults.Limits)
	s.Lifetime = cmp.Or(s.Lifetime, defaults.Lifetime)
	s.NoExec = s.NoExec || defaults.NoExec
	s.Debuggers = s.Debuggers || defaults.Debuggers
	s.Network = s.Network.Over(defaults.Network)
	s.Env = both(s.Env, defaults.Env)
	s.Mounts = mountsOver(s.Mounts, defaults.Mounts)
	if s.Volumes == nil {
		s.Volumes = defaults.Volumes
	}
	s.MountsAllow = union(s.MountsAllow, defaults.MountsAllow)
	s.Bind = cmp.Or(s.Bind, defaults.Bind)
	s.WorkDir = cmp.Or(s.WorkDir, defaults.WorkDir)
	s.Labels = both(s.Labels, defaults.Labels)
	if s.Layers == nil {
		s.Layers = defaults.Layers
	}
	s.Agent = cmp.Or(s.Agent, defaults.Agent)
	s.Path = cmp.Or(s.Path, defaults.Path)
	if s.Screen == nil {
		s.Screen = defaults.Screen
	}
	if s.Brought == nil && s.LeftOut == nil {
		s.Brought, s.LeftOut = defaults.Brought, defaults.LeftOut
	}
	s.Hooks = s.Hooks || defaults.Hooks
	s.AllowPR = s.AllowPR || defaults.AllowPR
	s.SSHAgent = cmp.Or(s.SSHAgent, defaults.SSHAgent)
	s.Git = s.Git.over(defaults.Git)
	return s
}

// Over is l with the fields of defaults where it has none of its own.
func (l Limits) Over(defaults Limits) Limits {
	l.Memory = cmp.Or(l.Memory, defaults.Memory)
	l.CPUs = cmp.Or(l.CPUs, defaults.CPUs)
	l.PIDs = cmp.Or(l.PIDs, defaults.PIDs)
	l.Disk = cmp.Or(l.Disk, defaults.Disk)
	l.Inodes = cmp.Or(l.Inodes, defaults.Inodes)
	l.OpenFiles = cmp.Or(l.OpenFiles, defaults.OpenFiles)
	l.Stdout = cmp.Or(l.Stdout, defaults.Stdout)
	l.Stderr = cmp.Or(l.Stderr, defaults.Stderr)
	l.Timeout = cmp.Or(l.Timeout, defaults.Timeout)
	return l
}

// Over returns the network that n and defaults allow together; either may be nil. A network that is not enabled stays
// so. Mode and each number of the budget are n's own, if it has any, and so are the providers; rules and credentials
// are those of both, and a denial of either wins.
func (n *Network) Over(defaults *Network) *Network {
	switch {
	case defaults == nil || n != nil && !n.Enabled:
		return n
	case n == nil && !defaults.Enabled:
		return &Network{}
	case n == nil:
		return defaults
	}
	sum := *n
	sum.Mode = cmp.Or(n.Mode, defaults.Mode)
	if sum.Mode == NetworkNone && !n.Opens() {
		return &Network{}
	}
	sum.Policies = slices.Concat(defaults.Policies, n.Policies)
	sum.Allow = union(defaults.Allow, n.Allow)
	sum.Deny = union(defaults.Deny, n.Deny)
	sum.Presets = union(defaults.Presets, n.Presets)
	sum.PassThrough = union(defaults.PassThrough, n.PassThrough)
	sum.AllowPR = n.AllowPR || defaults.AllowPR
	sum.Credentials = union(defaults.Credentials, n.Credentials)
	if len(n.Providers) == 0 {
		sum.Providers = defaults.Providers
	}
	sum.Budget = n.Budget.Over(defaults.Budget)
	return &sum
}

// Opens reports whether the network names what to reach, beside its mode.
func (n Network) Opens() bool {
	return len(n.Policies)+len(n.Allow)+len(n.Presets)+len(n.PassThrough) > 0
}

// Over is b with the numbers of defaults where it has none of its own.
func (b Budget) Over(defaults Budget) Budget {
	b.Requests = cmp.Or(b.Requests, defaults.Requests)
	b.Tokens = cmp.Or(b.Tokens, defaults.Tokens)
	b.Cost = cmp.Or(b.Cost, defaults.Cost)
	return b
}

func (i *GitIdentity) over(defaults *GitIdentity) *GitIdentity {
	if i == nil || defaults == nil {
		return cmp.Or(i, defaults)
	}
	return &GitIdentity{Name: cmp.Or(i.Name, defaults.Name), Email: cmp.Or(i.Email, defaults.Email)}
}

// both are the entries of two maps; m's win.
func both(m, defaults map[string]string) map[string]string {
	if len(defaults) == 0 {
		return m
	}
	sum := maps.Clone(defaults)
	maps.Copy(sum, m)
	return sum
}

// mountsOver are the mounts of both; at one place it is the first list's.
func mountsOver(own, defaults []Mount) []Mount {
	var all []Mount
	for _, m := range defaults {
		if !slices.ContainsFunc(own, func(o Mount) bool { return o.Target == m.Target }) {
			all = append(all, m)
		}
	}
	return append(all, own...)
}

func union(first, second []string) []string {
	all := slices.Clone(first)
	for _, s := range second {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
