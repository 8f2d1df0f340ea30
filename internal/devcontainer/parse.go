package devcontainer

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"math/big"
	"path"
	"path/filepath"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/cove-sandbox/cove"
)

// property is one member of the file's object.
type property struct {
	name  string
	line  int
	value json.RawMessage
	file  string // empty is the devcontainer.json
}

// maxDepth of nested values is far beyond what a devcontainer.json has.
const maxDepth = 100

// parse returns the members of a devcontainer.json, which may have comments and trailing commas, in their order.
// Errors: InvalidArgument, with line and column.
func parse(f File) ([]property, error) {
	if tooDeep(f.Data) {
		return nil, cove.Errorf(cove.InvalidArgument, "%s: values are nested deeper than %d", f.Path, maxDepth)
	}
	v, err := hujson.Parse(withoutMark(f.Data))
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "%s: %s", f.Path, strings.TrimPrefix(err.Error(), "hujson: ")).
			WithHint("it is JSON, with comments and trailing commas")
	}
	object, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil, cove.Errorf(cove.InvalidArgument, "%s: it is no object", f.Path).WithHint("it begins with {")
	}
	source := v.Pack()
	var all []property
	seen := map[string]bool{}
	for i := range object.Members {
		m := &object.Members[i]
		literal, _ := m.Name.Value.(hujson.Literal)
		p := property{name: literal.String(), line: 1 + bytes.Count(source[:m.Name.StartOffset], []byte("\n"))}
		if seen[p.name] {
			return nil, p.wrong(f, "it is there twice")
		}
		seen[p.name] = true
		value := m.Value.Clone()
		value.Standardize()
		p.value = value.Pack()
		all = append(all, p)
	}
	return all, nil
}

// withoutMark returns a text without the mark of its encoding, as editors of Windows put there.
func withoutMark(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) }

// tooDeep reports whether values are nested deeper than maxDepth: the parser recurses.
func tooDeep(data []byte) bool {
	depth := 0
	for i := 0; i < len(data); i++ {
		rest := data[i:]
		switch {
		case bytes.HasPrefix(rest, []byte("//")):
			i += length(rest, "\n")
		case bytes.HasPrefix(rest, []byte("/*")):
			i += 2 + length(rest[2:], "*/")
		case data[i] == '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case data[i] == '{' || data[i] == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case data[i] == '}' || data[i] == ']':
			depth--
		}
	}
	return false
}

// length is that of text with its end, or of all of it.
func length(text []byte, end string) int {
	if i := bytes.Index(text, []byte(end)); i >= 0 {
		return i + len(end) - 1
	}
	return len(text)
}

func (p property) wrong(f File, format string, args ...any) *cove.Error {
	return cove.Errorf(cove.InvalidArgument, "%s, line %d: %.80q: "+format,
		append([]any{cmp.Or(p.file, f.Path), p.line, p.name}, args...)...)
}

// into decodes the value. Errors: InvalidArgument, with the line.
func (p property) into(f File, to any) error {
	err := json.Unmarshal(p.value, to)
	if types, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		at := ""
		if types.Field != "" {
			at = types.Field + " "
		}
		return p.wrong(f, "%sa %s does not fit here", at, types.Value)
	}
	if err != nil {
		return p.wrong(f, "%s", err)
	}
	return nil
}

// variables holds the values of ${…} in a file.
type variables struct {
	local        string            // directory of the checkout on the host
	container    string            // the same inside
	localEnv     map[string]string // of the host, as far as the user's configuration names it
	containerEnv map[string]string // nil where a value must not refer to it
	id           string
}

// expand returns text with its variables replaced, and the names of those that have no value: variables of the host
// that the user's configuration does not name, and of the container that the file does not set. Where such a variable
// has a default, it is taken, and so has a value. What is no variable of the specification stays as it is.
func (v variables) expand(text string) (expanded string, unknown []string) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		out.WriteString(before)
		if !found {
			return out.String(), unknown
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			out.WriteString("${" + rest)
			return out.String(), unknown
		}
		value, known, is := v.value(name)
		switch {
		case !is:
			value = "${" + name + "}"
		case !known:
			unknown = append(unknown, name)
		}
		out.WriteString(value)
		text = after
	}
}

// value returns the value of one variable; is reports that there is such a variable, known that it has a value.
func (v variables) value(name string) (value string, known, is bool) {
	switch name {
	case "localWorkspaceFolder":
		return v.local, true, true
	case "localWorkspaceFolderBasename":
		return filepath.Base(v.local), true, true
	case "containerWorkspaceFolder":
		return v.container, true, true
	case "containerWorkspaceFolderBasename":
		return path.Base(v.container), true, true
	case "devcontainerId":
		return v.id, true, true
	}
	kind, rest, _ := strings.Cut(name, ":")
	variable, fallback, hasDefault := strings.Cut(rest, ":")
	var from map[string]string
	switch kind {
	case "localEnv", "env":
		from = v.localEnv
	case "containerEnv":
		if from = v.containerEnv; from == nil {
			return "", false, false
		}
	default:
		return "", false, false
	}
	if value, ok := from[variable]; ok {
		return value, true, true
	}
	return fallback, hasDefault, true
}

// Identity is ${devcontainerId} as the specification computes it: the hash of the labels, in base 32, of 52 digits.
func Identity(local, file string) string {
	labels, _ := json.Marshal(map[string]string{ // strings always marshal, keys are sorted
		"devcontainer.local_folder": local, "devcontainer.config_file": path.Join(filepath.ToSlash(local), file)})
	sum := sha256.Sum256(labels)
	text := new(big.Int).SetBytes(sum[:]).Text(32)
	return strings.Repeat("0", 52-len(text)) + text
}
