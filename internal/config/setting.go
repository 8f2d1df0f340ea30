package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove/internal/agent"
)

// setting is one leaf of Config.
type setting struct {
	name  string
	doc   string
	value reflect.Value
}

// settings are all leaves by name.
type settings map[string]setting

// settings finds the leaves of c; setting them changes c.
func (c *Config) settings() settings {
	all := settings{}
	collect(all, "", reflect.ValueOf(c).Elem())
	return all
}

func collect(all settings, prefix string, v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := f.Tag.Get("yaml")
		if name == "" {
			continue
		}
		name = prefix + name
		if f.Type.Kind() == reflect.Struct {
			collect(all, name+".", v.Field(i))
			continue
		}
		all[name] = setting{name, f.Tag.Get("doc"), v.Field(i)}
	}
}

// names are in the order of the file: as Config declares them.
func names() []string {
	var list []string
	var walk func(prefix string, t reflect.Type)
	walk = func(prefix string, t reflect.Type) {
		for i := range t.NumField() {
			f := t.Field(i)
			name := f.Tag.Get("yaml")
			switch {
			case name == "":
			case f.Type.Kind() == reflect.Struct:
				walk(prefix+name+".", f.Type)
			default:
				list = append(list, prefix+name)
			}
		}
	}
	walk("", reflect.TypeFor[Config]())
	return list
}

// section reports whether name is a group of settings.
func (all settings) section(name string) bool {
	for n := range all {
		if strings.HasPrefix(n, name+".") {
			return true
		}
	}
	return false
}

// suggest names the settings beside an unknown one.
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

// decode sets s from a YAML value.
func (s setting) decode(n *yaml.Node) error {
	switch p := s.value.Addr().Interface().(type) {
	case *[]string:
		return decodeStrings(p, n)
	case *[]APIKey:
		return decodeKeys(p, n)
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

func decodeKeys(p *[]APIKey, n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return errors.New("must be a list of name and hash")
	}
	var keys []APIKey
	for _, item := range n.Content {
		if item.Kind != yaml.MappingNode {
			return fmt.Errorf("line %d: must have name and hash", item.Line)
		}
		var k APIKey
		for i := 0; i+1 < len(item.Content); i += 2 {
			key, value := item.Content[i], item.Content[i+1]
			switch {
			case value.Kind != yaml.ScalarNode:
				return fmt.Errorf("line %d: %s must be a text", value.Line, key.Value)
			case key.Value == "name":
				k.Name = value.Value
			case key.Value == "hash":
				k.Hash = value.Value
			default:
				return fmt.Errorf("line %d: a key has name and hash, not %q", key.Line, key.Value)
			}
		}
		keys = append(keys, k)
	}
	*p = keys
	return nil
}

// parse sets s from text, as environment and command line have it.
func (s setting) parse(text string) error {
	wrong := fmt.Errorf("%q is not %s", text, s.kind())
	switch p := s.value.Addr().Interface().(type) {
	case *string:
		*p = text
	case *int:
		v, err := strconv.Atoi(text)
		if err != nil {
			return wrong
		}
		*p = v
	case *int64:
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return wrong
		}
		*p = v
	case *float64:
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return wrong
		}
		*p = v
	case *Duration:
		v, err := ParseDuration(text)
		if err != nil {
			return wrong
		}
		*p = v
	case *[]string:
		*p = split(text)
	case *[]APIKey:
		var keys []APIKey
		for _, item := range split(text) {
			name, hash, ok := strings.Cut(item, ":")
			if !ok {
				return errors.New("must be NAME:HASH, several with commas between")
			}
			keys = append(keys, APIKey{name, hash})
		}
		*p = keys
	case *[]agent.Agent:
		return errors.New("can be set in the file only")
	default:
		panic("config: no parser for " + s.value.Type().String())
	}
	return nil
}

// kind describes the form of s's values.
func (s setting) kind() string {
	switch s.value.Interface().(type) {
	case int, int64:
		return "a whole number"
	case float64:
		return "a number"
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
