package devcontainer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/pattern"
)

const (
	featureName   = "devcontainer-feature.json"
	installName   = "install.sh"
	maxFeatures   = 64
	maxFeatureAll = 8 << 20 // bytes of all of them together
	maxFiles      = 1024
)

// features takes those of folders of the checkout. What is in them is read by AddFeatures.
func (v *evaluation) features(p property) error {
	if empty(p.value) {
		return nil
	}
	var given map[string]json.RawMessage
	if err := p.into(v.file, &given); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(given)) {
		at := property{name: p.name + "." + id, line: p.line, value: given[id]}
		r, err := v.feature(at, id)
		if err != nil {
			return err
		}
		if r == nil {
			v.refuse(p, at.name, notAFeature(id))
			continue
		}
		v.out.wanted = append(v.out.wanted, *r)
	}
	return nil
}

// notAFeature returns what to write in place of an address that features once had.
func notAFeature(id string) string {
	name, version, _ := strings.Cut(strings.TrimPrefix(id, ofGitHub), "@")
	version = cmp.Or(strings.TrimPrefix(version, "v"), "1")
	switch parts := strings.Split(name, "/"); {
	case !legacyFeature.MatchString(name) || len(parts) > 3:
		return "a feature is a folder, as ./NAME, or an artifact of a registry, as HOST/PATH/NAME:VERSION"
	case len(parts) == 1:
		return "a short name has no registry: write HOST/devcontainers/features/" + name + ":" + version +
			", with the registry that has the features of the specification"
	default:
		return "features are not taken of repositories: write HOST/" + name + ":" + version +
			", with the registry to which the repository publishes it"
	}
}

const ofGitHub = "github.com/"

// legacyFeature is the name of a feature without a registry, alone or after OWNER/REPO.
var legacyFeature = pattern.New(`^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*){0,2}$`)

// ofRegistry is the reference of a feature of a registry, with its host.
var ofRegistry = pattern.New(`^([a-z0-9-]+(\.[a-z0-9-]+)+|localhost)(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+` +
	`(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[0-9a-f]{64})?$`)

// feature reads one entry of an object of features; nil is one that is neither a folder nor of a registry. Errors:
// InvalidArgument.
func (v *evaluation) feature(p property, id string) (*Feature, error) {
	r := &Feature{ID: id, Dir: path.Join(path.Dir(v.out.File), id), line: p.line, Options: map[string]string{}}
	switch {
	case strings.HasPrefix(id, ofGitHub):
		return nil, nil // it is no registry
	case ofRegistry.Regexp().MatchString(id):
		r.Dir = "/" + id
	case !strings.HasPrefix(id, "./") && !strings.HasPrefix(id, "../"):
		return nil, nil
	case !filepath.IsLocal(r.Dir) || r.Dir == "." || strings.Contains(id, `\`):
		return nil, p.wrong(v.file, "it leads out of the repository")
	}
	switch value := bytes.TrimSpace(p.value); {
	case bytes.HasPrefix(value, []byte("{")):
		var options map[string]option
		if err := p.into(v.file, &options); err != nil {
			return nil, err
		}
		for name, o := range options {
			if optionVariable(name) == "" || strings.ContainsRune(string(o), 0) {
				return nil, p.wrong(v.file, "%.80q is no option", name)
			}
			r.Options[name] = string(o)
		}
	case bytes.HasPrefix(value, []byte(`"`)):
		var version option
		if err := p.into(v.file, &version); err != nil {
			return nil, err
		}
		r.Options["version"] = string(version)
	}
	return r, nil
}

// option is the value of an option: a string, or a boolean as it is written.
type option string

func (o *option) UnmarshalJSON(data []byte) error {
	var is bool
	if err := json.Unmarshal(data, &is); err == nil {
		*o = option(fmt.Sprint(is))
		return nil
	}
	return json.Unmarshal(data, (*string)(o))
}

// AddFeatures reads the features of a dev container, with those that they depend on, puts them into their order, and
// adds their values to e. It returns their files. Where some of registries have not been fetched, they are e.Missing,
// and the order is not known. checkout is as that of Find. Errors: InvalidArgument, NotFound, TooLarge, Unsupported,
// Forbidden.
func AddFeatures(checkout fs.FS, e *Effective, c Context) (Files, error) {
	all := Files{}
	pins, err := locked(checkout, e, all)
	if err != nil {
		return nil, err
	}
	if err := pins.pin(e.wanted); err != nil {
		return nil, err
	}
	var found []Feature
	for rest := e.wanted; len(rest) > 0; rest = rest[1:] {
		f := rest[0]
		if slices.ContainsFunc(found, func(has Feature) bool { return has.Dir == f.Dir }) {
			continue
		}
		if len(found) == maxFeatures {
			return nil, cove.Errorf(cove.TooLarge, "%s has more than %d features", e.File, maxFeatures)
		}
		ref, remote := strings.CutPrefix(f.Dir, "/")
		is, err := true, error(nil)
		if remote {
			is, err = c.fetched(ref, all)
		} else {
			err = readFolder(checkout, f.Dir, all)
		}
		if err != nil {
			return nil, err
		}
		if !is {
			e.Missing = append(e.Missing, ref)
			e.Unsupported = append(e.Unsupported, LeftOut{"features." + f.ID, "", f.line, notFetched})
			continue
		}
		more, err := describe(e, c, &f, all, pins)
		if err != nil {
			return nil, err
		}
		found, rest = append(found, f), append(slices.Clone(rest), more...)
	}
	if len(e.Missing) > 0 {
		return all, nil
	}
	if e.Features, err = ordered(found, e.order); err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "%s: %w", e.File, err)
	}
	conclude := &evaluation{Context: c, file: File{Path: e.File}, out: e}
	conclude.featuresTaken()
	return all, nil
}

const notFetched = "it has not been fetched, which \"cove devcontainer build\", \"up\" and --devcontainer do"

// fetched adds the files of a feature of a registry, if it has been fetched. Errors: TooLarge.
func (c Context) fetched(ref string, all Files) (is bool, err error) {
	if c.Fetched == nil {
		return false, nil
	}
	files, is := c.Fetched(ref)
	for name, data := range files {
		all["/"+ref+"/"+name] = data
	}
	if total := all.size(); total > maxFeatureAll || len(all) > maxFiles {
		return is, tooManyFeatures()
	}
	return is, nil
}

func tooManyFeatures() error {
	return cove.Errorf(cove.TooLarge, "the features have more than %d MiB or %d files", maxFeatureAll>>20, maxFiles)
}

// readFolder reads the files of a folder.
func readFolder(checkout fs.FS, dir string, all Files) error {
	total := all.size()
	err := fs.WalkDir(checkout, dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			return cove.Errorf(cove.InvalidArgument, "%s is no regular file", name)
		}
		f, err := read(checkout, name)
		if err != nil {
			return err
		}
		all[name] = f.Data
		if total += len(f.Data); total > maxFeatureAll || len(all) > maxFiles {
			return tooManyFeatures()
		}
		return nil
	})
	if absent(err) {
		return cove.Errorf(cove.NotFound, "there is no feature %s: %w", dir, err)
	}
	if err != nil && !errors.As(err, new(*cove.Error)) {
		return unreadable(dir, err)
	}
	return err
}

// metadata is a devcontainer-feature.json, as far as Cove takes it.
type metadata struct {
	ID, Version string
	Options     map[string]struct {
		Default option
		Enum    []string
	}
	InstallsAfter []string
	DependsOn     map[string]json.RawMessage
	ContainerEnv  map[string]string
}

// describe adds the metadata of a feature to it, and returns those that it depends on.
func describe(e *Effective, c Context, f *Feature, all Files, pins lock) (more []Feature, err error) {
	file := File{Path: path.Join(f.Dir, featureName)}
	var is bool
	if file.Data, is = all[file.Path]; !is {
		return nil, cove.Errorf(cove.NotFound, "%s is no feature: there is no %s", f.Dir, featureName)
	}
	if _, is := all[path.Join(f.Dir, installName)]; !is {
		return nil, cove.Errorf(cove.NotFound, "%s is no feature: there is no %s", f.Dir, installName)
	}
	properties, err := parse(file)
	if err != nil {
		return nil, err
	}
	v := &evaluation{Context: c, file: file, out: &Effective{File: e.File}}
	v.vars = variables{local: c.Local, container: e.WorkDir, localEnv: c.LocalEnv, id: Identity(c.Local, e.File)}
	var m metadata
	of := map[string]any{"id": &m.ID, "version": &m.Version, "options": &m.Options, "installsAfter": &m.InstallsAfter,
		"dependsOn": &m.DependsOn, "containerEnv": &m.ContainerEnv}
	main := func(key string) property { return property{name: key, line: f.line} }
	for _, p := range properties {
		why, widens := widening[p.name]
		switch to, i := of[p.name], stage(p.name); {
		case to != nil:
			err = p.into(file, to)
		case i >= 0:
			err = v.command(p, lifecycle[i].when)
		case p.name == "mounts":
			inMain := &evaluation{Context: c, file: File{Path: e.File}, vars: v.vars, out: e}
			takeMounts(inMain, property{name: "features." + f.ID + ".mounts", line: f.line, value: p.value})
		case p.name == "entrypoint":
			why, widens = "Cove's guest starts first, and the programs after it", true
			fallthrough
		case widens && !empty(p.value):
			v.leave(main(""), "features."+f.ID+"."+p.name, why)
		}
		if err != nil {
			return nil, err
		}
	}
	for name, o := range m.Options {
		if optionVariable(name) == "" || strings.ContainsRune(string(o.Default), 0) {
			return nil, cove.Errorf(cove.InvalidArgument, "%s: %.80q is no option", file.Path, name)
		}
		given, is := f.Options[name]
		if !is {
			given = string(o.Default)
			f.Options[name] = given
		}
		if len(o.Enum) > 0 && !slices.Contains(o.Enum, given) {
			return nil, cove.Errorf(cove.InvalidArgument, "%s, line %d: the option %s of %s is %.80q, and may be %s", e.File,
				f.line, name, f.ID, given, strings.Join(o.Enum, ", "))
		}
	}
	for name, value := range m.ContainerEnv {
		if !variableForm.MatchString(name) || strings.ContainsAny(value, "\n\r\x00") {
			return nil, cove.Errorf(cove.InvalidArgument, "%s: %.80q is no variable", file.Path, name)
		}
	}
	f.Title = strings.TrimSpace(m.ID + " " + m.Version)
	f.Env, f.name, f.after, f.commands = m.ContainerEnv, m.ID, m.InstallsAfter, v.out.Commands
	e.LeftOut = append(e.LeftOut, v.out.LeftOut...)
	for _, id := range slices.Sorted(maps.Keys(m.DependsOn)) {
		inMain := evaluation{Context: c, file: file, out: e}
		needed, err := inMain.feature(property{name: "dependsOn." + id, line: f.line, value: m.DependsOn[id]}, id)
		if err == nil && needed == nil {
			err = cove.Errorf(cove.Unsupported, "%s depends on %.200q: %s", f.ID, id, notAFeature(id)).
				WithHint("--no-devcontainer leaves the file alone")
		}
		if err != nil {
			return nil, err
		}
		more = append(more, *needed)
	}
	if err := pins.pin(more); err != nil {
		return nil, err
	}
	for _, needed := range more {
		f.needs = append(f.needs, needed.Dir)
	}
	return more, nil
}

var variableForm = pattern.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// is reports whether a reference, such as that of installsAfter, means the feature.
func (f Feature) is(ref string) bool {
	ref, _, _ = strings.Cut(ref, "@")
	if i := strings.LastIndexByte(ref, ':'); i > strings.LastIndexByte(ref, '/') {
		ref = ref[:i]
	}
	return ref == f.ID || f.name != "" && (ref == f.name || path.Base(ref) == f.name)
}

// ordered puts features into the order in which they are installed: after those that they depend on, and after those
// of installsAfter that are there. Of several that can be next, that which override names first is.
func ordered(all []Feature, override []string) (done []Feature, err error) {
	rank := func(f Feature) int {
		if i := slices.IndexFunc(override, f.is); i >= 0 {
			return i
		}
		return len(override)
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Feature) int { return rank(a) - rank(b) })
	for len(all) > 0 {
		next := slices.IndexFunc(all, func(f Feature) bool {
			return !slices.ContainsFunc(all, func(other Feature) bool {
				return other.Dir != f.Dir && (slices.Contains(f.needs, other.Dir) || slices.ContainsFunc(f.after, other.is))
			}) && !slices.Contains(f.needs, f.Dir)
		})
		if next < 0 {
			return nil, fmt.Errorf("the features %s wait for each other", all[0].ID)
		}
		done, all = append(done, all[next]), slices.Delete(all, next, next+1)
	}
	return done, nil
}

// featuresTaken adds the values of features, and their commands, which come before those of the file.
func (v *evaluation) featuresTaken() {
	e := v.out
	var commands []Command
	for _, f := range e.Features {
		from := fmt.Sprintf("%s:%d", e.File, f.line)
		v.add("features."+f.ID, f.Title, from)
		for _, name := range slices.Sorted(maps.Keys(f.Options)) {
			v.add("features."+f.ID+"."+name, f.Options[name], from)
		}
		for _, name := range slices.Sorted(maps.Keys(f.Env)) {
			v.add("features."+f.ID+".containerEnv."+name, f.Env[name], path.Join(f.Dir, featureName))
		}
		for _, c := range f.commands {
			for _, s := range c.Steps {
				v.add(strings.TrimSuffix(c.Name+"."+s.Name, ".")+" ("+string(c.When)+")", strings.Join(s.Args, " "), c.From)
			}
		}
		commands = append(commands, f.commands...)
	}
	e.Commands = append(commands, e.Commands...)
	slices.SortStableFunc(e.Commands, func(a, b Command) int { return stage(a.Name) - stage(b.Name) })
}

// Instructions returns a Dockerfile that installs features over an image, and the files of its context. Its commands
// are for root, and told of the user, who is root if it is empty.
func Instructions(image, user string, features []Feature, files Files) (dockerfile []byte, context Files) {
	var b bytes.Buffer
	context = Files{}
	account, home := "root", "/root"
	if user, _, _ = strings.Cut(user, ":"); user != "" {
		account = quoted(user)
		home = `"$(grep ` + quoted("^"+user+":") + ` /etc/passwd | cut -d : -f 6)"`
	}
	fmt.Fprintf(&b, "FROM %s\n", image)
	for n, f := range features {
		for _, name := range slices.Sorted(maps.Keys(f.Env)) {
			fmt.Fprintf(&b, "ENV %s=\"%s\"\n", name, escaped.Replace(f.Env[name]))
		}
		at := fmt.Sprintf("/tmp/dev-container-features/%d", n)
		for name, data := range files {
			if below, is := strings.CutPrefix(name, f.Dir+"/"); is {
				context[fmt.Sprintf("%d/%s", n, below)] = data
			}
		}
		line := "cd " + at + " && chmod -R 755 ."
		for _, name := range slices.Sorted(maps.Keys(f.Options)) {
			line += " && export " + optionVariable(name) + "=" + quoted(f.Options[name])
		}
		for _, variable := range []string{"_REMOTE_USER", "_CONTAINER_USER"} {
			line += " && export " + variable + "=" + account + " " + variable + "_HOME=" + home
		}
		fmt.Fprintf(&b, "COPY %d/ %s/\nRUN %s\n", n, at,
			words("/bin/sh", "-c", line+" && ./"+installName+" && cd / && rm -rf "+at))
	}
	return b.Bytes(), context
}

// words writes a command as a Dockerfile has it, and as people read it.
func words(args ...string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(args) // strings always marshal
	return strings.TrimSpace(b.String())
}

// escaped escapes what ends the quotes of a value of ENV. A variable in it is the image's.
var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

var (
	notWord  = pattern.New(`[^A-Za-z0-9_]`)
	notBegin = pattern.New(`^[0-9_]+`)
)

// optionVariable is the variable of an option, as the specification forms it.
func optionVariable(name string) string {
	return strings.ToUpper(notBegin.Regexp().ReplaceAllString(notWord.Regexp().ReplaceAllString(name, "_"), "_"))
}
