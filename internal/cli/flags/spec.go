// Package flags owns the flags and arguments that commands of several rooms take, and the requests that they become.
package flags

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Spec are the flags that say what an execution or a sandbox must be, as they were written.
type Spec struct {
	Given func(flag string) bool // on the command line

	Env       []string
	Mounts    []string
	WorkDir   string
	Image     string
	Engine    string
	Isolation string
	Labels    []string
	NoExec    bool
	Debuggers bool
	Root      bool
	User      string
	Profile   string

	sockets, systemDirs, writableGit, writableHooks bool

	Policy      Policy
	Credentials []string
	Models      Models
	forAgent    bool // which has models without a flag

	Memory, Disk, Stdout, Stderr string
	Timeout                      string
	CPUs                         float64
	PIDs, Inodes, OpenFiles      int64
}

// Resolved holds the values of a Spec for a server, which knows neither this process's directory nor its environment.
type Resolved struct {
	api.Spec
	Timeout api.Seconds
	Network *api.NetworkPermission // nil when no flag says anything of it
}

// AddMake defines the flags for a sandbox's image, engine, isolation and network. engine is the help of --engine.
func (o *Spec) AddMake(f *pflag.FlagSet, engine string) {
	f.StringVar(&o.Image, "image", "", "root filesystem `IMAGE`: host, dir:PATH, tar:PATH, or a reference")
	f.StringVar(&o.Engine, "engine", "", engine)
	f.StringVar(&o.Isolation, "isolation", "",
		"`ISOLATION` from the host: container, gvisor or microvm, if the engine has it")
	f.BoolVar(&o.Root, "root", false, "have programs be root inside, over an image, so that they install packages")
	f.StringVar(&o.User, "user", "",
		"have programs be the user `NAME|UID[:GROUP]` of the image, not the one that it says; with --root its sudo works")
	f.BoolVar(&o.NoExec, "noexec", false, "let nothing in /tmp and other temporary places be run")
	f.BoolVar(&o.Debuggers, "debuggers", false, "let programs trace others of the sandbox, as gdb, strace and delve do")
	f.StringArrayVar(&o.Labels, "label", nil, "give it the label `KEY=VALUE` (repeatable)")
	o.Policy.Add(f)
	f.StringArrayVar(&o.Credentials, "credential", nil,
		"set the credential `NAME` on its requests, outside the sandbox (repeatable)")
	o.Models.Add(f)
}

// AddMounts defines the flags for the machine's directories and files.
func (o *Spec) AddMounts(f *pflag.FlagSet) {
	f.StringArrayVar(&o.Mounts, "mount", nil, "attach `SOURCE:TARGET[:ro]` (repeatable)")
	f.BoolVar(&o.sockets, "sockets", false,
		"attach directories although unix sockets in them lead to programs of this machine; with more files than are "+
			"searched for sockets, a writable one needs --writable-git --writable-hooks as well")
	f.BoolVar(&o.systemDirs, "system-dirs", false, "attach this machine's own programs writable, as those of /usr")
	f.BoolVar(&o.writableGit, "writable-git", false,
		"leave .git of attached directories writable, except its hooks and configuration")
	f.BoolVar(&o.writableHooks, "writable-hooks", false,
		"leave files of attached directories writable that decide what your own programs run: .envrc, settings of editors "+
			"and agents, and with --writable-git hooks and configuration of git")
}

// Resolve reads what the flags say.
func (o *Spec) Resolve(getenv func(string) string) (r Resolved, err error) {
	r.Engine, r.Isolation, r.NoExec, r.Debuggers = o.Engine, o.Isolation, o.NoExec, o.Debuggers
	r.Root, r.User = o.Root, o.User
	if _, err := cove.ParseIsolation(o.Isolation); err != nil {
		return r, err
	}
	if r.Labels, err = cove.ParseLabels(o.Labels); err != nil {
		return r, err
	}
	if r.Image, err = AbsoluteImage(o.Image); err != nil {
		return r, err
	}
	if r.Limits, r.Timeout, err = o.Limits(); err != nil {
		return r, err
	}
	if r.Env, err = Environment(o.Env, getenv); err != nil {
		return r, err
	}
	for name, value := range r.Env {
		if err := CheckText("the variable "+name, name+value); err != nil {
			return r, err
		}
	}
	for _, m := range o.Mounts {
		mount, err := parseMount(m)
		if err != nil {
			return r, err
		}
		r.Mounts = append(r.Mounts, mount)
	}
	for _, allow := range []struct {
		said bool
		word string
	}{{o.sockets, cove.MountSockets}, {o.systemDirs, cove.MountSystem}, {o.writableGit, cove.MountGit},
		{o.writableHooks, cove.MountHooks}} {
		if allow.said {
			r.MountsAllow = append(r.MountsAllow, allow.word)
		}
	}
	r.Network, err = o.network()
	return r, err
}

// network is nil when no flag says anything of it, and empty for none, which wins over a profile's.
func (o *Spec) network() (*api.NetworkPermission, error) {
	switch {
	case !o.Policy.Given() && len(o.Credentials) == 0 && len(o.Models.providers) == 0:
		if o.Models.Given() && o.forAgent {
			models, err := o.Models.Permission()
			return &api.NetworkPermission{Enabled: true, ModelPermission: models}, err
		}
		if o.Models.Given() {
			return nil, cove.Errorf(cove.InvalidArgument, "--budget is for models, and without a network there are none").
				WithHint("say which with --model-provider NAME")
		}
		return nil, nil
	case o.Policy.Network == string(cove.NetworkNone):
		if o.Policy.opens() || len(o.Credentials) > 0 || o.Models.Given() || o.Policy.allowPR {
			return nil, cove.Errorf(cove.InvalidArgument, "--network none leaves nothing to allow").
				WithHint("leave one of them out")
		}
		return &api.NetworkPermission{}, nil
	}
	p, err := o.Policy.Texts()
	if err != nil {
		return nil, err
	}
	models, err := o.Models.Permission()
	if err != nil {
		return nil, err
	}
	return &api.NetworkPermission{
		Enabled: true, GatewayPolicy: p, Credentials: o.Credentials, ModelPermission: models,
	}, nil
}

// Limits are nil when no flag was given.
func (o *Spec) Limits() (*api.Limits, api.Seconds, error) {
	var l api.Limits
	for _, f := range []struct {
		flag, text string
		step       int64
		to         *int64
	}{
		{"memory", o.Memory, 1 << 20, &l.MemoryMB},
		{"disk", o.Disk, 1 << 20, &l.DiskMB},
		{"stdout-limit", o.Stdout, 1 << 10, &l.StdoutKB},
		{"stderr-limit", o.Stderr, 1 << 10, &l.StderrKB},
	} {
		if !o.Given(f.flag) {
			continue
		}
		n, err := ui.ParseSize(f.text, f.step)
		if err != nil {
			return nil, 0, inFlag("--"+f.flag, err)
		}
		*f.to = n / f.step
	}
	for _, f := range []struct {
		flag string
		n    int64
		to   *int64
	}{{"pids", o.PIDs, &l.PIDs}, {"inodes", o.Inodes, &l.Inodes}, {"open-files", o.OpenFiles, &l.OpenFiles}} {
		if o.Given(f.flag) && f.n <= 0 {
			return nil, 0, cove.Errorf(cove.InvalidArgument, "--%s %d: it must be more than nothing", f.flag, f.n).
				WithHint("leave the flag out for the default")
		}
		*f.to = f.n
	}
	if o.Given("cpus") && o.CPUs <= 0 || math.IsNaN(o.CPUs) || math.IsInf(o.CPUs, 0) {
		return nil, 0, cove.Errorf(cove.InvalidArgument, "--cpus %v is not a number of cores", o.CPUs).
			WithHint("write it like 0.5 or 2")
	}
	l.CPUs = o.CPUs
	var timeout time.Duration
	if o.Given("timeout") {
		var err error
		if timeout, err = ui.ParseSeconds(o.Timeout); err != nil {
			return nil, 0, inFlag("--timeout", err)
		}
	}
	if l == (api.Limits{}) {
		return nil, api.Seconds(timeout.Seconds()), nil
	}
	return &l, api.Seconds(timeout.Seconds()), nil
}

// Policy are the flags that make up a policy, wherever one can be stated.
type Policy struct {
	Files   []string // --policy
	Network string   // --network
	allow   []string // --allow
	deny    []string // --deny
	passed  []string // --pass-through
	Presets []string // --preset
	allowPR bool     // --allow-pr

	Dir string // that files are relative to; empty is where the command runs
}

func (f *Policy) Add(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.Files, "policy", nil, "policy `FILE` (repeatable: layers, first to last)")
	flags.StringVar(&f.Network, "network", "", "network `MODE`: none, limited, host-only or open")
	flags.StringArrayVar(&f.allow, "allow", nil, "allow `HOST[:PORT]`: a name, *.name, address or range; "+
		"tcp://HOST:PORT for what is neither HTTP nor TLS (repeatable)")
	flags.StringArrayVar(&f.deny, "deny", nil, "deny `HOST[:PORT]` (repeatable); a denial wins")
	flags.StringArrayVar(&f.passed, "pass-through", nil, "allow `HOST[:PORT]` without a look into its connections, for "+
		"programs that do not accept the sandbox's authority (repeatable)")
	flags.StringArrayVar(&f.Presets, "preset", nil,
		"allow what the preset `NAME` has, such as npm or pypi (repeatable; cove policy presets lists them)")
	flags.BoolVar(&f.allowPR, "allow-pr", false,
		"where GitHub's API may be reached, let it open pull requests and comment, not only read")
}

// Given reports whether there is any.
func (f *Policy) Given() bool {
	return f.opens() || len(f.deny) > 0 || f.Network != "" || f.allowPR
}

// opens reports whether there is any that names what to reach, beside the mode.
func (f *Policy) opens() bool { return len(f.Files)+len(f.allow)+len(f.passed)+len(f.Presets) > 0 }

// CheckPresets refuses a name that no preset has, with the one that was probably meant. Errors: InvalidArgument.
func CheckPresets(given []string) error {
	names := policy.PresetNames()
	for _, name := range given {
		err := policy.KnownPreset(name)
		if near := ui.Nearest(strings.ToLower(name), names); err != nil && near != "" {
			return cove.Errorf(cove.InvalidArgument, "there is no preset %.80q", name).
				WithHint("did you mean %s? There are %s", near, strings.Join(names, ", "))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Texts is the policy that the flags make up, as it is sent to others.
func (f *Policy) Texts() (api.GatewayPolicy, error) {
	p := api.GatewayPolicy{Mode: f.Network, Allow: f.allow, Deny: f.deny, Presets: f.Presets, PassThrough: f.passed,
		AllowPR: f.allowPR}
	if err := CheckPresets(f.Presets); err != nil {
		return p, err
	}
	for _, file := range f.Files {
		path := file
		if !filepath.IsAbs(path) {
			path = filepath.Join(f.Dir, path)
		}
		text, err := ReadPolicyFile(path)
		if err != nil {
			return p, err
		}
		p.Policies = append(p.Policies, api.PolicyText{Source: file, Text: string(text)})
	}
	_, err := policy.Documents(apispec.Policy(p)) // said with the names of this command's flags and files
	return p, err
}

// Documents are the layers that the flags name: each file, then the rest.
func (f *Policy) Documents() ([]*policy.Document, error) {
	p, err := f.Texts()
	if err != nil {
		return nil, err
	}
	return policy.Documents(apispec.Policy(p))
}

// maxPolicyFile is more than any policy has; policy.Parse says what is too much.
const maxPolicyFile = 2 << 20

func ReadPolicyFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cove.Errorf(cove.NotFound, "there is no file %s", path)
	}
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "cannot read %s: %w", path, ui.Cause(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPolicyFile))
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "cannot read %s: %w", path, ui.Cause(err))
	}
	return data, nil
}

// Models are the flags that say which models may be used, and how much.
type Models struct {
	providers []string // --model-provider
	budget    string   // --budget
}

func (f *Models) Add(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.providers, "model-provider", nil, "let it use the models of the provider `NAME`, "+
		"such as anthropic, openai, gemini or openrouter (repeatable; the first that fits is the default)")
	flags.StringVar(&f.budget, "budget", "",
		"end its use of models at `requests=N,tokens=N,cost=DOLLARS`, each of which may be left out")
}

func (f *Models) Given() bool { return len(f.providers) > 0 || f.budget != "" }

func (f *Models) Permission() (api.ModelPermission, error) {
	p := api.ModelPermission{Providers: f.providers}
	if f.budget == "" {
		return p, nil
	}
	b, err := model.ParseBudget(f.budget)
	if err != nil {
		return p, inFlag("--budget", err)
	}
	p.Budget = &api.ModelBudget{Requests: b.Requests, Tokens: b.Tokens, Cost: b.Cost}
	return p, nil
}
