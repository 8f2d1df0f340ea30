package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove/internal/agent"
)

type setting struct {
	name  string
	doc   string
	value reflect.Value
}

type settings map[string]setting

// settings finds the leaves of c; setting them changes c.
func (c *Config) settings() settings {
	all := settings{}
	for _, s := range c.leaves() {
		all[s.name] = s
	}
	return all
}

// leaves are in the order of the file: as Config declares them.
func (c *Config) leaves() []setting { return collect("", reflect.ValueOf(c).Elem()) }

func collect(prefix string, v reflect.Value) (all []setting) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := f.Tag.Get("yaml")
		switch {
		case name == "":
		case f.Type.Kind() == reflect.Struct:
			all = append(all, collect(prefix+name+".", v.Field(i))...)
		default:
			all = append(all, setting{prefix + name, f.Tag.Get("doc"), v.Field(i)})
		}
	}
	return all
}

func (all settings) section(name string) bool {
	for n := range all {
		if strings.HasPrefix(n, name+".") {
			return true
		}
	}
	return false
}

func (all settings) suggest(name string) string {
	prefix := ""
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		prefix = name[:i+1]
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	var beside []string
	for _, n := range slices.Sorted(maps.Keys(all)) {
		if strings.HasSuffix(n, "."+last) || n == last {
			return "did you mean " + n + "?"
		}
		if rest, ok := strings.CutPrefix(n, prefix); ok {
			rest, _, _ = strings.Cut(rest, ".")
			if !slices.Contains(beside, rest) {
				beside = append(beside, rest)
			}
		}
	}
	if len(beside) == 0 {
		return "see docs/cove.example.yaml"
	}
	return "the settings here are " + strings.Join(beside, ", ")
}

func (s setting) decode(n *yaml.Node) error {
	switch p := s.value.Addr().Interface().(type) {
	case *[]string:
		return decodeStrings(p, n)
	case *[]APIKey:
		return decodeKeys(p, n)
	case *[]Warm:
		return decodeWarms(p, n)
	case *[]agent.Agent:
		declared, err := agent.Decode(n)
		*p = declared
		return err
	}
	if n.Kind != yaml.ScalarNode {
		return fmt.Errorf("must be one value, %s", s.kind())
	}
	if n.Tag == "!!null" {
		return errors.New("has no value; remove the line for the default")
	}
	// A string may look like a number ("8080"), but no number like a string.
	return s.parse(n.Value)
}

func decodeStrings(p *[]string, n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return errors.New("must be a list")
	}
	var list []string
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
			return fmt.Errorf("line %d: must be a text", item.Line)
		}
		list = append(list, item.Value)
	}
	*p = list
	return nil
}

// parse sets s from text, as environment and command line have it.
func (s setting) parse(text string) error {
	var err error
	switch p := s.value.Addr().Interface().(type) {
	case *string:
		*p = text
	case *int:
		*p, err = strconv.Atoi(text)
	case *int64:
		*p, err = strconv.ParseInt(text, 10, 64)
	case *bool:
		*p, err = strconv.ParseBool(text)
	case *float64:
		*p, err = strconv.ParseFloat(text, 64)
	case *Duration:
		*p, err = ParseDuration(text)
	case *[]string:
		*p = split(text)
	case *[]Warm:
		*p = parseWarms(split(text))
	case *[]APIKey:
		var keys []APIKey
		for _, item := range split(text) {
			name, hash, ok := strings.Cut(item, ":")
			if !ok {
				return errors.New("must be NAME:HASH, several with commas between")
			}
			keys = append(keys, APIKey{Name: name, Hash: hash})
		}
		*p = keys
	case *[]agent.Agent:
		return errors.New("can be set in the file only")
	default:
		panic("config: no parser for " + s.value.Type().String())
	}
	if err != nil {
		return fmt.Errorf("%q is not %s", text, s.kind())
	}
	return nil
}

func (s setting) kind() string {
	switch s.value.Interface().(type) {
	case int, int64:
		return "a whole number"
	case float64:
		return "a number"
	case bool:
		return "true or false"
	case Duration:
		return "a time such as 500ms, 10s, 2h or 30d"
	}
	return "a text"
}

func split(text string) []string {
	var list []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// ParseDuration parses a duration with a unit; 0 needs none.
func ParseDuration(s string) (Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 32)
		if err != nil || n > 100_000 || n < -100_000 {
			return 0, fmt.Errorf("%q is not a duration", s)
		}
		return Duration(time.Duration(n) * day), nil
	}
	d, err := time.ParseDuration(s)
	return Duration(d), err
}

// InEffect is one setting with where its value came from.
type InEffect struct {
	Name   string `json:"name"`
	Value  string `json:"value"` // as YAML; hashes of keys are cut short
	Origin Origin `json:"origin"`
}

// InEffect returns the settings in effect, in the order of Show.
func (c *Config) InEffect() []InEffect {
	var all []InEffect
	for _, s := range c.leaves() {
		all = append(all, InEffect{s.name, s.show(), c.Origin(s.name)})
	}
	return all
}

// Show writes the settings in effect as YAML, each with where it came from.
// The output can be read back, except the hashes of keys, which are cut short.
func (c *Config) Show(w io.Writer) error {
	var section []string
	for _, s := range c.leaves() {
		parts := strings.Split(s.name, ".")
		depth := 0
		for ; depth < len(parts)-1; depth++ {
			if depth < len(section) && section[depth] == parts[depth] {
				continue
			}
			section = append(section[:depth:depth], parts[depth])
			if _, err := fmt.Fprintf(w, "%s%s:\n", strings.Repeat("  ", depth), parts[depth]); err != nil {
				return err
			}
		}
		section = section[:depth]
		_, err := fmt.Fprintf(w, "%s%s: %s  # %s\n", strings.Repeat("  ", depth), parts[depth], s.show(), c.Origin(s.name))
		if err != nil {
			return err
		}
	}
	return nil
}

// Digests returns a digest of each setting, by its name, by which the settings of two processes are compared: the
// beginning of the SHA-256 of its value.
func (c *Config) Digests() map[string]string {
	all := map[string]string{}
	for _, s := range c.leaves() {
		all[s.name] = s.digest()
	}
	return all
}

func (s setting) digest() string {
	text, err := json.Marshal(s.value.Interface())
	if err != nil {
		text = fmt.Appendf(nil, "%+v", s.value.Interface())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// ofServing are the settings of how a server is reached and what it logs: they are its own, and mean nothing to the
// commands that use it.
var ofServing = []string{"listen", "allowed_hosts", "tls.", "api_keys", "run_dir", "rate_limit.", "log.",
	"shutdown_grace"}

// Differing returns the settings that were chosen, and that a server has otherwise, by its digests; the home is
// compared in any case. A setting that it does not know, as one of an earlier version, is not compared.
func (c *Config) Differing(theirs map[string]string) (names []string) {
	own := c.settings()
	chosen := append(c.Chosen(), "home")
	slices.Sort(chosen)
	for _, name := range slices.Compact(chosen) {
		served := slices.ContainsFunc(ofServing, func(s string) bool {
			return name == s || strings.HasSuffix(s, ".") && strings.HasPrefix(name, s)
		})
		if is, known := theirs[name]; known && !served && is != own[name].digest() {
			names = append(names, name)
		}
	}
	return names
}

// Chosen returns the names of the settings that were set: in the file, the environment or on the command line.
func (c *Config) Chosen() []string { return slices.Sorted(maps.Keys(c.origins)) }

// show is the value of s on one line of YAML.
func (s setting) show() string {
	switch v := s.value.Interface().(type) {
	case Duration:
		return v.String()
	case []string:
		return list(v, quoted)
	case []agent.Agent:
		return list(v, func(a agent.Agent) string { return fmt.Sprintf("{name: %s, …}", quoted(a.Name)) })
	case []APIKey:
		return list(v, APIKey.show)
	case []Warm:
		return list(v, Warm.show)
	default:
		return scalar(v)
	}
}

func list[T any](all []T, show func(T) string) string {
	items := make([]string, len(all))
	for i, one := range all {
		items[i] = show(one)
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func scalar(v any) string {
	b, err := yaml.Marshal(v)
	if err != nil || strings.Count(string(b), "\n") > 1 {
		return fmt.Sprintf("%q", fmt.Sprint(v))
	}
	return strings.TrimSpace(string(b))
}

// quoted is a text within a list, where commas and brackets mean something.
func quoted(s string) string {
	if strings.ContainsAny(s, ",[]{}#:") {
		return fmt.Sprintf("%q", s)
	}
	return scalar(s)
}
