package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove"
)

// Limits; a larger document is a mistake or an attack.
const (
	maxDocument = 1 << 20 // bytes
	maxRules    = 5000
	maxEntries  = 1000 // of one list
	maxNote     = 500  // bytes
)

// readYAML returns the single value of a document, or nil if it is empty.
func readYAML(source string, data []byte) (*yaml.Node, error) {
	switch {
	case len(data) > maxDocument: // Decode refuses it
	case !utf8.Valid(data):
		return nil, cove.Errorf(cove.InvalidArgument, "%s:%d: this is not UTF-8", source, invalidLine(data))
	case bytes.IndexByte(data, 0) >= 0:
		return nil, cove.Errorf(cove.InvalidArgument, "%s is not YAML: it has NUL bytes", source)
	}
	var doc yaml.Node
	if err := Decode(source, data, &doc); cove.ErrorCode(err) == cove.InvalidArgument {
		return nil, err
	} else if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "%s is not YAML: %s", source, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) == 0 || isNull(doc.Content[0]) { // perhaps only comments
		return nil, nil
	}
	return doc.Content[0], nil
}

// Decode reads one YAML document, which has no keys but to's; an empty one leaves to as it is. Errors: InvalidArgument
// for too large a document and for several, those of the decoder.
func Decode(source string, data []byte, to any) error {
	if len(data) > maxDocument {
		return cove.Errorf(cove.InvalidArgument, "%s is larger than %d MiB", source, maxDocument>>20).
			WithHint("is it the right file?")
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(to); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return cove.Errorf(cove.InvalidArgument, "%s has more than one YAML document", source).
			WithHint("remove what follows ---")
	}
	return nil
}

func invalidLine(data []byte) int {
	line := 1
	for text := range bytes.Lines(data) {
		if !utf8.Valid(text) {
			break
		}
		line++
	}
	return line
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// parser walks through the YAML nodes itself, so that every message has a line and no value is converted silently.
type parser struct {
	source string
	preset string // the preset's name, if the document is one
}

func (p parser) problem(n *yaml.Node, format string, args ...any) *cove.Error {
	return cove.Errorf(cove.InvalidArgument, "%s:%d: %s", p.source, n.Line, fmt.Sprintf(format, args...))
}

// wrap adds file and line to an error of one value.
func (p parser) wrap(n *yaml.Node, err error) error {
	if err == nil {
		return nil
	}
	return p.problem(n, "%s", bare(err)).WithHint("%s", cove.ErrorHint(err))
}

func (p parser) mapping(n *yaml.Node, what string, keys map[string]func(*yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return p.problem(n, "%s must be a mapping", what)
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		read, ok := keys[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || !ok:
			known := strings.Join(slices.Sorted(maps.Keys(keys)), ", ")
			return p.problem(key, "%s has no key %s", what, quote(key.Value)).WithHint("it has %s", known)
		case seen[key.Value] != 0:
			return p.problem(key, "%s is set already in line %d", key.Value, seen[key.Value])
		case value.Kind == yaml.AliasNode || value.Anchor != "":
			return p.problem(value, "anchors and aliases are not supported").WithHint("write the value out")
		}
		seen[key.Value] = key.Line
		if err := read(value); err != nil {
			return err
		}
	}
	return nil
}

// scalar returns the text of one value as written.
func (p parser) scalar(n *yaml.Node, what string) (string, error) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return "", p.problem(n, "anchors and aliases are not supported").WithHint("write the value out")
	}
	if n.Kind != yaml.ScalarNode {
		return "", p.problem(n, "%s must be one value", what)
	}
	if isNull(n) || n.Value == "" {
		return "", p.problem(n, "%s has no value", what)
	}
	switch n.Tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
		return n.Value, nil
	}
	return "", p.problem(n, "%s has the tag %s, which is not supported", what, quote(n.Tag))
}

// boolean returns the value of true or false, and of nothing else that YAML takes for them.
func (p parser) boolean(n *yaml.Node, what string) (bool, error) {
	if n.Tag != "!!bool" || n.Value != "true" && n.Value != "false" {
		return false, p.problem(n, "%s is true or false", what)
	}
	return n.Value == "true", nil
}

// list reads one or more values. An empty list is an error: it matches nothing, but could be read as everything.
func (p parser) list(n *yaml.Node, what string, add func(entry *yaml.Node, s string) error) error {
	entries := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		entries = n.Content
	}
	if len(entries) == 0 {
		return p.problem(n, "%s is empty, which matches nothing", what).WithHint("fill it, or remove the rule")
	}
	if len(entries) > maxEntries {
		return p.problem(n, "%s has %d entries; there may be %d", what, len(entries), maxEntries)
	}
	for _, entry := range entries {
		s, err := p.scalar(entry, what)
		if err != nil {
			return err
		}
		if err := add(entry, s); err != nil {
			return p.wrap(entry, err)
		}
	}
	return nil
}

// valueOf returns a reader of one value that parse reads.
func valueOf[T any](p parser, what string, parse func(string) (T, error), to *T) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		s, err := p.scalar(n, what)
		if err != nil {
			return err
		}
		*to, err = parse(s)
		return p.wrap(n, err)
	}
}

func asWritten(s string) (string, error) { return s, nil }

// listOf returns a reader of a list whose entries parse reads.
func listOf[T any](p parser, what string, parse func(string) (T, error), to *[]T) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		return p.list(n, what, func(_ *yaml.Node, s string) error {
			entry, err := parse(s)
			*to = append(*to, entry)
			return err
		})
	}
}
