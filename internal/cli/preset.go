package cli

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
)

// presetFlags are the flags of "cove new" that a preset may have, in the order
// in which they are written. Those that name one sandbox, or say what this
// command prints, are not among them.
var presetFlags = []string{"empty", "bind", "image", "engine", "profile", "agent", "network", "policy", "allow", "deny", "allow-pr", "credential", "model-provider", "budget",
	"mount", "copy", "env", "wd", "sparse", "depth", "uncommitted", "worktree", "with-ssh", "memory", "cpus", "pids", "disk", "ide", "no-attach"}

// repositoryKey is REPO in a preset.
const repositoryKey = "repository"

// preset is a file of flags: names, each with its values. There is no secret in
// it: credentials are named, and variables have names only.
type preset struct {
	values map[string][]string
}

var presetName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// presetFile is where a preset is, or would be.
func (a *app) presetFile(name string) (string, error) {
	if !presetName.MatchString(name) {
		return "", cove.Errorf(cove.InvalidArgument, "%.80q is no name for a preset", name).WithHint("use small letters, digits, _ and -, at most 63")
	}
	cfg, err := a.loadConfig()
	if err != nil {
		return "", err
	}
	return filepath.Join(cfg.Home, "presets", name+".yaml"), nil
}

// lastFile is what "cove new --last" reads.
func (a *app) lastFile() (string, error) {
	cfg, err := a.loadConfig()
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
		return p, cove.Errorf(cove.InvalidArgument, "cannot read the %s: %w", what, cause(err))
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
		return cove.Errorf(cove.InvalidArgument, "%s:%d: %s", file, line, fmt.Sprintf(format, args...)).WithHint("put it right, or remove the file")
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
func (a *app) applyPreset(cmd *cobra.Command, o *newOptions) error {
	var file, what string
	var err error
	switch {
	case o.preset != "":
		what = "preset " + o.preset
		file, err = a.presetFile(o.preset)
	case o.last:
		what = "\"cove new\" before this one"
		file, err = a.lastFile()
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
	if source := p.values[repositoryKey]; len(source) == 1 && o.source == "" && !o.empty && o.bind == "" {
		o.source = source[0]
	}
	for _, name := range presetFlags {
		f := cmd.Flags().Lookup(name)
		if f.Changed || name == "empty" && o.source != "" {
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

// presetOf is what a command line says, as it can be said from another
// directory and without its secrets.
func (a *app) presetOf(cmd *cobra.Command, o *newOptions) (preset, error) {
	p := preset{values: map[string][]string{}}
	if o.source != "" {
		source, err := repositorySource(o.source, o.uncommitted)
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
		return absoluteImage(value)
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
func (a *app) savePreset(cmd *cobra.Command, o *newOptions, name string) error {
	file, err := a.presetFile(name)
	if err != nil {
		return err
	}
	if err := checkPublic(o.source); err != nil {
		return err
	}
	if err := a.writePreset(cmd, o, file); err != nil {
		return err
	}
	if slices.ContainsFunc(o.env, func(e string) bool { return strings.Contains(e, "=") }) {
		a.say.line("the preset %s has the names of --env and not their values: they come from the shell that uses it", name)
	}
	return nil
}

// checkPublic refuses an address with a password in it.
func checkPublic(source string) error {
	if _, rest, ok := strings.Cut(source, "://"); ok {
		host, _, _ := strings.Cut(rest, "/")
		if user, _, ok := strings.Cut(host, "@"); ok && strings.Contains(user, ":") {
			return cove.Errorf(cove.InvalidArgument, "the address of the repository has a password in it, which a preset must not have").WithHint("leave it out: Cove finds credentials of this machine by itself")
		}
	}
	return nil
}

// saveLast keeps them for --last.
func (a *app) saveLast(cmd *cobra.Command, o *newOptions) error {
	if checkPublic(o.source) != nil {
		return nil
	}
	file, err := a.lastFile()
	if err != nil {
		return err
	}
	return a.writePreset(cmd, o, file)
}

func (a *app) writePreset(cmd *cobra.Command, o *newOptions, file string) error {
	p, err := a.presetOf(cmd, o)
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

// presetNames lists the presets.
func (a *app) presetNames() ([]string, error) {
	cfg, err := a.loadConfig()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Join(cfg.Home, "presets"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, cove.Errorf(cove.InvalidArgument, "cannot list the presets: %w", cause(err))
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".yaml"); ok && presetName.MatchString(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

func (a *app) presetCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "preset",
		Short: "See flags of \"cove new\" that were kept",
		Long: `See what "cove new --save-as NAME" has kept for "cove new --preset NAME": YAML
files below presets in --home, with names of flags and their values. There is no
secret in them: credentials are named, and variables have names only.`,
	}, a.presetList(), a.presetShow(), a.presetDelete())
}

// shownPreset is one preset as JSON.
type shownPreset struct {
	Name  string              `json:"name"`
	Flags map[string][]string `json:"flags"`
}

func (a *app) presetList() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the presets",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			names, err := a.presetNames()
			if err != nil {
				return err
			}
			all := []shownPreset{}
			var rows [][]string
			for _, name := range names {
				file, err := a.presetFile(name)
				if err != nil {
					return err
				}
				p, err := readPreset(file, "preset "+name)
				if err != nil {
					return err
				}
				all = append(all, shownPreset{name, p.values})
				rows = append(rows, []string{name, p.flags()})
			}
			if asJSON {
				return a.printJSON(map[string][]shownPreset{"presets": all})
			}
			return a.print(table([]string{"NAME", "FLAGS"}, rows))
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// flags are those of a command line that says the same.
func (p preset) flags() string {
	words := slices.Clone(p.values[repositoryKey])
	for _, name := range presetFlags {
		for _, v := range p.values[name] {
			if v == "true" {
				words = append(words, "--"+name)
			} else {
				words = append(words, "--"+name, shellWord(v))
			}
		}
	}
	return strings.Join(words, " ")
}

func (a *app) presetShow() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:               "show NAME",
		Short:             "Print a preset",
		Args:              exactly("NAME"),
		ValidArgsFunction: a.completePreset,
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := a.presetFile(args[0])
			if err != nil {
				return err
			}
			p, err := readPreset(file, "preset "+args[0])
			if err != nil {
				return noPreset(err)
			}
			if asJSON {
				return a.printJSON(shownPreset{args[0], p.values})
			}
			data, err := p.text()
			if err != nil {
				return err
			}
			return a.print(string(data))
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func noPreset(err error) error {
	if e := new(cove.Error); errors.As(err, &e) && e.Code == cove.NotFound {
		return e.WithHint("\"cove preset list\" shows them")
	}
	return err
}

func (a *app) presetDelete() *cobra.Command {
	return &cobra.Command{
		Use:               "delete NAME",
		Short:             "Forget a preset",
		Args:              exactly("NAME"),
		ValidArgsFunction: a.completePreset,
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := a.presetFile(args[0])
			if err != nil {
				return err
			}
			if err := os.Remove(file); errors.Is(err, fs.ErrNotExist) {
				return noPreset(cove.Errorf(cove.NotFound, "there is no preset %s", args[0]))
			} else if err != nil {
				return cove.Errorf(cove.InvalidArgument, "cannot remove the preset: %w", cause(err))
			}
			return a.print(args[0] + "\n")
		},
	}
}

func (a *app) completePreset(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, _ := a.presetNames() // whoever completes cannot be told
	return names, cobra.ShellCompDirectiveNoFileComp
}
