package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func presetCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:   "preset",
		Short: "See flags of \"cove new\" that were kept",
		Long: `See what "cove new --save-as NAME" has kept for "cove new --preset NAME": YAML
files below presets in --home, with names of flags and their values. There is no
secret in them: credentials are named, and variables have names only.`,
	}, presetList(sess), presetShow(sess), presetDelete(sess))
}

// shownPreset is one preset as JSON.
type shownPreset struct {
	Name  string              `json:"name"`
	Flags map[string][]string `json:"flags"`
}

func presetList(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the presets",
		Args:    ui.Exactly(),
	}, func(*cobra.Command, []string) (ui.Result, error) {
		names, err := presetNames(sess)
		if err != nil {
			return ui.Result{}, err
		}
		var all []shownPreset
		for _, name := range names {
			p, err := namedPreset(sess, name)
			if err != nil {
				return ui.Result{}, err
			}
			all = append(all, shownPreset{name, p.values})
		}
		return ui.Listing[shownPreset]{
			Key:      "presets",
			Headings: []string{"NAME", "FLAGS"},
			Row: func(p shownPreset) []string {
				return []string{p.Name, preset{p.Flags}.flags()}
			},
		}.Result(all), nil
	})
}

// namedPreset reads the preset of a name.
func namedPreset(sess *session.Session, name string) (preset, error) {
	file, err := presetFile(sess, name)
	if err != nil {
		return preset{}, err
	}
	return readPreset(file, "preset "+name)
}

func presetShow(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use:               "show NAME",
		Short:             "Print a preset",
		Args:              ui.Exactly("NAME"),
		ValidArgsFunction: completePreset(sess),
	}, func(_ *cobra.Command, args []string) (ui.Result, error) {
		p, err := namedPreset(sess, args[0])
		if err != nil {
			return ui.Result{}, noPreset(err)
		}
		text, err := p.text()
		return ui.Result{Value: shownPreset{args[0], p.values}, Text: string(text)}, err
	})
}

func noPreset(err error) error {
	if e := new(cove.Error); errors.As(err, &e) && e.Code == cove.NotFound {
		return e.WithHint("\"cove preset list\" shows them")
	}
	return err
}

func presetDelete(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:               "delete NAME",
		Short:             "Forget a preset",
		Args:              ui.Exactly("NAME"),
		ValidArgsFunction: completePreset(sess),
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := presetFile(sess, args[0])
			if err != nil {
				return err
			}
			if err := os.Remove(file); errors.Is(err, fs.ErrNotExist) {
				return noPreset(cove.Errorf(cove.NotFound, "there is no preset %s", args[0]))
			} else if err != nil {
				return cove.Errorf(cove.InvalidArgument, "cannot remove the preset: %w", ui.Cause(err))
			}
			return sess.Print(args[0] + "\n")
		},
	}
}

func completePreset(sess *session.Session) cobra.CompletionFunc {
	return ui.CompleteFirst(func(context.Context) []string {
		names, _ := presetNames(sess) // a completion has no place for an error
		return names
	})
}

// flags returns the preset as the flags of a command line.
func (p preset) flags() string {
	words := slices.Clone(p.values[repositoryKey])
	for _, name := range presetFlags {
		for _, v := range p.values[name] {
			if v == "true" {
				words = append(words, "--"+name)
			} else {
				words = append(words, "--"+name, ui.ShellWord(v))
			}
		}
	}
	return strings.Join(words, " ")
}

// presetNames lists the presets.
func presetNames(sess *session.Session) ([]string, error) {
	cfg, err := sess.Config()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Join(cfg.Home, "presets"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, cove.Errorf(cove.InvalidArgument, "cannot list the presets: %w", ui.Cause(err))
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".yaml"); ok && presetName.MatchString(name) {
			names = append(names, name)
		}
	}
	return names, nil
}
