// Package userconfig selects what of a user's own configuration of an agent goes into a sandbox: what the agent's
// declaration lists, without credentials. Decisions are pure; Read alone touches the user's home.
package userconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/tailscale/hujson"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/agent"
)

// Kinds of configuration, in the order in which they are named.
var Kinds = []string{"instructions", "settings", "skills", "commands", "agents", kindHooks, "plugins", kindServers}

const (
	kindHooks   = "hooks" // and the key of documents that have them
	kindServers = "mcp"
)

// Choice is a user's choice of what to bring. The zero value is none: nothing was said.
type Choice struct {
	Said  bool
	kinds []string
}

// ParseChoice reads a choice: true or all, false or none, or kinds with commas between. Errors: InvalidArgument.
func ParseChoice(text string) (Choice, error) {
	switch text {
	case "":
		return Choice{}, nil
	case "true", "all":
		return Choice{Said: true, kinds: Kinds}, nil
	case "false", "none":
		return Choice{Said: true}, nil
	}
	c := Choice{Said: true}
	for _, kind := range strings.Split(text, ",") {
		kind = strings.TrimSpace(kind)
		if !slices.Contains(Kinds, kind) {
			return c, cove.Errorf(cove.InvalidArgument, "%.40q is no kind of an agent's configuration", kind).
				WithHint("use all, none, or some of %s", strings.Join(Kinds, ","))
		}
		c.kinds = append(c.kinds, kind)
	}
	return c, nil
}

// Any reports whether anything is to be brought.
func (c Choice) Any() bool { return len(c.kinds) > 0 }

func (c Choice) has(kind string) bool { return slices.Contains(c.kinds, kind) }

// Source has the places of a user's configuration: the home, and the directories of variables instead of parts of it.
type Source struct {
	Home   string
	places []place
}

// place is a part of a home that is elsewhere.
type place struct{ path, at, real string }

// NewSource returns where an agent's user has its configuration. notes name variables that say no place.
func NewSource(home string, places []agent.ConfigPlace, getenv func(string) string) (s Source, notes []string) {
	s.Home = path.Clean(home)
	for _, p := range places {
		value := getenv(p.Variable)
		switch {
		case value == "":
		case !path.IsAbs(value) || path.Clean(value) == "/":
			notes = append(notes, p.Variable+", which names no directory")
		default:
			s.places = append(s.places, place{path: p.Path, at: path.Join(value, p.At)})
		}
	}
	return s, notes
}

// at returns the place of a path below the home.
func (s Source) at(name string) string {
	for _, p := range s.places {
		if rest, ok := strings.CutPrefix(name, p.path); ok && (rest == "" || rest[0] == '/') {
			return p.at + rest
		}
	}
	return s.Home + "/" + name
}

// shown returns a path below the home for people.
func (s Source) shown(name string) string {
	at := s.at(name)
	if rest, ok := strings.CutPrefix(at, s.Home+"/"); ok {
		return "~/" + rest
	}
	return at
}

// HasHooks reports whether a file is of a configuration's hooks, or a document that has hooks.
func HasHooks(of []agent.Own, name string, data []byte) bool {
	return slices.ContainsFunc(of, func(o agent.Own) bool {
		parts, want := strings.Split(name, "/"), strings.Split(o.Path, "/")
		if len(parts) < len(want) {
			return false
		}
		if ok, _ := path.Match(o.Path, strings.Join(parts[:len(want)], "/")); !ok {
			return false
		}
		if !o.Document() {
			return o.Kind == kindHooks
		}
		doc, err := parse(name, data)
		_, has := doc[kindHooks]
		return err == nil && has
	})
}

// isTOML and isJSON tell documents by their names.
func isTOML(name string) bool { return path.Ext(name) == ".toml" }

func isJSON(name string) bool { return slices.Contains([]string{".json", ".jsonc"}, path.Ext(name)) }

// parse reads a document: JSON, in which comments and commas at the end may stand, or TOML.
func parse(name string, data []byte) (map[string]any, error) {
	doc := map[string]any{}
	if isTOML(name) {
		if err := toml.Unmarshal(data, &doc); err != nil {
			return nil, fmt.Errorf("it is not TOML: %w", err)
		}
		return doc, nil
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return doc, nil
	}
	plain, err := hujson.Standardize(append(bytes.Clone(data), '\n')) // a comment may be its end
	if err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(plain))
	d.UseNumber()
	if err := d.Decode(&doc); err != nil {
		return nil, fmt.Errorf("it is not an object of JSON: %w", err)
	}
	return doc, nil
}

// render writes a document in the form of its name.
func render(name string, doc map[string]any) ([]byte, error) {
	if isTOML(name) {
		return toml.Marshal(doc)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(doc)
	return b.Bytes(), err
}

// Merge lays Cove's own document over one that was brought, key by key: what Cove says wins. Of files that are no
// documents Cove's is the one. Errors: InvalidArgument.
func Merge(name string, brought, own []byte) ([]byte, error) {
	if !isTOML(name) && !isJSON(name) {
		return own, nil
	}
	doc, err := parse(name, brought)
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "the file %.200q cannot be merged: %w", name, err).
			WithHint("correct it, or leave it out")
	}
	over, err := parse(name, own)
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "the file %.200q of the agent's declaration: %w", name, err)
	}
	data, err := render(name, merged(doc, over))
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "the file %.200q cannot be merged: %w", name, err)
	}
	return data, nil
}

func merged(doc, over map[string]any) map[string]any {
	for key, value := range over {
		below, ok := value.(map[string]any)
		there, both := doc[key].(map[string]any)
		if ok && both {
			value = merged(there, below)
		}
		doc[key] = value
	}
	return doc
}

// keep returns the part of a document that patterns name: keys with dots between, in which * stands for any part.
func keep(doc map[string]any, patterns [][]string) map[string]any {
	kept := map[string]any{}
	for key, value := range doc {
		whole, below := matching(key, patterns)
		if whole {
			kept[key] = value
		} else if inner, ok := value.(map[string]any); ok && below != nil {
			if inner = keep(inner, below); len(inner) > 0 {
				kept[key] = inner
			}
		}
	}
	return kept
}

// remove takes the keys that patterns name out of a document.
func remove(doc map[string]any, patterns [][]string) {
	for key, value := range doc {
		whole, below := matching(key, patterns)
		if whole {
			delete(doc, key)
		} else if inner, ok := value.(map[string]any); ok && below != nil {
			remove(inner, below)
		}
	}
}

// matching reports whether patterns name a key as a whole, and returns their parts below it.
func matching(key string, patterns [][]string) (whole bool, below [][]string) {
	for _, p := range patterns {
		if ok, _ := path.Match(p[0], strings.ReplaceAll(key, "/", "_")); !ok {
			continue
		}
		if len(p) == 1 {
			whole = true
		} else {
			below = append(below, p[1:])
		}
	}
	return whole, below
}

func split(patterns []string) (all [][]string) {
	for _, p := range patterns {
		all = append(all, strings.Split(p, "."))
	}
	return all
}
