package policy

import (
	"cmp"
	"embed"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove"
)

//go:embed presets/*.yaml
var presetFiles embed.FS

// Preset is a named set of rules included in Cove.
type Preset struct {
	Name     string
	About    string // one line
	Registry string // the tool whose configuration names the hosts; empty: Rules are complete
	Rules    []Rule
	methods  []string // of the rules made from Registry
}

// Endpoint is a place from which an installed tool gets packages.
type Endpoint struct {
	Host Host
	Port uint16
	From string // its source: "npm config", "/etc/apt/sources.list"
	// Bases are the URLs there below which packages or their index are, without users and passwords.
	Bases []string
}

// Presets returns the presets, sorted by name.
func Presets() ([]Preset, error) {
	var all []Preset
	for _, name := range PresetNames() {
		p, err := readPreset(name)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// PresetNames returns the names of the presets, sorted.
func PresetNames() []string {
	files, _ := fs.Glob(presetFiles, "presets/*.yaml") // the pattern is valid
	for i, f := range files {
		files[i] = strings.TrimSuffix(strings.TrimPrefix(f, "presets/"), ".yaml")
	}
	return files
}

// KnownPreset refuses a name that no preset has. Errors: InvalidArgument, with the names.
func KnownPreset(name string) error {
	names := PresetNames()
	if slices.Contains(names, name) {
		return nil
	}
	return cove.Errorf(cove.InvalidArgument, "there is no preset %s", quote(name)).WithHint("there are %s",
		strings.Join(names, ", "))
}

func readPreset(name string) (Preset, error) {
	source := "presets/" + name + ".yaml"
	data, err := presetFiles.ReadFile(source)
	if err != nil {
		return Preset{}, cove.Errorf(cove.InvalidArgument, "there is no preset %s", quote(name))
	}
	root, err := readYAML(source, data)
	if err != nil {
		return Preset{}, err
	}
	preset, d := Preset{Name: name}, &Document{}
	var others []string
	p := parser{source: source, preset: name}
	err = p.mapping(root, "a preset", map[string]func(*yaml.Node) error{
		"about":    valueOf(p, "about", asWritten, &preset.About),
		"registry": valueOf(p, "registry", asWritten, &preset.Registry),
		"methods":  listOf(p, "methods", asWritten, &preset.methods),
		"presets":  listOf(p, "presets", asWritten, &others),
		"rules":    func(n *yaml.Node) error { return p.rules(n, d) },
	})
	preset.Rules = d.Rules
	for _, other := range others {
		of, err := readPreset(other)
		if err != nil {
			return preset, err
		}
		preset.Rules = append(preset.Rules, of.Rules...)
	}
	return preset, err
}

// RegistryPresets asks the tools of all presets of registries at the same time, and calls found with each answer, one
// after the other. It returns after the last answer.
func RegistryPresets(registry func(tool string) ([]Endpoint, error), found func(preset string, at []Endpoint)) {
	all, _ := Presets() // embedded, and held valid by a test
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, p := range all {
		if p.Registry == "" || registry == nil {
			continue
		}
		asking.Go(func() {
			at, err := registry(p.Registry)
			if err != nil {
				return // a tool that is not there has no host
			}
			mu.Lock()
			defer mu.Unlock()
			found(p.Name, at)
		})
	}
	asking.Wait()
}

// expand returns the rules of a preset. The hosts of a registry's preset come from the installed tool.
func (u PresetUse) expand(registry func(tool string) ([]Endpoint, error)) ([]Rule, error) {
	preset, err := readPreset(u.Name)
	if err != nil || preset.Registry == "" {
		return preset.Rules, err
	}
	if registry == nil {
		return nil, cove.Errorf(cove.Unsupported, "%s: the preset %s needs the configuration of %s, which is not read here",
			u.ID, u.Name, preset.Registry)
	}
	endpoints, err := registry(preset.Registry)
	if err != nil {
		return nil, cove.Errorf(cove.ErrorCode(err), "%s: the preset %s: %s", u.ID, u.Name, bare(err)).WithHint("%s",
			cmp.Or(cove.ErrorHint(err), "name the hosts by rules instead"))
	}
	rules := preset.Rules
	for _, e := range endpoints {
		r := Rule{ID: "preset " + u.Name + "#" + strconv.Itoa(len(rules)+1), Action: Allow, Note: "from " + e.From,
			ports: []portRange{{e.Port, e.Port}}, methods: preset.methods}
		r.setHost(e.Host)
		if err := r.check(); err != nil {
			return nil, cove.Errorf(cove.InvalidArgument, "%s: the preset %s, %s: %s", u.ID, u.Name, r.Note, bare(err))
		}
		rules = append(rules, r)
	}
	return rules, nil
}
