package userconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/agent"
)

// filter judges one document.
type filter struct {
	from     Source
	brought  []string // directories and files below the home that go into the sandbox
	vars     [][]string
	dropped  [][]string // paths of keys that were taken out
	carriers [][]string // keys of dropped that are no variable and no header
}

// Server is an MCP server that a document describes.
type Server struct {
	Name string
	Host string // that it is reached at; empty for a program
	Lost string // a path of the user's home that it names, and that is not in the sandbox
}

// Document returns what of a document goes into a sandbox: its named keys, with no secret in them, and with paths of
// the user's home as they are inside. notes say what was left out for its looks. data is nil where nothing is left.
// Errors say why it is no document.
func Document(of agent.Own, c Choice, from Source, brought []string, data []byte) (made []byte, servers []Server,
	notes []string, err error) {
	doc, err := parse(of.Path, data)
	if err != nil {
		return nil, nil, nil, err
	}
	keys := of.Keys
	if !c.has(of.Kind) {
		keys = nil
	}
	if of.Servers != "" && c.has(kindServers) {
		keys = append(slices.Clone(keys), of.Servers)
	}
	doc = keep(doc, split(keys))
	remove(doc, split(of.Except))
	f := &filter{from: from, brought: brought, vars: split(of.Variables)}
	if of.Servers != "" {
		f.vars = append(f.vars, variablesOf(of.Servers)...)
	}
	for _, key := range slices.Sorted(maps.Keys(doc)) {
		if value, ok := f.clean([]string{key}, doc[key]); ok {
			doc[key] = value
		} else {
			delete(doc, key)
		}
	}
	spoiled := map[string]bool{}
	if of.Servers != "" {
		for _, p := range f.carriers {
			if len(p) > 1 && p[0] == of.Servers {
				spoiled[p[1]] = true
			}
		}
		if all, ok := doc[of.Servers].(map[string]any); ok {
			maps.DeleteFunc(all, func(name string, _ any) bool { return spoiled[name] })
			servers = f.servers(all)
			if len(all) == 0 {
				delete(doc, of.Servers)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(spoiled)) {
		notes = append(notes, fmt.Sprintf("MCP server %s, in which there is what looks like a key", name))
	}
	for _, p := range f.dropped {
		if len(p) < 2 || p[0] != of.Servers || !spoiled[p[1]] {
			notes = append(notes, strings.Join(p, ".")+", which looks like a key")
		}
	}
	if len(doc) == 0 {
		return nil, nil, notes, nil
	}
	made, err = render(of.Path, doc)
	return made, servers, notes, err
}

// KeysIn returns the paths of what looks like a key in a description of MCP servers, whose mcpServers has each by its
// name.
func KeysIn(described map[string]any) (paths []string) {
	data, err := json.Marshal(described)
	if err != nil {
		return nil
	}
	var doc map[string]any // of its own: the filter changes it
	if json.Unmarshal(data, &doc) != nil {
		return nil
	}
	const servers = "mcpServers"
	f := &filter{vars: variablesOf(servers)}
	f.clean([]string{servers}, doc[servers])
	for _, p := range f.dropped {
		paths = append(paths, strings.Join(p, "."))
	}
	return paths
}

// variablesOf returns the patterns of the variables and headers of MCP servers below a key.
func variablesOf(servers string) (patterns [][]string) {
	for _, name := range []string{"env", "environment", "headers", "http_headers"} {
		patterns = append(patterns, []string{servers, "*", name})
	}
	return patterns
}

// clean returns a value without secrets, or false if the entry that has it is to go.
func (f *filter) clean(at []string, v any) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		variables := f.variable(at)
		for _, key := range slices.Sorted(maps.Keys(v)) {
			here := append(slices.Clone(at), key)
			s, isText := v[key].(string)
			named := strings.HasPrefix(at[len(at)-1], "env_") // values are names of variables
			if isText && !named && s != "" && (secretName(key) && !isReference(s) || variables && secretValue(s)) {
				delete(v, key)
				f.drop(here, variables)
				continue
			}
			value, ok := f.clean(here, v[key])
			if ok {
				v[key] = value
				continue
			}
			delete(v, key)
		}
	case []any:
		if secretArgs(v) {
			f.drop(at, false)
			return nil, false
		}
		for i := range v {
			value, ok := f.clean(at, v[i])
			if !ok {
				return nil, false
			}
			v[i] = value
		}
	case string:
		if carriesSecret(v) {
			f.drop(at, f.variable(at[:len(at)-1]))
			return nil, false
		}
		return f.inside(v), true
	}
	return v, true
}

func (f *filter) drop(at []string, variable bool) {
	f.dropped = append(f.dropped, at)
	if !variable {
		f.carriers = append(f.carriers, at)
	}
}

// variable reports whether a key has variables or headers.
func (f *filter) variable(at []string) bool {
	return slices.ContainsFunc(f.vars, func(p []string) bool {
		if len(p) != len(at) {
			return false
		}
		for i := range p {
			if p[i] != "*" && p[i] != at[i] {
				return false
			}
		}
		return true
	})
}

// inside returns a text with paths of what is brought as they are in the sandbox.
func (f *filter) inside(text string) string {
	for _, p := range f.brought {
		text = strings.ReplaceAll(text, f.from.at(p), cove.Home+"/"+p)
	}
	return text
}

// servers lists MCP servers by name.
func (f *filter) servers(all map[string]any) (list []Server) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := Server{Name: name}
		one, _ := all[name].(map[string]any)
		for _, key := range []string{"url", "httpUrl"} {
			address, _ := one[key].(string)
			if u, err := url.Parse(address); err == nil && u.Hostname() != "" {
				s.Host = u.Hostname()
			}
		}
		s.Lost = f.lost(one["command"])
		if args, ok := one["args"].([]any); ok && s.Lost == "" {
			s.Lost = f.lost(args)
		}
		list = append(list, s)
	}
	return list
}

// lost returns a path of the user's home in a command.
func (f *filter) lost(v any) string {
	switch v := v.(type) {
	case string:
		if strings.HasPrefix(v, f.from.Home+"/") {
			return v
		}
	case []any:
		for _, item := range v {
			if p := f.lost(item); p != "" {
				return p
			}
		}
	}
	return ""
}
