package devcontainer

import (
	"encoding/json"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// build takes the object that describes a build.
func (v *evaluation) build(p property) error {
	if empty(p.value) {
		return nil
	}
	var given map[string]json.RawMessage
	if err := p.into(v.file, &given); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		part := property{name: p.name + "." + key, line: p.line, value: given[key]}
		var err error
		switch key {
		case "dockerfile", "context":
			err = v.buildPath(part, key)
		case "args":
			err = v.buildArgs(part)
		case "target":
			var target string
			if target, err = v.text(part); err == nil && target != "" {
				v.built(part).Target = target
				v.take(part, part.name, target)
			}
		case "cacheFrom":
			v.leave(part, part.name, "layers of earlier builds on this machine are used, and no others")
		case "options":
			v.leave(part, part.name, "Cove builds the image, and takes no options of Docker")
		default:
			v.leave(part, part.name, "Cove does not know it")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// built returns the build, of which a property says something.
func (v *evaluation) built(p property) *Build {
	if v.out.Build == nil {
		v.out.Build = &Build{Context: path.Dir(v.file.Path)}
	}
	v.buildLine = p.line
	return v.out.Build
}

// buildPath takes a path of a build, which is relative to the directory of the file. Errors: InvalidArgument for one
// that leaves the checkout.
func (v *evaluation) buildPath(p property, key string) error {
	var name string
	if err := p.into(v.file, &name); err != nil {
		return err
	}
	name, unknown := v.vars.expand(name)
	switch {
	case len(unknown) > 0:
		return p.wrong(v.file, "%s", unknownWhy(unknown[0]))
	case name == "":
		return p.wrong(v.file, "it is empty")
	}
	name, err := v.inCheckout(p, name, path.Dir(v.file.Path))
	if err != nil {
		return err
	}
	if key == "context" {
		v.built(p).Context = name
	} else {
		v.built(p).Dockerfile = name
	}
	v.take(p, p.name, name)
	return nil
}

// inCheckout returns a path from the top of the checkout; name is relative to a directory there. Errors:
// InvalidArgument for one that leaves the checkout.
func (v *evaluation) inCheckout(p property, name, dir string) (string, error) {
	rest, below := strings.CutPrefix(name, v.Local+"/")
	switch {
	case below:
		name = path.Clean(rest)
	case name == v.Local:
		name = "."
	case path.IsAbs(name) || strings.Contains(name, `\`):
		return "", p.wrong(v.file, "%.200q is no path in the repository, with slashes", name)
	default:
		name = path.Join(dir, name)
	}
	if !filepath.IsLocal(name) {
		return "", p.wrong(v.file, "it leads out of the repository")
	}
	return name, nil
}

func (v *evaluation) buildArgs(p property) error {
	var given map[string]string
	if err := p.into(v.file, &given); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		key := p.name + "." + name
		value, unknown := v.vars.expand(given[name])
		if name == "" || strings.Contains(name, "=") {
			return p.wrong(v.file, "%.80q is no argument of a build", name)
		}
		if len(unknown) > 0 {
			v.leave(p, key, unknownWhy(unknown[0]))
			continue
		}
		b := v.built(p)
		if b.Args == nil {
			b.Args = map[string]string{}
		}
		b.Args[name] = value
		v.take(p, key, value)
	}
	return nil
}

// concludeBuild settles what is built, after all properties are known, and the files that belong to it.
func (v *evaluation) concludeBuild() {
	b := v.out.Build
	if b == nil {
		return
	}
	if b.Dockerfile == "" {
		v.out.Build = nil
		v.refuse(property{line: v.buildLine}, "build", "it names no dockerfile")
		return
	}
	if v.out.Image != "" {
		v.out.LeftOut = append(v.out.LeftOut, LeftOut{"image " + v.out.Image, "", v.buildLine,
			"the image is built from " + b.Dockerfile})
		v.out.Values = slices.DeleteFunc(v.out.Values, func(v Value) bool { return v.Key == "image" })
		v.out.Image = ""
	}
	v.out.Refers = append(append(v.out.Refers, b.Dockerfile), b.Ignores()...)
}
