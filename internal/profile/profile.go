// Package profile reads named configurations for sandboxes and agents, and lays requests over them: pure functions.
package profile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// Values of api.Profile.Mode and Access; empty is the first.
const (
	ModeContainer = "container"
	ModeNone      = "none" // no wall: an agent runs on the machine itself

	AccessIntercept = "intercept"  // the provider itself, its requests get their key on the way out
	AccessProxy     = "proxy"      // an address of the gateway's
	AccessTokenFile = "token-file" // the provider itself, with a real token that is in the sandbox
)

// Default is the profile of a caller that neither names nor has chosen one. It sets nothing.
const Default = "default"

var (
	nameForm     = pattern.New(`^[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?$`)
	variableForm = pattern.New(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
)

const maxDocument = 1 << 20 // bytes

// Parse reads a file of profiles; source names it in errors. An invalid profile has a Problem, with the line where one
// is known, and leaves the others as they are. agents checks what a profile says to agents. Errors: InvalidArgument for
// a file that is no list of profiles.
func Parse(source string, data []byte, agents func(api.Profile) error) ([]api.Profile, error) {
	if len(data) > maxDocument {
		return nil, cove.Errorf(cove.InvalidArgument, "%s is larger than %d MiB", source, maxDocument>>20).
			WithHint("is it the right file?")
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	var doc struct {
		Profiles []api.Profile `yaml:"profiles"`
	}
	err := d.Decode(&doc)
	problems, whole := assign(err, starts(data))
	if whole != "" {
		return nil, cove.Errorf(cove.InvalidArgument, "%s: %s", source, whole).
			WithHint("docs/profiles.md lists what a profile has")
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, cove.Errorf(cove.InvalidArgument, "%s has more than one YAML document", source).
			WithHint("remove what follows ---")
	}
	count := map[string]int{}
	for _, p := range doc.Profiles {
		count[p.Name]++
	}
	for i := range doc.Profiles {
		p := &doc.Profiles[i]
		if problem := cmp.Or(problems[i], problemOf(*p, count[p.Name], agents)); problem != "" {
			p.Problem = fmt.Sprintf("%s: the profile %.80q: %s", source, p.Name, problem)
		}
	}
	return doc.Profiles, nil
}

// problemOf returns why a profile cannot be used, or "".
func problemOf(p api.Profile, named int, agents func(api.Profile) error) string {
	err := check(p, agents)
	if err == nil && named > 1 {
		err = cove.Errorf(cove.InvalidArgument, "it is there twice").WithHint("give each profile a name of its own")
	}
	if err == nil {
		return ""
	}
	text := err.Error()
	if e, ok := errors.AsType[*cove.Error](err); ok {
		text = e.Message
	}
	if hint := cove.ErrorHint(err); hint != "" {
		text += " (" + hint + ")"
	}
	return text
}

// starts returns the line at which each profile of a file begins, or nothing where it is no list.
func starts(data []byte) (lines []int) {
	var doc struct {
		Profiles []yaml.Node `yaml:"profiles"`
	}
	if yaml.Unmarshal(data, &doc) != nil {
		return nil
	}
	for _, n := range doc.Profiles {
		lines = append(lines, n.Line)
	}
	return lines
}

var (
	atLine  = pattern.New(`^line ([0-9]+): `)
	unknown = pattern.New(`field (.{1,60}?) not found in type .*`)
	misfit  = pattern.New("cannot unmarshal (.*) into .*")
)

// inWords says an error of the decoder without the types of this program.
func inWords(text string) string {
	text = strings.Join(strings.Fields(strings.TrimPrefix(text, "yaml: ")), " ")
	text = misfit.Regexp().ReplaceAllString(text, "$1 does not fit here")
	return unknown.Regexp().ReplaceAllString(text, `there is no key "$1" here`)
}

// assign distributes the errors of decoding to the profiles in whose lines they are; whole is what is wrong with the
// file.
func assign(err error, starts []int) (problems map[int]string, whole string) {
	if err == nil || errors.Is(err, io.EOF) {
		return nil, ""
	}
	types, ok := errors.AsType[*yaml.TypeError](err)
	if !ok {
		return nil, inWords(err.Error())
	}
	problems = map[int]string{}
	for _, e := range types.Errors {
		line := 0
		if m := atLine.FindStringSubmatch(e); m != nil {
			line, _ = strconv.Atoi(m[1])
		}
		i, _ := slices.BinarySearch(starts, line+1)
		if i == 0 {
			return nil, inWords(e)
		}
		problems[i-1] = strings.TrimPrefix(problems[i-1]+"; "+inWords(e), "; ")
	}
	return problems, ""
}

func check(p api.Profile, agents func(api.Profile) error) error {
	if !nameForm.MatchString(p.Name) {
		return cove.Errorf(cove.InvalidArgument, "%.80q is no name for a profile", p.Name).
			WithHint("use small letters, digits, _ and -, at most 63")
	}
	if p.Name == Default {
		return cove.Errorf(cove.InvalidArgument, "%s is what there is without a profile", Default).
			WithHint("give it another name, and choose it with \"cove profile use\"")
	}
	for _, c := range []struct {
		key, value string
		choices    []string
	}{
		{"mode", p.Mode, []string{"", ModeContainer, ModeNone}},
		{"access", p.Access, []string{"", AccessIntercept, AccessProxy, AccessTokenFile}},
	} {
		if !slices.Contains(c.choices, c.value) {
			return cove.Errorf(cove.InvalidArgument, "%s: %.80q is none of %s",
				c.key, c.value, strings.Join(c.choices[1:], ", ")).
				WithHint("choose one of them")
		}
	}
	if p.Mode == ModeNone {
		if what := sandboxed(p); what != "" {
			return cove.Errorf(cove.InvalidArgument, "with the mode none there is no sandbox, and %s is about one", what).
				WithHint("leave it out, or use the mode container")
		}
	}
	if err := checkToken(p); err != nil {
		return err
	}
	for _, name := range p.WithIgnored {
		if clean := path.Clean(name); !filepath.IsLocal(clean) || clean == "." {
			return cove.Errorf(cove.InvalidArgument, "with_ignored: %.80q is no path in a repository", name).
				WithHint("name it relative to the top of the repository, such as node_modules")
		}
	}
	if err := agents(p); err != nil {
		return err
	}
	if err := cove.CheckMountsAllow(p.MountsAllow); err != nil {
		return err
	}
	if _, err := cove.ParseIsolation(p.Isolation); err != nil {
		return err
	}
	if p.Timeout < 0 || p.Timeout > 0 && p.Timeout < 1e-9 || p.MaxTurns < 0 {
		return cove.Errorf(cove.InvalidArgument, "timeout and max_turns are more than nothing").
			WithHint("leave them out for the default")
	}
	if n := p.Network; n != nil {
		if n.Mode == string(cove.NetworkNone) && len(n.Allow)+len(n.Presets)+len(n.PassThrough)+
			len(n.Credentials)+len(n.Providers)+len(n.Policy) > 0 {
			return cove.Errorf(cove.InvalidArgument, "the network mode none leaves nothing to allow").
				WithHint("leave one of them out")
		}
		s := specOf(p)
		if _, err := policy.Documents(*s.Network); err != nil {
			return err
		}
	}
	return nil
}

// checkToken holds that there is a token in sandboxes only where a profile says so twice.
func checkToken(p api.Profile) error {
	f := p.TokenFile
	switch {
	case f == nil && p.Access != AccessTokenFile:
		return nil
	case f == nil:
		return cove.Errorf(cove.InvalidArgument, "the access %s needs a token_file", AccessTokenFile).
			WithHint("say which: token_file: {path: FILE, variable: NAME}")
	case p.Access != AccessTokenFile:
		return cove.Errorf(cove.InvalidArgument,
			"a token_file is for the access %s, which shows the token to whatever runs in the sandbox", AccessTokenFile).
			WithHint("leave it out: without, keys are set on the way out, and nothing inside has them")
	case p.Provider != "":
		return cove.Errorf(cove.InvalidArgument, "with the access %s an agent talks to its own provider", AccessTokenFile).
			WithHint("leave provider out, or use the access %s", AccessProxy)
	case !strings.HasPrefix(f.Path, "/"):
		return cove.Errorf(cove.InvalidArgument, "token_file: %.200q is no absolute path", f.Path).
			WithHint("give the whole path")
	case !variableForm.MatchString(f.Variable):
		return cove.Errorf(cove.InvalidArgument, "token_file: %.80q is no name of a variable", f.Variable).
			WithHint("name the one in which the agent looks for it, such as ANTHROPIC_API_KEY")
	}
	return nil
}

// sandboxed names what of p needs a sandbox.
func sandboxed(p api.Profile) string {
	for _, f := range []struct {
		key   string
		given bool
	}{
		{"engine", p.Engine != ""},
		{"isolation", p.Isolation != ""},
		{"root", p.Root},
		{"user", p.User != ""},
		{"noexec", p.NoExec},
		{"debuggers", p.Debuggers},
		{"image", p.Image != ""},
		{"limits", p.Limits != nil},
		{"network", p.Network != nil},
		{"mounts", len(p.Mounts) > 0},
		{"mounts_allow", len(p.MountsAllow) > 0},
		{"access", p.Access != ""},
		{"shared", p.Shared},
		{"agent_config", p.AgentConfig != ""},
		{"with_ignored", len(p.WithIgnored) > 0},
		{"shared_name", p.SharedName != ""},
	} {
		if f.given {
			return f.key
		}
	}
	return ""
}

// Find returns the profile of a name. Errors: NotFound; InvalidArgument for one with a Problem.
func Find(all []api.Profile, name string) (api.Profile, error) {
	i := slices.IndexFunc(all, func(p api.Profile) bool { return p.Name == name })
	if i >= 0 && all[i].Problem != "" {
		return all[i], cove.Errorf(cove.InvalidArgument, "%s", all[i].Problem).
			WithHint("correct it there; docs/profiles.md lists what a profile has")
	}
	if i >= 0 {
		return all[i], nil
	}
	err := cove.Errorf(cove.NotFound, "there is no profile %.64q", name)
	if len(all) == 0 {
		return api.Profile{}, err.WithHint("there is none at all: docs/profiles.md says how to write one")
	}
	var names []string
	for _, p := range all {
		names = append(names, p.Name)
	}
	return api.Profile{}, err.WithHint("choose one of %s", strings.Join(names, ", "))
}

// Apply lays a request over a profile: see cove.Spec.Over. Errors: Unsupported where p has no sandboxes.
func Apply(p api.Profile, s cove.Spec) (cove.Spec, error) {
	if p.Mode == ModeNone {
		return s, cove.Errorf(cove.Unsupported, "the profile %s has no sandboxes: its mode is none", p.Name).
			WithHint("use another one: this one is for agents on the machine itself (cove claude --profile NAME), " +
				"as docs/profiles.md says")
	}
	s.Profile = p.Name
	return s.Over(specOf(p)), nil
}

func specOf(p api.Profile) cove.Spec {
	s := apispec.Spec(p.Spec)
	s.Agent, s.Limits.Timeout = p.Agent, apispec.Duration(p.Timeout)
	if n := p.Network; n != nil {
		s.Network = &cove.Network{
			Enabled: n.Mode != string(cove.NetworkNone), Mode: cove.NetworkMode(n.Mode), Allow: n.Allow, Deny: n.Deny,
			Presets: n.Presets, PassThrough: n.PassThrough,
			Credentials: n.Credentials, Providers: n.Providers, Budget: apispec.Budget(n.Budget),
		}
		if n.Policy != "" {
			s.Network.Policies = []cove.PolicyText{{Source: "profile", Text: n.Policy}}
		}
	}
	if g := p.Git; g != nil {
		s.AllowPR = g.AllowPR
		if g.GitIdentity != (api.GitIdentity{}) {
			s.Git = apispec.Identity(&g.GitIdentity)
		}
	}
	return s
}

// WithToken is s with the token of a profile that has one: a mount, which nothing
// inside can change. Snippets are shown none.
func WithToken(p api.Profile, s cove.Spec) cove.Spec {
	f := p.TokenFile
	if f == nil {
		return s
	}
	token := cove.Mount{Source: f.Path, Target: path.Join(cove.Tokens, f.Variable), ReadOnly: true}
	return s.Over(cove.Spec{Mounts: []cove.Mount{token}})
}

// Text is p as a file of profiles has it.
func Text(p api.Profile) (string, error) {
	data, err := yaml.Marshal(map[string][]api.Profile{"profiles": {p}})
	if err != nil {
		return "", fmt.Errorf("write the profile %s: %w", p.Name, err)
	}
	return string(data), nil
}
