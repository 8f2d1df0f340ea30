package agent

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"text/template"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/pattern"
)

//go:embed agents.yaml
var builtin []byte

// Builtin returns the built-in agents.
func Builtin() []Agent { return slices.Clone(parseBuiltin()) }

var parseBuiltin = sync.OnceValue(func() []Agent {
	var doc struct{ Agents yaml.Node }
	d := yaml.NewDecoder(bytes.NewReader(builtin))
	if err := d.Decode(&doc); err != nil {
		panic(err) // a test parses them
	}
	all, err := Decode(&doc.Agents)
	if err != nil {
		panic(err)
	}
	for i := range all {
		all[i].Builtin = true
		if all[i].Name == Worker {
			all[i].Package.Beside = all[i].Program
		}
	}
	return all
})

// Worker is the name of Cove's own agent.
const Worker = "worker"

// Merge returns the built-in agents with declared ones, which replace those of the same name.
func Merge(declared []Agent) []Agent {
	all := Builtin()
	for _, a := range declared {
		if i := slices.IndexFunc(all, func(b Agent) bool { return b.Name == a.Name }); i >= 0 {
			all[i] = a
		} else {
			all = append(all, a)
		}
	}
	return all
}

// Find returns an agent by name. Errors: NotFound.
func Find(all []Agent, name string) (Agent, error) {
	var names []string
	for _, a := range all {
		if a.Name == name {
			return a, nil
		}
		names = append(names, a.Name)
	}
	return Agent{}, cove.Errorf(cove.NotFound, "there is no agent %.80q",
		name).WithHint("there are %s; more can be declared in the configuration (agents)", strings.Join(names, ", "))
}

// Decode parses declarations, strictly: a sequence of agents. Defaults are those of the zero Agent, except that title
// and program are the name, the prompt comes by standard input, and the output is text. Errors name the line of the
// declaration.
func Decode(n *yaml.Node) ([]Agent, error) {
	if n.Kind != yaml.SequenceNode {
		return nil, errors.New("must be a list of agents")
	}
	var all []Agent
	for _, item := range n.Content {
		if err := strict(item, reflect.TypeFor[Agent]()); err != nil {
			return nil, err
		}
		var a Agent
		if err := item.Decode(&a); err != nil {
			return nil,
				errors.New(strings.TrimSpace(strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", ""),
					"yaml: unmarshal errors:")))
		}
		a.complete()
		if err := a.check(); err != nil {
			return nil, fmt.Errorf("line %d: the agent %.80q: %w", item.Line, a.Name, err)
		}
		if slices.ContainsFunc(all, func(b Agent) bool { return b.Name == a.Name }) {
			return nil, fmt.Errorf("line %d: there are two agents %q", item.Line, a.Name)
		}
		all = append(all, a)
	}
	return all, nil
}

// strict refuses unknown keys, anchors and aliases.
func strict(n *yaml.Node, t reflect.Type) error {
	if n.Anchor != "" || n.Kind == yaml.AliasNode {
		return fmt.Errorf("line %d: write it out, without anchors and aliases", n.Line)
	}
	switch {
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		for _, item := range n.Content {
			if err := strict(item, t.Elem()); err != nil {
				return err
			}
		}
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct:
		fields, names := map[string]reflect.Type{}, []string{}
		for f := range t.Fields() {
			if name := f.Tag.Get("yaml"); name != "-" {
				fields[name], names = f.Type, append(names, name)
			}
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			field, ok := fields[key.Value]
			if !ok {
				return fmt.Errorf("line %d: there is no key %.60q here; there are %s", key.Line, key.Value,
					strings.Join(names, ", "))
			}
			if err := strict(value, field); err != nil {
				return err
			}
		}
	case n.Kind == yaml.MappingNode && t.Kind() != reflect.Map, n.Kind == yaml.SequenceNode, t.Kind() == reflect.Slice,
		t.Kind() == reflect.Struct:
		kind := map[reflect.Kind]string{reflect.Slice: "a list", reflect.Struct: "a mapping",
			reflect.Map: "a mapping"}[t.Kind()]
		kind = cmp.Or(kind, "one value")
		return fmt.Errorf("line %d: here belongs %s", n.Line, kind)
	}
	return nil
}

var formats = []Format{FormatClaude, FormatCodex, FormatGemini, FormatOpencode, FormatMessages, FormatText}

// complete fills in defaults.
func (a *Agent) complete() {
	a.Title, a.Program = cmp.Or(a.Title, a.Name), cmp.Or(a.Program, a.Name)
	a.Prompt, a.Output = cmp.Or(a.Prompt, ByStdin), cmp.Or(a.Output, FormatText)
}

var (
	agentName   = pattern.New(`^[a-z0-9][a-z0-9-]{0,31}$`)
	npmName     = pattern.New(`^(@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*$`)
	npmVersion  = pattern.New(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]{1,40})?$`)
	providerRef = pattern.New(`^[a-z0-9][a-z0-9._-]{0,62}$`)
	variable    = pattern.New(`^[A-Za-z_][A-Za-z0-9_]{0,200}$`)
)

// CheckVersion refuses anything except an exact version of a package: ranges and tags do not pin one.
func CheckVersion(v string) error {
	if !npmVersion.MatchString(v) || len(v) > 64 {
		return cove.Errorf(cove.InvalidArgument, "%.80q is no version", v).WithHint("write it out, like 1.2.3")
	}
	return nil
}

// check refuses a declaration that cannot work.
func (a *Agent) check() error {
	switch {
	case !agentName.MatchString(a.Name):
		return errors.New("a name has small letters, digits and hyphens, at most 32")
	case path.Base(a.Program) != a.Program || a.Program == "." || a.Program == "..":
		return errors.New("program is a file name")
	case len(a.Headless) == 0 && len(a.Interactive) == 0:
		return errors.New("it needs headless, interactive or both: the commands that it is run by")
	case (a.Package.Npm == "") != (a.Package.Version == ""):
		return errors.New("a package has npm, its name, and version")
	case a.Package.Npm != "" && (!npmName.MatchString(a.Package.Npm) || len(a.Package.Npm) > 214):
		return fmt.Errorf("%.80q is no name of a package", a.Package.Npm)
	case a.Package.Npm != "" && CheckVersion(a.Package.Version) != nil:
		return fmt.Errorf("%.80q is no version; write it out, like 1.2.3", a.Package.Version)
	case a.Package.Megabytes < 0 || a.Package.Megabytes > 1e6 || a.Package.Npm == "" && a.Package.Megabytes > 0:
		return errors.New("package.megabytes is what the package takes, 1000000 at most")
	case a.Package.Program != "" && !filepath.IsLocal(a.Package.Program):
		return errors.New("package.program is below the package's directory")
	case !slices.Contains([]Passing{ByStdin, ByArgument, ByFile}, a.Prompt):
		return fmt.Errorf("prompt is %s, %s or %s", ByStdin, ByArgument, ByFile)
	case !slices.Contains(formats, a.Output):
		return fmt.Errorf("output is one of %q", formats)
	case len(a.Headless) > 0 && a.Prompt == ByArgument && !uses(a.Headless, "prompt}"):
		return errors.New("headless has no {prompt}, where the prompt is to stand")
	case len(a.Headless) > 0 && a.Prompt == ByFile && !uses(a.Headless, "prompt_file}"):
		return errors.New("headless has no {prompt_file}, where the prompt's file is to stand")
	case a.ToolsMode != "" && len(a.Options.PermissionMode) == 0:
		return errors.New("tools_mode is a permission mode, and options.permission_mode says how the agent is told one")
	case a.Provider != "" && !providerRef.MatchString(a.Provider):
		return errors.New("provider is the name of a provider of models")
	}
	for _, env := range []map[string]string{a.Env, a.SandboxEnv} {
		for name := range env {
			if !variable.MatchString(name) {
				return fmt.Errorf("%.80q is no name of a variable", name)
			}
		}
	}
	for _, f := range a.Files {
		if !filepath.IsLocal(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "." {
			return fmt.Errorf("the file %.80q is not below the home", f.Path)
		}
		if _, err := template.New("").Funcs(functions).Parse(f.Content); err != nil {
			return fmt.Errorf("the content of the file %s: %w", f.Path, err)
		}
	}
	for _, o := range a.Config {
		if !filepath.IsLocal(o.Path) || path.Clean(o.Path) != o.Path || o.Path == "." || strings.HasPrefix(o.Path, "*") {
			return fmt.Errorf("the path %.80q of config is not below the home", o.Path)
		}
		if o.Kind == "" {
			return fmt.Errorf("the path %.80q of config needs a kind", o.Path)
		}
		if ext := path.Ext(o.Path); o.Document() && ext != ".json" && ext != ".jsonc" && ext != ".toml" {
			return fmt.Errorf("the path %.80q of config has keys, and is neither JSON nor TOML", o.Path)
		}
	}
	for _, p := range a.ConfigPlaces {
		if !variable.MatchString(p.Variable) {
			return fmt.Errorf("%.80q of config_places is no variable", p.Variable)
		}
		for _, below := range []string{p.Path, cmp.Or(p.At, "directory")} {
			if !filepath.IsLocal(below) || path.Clean(below) != below || below == "." {
				return fmt.Errorf("the path %.80q of config_places is not below its directory", below)
			}
		}
	}
	if _, err := policy.Args("hosts", policy.Allow, a.Hosts...); err != nil {
		return err
	}
	_, err := policy.Parse("does_without", []byte(a.policy("")))
	return err
}
