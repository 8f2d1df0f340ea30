package compose

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove"
)

const (
	maxNodes  = 20000 // of all files, each as often as it is referred to
	maxLevels = 64
	separator = "\x00"
	deepest   = 4 // levels of a path that has a line: services, NAME, KEY, and what is in it
)

// places holds the lines of a file's values, by their paths.
type places map[string]int

// find returns the lines of a file's values. nodes counts those of all files. Errors: InvalidArgument, TooLarge.
func find(f File, nodes *int) (places, error) {
	found := places{}
	decoder := yaml.NewDecoder(bytes.NewReader(f.Data))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, cove.Errorf(cove.InvalidArgument, "%s: %.500s", f.Path, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		for _, top := range document.Content {
			if err := found.walk(top, nil, 0, nodes); err != nil {
				return nil, cove.Errorf(cove.TooLarge, "%s, line %d: %w", f.Path, top.Line, err)
			}
		}
	}
}

var errMuch = errors.New("anchors and values are more, or deeper, than a file of Compose has")

// walk visits a value. Aliases are followed, so that a file that unfolds is too much, and one in a circle too deep.
func (found places) walk(n *yaml.Node, path []string, level int, nodes *int) error {
	if *nodes++; *nodes > maxNodes || level > maxLevels {
		return errMuch
	}
	note := func(n *yaml.Node, path []string) {
		if len(path) <= deepest {
			found[strings.Join(path, separator)] = n.Line
		}
	}
	next := func(key string) []string { return append(path[:len(path):len(path)], key) }
	switch n.Kind {
	case yaml.AliasNode:
		return found.walk(n.Alias, path, level+1, nodes)
	case yaml.SequenceNode:
		for _, item := range n.Content {
			below := next(item.Value)
			note(item, below)
			if name, _, is := strings.Cut(item.Value, "="); is { // NAME=VALUE of an environment
				note(item, next(name))
			}
			if err := found.walk(item, below, level+1, nodes); err != nil {
				return err
			}
		}
	case yaml.MappingNode:
		for _, merges := range []bool{true, false} { // own values go before those of a merge key
			for i := 0; i+1 < len(n.Content); i += 2 {
				key, below := n.Content[i], path
				if (key.Value == "<<") != merges {
					continue
				}
				if !merges {
					below = next(key.Value)
					note(key, below)
				}
				if err := found.walk(n.Content[i+1], below, level+1, nodes); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Where returns the place of a value: the last file that says it, else the place of what it is in.
func (p *Project) Where(path ...string) (file string, line int) {
	for ; len(path) > 0; path = path[:len(path)-1] {
		at := strings.Join(path, separator)
		for i := len(p.files) - 1; i >= 0; i-- {
			if line, is := p.places[i][at]; is {
				return p.files[i].Path, line
			}
		}
	}
	return p.files[0].Path, 1
}
