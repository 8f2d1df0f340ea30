package devcontainer

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
)

const templateName = "devcontainer-template.json"

// Template is a folder of files for a repository, with options that are filled in.
type Template struct {
	ID          string                    `json:"id"`
	Version     string                    `json:"version,omitempty"`
	Name        string                    `json:"name,omitempty"`
	Description string                    `json:"description,omitempty"`
	Options     map[string]TemplateOption `json:"options,omitempty"`
	Dir         string                    `json:"dir"` // in what it was found in
}

// TemplateOption is an option of a Template.
type TemplateOption struct {
	Description string   `json:"description,omitempty"`
	Default     option   `json:"default"`
	Enum        []string `json:"enum,omitempty"`
}

// ReadTree reads the files below a directory, without links. Errors: InvalidArgument, TooLarge.
func ReadTree(of fs.FS) (Files, error) {
	all := Files{}
	return all, readFolder(of, ".", all)
}

// Templates returns the templates among files, by their folders. Errors: InvalidArgument, with the line.
func Templates(files Files) ([]Template, error) {
	var all []Template
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Base(name) != templateName {
			continue
		}
		f := File{Path: name, Data: files[name]}
		properties, err := parse(f)
		if err != nil {
			return nil, err
		}
		t := Template{}
		of := map[string]any{"id": &t.ID, "version": &t.Version, "name": &t.Name, "description": &t.Description,
			"options": &t.Options}
		for _, p := range properties {
			if to := of[p.name]; to != nil {
				if err := p.into(f, to); err != nil {
					return nil, err
				}
			}
		}
		if t.Dir = path.Dir(name); t.ID == "" {
			return nil, cove.Errorf(cove.InvalidArgument, "%s: it has no id", name)
		}
		all = append(all, t)
	}
	return all, nil
}

// Apply returns the files of a template, for a repository, with its options filled in. Errors: InvalidArgument for an
// option or a value that the template has not got.
func (t Template) Apply(files Files, given map[string]string) (Files, error) {
	values := map[string]string{}
	for name, o := range t.Options {
		values[name] = string(o.Default)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		o, is := t.Options[name]
		if !is {
			return nil, cove.Errorf(cove.InvalidArgument, "the template %s has no option %.80q", t.ID, name).
				WithHint("it has %s", strings.Join(append(slices.Sorted(maps.Keys(t.Options)), "no others"), ", "))
		}
		if len(o.Enum) > 0 && !slices.Contains(o.Enum, given[name]) {
			return nil, cove.Errorf(cove.InvalidArgument, "the option %s is %.80q", name, given[name]).
				WithHint("it may be %s", strings.Join(o.Enum, ", "))
		}
		values[name] = given[name]
	}
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		pairs = append(pairs, "${templateOption:"+name+"}", values[name])
	}
	fill := strings.NewReplacer(pairs...)
	made := Files{}
	for name, data := range files {
		below, is := strings.CutPrefix(name, t.Dir+"/")
		if t.Dir == "." {
			below, is = name, true
		}
		if !is || slices.Contains([]string{templateName, "README.md", "NOTES.md"}, below) {
			continue
		}
		if !fs.ValidPath(below) || slices.Contains(strings.Split(below, "/"), ".git") {
			return nil, cove.Errorf(cove.InvalidArgument, "the template %s has a file %.200q", t.ID, below)
		}
		made[below] = []byte(fill.Replace(string(data)))
	}
	return made, nil
}
