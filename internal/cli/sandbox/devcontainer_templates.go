package sandbox

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/devcontainer"
)

func devTemplates(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:   "templates",
		Short: "Begin a dev container with a template",
		Long: `Begin a dev container with a template: files for a repository, with options that are
filled in. FROM is a directory of templates, such as a checkout of a collection of them,
or oci:PATH[:TAG], an OCI layout with one.`,
	}, templatesList(sess), templatesApply(sess))
}

// templatesOf reads what FROM has.
func templatesOf(from string) (files devcontainer.Files, all []devcontainer.Template, err error) {
	dir, layout := strings.CutPrefix(from, "oci:")
	tag := ""
	if i := strings.LastIndexByte(dir, ':'); layout && i > 0 && !strings.Contains(dir[i:], "/") {
		dir, tag = dir[:i], dir[i+1:]
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, cove.Errorf(cove.NotFound, "cannot open %s: %w", dir, ui.Cause(err)).
			WithHint("name a directory of templates, or oci:PATH of an OCI layout")
	}
	defer root.Close()
	if layout {
		files, err = devcontainer.ReadLayout(root.FS(), tag)
	} else {
		files, err = devcontainer.ReadTree(root.FS())
	}
	if err == nil {
		all, err = devcontainer.Templates(files)
	}
	if err == nil && len(all) == 0 {
		err = cove.Errorf(cove.NotFound, "there is no template in %s", from).
			WithHint("a template has a devcontainer-template.json")
	}
	return files, all, err
}

func templatesList(sess *session.Session) *cobra.Command {
	return sess.ShowingList(&cobra.Command{
		Use:     "list FROM",
		Aliases: []string{"ls"},
		Short:   "List the templates of a directory or an OCI layout, with their options",
		Example: "  cove devcontainer templates list ../templates/src",
	}, func(_ *cobra.Command, args []string) (ui.Result, error) {
		_, all, err := templatesOf(args[0])
		var rows [][]string
		for _, t := range all {
			var options []string
			for _, name := range slices.Sorted(maps.Keys(t.Options)) {
				options = append(options, name+"="+string(t.Options[name].Default))
			}
			rows = append(rows, []string{t.ID, t.Version, strings.Join(options, " "), t.Name})
		}
		return ui.TableOf(map[string]any{"templates": all}, []string{"ID", "VERSION", "OPTIONS", "NAME"}, rows), err
	})
}

func templatesApply(sess *session.Session) *cobra.Command {
	var at folder
	var options []string
	id, force := "", false
	c := &cobra.Command{
		Use:   "apply FROM",
		Short: "Write the files of a template into a repository",
		Long: `Write the files of a template into the repository of this directory, with its options
filled in, and print their names. Nothing is written where one of them is there, unless
--force says so. Nothing of a template is run.`,
		Example: `  cove devcontainer templates apply ../templates/src --id go --option variant=1.24
  cove devcontainer templates apply oci:./layout`,
	}
	f := c.Flags()
	at.add(f)
	f.StringVar(&id, "id", "", "`ID` of the template; not needed where there is one")
	f.StringArrayVar(&options, "option", nil, "fill in `NAME=VALUE` (repeatable)")
	f.BoolVar(&force, "force", false, "write over files that are there")
	return sess.Showing(c, func(cmd *cobra.Command, args []string) (r ui.Result, err error) {
		given := map[string]string{}
		for _, o := range options {
			name, value, is := strings.Cut(o, "=")
			if !is {
				return r, ui.UsageError(cmd, "--option %.80q is not NAME=VALUE", o)
			}
			given[name] = value
		}
		files, all, err := templatesOf(args[0])
		if err != nil {
			return r, err
		}
		i := slices.IndexFunc(all, func(t devcontainer.Template) bool { return t.ID == id })
		if id == "" && len(all) == 1 {
			i = 0
		}
		if i < 0 {
			var ids []string
			for _, t := range all {
				ids = append(ids, t.ID)
			}
			return r, cove.Errorf(cove.NotFound, "which template of %s is not said", args[0]).
				WithHint("say which with --id: %s", strings.Join(ids, ", "))
		}
		made, err := all[i].Apply(files, given)
		if err != nil {
			return r, err
		}
		top, err := flags.RealDirectory(at.dir)
		if err != nil {
			return r, err
		}
		names := slices.Sorted(maps.Keys(made))
		return ui.Names("written", names, strings.Clone), writeFiles(top, made, names, force)
	})
}

// writeFiles writes files below a directory, and none of them through a link that leads out of it. Without force none
// is written where one is there.
func writeFiles(dir string, files devcontainer.Files, names []string, force bool) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return cove.Errorf(cove.InvalidArgument, "cannot open %s: %w", dir, ui.Cause(err))
	}
	defer root.Close()
	for _, name := range names {
		if _, err := root.Lstat(name); !force && !errors.Is(err, fs.ErrNotExist) {
			return cove.Errorf(cove.Conflict, "%s is there already", name).WithHint("--force writes over it")
		}
	}
	for _, name := range names {
		err := root.MkdirAll(path.Dir(name), 0o755)
		if err == nil {
			err = root.WriteFile(name, files[name], 0o644)
		}
		if err != nil {
			return cove.Errorf(cove.Forbidden, "cannot write %s: %w", name, ui.Cause(err))
		}
	}
	return nil
}
