package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// presetFlags are the flags of "cove new" that a preset may hold, in the order in which they are written. Flags for
// the name of a sandbox and for the output of the command are left out.
var presetFlags = []string{
	"empty", "bind", "image", "engine", "isolation", "label", "profile", "agent",
	"network", "policy", "allow", "deny", "allow-pr", "credential", "model-provider", "budget",
	"mount", "copy", "env", "wd", "sparse", "depth", "uncommitted", "worktree", "with-ssh",
	"memory", "cpus", "pids", "disk", "ide", "no-attach",
}

// repositoryKey is REPO in a preset.
const repositoryKey = "repository"

// preset is a file of flags: names, each with its values. There is no secret in
// it: credentials are named, and variables have names only.
type preset struct {
	values map[string][]string
}

var presetName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// presetFile returns the path of a preset, whether it exists or not.
func presetFile(sess *session.Session, name string) (string, error) {
	if !presetName.MatchString(name) {
		return "", cove.Errorf(cove.InvalidArgument, "%.80q is no name for a preset", name).
			WithHint("use small letters, digits, _ and -, at most 63")
	}
	cfg, err := sess.Config()
	if err != nil {
		return "", err
	}
	return filepath.Join(cfg.Home, "presets", name+".yaml"), nil
}

// lastFile returns the path of the file that "cove new --last" reads.
func lastFile(sess *session.Session) (string, error) {
	cfg, err := sess.Config()
	if err != nil {
		return "", err
	}
	return filepath.Join(cfg.Home, "last-new.yaml"), nil
}

// maxPreset is more than any preset has, in bytes.
const maxPreset = 256 << 10

// readPreset reads a file. Errors: NotFound, InvalidArgument with the line.
func readPreset(file, what string) (preset, error) {
	p := preset{values: map[string][]string{}}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return p, cove.Errorf(cove.NotFound, "there is no %s", what)
	}
	if err != nil {
		return p, cove.Errorf(cove.InvalidArgument, "cannot read the %s: %w", what, ui.Cause(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPreset+1))
	if err != nil || len(data) > maxPreset {
		return p, cove.Errorf(cove.InvalidArgument, "cannot read the %s: it is too large, or %v", what, err)
	}
	return p, p.parse(file, data)
}

// parse is strict: every key is a flag, once, with a value or a list of them.
func (p preset) parse(file string, data []byte) error {
	wrong := func(line int, format string, args ...any) error {
		return cove.Errorf(cove.InvalidArgument, "%s:%d: %s", file, line, fmt.Sprintf(format, args...)).
			WithHint("put it right, or remove the file")
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return cove.Errorf(cove.InvalidArgument, "%s: %w", file, err).WithHint("put it right, or remove the file")
	}
	if len(doc.Content) == 0 {
		return nil
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return wrong(top.Line, "it is no list of names with values")
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		switch {
		case key.Value != repositoryKey && !slices.Contains(presetFlags, key.Value):
			return wrong(key.Line, "%.80q is no flag that a preset may have", key.Value)
		case p.values[key.Value] != nil:
			return wrong(key.Line, "%s is there twice", key.Value)
		}
		items := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			items = value.Content
		}
		p.values[key.Value] = []string{}
		for _, item := range items {
			if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
				return wrong(item.Line, "%s must have a value, or a list of values", key.Value)
			}
			p.values[key.Value] = append(p.values[key.Value], item.Value)
		}
	}
	return nil
}

// text is the file, in the order of the flags.
func (p preset) text() ([]byte, error) {
	top := &yaml.Node{Kind: yaml.MappingNode}
	for _, name := range append([]string{repositoryKey}, presetFlags...) {
		values, ok := p.values[name]
		if !ok {
			continue
		}
		value := &yaml.Node{Kind: yaml.SequenceNode}
		for _, v := range values {
			item := &yaml.Node{}
			item.SetString(v)
			value.Content = append(value.Content, item)
		}
		if len(values) == 1 {
			value = value.Content[0]
		}
		top.Content = append(top.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, value)
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if len(top.Content) == 0 {
		return nil, nil
	}
	err := e.Encode(top)
	return b.Bytes(), err
}

// applyPreset sets the flags that a preset has and the command line has not.
func applyPreset(sess *session.Session, cmd *cobra.Command, o *newOptions) error {
	var file, what string
	var err error
	switch {
	case o.preset != "":
		what = "preset " + o.preset
		file, err = presetFile(sess, o.preset)
	case o.last:
		what = "\"cove new\" before this one"
		file, err = lastFile(sess)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	p, err := readPreset(file, what)
	if err != nil {
		return err
	}
	if source := p.values[repositoryKey]; len(source) == 1 && o.Source == "" && !o.Empty && o.Bind == "" {
		o.Source = source[0]
	}
	for _, name := range presetFlags {
		f := cmd.Flags().Lookup(name)
		if f.Changed || name == "empty" && o.Source != "" {
			continue
		}
		for _, value := range p.values[name] {
			if err := cmd.Flags().Set(name, value); err != nil {
				return cove.Errorf(cove.InvalidArgument, "%s: %s: %w", file, name, err).WithHint("put it right, or remove the file")
			}
		}
	}
	return nil
}

// presetOf returns the preset of a command line. It works from every directory and holds no secrets.
func presetOf(sess *session.Session, cmd *cobra.Command, o *newOptions) (preset, error) {
	p := preset{values: map[string][]string{}}
	if o.Source != "" {
		source, err := flags.RepositorySource(o.Source, o.Uncommitted)
		if err != nil {
			return p, err
		}
		p.values[repositoryKey] = []string{source}
	}
	for _, name := range presetFlags {
		f := cmd.Flags().Lookup(name)
		if !f.Changed {
			continue
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for i, v := range values {
			kept, err := keptValue(name, v)
			if err != nil {
				return p, err
			}
			values[i] = kept
		}
		p.values[name] = values
	}
	return p, nil
}

// keptValue is a flag's value for a file: paths are absolute, and of NAME=VALUE
// the value, which may be a secret, stays out.
func keptValue(name, value string) (string, error) {
	switch name {
	case "env":
		name, _, _ := strings.Cut(value, "=")
		return name, nil
	case "policy", "bind":
		return filepath.Abs(value)
	case "image":
		return flags.AbsoluteImage(value)
	case "mount", "copy":
		source, rest, ok := strings.Cut(value, ":")
		abs, err := filepath.Abs(source)
		if ok {
			rest = ":" + rest
		}
		return abs + rest, err
	}
	return value, nil
}

// savePreset keeps the flags of this command line.
func savePreset(sess *session.Session, cmd *cobra.Command, o *newOptions, name string) error {
	file, err := presetFile(sess, name)
	if err != nil {
		return err
	}
	if err := checkPublic(o.Source); err != nil {
		return err
	}
	if err := writePreset(sess, cmd, o, file); err != nil {
		return err
	}
	if slices.ContainsFunc(o.Env, func(e string) bool { return strings.Contains(e, "=") }) {
		sess.Say.Line("the preset %s has the names of --env and not their values: "+
			"they come from the shell that uses it", name)
	}
	return nil
}

// checkPublic refuses an address with a password in it.
func checkPublic(source string) error {
	if _, rest, ok := strings.Cut(source, "://"); ok {
		host, _, _ := strings.Cut(rest, "/")
		if user, _, ok := strings.Cut(host, "@"); ok && strings.Contains(user, ":") {
			return cove.Errorf(cove.InvalidArgument,
				"the address of the repository has a password in it, which a preset must not have").
				WithHint("leave it out: Cove finds credentials of this machine by itself")
		}
	}
	return nil
}

// saveLast keeps them for --last.
func saveLast(sess *session.Session, cmd *cobra.Command, o *newOptions) error {
	if checkPublic(o.Source) != nil {
		return nil
	}
	file, err := lastFile(sess)
	if err != nil {
		return err
	}
	return writePreset(sess, cmd, o, file)
}

func writePreset(sess *session.Session, cmd *cobra.Command, o *newOptions, file string) error {
	p, err := presetOf(sess, cmd, o)
	if err != nil {
		return err
	}
	data, err := p.text()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return cove.Errorf(cove.StorageFull, "cannot keep the flags: %w", err)
	}
	if err := atomicfile.Write(file, data, 0o600); err != nil {
		return cove.Errorf(cove.StorageFull, "cannot keep the flags: %w", err)
	}
	return nil
}
