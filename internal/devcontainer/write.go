package devcontainer

import (
	"bytes"
	"cmp"
	"encoding/json"
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

// Confinement separates a container, whose programs are not trusted, from the host.
type Confinement struct {
	Dir          string            // of the host, where the written file lies: outside of the checkout
	Capabilities []string          // of root inside; it has no others
	Seccomp      string            // name of the filter in Dir
	Env          map[string]string // has programs trust the gateway
	// Wait is a line of sh that ends when the container's network is attached to the gateway.
	Wait string
	// Label is KEY=VALUE, by which the container is found. No file of a repository says it.
	Label string
	// Guards returns the parts of a directory of the checkout that are attached once more, on themselves: read-only what
	// the owner's programs execute or obey, and as they are the directories above, so that nothing takes their places.
	// Absent is what a program in the container could make of it.
	Guards func(below string) (readOnly map[string]bool, absent []string, err error)
}

// Written is a dev container for another program.
type Written struct {
	Confinement
	Files Files    // by their names in Dir
	Notes []string // what is not as the file has it, and what its owner has to know
}

// writing is a file while it is written.
type writing struct {
	evaluation
	confine Confinement
	files   Files          // of the checkout and of features
	plan    map[string]any // what the written file says: values that are made here, with no variables of the host
	mounted []string       // as "docker run --mount" has them
	target  string         // of the checkout, inside
	below   string         // the directory of the checkout that is attached
	changed []LeftOut
	absent  []string
}

// Write returns the files by which another program, such as the reference command line, starts the container of a file
// with a confinement: without a network of its own, with few capabilities, a filter of system calls and limits. They
// are printed of what is understood; what would widen the confinement, and what is not understood, is left out. e is
// what a sandbox takes of the file, with its features, and files are those that it refers to. Errors: InvalidArgument,
// with the line, and Unsupported for a file whose container cannot be confined.
func Write(f File, e *Effective, files Files, c Context, confine Confinement) (*Written, error) {
	w := &writing{evaluation: evaluation{Context: c, file: f, out: e}, confine: confine, files: files,
		plan: map[string]any{}, target: path.Join("/workspaces", path.Base(c.Local)), below: "."}
	w.vars = variables{local: c.Local, localEnv: c.LocalEnv, id: Identity(c.Local, f.Path)}
	if err := w.read(); err != nil {
		return nil, err
	}
	made, err := w.print()
	return &Written{confine, made, w.notes()}, err
}

// notes names what of a file the written one has not, what its programs wish to reach, what was not seen, and what a
// program in the container could make.
func (w *writing) notes() (all []string) {
	for _, l := range w.changed {
		all = append(all, fmt.Sprintf("%s, line %d: %s is left out: %s", l.In(w.out), l.Line, l.Key, l.Why))
	}
	if hosts := slices.Concat(w.out.Network.Asked, w.out.Network.PassThrough); len(hosts) > 0 {
		all = append(all, fmt.Sprintf("%s wishes to reach %s, which the gateway lets it: --allow HOST", w.file.Path,
			strings.Join(hosts, ", ")))
	}
	unread := append([]string{cmp.Or(w.out.Image, "the image that is built")}, w.out.Missing...)
	return append(all, "not looked into: the metadata of "+strings.Join(unread, ", ")+
		", by which the other program may attach this machine, too", "a program in the container could make "+
		strings.Join(w.absent, ", ")+", which programs of yours execute or obey: look for them before you use the directory")
}

// read makes the plan.
func (w *writing) read() error {
	f, e := w.file, w.out
	for _, u := range e.Unsupported {
		if u.Why != notFetched {
			return refused(f, u.Line, u.Key, u.Why)
		}
	}
	all, err := parse(f)
	if err != nil {
		return err
	}
	byName := map[string]property{}
	for _, p := range all {
		byName[p.name] = p
	}
	if p, is := byName["dockerComposeFile"]; is && !empty(p.value) {
		return refused(f, p.line, p.name, "the containers of Compose are not confined")
	}
	for _, place := range []string{w.Local, w.confine.Dir} {
		if !plain(place) {
			return notPlain(place)
		}
	}
	// The places first: the variables of other properties have them.
	if err := w.places(byName["workspaceMount"], byName["workspaceFolder"]); err != nil {
		return err
	}
	for _, p := range all {
		if err := w.member(p); err != nil {
			return err
		}
	}
	for _, do := range []func() error{w.features, w.build, w.guards, w.metadata} {
		if err := do(); err != nil {
			return err
		}
	}
	if err := w.runArgs(byName["runArgs"]); err != nil {
		return err
	}
	w.wait()
	return nil
}

func refused(f File, line int, key, why string) error {
	return cove.Errorf(cove.Unsupported, "%s, line %d: %s: %s", f.Path, line, key, why).
		WithHint("change the file: no container is written meanwhile")
}

// print returns the file, with a copy of the Dockerfile.
func (w *writing) print() (Files, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// Written by \"cove devcontainer write\" from %q: changes belong there.\n", w.file.Path)
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "\t")
	err := e.Encode(w.plan)
	made := Files{fileName: b.Bytes()}
	if build := w.out.Build; build != nil {
		made[dockerfileName] = w.files[build.Dockerfile]
		for _, name := range slices.Backward(build.Ignores()) {
			if text, is := w.files[name]; is {
				made[dockerfileName+".dockerignore"] = text
			}
		}
	}
	return made, err
}

const dockerfileName = "Dockerfile"

func (w *writing) say(p property, key, why string) {
	w.changed = append(w.changed, LeftOut{key, p.file, p.line, why})
}

// member takes a property that others do not depend on.
func (w *writing) member(p property) error {
	if why, is := removed[p.name]; is {
		if !empty(p.value) {
			w.say(p, p.name, why)
		}
		return nil
	}
	switch p.name {
	case "$schema", "image", "build", "dockerFile", "context", "features", "workspaceMount", "workspaceFolder", "runArgs":
		return nil // of others
	case "name":
		return w.textOf(p, printable)
	case "containerUser", "remoteUser":
		return w.textOf(p, userForm)
	case "userEnvProbe", "shutdownAction", "waitFor":
		return w.textOf(p, wordForm)
	case "init", "overrideCommand", "updateRemoteUserUID":
		var is bool
		err := p.into(w.file, &is)
		w.plan[p.name] = is
		return err
	case "containerEnv", "remoteEnv":
		return w.variables(p)
	case "mounts":
		return w.mounts(p)
	case "forwardPorts":
		return w.tree(p)
	}
	if stage(p.name) < 0 && p.name != "customizations" {
		w.say(p, p.name, "Cove does not know it")
	} else if !empty(p.value) {
		return w.tree(p, ofContainer, ofShell)
	}
	return nil
}

// text replaces the variables of a text, with those of the host gone but what the user gives. Errors: InvalidArgument
// for one that is left and may not be.
func (w *writing) text(p property, key, text string, may ...func(string) bool) (string, error) {
	text, unknown := w.vars.expand(text)
	for _, name := range unknown {
		_, variable, _ := strings.Cut(name, ":")
		w.say(p, key, "${"+name+"} is of this machine; --devcontainer-env "+variable+" gives it")
	}
	if left := leftVariable(text, may...); left != "" {
		return "", p.wrong(w.file, "%s: %.200q is no variable that can be here", key, left)
	}
	return text, nil
}

func (w *writing) textOf(p property, form *pattern.Pattern) (err error) {
	var text string
	if p.name == "" || empty(p.value) {
		return nil
	}
	if err := p.into(w.file, &text); err != nil {
		return err
	}
	if text, err = w.text(p, p.name, text); err == nil && text != "" && !form.MatchString(text) {
		err = p.wrong(w.file, "%.200q does not fit here", text)
	}
	w.plan[p.name] = text // if it is empty, others take it as left out
	return err
}

// tree takes a value with all its texts.
func (w *writing) tree(p property, may ...func(string) bool) error {
	var value any
	err := p.into(w.file, &value)
	if err == nil {
		w.plan[p.name], err = walk(value, func(text string) (string, error) { return w.text(p, p.name, text, may...) })
	}
	return err
}

func walk(value any, text func(string) (string, error)) (_ any, err error) {
	switch of := value.(type) {
	case string:
		return text(of)
	case []any:
		for i := range of {
			if of[i], err = walk(of[i], text); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		made := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(of)) {
			name, err := text(key)
			if err == nil {
				made[name], err = walk(of[key], text)
			}
			if err != nil {
				return nil, err
			}
		}
		return made, nil
	}
	return value, nil
}

// variables takes containerEnv or remoteEnv, without the gateway's own.
func (w *writing) variables(p property) error {
	var given map[string]*string
	err := p.into(w.file, &given)
	if err == nil {
		err = w.tree(p, ofContainer)
	}
	taken, _ := w.plan[p.name].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(w.confine.Env)) {
		if _, is := taken[name]; is {
			w.say(p, p.name+"."+name, "the gateway's authority has it")
			delete(taken, name)
		}
	}
	return err
}

// features takes those that the file names, with their options.
func (w *writing) features() error {
	taken := map[string]any{}
	for _, f := range w.out.wanted {
		p := property{name: "features." + f.ID, line: f.line}
		id, remote := strings.CutPrefix(f.Dir, "/")
		var err error
		if !plain(id) && !remote {
			err = notPlain(id)
		} else if !remote {
			id, err = filepath.Rel(w.confine.Dir, filepath.Join(w.Local, id))
		}
		options := map[string]string{}
		for name, value := range f.Options {
			if err == nil {
				options[name], err = w.text(p, p.name, value)
			}
		}
		if taken[id] = options; err != nil {
			return err
		}
	}
	if len(taken) > 0 {
		w.plan["features"] = taken
	}
	return nil
}

// metadata refuses features that would widen the confinement, or read variables of the host: the other program reads
// their files itself.
func (w *writing) metadata() error {
	for _, name := range slices.Sorted(maps.Keys(w.files)) {
		if path.Base(name) != featureName {
			continue
		}
		f := File{name, w.files[name]}
		in := &writing{evaluation: evaluation{Context: w.Context, file: f, vars: w.vars}}
		all, err := parse(f)
		for _, p := range all {
			var value any
			if err = p.into(f, &value); err == nil {
				_, err = walk(value, func(text string) (string, error) {
					if left := leftVariable(text, ofContainer, ofShell); left != "" {
						in.say(p, p.name, left)
					}
					return text, nil
				})
			}
			if _, widens := widening[p.name]; p.name == "mounts" && err == nil {
				err = in.mounts(p)
			} else if widens && !empty(p.value) {
				in.say(p, p.name, "")
			}
			if err == nil && len(in.changed) > 0 {
				err = refused(f, p.line, p.name, "the container would have it, or what this machine has: take it out")
			}
			if err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// build takes the paths of a build: the Dockerfile is copied, and the context passes no symbolic link.
func (w *writing) build() error {
	b := w.out.Build
	if b == nil && w.out.Image != "" {
		w.plan["image"] = w.out.Image
	}
	if b == nil {
		return nil
	}
	p := property{name: "build", line: 1}
	if _, is := w.files[b.Dockerfile]; !is {
		return p.wrong(w.file, "there is no %s", b.Dockerfile)
	}
	if err := w.directory(p, b.Context); err != nil {
		return err
	}
	if b.Target != "" && !nameForm.MatchString(b.Target) {
		return p.wrong(w.file, "%.200q is no target", b.Target)
	}
	args := map[string]string{}
	for name, value := range b.Args {
		var err error
		if args[name], err = w.text(p, "build.args."+name, value); err != nil {
			return err
		}
	}
	for _, l := range w.out.LeftOut {
		if strings.HasPrefix(l.Key, "build.") {
			w.changed = append(w.changed, l)
		}
	}
	w.plan["build"] = map[string]any{"dockerfile": dockerfileName, "context": filepath.Join(w.Local, b.Context),
		"target": b.Target, "args": args}
	return nil
}

// directory refuses a directory of the checkout that a symbolic link leads to, which could lead elsewhere by then.
func (w *writing) directory(p property, name string) error {
	at := "."
	for part := range strings.SplitSeq(name, "/") {
		at = path.Join(at, part)
		if info, err := fs.Lstat(w.Checkout, at); err != nil || !info.IsDir() {
			return p.wrong(w.file, "%.200q is no directory of the repository", at)
		}
		if !plain(at) {
			return notPlain(at)
		}
	}
	return nil
}

// places takes the directory of the checkout that is attached, its place, and where programs begin.
func (w *writing) places(mount, folder property) error {
	if err := w.textOf(mount, printable); err != nil {
		return err
	}
	if text, is := w.plan[mount.name].(string); is {
		m := mountFields(text)
		below, err := w.inCheckout(mount, m["source"], ".")
		if m["type"] != "bind" || err != nil || !isPlace(m["target"]) || !only(m, "type", "source", "target", "consistency") {
			w.say(mount, mount.name, "a directory of the checkout is attached, and nothing else")
		} else if err := w.directory(mount, below); err != nil {
			return err
		} else {
			w.below, w.target = below, m["target"]
		}
	}
	w.plan["workspaceMount"] = bind(filepath.Join(w.Local, w.below), w.target)
	w.plan["workspaceFolder"] = w.target
	err := w.textOf(folder, printable)
	if w.vars.container, _ = w.plan["workspaceFolder"].(string); err == nil && !isPlace(w.vars.container) {
		err = folder.wrong(w.file, "%.200q is no place in a container", w.vars.container)
	}
	return err
}

func bind(source, target string) string { return "type=bind,source=" + source + ",target=" + target }

// guards attaches parts of the checkout once more, over it: after the mounts of the file, so that these stay.
func (w *writing) guards() error {
	readOnly, absent, err := w.confine.Guards(w.below)
	if w.absent = absent; err != nil {
		return err
	}
	if w.out.Build != nil { // another directory must not take the place of the context
		below, err := filepath.Rel(w.below, w.out.Build.Context)
		for ; err == nil && filepath.IsLocal(below) && below != "."; below = path.Dir(below) {
			readOnly[below] = readOnly[below]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(readOnly)) {
		above := path.Dir(name)
		for above != "." && !readOnly[above] {
			above = path.Dir(above)
		}
		if !plain(name) {
			return notPlain(name)
		}
		text := bind(filepath.Join(w.Local, w.below, name), path.Join(w.target, name))
		if readOnly[name] {
			text += ",readonly"
		}
		if above == "." {
			w.mounted = append(w.mounted, text)
		}
	}
	w.plan["mounts"] = w.mounted
	return nil
}

// only reports whether a mount has no other fields.
func only(mount map[string]string, fields ...string) bool {
	for name := range mount {
		if !slices.Contains(fields, name) {
			return false
		}
	}
	return true
}

// mounts takes volumes of this container alone, and prints them anew.
func (w *writing) mounts(p property) error {
	for _, raw := range p.each() {
		m := map[string]string{}
		var line string
		if err := json.Unmarshal(raw, &line); err == nil {
			m = mountFields(line)
		} else if err := json.Unmarshal(raw, &m); err != nil {
			return p.wrong(w.file, "a mount is a text, or an object of texts")
		}
		var err error
		for name, text := range m {
			if m[name], err = w.text(p, p.name, text); err != nil {
				return err
			}
		}
		source, target := m["source"], m["target"]
		own := m["type"] == "tmpfs" && source == "" || m["type"] == "volume" && (source == "" ||
			strings.Contains(source, w.vars.id) && nameForm.MatchString(source))
		if !own || !isPlace(target) || !only(m, "type", "source", "target") {
			w.say(p, p.name+" "+string(raw), "of mounts, volumes of this container are kept: those without a source, or with "+
				"${devcontainerId} in it")
			continue
		}
		text := "type=" + m["type"]
		if source != "" {
			text += ",source=" + source
		}
		w.mounted = append(w.mounted, text+",target="+target)
	}
	return nil
}

// runArgs takes options that widen nothing, and adds those of the confinement.
func (w *writing) runArgs(p property) error {
	var given []string
	if p.name != "" {
		if err := p.into(w.file, &given); err != nil {
			return err
		}
	}
	least := lower(lower(w.Limits, w.out.Limits), cove.Limits{CPUs: w.Machine.CPUs}) // Docker takes no more than there are
	args := []string{"--label=" + w.confine.Label, "--network=none", "--security-opt=no-new-privileges",
		"--security-opt=seccomp=" + filepath.Join(w.confine.Dir, w.confine.Seccomp), "--cap-drop=ALL"}
	for _, c := range w.confine.Capabilities {
		args = append(args, "--cap-add="+c)
	}
	for option, value := range options(given) {
		said := p.name + " " + strings.TrimSpace(option+" "+value)
		value, err := w.text(p, said, value)
		if err != nil {
			return err
		}
		_, limit := limitArgs[option]
		long := cmp.Or(longArgs[option], option)
		flag := slices.Contains(single, option)
		switch {
		case noEffect(option, value) && !slices.Contains(keptArgs, option):
		case limit: // the lower one is taken
		case slices.Contains(keptArgs, long) && flag && value == "":
			args = append(args, long)
		case slices.Contains(keptArgs, long) && !flag && printable.MatchString(value) &&
			(long != "--env" || strings.Contains(value, "=")):
			args = append(args, long+"="+value)
		case option == "--network" || option == "--net":
			w.say(p, said, "the gateway is the network")
		default:
			w.say(p, said, "it is not known to widen nothing")
		}
	}
	if least.Memory > 0 {
		args = append(args, "--memory="+sizeText(least.Memory))
	}
	if least.CPUs > 0 {
		args = append(args, fmt.Sprint("--cpus=", least.CPUs))
	}
	if least.PIDs > 0 {
		args = append(args, fmt.Sprint("--pids-limit=", least.PIDs))
	}
	w.plan["runArgs"] = args
	return nil
}

// wait has the first of the commands that run once wait for the gateway, and that of each start. It adds the variables
// of the confinement.
func (w *writing) wait() {
	first := "postCreateCommand"
	for _, m := range lifecycle[:2] {
		if w.plan[m.name] != nil {
			first = m.name
			break
		}
	}
	for _, name := range []string{first, "postStartCommand"} {
		named, is := w.plan[name].(map[string]any)
		for key, step := range named {
			named[key] = w.after(step)
		}
		if !is && (name == first || w.plan[name] != nil) {
			w.plan[name] = w.after(w.plan[name])
		}
	}
	all := map[string]any{}
	if given, is := w.plan["containerEnv"].(map[string]any); is {
		all = given
	}
	for name, value := range w.confine.Env {
		all[name] = value
	}
	w.plan["containerEnv"] = all
}

func (w *writing) after(command any) any {
	switch c := command.(type) {
	case string:
		return "(" + w.confine.Wait + ") || exit\n" + c
	case []any:
		if len(c) > 0 {
			return append([]any{"/bin/sh", "-c", "(" + w.confine.Wait + ") && exec \"$@\"", "sh"}, c...)
		}
	}
	return w.confine.Wait
}
