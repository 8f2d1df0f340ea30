package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/devcontainers"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// savedFlags are the flags of "cove new" that can be saved, in the order in which they are written. Flags for
// the name of a sandbox and for the output of the command are left out.
var savedFlags = []string{
	"empty", "bind", "image", "engine", "isolation", "root", "user", "noexec", "debuggers", "label", "profile",
	"agent", "agent-config",
	"network", "policy", "preset", "allow", "deny", "pass-through", "allow-pr", "credential", "model-provider", "budget",
	"mount", "copy", "env", "dir", "sparse", "depth", "uncommitted", "with-ignored", "worktree",
	"with-ssh", "service", "service-env", "service-port",
	"memory", "cpus", "pids", "disk", "ide", "no-attach",
}

const repositoryKey = "repository"

// oldNames are flags that had other names, with those of today.
var oldNames = map[string]string{"wd": "dir"}

// saved is a file of flags: names, each with its values. There is no secret in
// it: credentials are named, and variables have names only.
type saved map[string][]string

var savedName = pattern.New(`^[a-z0-9][a-z0-9_-]{0,62}$`)

func savedFile(sess *session.Session, name string) (string, error) {
	if !savedName.MatchString(name) {
		return "", cove.Errorf(cove.InvalidArgument, "%.80q is no name for saved flags", name).
			WithHint("use small letters, digits, _ and -, at most 63")
	}
	return sess.InHome("presets", name+".yaml")
}

// lastFile is the file that "cove new --last" reads, in the directory of Cove's state.
const lastFile = "last-new.yaml"

const maxSaved = 256 << 10 // bytes, more than any has

// readSaved reads a file. Errors: NotFound, InvalidArgument with the line.
func readSaved(file, what string) (saved, error) {
	p := saved{}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return p, cove.Errorf(cove.NotFound, "there is no %s", what)
	}
	if err != nil {
		return p, cove.Errorf(cove.InvalidArgument, "cannot read the %s: %w", what, ui.Cause(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSaved+1))
	if err != nil || len(data) > maxSaved {
		return p, cove.Errorf(cove.InvalidArgument, "cannot read the %s: it is too large, or %v", what, err)
	}
	return p, p.parse(file, data)
}

// parse is strict: every key is a flag, once, with a value or a list of them.
func (p saved) parse(file string, data []byte) error {
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
		if today, ok := oldNames[key.Value]; ok {
			key.Value = today
		}
		switch {
		case key.Value != repositoryKey && !slices.Contains(savedFlags, key.Value):
			return wrong(key.Line, "%.80q is no flag that can be saved", key.Value)
		case p[key.Value] != nil:
			return wrong(key.Line, "%s is there twice", key.Value)
		}
		items := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			items = value.Content
		}
		p[key.Value] = []string{}
		for _, item := range items {
			if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
				return wrong(item.Line, "%s must have a value, or a list of values", key.Value)
			}
			p[key.Value] = append(p[key.Value], item.Value)
		}
	}
	return nil
}

// text is the file, in the order of the flags.
func (p saved) text() ([]byte, error) {
	top := &yaml.Node{Kind: yaml.MappingNode}
	for _, name := range append([]string{repositoryKey}, savedFlags...) {
		values, ok := p[name]
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
	if len(top.Content) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := e.Encode(top)
	return b.Bytes(), err
}

// savedUnder names saved flags in messages.
func savedUnder(name string) string { return fmt.Sprintf("set of saved flags %.80q", name) }

// formerPresets takes names of saved flags out of --preset, which named them before it named presets of policies, and
// says their new name. Errors: those of flags.CheckPresets.
func formerPresets(sess *session.Session, o *newOptions) error {
	saved, err := savedNames(sess)
	if err != nil {
		return err
	}
	for i, name := range o.Policy.Presets {
		if policy.KnownPreset(name) == nil || !slices.Contains(saved, name) || o.saved != "" {
			continue
		}
		sess.Say.Line("%q is a set of saved flags: they are used by --saved %s now, and --preset names rules", name, name)
		o.saved = name
		o.Policy.Presets = slices.Delete(slices.Clone(o.Policy.Presets), i, i+1)
		break
	}
	return flags.CheckPresets(o.Policy.Presets)
}

// applySaved sets the flags that were saved and the command line has not.
func applySaved(sess *session.Session, cmd *cobra.Command, o *newOptions) error {
	var file, what string
	var err error
	switch {
	case o.saved != "":
		what = savedUnder(o.saved)
		file, err = savedFile(sess, o.saved)
	case o.last:
		what = "\"cove new\" before this one"
		file, err = sess.InHome(lastFile)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	p, err := readSaved(file, what)
	if err != nil {
		return err
	}
	if source := p[repositoryKey]; len(source) == 1 && o.Source == "" && !o.Empty && o.Bind == "" {
		o.Source = source[0]
	}
	for _, name := range savedFlags {
		f := cmd.Flags().Lookup(name)
		if f.Changed || name == "empty" && o.Source != "" {
			continue
		}
		for _, value := range p[name] {
			if err := cmd.Flags().Set(name, value); err != nil {
				return cove.Errorf(cove.InvalidArgument, "%s: %s: %w", file, name, err).WithHint("put it right, or remove the file")
			}
		}
	}
	return nil
}

// savedOf returns the flags of a command line. It works from every directory and holds no secrets.
func savedOf(sess *session.Session, cmd *cobra.Command, o *newOptions) (saved, error) {
	p := saved{}
	if o.Source != "" {
		source, err := flags.RepositorySource(o.Source, o.Uncommitted)
		if err != nil {
			return p, err
		}
		p[repositoryKey] = []string{source}
	}
	for _, name := range savedFlags {
		f := cmd.Flags().Lookup(name)
		if !f.Changed {
			continue
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for i, v := range values {
			var err error
			if values[i], err = keptValue(name, v); err != nil {
				return p, err
			}
		}
		p[name] = values
	}
	return p, nil
}

// keptValue is a flag's value for a file: paths are absolute, and a variable's value, maybe a secret, stays out.
func keptValue(name, value string) (string, error) {
	switch name {
	case "env":
		name, _, _ := strings.Cut(value, "=")
		return name, nil
	case "service-env":
		service, pair, _ := strings.Cut(value, "=")
		name, _, _ := strings.Cut(pair, "=")
		return service + "=" + name, nil
	case "service":
		service, image, _ := strings.Cut(value, "=")
		abs, err := flags.AbsoluteImage(image)
		return service + "=" + abs, err
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

func saveFlags(sess *session.Session, cmd *cobra.Command, o *newOptions, name string) error {
	file, err := savedFile(sess, name)
	if err != nil {
		return err
	}
	if err := checkPublic(o.Source); err != nil {
		return err
	}
	if err := writeSaved(sess, cmd, o, file); err != nil {
		return err
	}
	if slices.ContainsFunc(o.Env, func(e string) bool { return strings.Contains(e, "=") }) {
		sess.Say.Line("the saved flags %s have the names of --env and not their values: "+
			"they come from the shell that uses them", name)
	}
	return nil
}

// checkPublic refuses an address with a password in it.
func checkPublic(source string) error {
	if _, rest, ok := strings.Cut(source, "://"); ok {
		host, _, _ := strings.Cut(rest, "/")
		if user, _, ok := strings.Cut(host, "@"); ok && strings.Contains(user, ":") {
			return cove.Errorf(cove.InvalidArgument,
				"the address of the repository has a password in it, which must not be saved").
				WithHint("leave it out: Cove finds credentials of this machine by itself")
		}
	}
	return nil
}

func saveLast(sess *session.Session, cmd *cobra.Command, o *newOptions) error {
	if checkPublic(o.Source) != nil {
		return nil
	}
	file, err := sess.InHome(lastFile)
	if err != nil {
		return err
	}
	return writeSaved(sess, cmd, o, file)
}

func writeSaved(sess *session.Session, cmd *cobra.Command, o *newOptions, file string) error {
	p, err := savedOf(sess, cmd, o)
	if err != nil {
		return err
	}
	data, err := p.text()
	if err != nil {
		return err
	}
	if err := session.Keep(file, data); err != nil {
		return cove.Errorf(cove.StorageFull, "cannot keep the flags: %w", err)
	}
	return nil
}

func savedCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:     "saved",
		Aliases: []string{"preset"}, // what it was called
		Short:   "See flags of \"cove new\" that were saved",
		Long: `See what "cove new --save-as NAME" has saved for "cove new --saved NAME": YAML
files below presets in --home, with names of flags and their values. There is no
secret in them: credentials are named, and variables have names only.`,
	}, savedList(sess), savedShow(sess), savedRemove(sess))
}

type shownSaved struct {
	Name  string `json:"name"`
	Flags saved  `json:"flags"`
}

func savedList(sess *session.Session) *cobra.Command {
	return sess.ShowingList(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List what was saved",
	}, func(*cobra.Command, []string) (ui.Result, error) {
		names, err := savedNames(sess)
		if err != nil {
			return ui.Result{}, err
		}
		var all []shownSaved
		for _, name := range names {
			p, err := namedSaved(sess, name)
			if err != nil {
				return ui.Result{}, err
			}
			all = append(all, shownSaved{name, p})
		}
		row := func(p shownSaved) []string { return []string{p.Name, p.Flags.flags()} }
		return ui.Listing("saved", all, []string{"NAME", "FLAGS"}, row), nil
	})
}

func namedSaved(sess *session.Session, name string) (saved, error) {
	file, err := savedFile(sess, name)
	if err != nil {
		return saved{}, err
	}
	return readSaved(file, savedUnder(name))
}

func savedShow(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use: "show NAME", Short: "Print saved flags", ValidArgsFunction: completeSaved(sess),
	}, func(_ *cobra.Command, args []string) (ui.Result, error) {
		p, err := namedSaved(sess, args[0])
		if err != nil {
			return ui.Result{}, noSaved(err)
		}
		text, err := p.text()
		return ui.Result{Value: shownSaved{args[0], p}, Text: string(text)}, err
	})
}

func noSaved(err error) error {
	if e := new(cove.Error); errors.As(err, &e) && e.Code == cove.NotFound {
		return e.WithHint("\"cove saved list\" shows them")
	}
	return err
}

func savedRemove(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use:               "remove NAME",
		Aliases:           []string{"rm", "delete"},
		Short:             "Forget saved flags",
		ValidArgsFunction: completeSaved(sess),
	}, func(_ *cobra.Command, args []string) (ui.Result, error) {
		file, err := savedFile(sess, args[0])
		if err != nil {
			return ui.Result{}, err
		}
		if err := os.Remove(file); errors.Is(err, fs.ErrNotExist) {
			return ui.Result{}, noSaved(cove.Errorf(cove.NotFound, "there is no %s", savedUnder(args[0])))
		} else if err != nil {
			return ui.Result{}, cove.Errorf(cove.InvalidArgument, "cannot remove the saved flags: %w", ui.Cause(err))
		}
		return ui.Names("removed", args, strings.Clone), nil
	})
}

func completeSaved(sess *session.Session) cobra.CompletionFunc {
	return ui.CompleteFirst(func(context.Context) []string {
		names, _ := savedNames(sess) // a completion has no place for an error
		return names
	})
}

// flags returns what was saved as the flags of a command line.
func (p saved) flags() string {
	words := slices.Clone(p[repositoryKey])
	for _, name := range savedFlags {
		for _, v := range p[name] {
			if v == "true" {
				words = append(words, "--"+name)
			} else {
				words = append(words, "--"+name, ui.ShellWord(v))
			}
		}
	}
	return strings.Join(words, " ")
}

func savedNames(sess *session.Session) ([]string, error) {
	dir, err := sess.InHome("presets")
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, cove.Errorf(cove.InvalidArgument, "cannot list the saved flags: %w", ui.Cause(err))
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".yaml"); ok && savedName.MatchString(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

type newOptions struct {
	flags.NewSandbox

	dev           devcontainers.Options
	ide           string
	noAttach      bool
	saveAs, saved string
	last          bool
}

func (o *newOptions) add(sess *session.Session, f *pflag.FlagSet) {
	f.StringVar(&o.Name, "name", "", "`NAME` of the sandbox (default: made up)")
	f.StringVar(&o.IfExists, "if-exists", "",
		"`WHAT` to do when there is one of --name: error (default), or return that one, running")
	f.BoolVar(&o.Empty, "empty", false, "no repository: an empty workspace")
	f.StringVar(&o.Bind, "bind", "", "no repository: `DIR` itself is the workspace, and what is done in it is done")
	f.StringVar(&o.Agent, "agent", "", "`AGENT` of its terminal, or a program of the image, instead of a shell")
	o.AddSandbox(f)
	f.StringArrayVar(&o.Copies, "copy", nil,
		"copy the file or directory `SOURCE[:TARGET]` into the workspace (repeatable)")
	f.StringVar(&o.WorkDir, "dir", "", "`DIR` in which its programs begin, relative to the workspace or absolute")
	f.StringArrayVar(&o.Sparse, "sparse", nil, "check out `DIR` only (repeatable)")
	f.IntVar(&o.Depth, "depth", 0, "fetch `COUNT` commits of history only")
	f.BoolVar(&o.Uncommitted, "uncommitted", false,
		"begin at what is in the directory now, committed or not; it need not be a repository")
	flags.AddIgnored(f, &o.Ignored)
	f.BoolVar(&o.Worktree, "worktree", false,
		"check out a git worktree to edit from this machine; inside, git uses a service instead of .git")
	f.BoolVar(&o.SSH, "with-ssh", false, "let this shell's SSH agent sign for the sandbox, which sees no key")
	o.Volumes.Add(f)
	o.Services.Add(f)
	o.dev.Add(f)
	f.StringVar(&o.ide, "ide", "", "open the checkout with `PROGRAM` of this machine, such as code, zed, idea or vim")
	f.BoolVar(&o.noAttach, "no-attach", false, "do not attach to it")
	f.StringVar(&o.saved, "saved", "", "flags that were saved as `NAME`; those that are written here win")
	f.StringVar(&o.saveAs, "save-as", "", "save these flags as `NAME`")
	f.BoolVar(&o.last, "last", false, "flags, and without REPO the repository, of the last \"cove new\"")
	sess.AddJSON(f, "print one JSON object; do not attach")
	f.SortFlags = false
	ui.OldNames(f, oldNames)
}
