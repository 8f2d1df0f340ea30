package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove"
)

const maxFile = 1 << 20 // bytes

// Source holds the places that Load reads from.
type Source struct {
	Path    string // of the file; empty is COVE_CONFIG, then CONFIG_PATH, and then none
	Getenv  func(string) string
	Environ []string          // as os.Environ gives it
	Flags   map[string]string // setting to value, from the command line
	UID     int
}

// Origin says where a value came from: "default", "file PATH:LINE", "env NAME" or "flag".
type Origin string

// Load reads the settings and checks them. Errors: InvalidArgument with the
// setting and the file's line; NotFound when the file is not there.
func Load(s Source) (*Config, error) {
	c, err := Read(s)
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Read is Load without the check.
func Read(s Source) (*Config, error) {
	c := Defaults(s.Getenv, s.UID)
	c.origins = map[string]Origin{}
	all := c.settings()
	if path := cmp.Or(s.Path, s.Getenv("COVE_CONFIG"), s.Getenv("CONFIG_PATH")); path != "" {
		if err := c.readFile(all, path); err != nil {
			return nil, err
		}
	}
	if err := c.readEnvironment(all, s); err != nil {
		return nil, err
	}
	if err := c.readFlags(all, s.Flags); err != nil {
		return nil, err
	}
	return &c, nil
}

func (c *Config) readFile(all settings, path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return cove.Errorf(cove.NotFound, "the configuration file %s does not exist", path).
			WithHint("correct --config, COVE_CONFIG or CONFIG_PATH, or begin with docs/cove.example.yaml")
	}
	if err != nil {
		return cove.Errorf(cove.InvalidArgument, "cannot read the configuration: %w", err)
	}
	defer f.Close()
	if c.File, err = filepath.Abs(path); err != nil {
		return cove.Errorf(cove.InvalidArgument, "cannot read the configuration: %w", err)
	}
	if info, err := f.Stat(); err == nil && info.Mode().Perm()&0o022 != 0 {
		c.warnings = append(c.warnings, path+" can be written by others, who could add API keys; use chmod go-w")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return cove.Errorf(cove.InvalidArgument, "cannot read the configuration %s: %w", path, err)
	}
	if len(data) > maxFile {
		return cove.Errorf(cove.InvalidArgument, "the configuration %s is larger than %d MiB", path, maxFile>>20).
			WithHint("is it the right file?")
	}
	return c.parse(all, path, data)
}

// parse takes one YAML document over the settings.
func (c *Config) parse(all settings, path string, data []byte) error {
	d := yaml.NewDecoder(strings.NewReader(string(data)))
	var doc yaml.Node
	if err := d.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil // nothing but comments
		}
		return cove.Errorf(cove.InvalidArgument, "%s is not YAML: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return cove.Errorf(cove.InvalidArgument, "%s has more than one YAML document", path).
			WithHint("remove what follows ---")
	}
	if len(doc.Content) == 0 {
		return nil
	}
	p := parser{config: c, all: all, path: path}
	return p.mapping("", doc.Content[0])
}

type parser struct {
	config *Config
	all    settings
	path   string
}

func (p parser) problem(n *yaml.Node, format string, args ...any) *cove.Error {
	return cove.Errorf(cove.InvalidArgument, "%s:%d: %s", p.path, n.Line, fmt.Sprintf(format, args...))
}

func (p parser) mapping(prefix string, n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil // a section whose settings are all commented out
	}
	if n.Kind != yaml.MappingNode {
		return p.problem(n, "%s must be a mapping of settings", cmp.Or(prefix, "the file"))
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if line := seen[key.Value]; line != 0 {
			return p.problem(key, "%s is set already in line %d", key.Value, line)
		}
		seen[key.Value] = key.Line
		name := key.Value
		if prefix != "" {
			name = prefix + "." + name
		}
		if err := p.entry(name, key, value); err != nil {
			return err
		}
	}
	return nil
}

func (p parser) entry(name string, key, value *yaml.Node) error {
	if value.Kind == yaml.AliasNode || value.Anchor != "" {
		return p.problem(value, "anchors and aliases are not supported").WithHint("write the value out")
	}
	if p.all.section(name) {
		return p.mapping(name, value)
	}
	s, ok := p.all[name]
	if !ok {
		return p.problem(key, "there is no setting %q", name).WithHint("%s", p.all.suggest(name))
	}
	if err := s.decode(value); err != nil {
		return p.problem(value, "%s: %s", name, err)
	}
	p.config.origins[name] = Origin(fmt.Sprintf("file %s:%d", p.path, key.Line))
	return nil
}

// otherVariables are read elsewhere: by clients, by Load, by tests.
var otherVariables = []string{"COVE_CONFIG", "COVE_SERVER", "COVE_API_KEY"}

func (c *Config) readEnvironment(all settings, s Source) error {
	names := map[string]string{} // variable to setting
	for name := range all {
		names[variable(name)] = name
	}
	// Many platforms set PORT; the more particular COVE_LISTEN wins.
	if port := s.Getenv("PORT"); port != "" && s.Getenv("COVE_LISTEN") == "" {
		listen, err := withPort(c.Listen, port)
		if err != nil {
			return err
		}
		c.Listen, c.origins["listen"] = listen, "env PORT"
	}
	for _, e := range slices.Sorted(slices.Values(s.Environ)) {
		v, value, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(v, "COVE_") {
			continue
		}
		name, ok := names[v]
		if !ok {
			if !slices.Contains(otherVariables, v) && !strings.HasPrefix(v, "COVE_TEST_") && !strings.HasPrefix(v, "COVE_VM_") {
				c.warnings = append(c.warnings, fmt.Sprintf("the environment variable %s is no setting", v))
			}
			continue
		}
		if err := all[name].parse(value); err != nil {
			return cove.Errorf(cove.InvalidArgument, "the environment variable %s: %s", v, err)
		}
		c.origins[name] = Origin("env " + v)
	}
	return nil
}

func (c *Config) readFlags(all settings, flags map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		s, ok := all[name]
		if !ok {
			return cove.Errorf(cove.InvalidArgument, "there is no setting %q", name).WithHint("%s", all.suggest(name))
		}
		if err := s.parse(flags[name]); err != nil {
			return cove.Errorf(cove.InvalidArgument, "%s: %s", name, err)
		}
		c.origins[name] = "flag"
	}
	return nil
}

// Origin says where the value of a setting came from.
func (c *Config) Origin(name string) Origin { return cmp.Or(c.origins[name], "default") }

func variable(name string) string {
	return "COVE_" + strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
}
