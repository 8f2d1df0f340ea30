package config

import (
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove/internal/agent"
)

// Show writes the settings in effect as YAML, each with where it came from.
// The output can be read back, except the hashes of keys, which are cut short.
func (c *Config) Show(w io.Writer) error {
	all := c.settings()
	var section []string
	for _, name := range names() {
		parts := strings.Split(name, ".")
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
		_, err := fmt.Fprintf(w, "%s%s: %s  # %s\n",
			strings.Repeat("  ", depth), parts[depth], all[name].show(), c.Origin(name))
		if err != nil {
			return err
		}
	}
	return nil
}

// show is the value of s on one line of YAML.
func (s setting) show() string {
	switch v := s.value.Interface().(type) {
	case Duration:
		return v.String()
	case []string:
		items := make([]string, len(v))
		for i, item := range v {
			items[i] = quoted(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case []agent.Agent:
		items := make([]string, len(v))
		for i, a := range v {
			items[i] = fmt.Sprintf("{name: %s, …}", quoted(a.Name))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case []APIKey:
		items := make([]string, len(v))
		for i, k := range v {
			items[i] = fmt.Sprintf("{name: %s, hash: %.8s…}", quoted(k.Name), k.Hash)
		}
		return "[" + strings.Join(items, ", ") + "]"
	default:
		return scalar(v)
	}
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
