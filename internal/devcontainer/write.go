package devcontainer

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/cove-sandbox/cove"
)

// Confinement separates a container, whose programs are not trusted, from the host.
type Confinement struct {
	Capabilities []string          // of root inside; it has no others
	Seccomp      string            // path of the filter, from the top of the checkout
	Env          map[string]string // has programs trust the gateway
	// Wait is a line of sh that ends when the container's network is attached to the gateway.
	Wait string
}

// Written is a devcontainer.json for other programs that start containers.
type Written struct {
	Data    []byte
	Changed []LeftOut // properties that are not as the file has them
}

// writing is a file while it is rewritten.
type writing struct {
	evaluation
	confine Confinement
	root    hujson.Value
	back    string // path from the directory of the written file to that of the file
	changed []LeftOut
	err     error // of an edit
}

// Write returns the devcontainer.json of OwnFile, which has another program, such as the reference command line, start
// the container of a file with a confinement: without a network of its own, with few capabilities, a filter of system
// calls and limits. e is what a sandbox takes of the file, with its features. Comments stay. What would widen the
// confinement is left out. Errors: InvalidArgument, with the line, and Unsupported for a file whose container cannot be
// confined.
func Write(f File, e *Effective, c Context, confine Confinement) (*Written, error) {
	refused := func(l LeftOut, of string) error {
		return cove.Errorf(cove.Unsupported, "%s, line %d: %s: %s", f.Path, l.Line, l.Key, of)
	}
	for _, u := range e.Unsupported {
		if u.Key == "dockerComposeFile" || strings.HasSuffix(u.Key, ".isolation.enabled") {
			return nil, refused(u, u.Why)
		}
	}
	for _, l := range e.LeftOut {
		key := strings.Split(l.Key, ".")
		if _, widens := widening[key[len(key)-1]]; widens && key[0] == "features" {
			return nil, refused(l, "the container would have it: take it out of the feature")
		}
	}
	all, err := parse(f)
	if err != nil {
		return nil, err
	}
	w := &writing{evaluation: evaluation{Context: c, file: f, out: e}, confine: confine}
	w.vars.localEnv = c.LocalEnv
	back, err := filepath.Rel(path.Dir(OwnFile), path.Dir(f.Path))
	if err != nil {
		return nil, err
	}
	w.back = filepath.ToSlash(back)
	if w.root, err = hujson.Parse(withoutMark(f.Data)); err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "%s: %w", f.Path, err)
	}
	for _, p := range all {
		w.withoutHost(w.root.Find(pointer(p.name)), p)
	}
	if all, err = parse(File{f.Path, w.root.Pack()}); err != nil { // what is rewritten has no variables of the host
		return nil, err
	}
	byName := map[string]property{}
	for _, p := range all {
		byName[p.name] = p
		if err := w.member(p); err != nil {
			return nil, err
		}
	}
	if err := w.runArgs(byName["runArgs"]); err != nil {
		return nil, err
	}
	if err := w.environment(byName); err != nil {
		return nil, err
	}
	w.commands(byName)
	if w.err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "%s: %w", f.Path, w.err)
	}
	w.root.Format()
	head := "// Written by \"cove devcontainer write\" for an image.\n"
	if f.Path != OwnFile {
		head = fmt.Sprintf("// Written by \"cove devcontainer write\" from %s: changes belong there.\n", f.Path)
	}
	return &Written{append([]byte(head), w.root.Pack()...), w.changed}, nil
}

// pointer is the JSON pointer of a path.
func pointer(names ...string) string {
	var all strings.Builder
	for _, name := range names {
		all.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return all.String()
}

func (w *writing) edit(op, at string, value any) {
	operation := map[string]any{"op": op, "path": at}
	if op != "remove" {
		operation["value"] = value
	}
	patch, err := json.Marshal([]any{operation})
	if err == nil {
		err = w.root.Patch(patch)
	}
	if err != nil && w.err == nil {
		w.err = err
	}
}

func (w *writing) set(value any, at ...string) { w.edit("add", pointer(at...), value) } // it replaces one that is there

func (w *writing) remove(at ...string) { w.edit("remove", pointer(at...), nil) }

func (w *writing) say(p property, key, why string) {
	w.changed = append(w.changed, LeftOut{key, p.file, p.line, why})
}

// drop removes a property and says why.
func (w *writing) drop(p property, why string, below ...string) {
	w.remove(append([]string{p.name}, below...)...)
	w.say(p, strings.Join(append([]string{p.name}, below...), "."), why)
}

// withoutHost takes the host's variables out of all texts of a value, but those that the user gives.
func (w *writing) withoutHost(of *hujson.Value, p property) {
	if of == nil {
		return
	}
	for v := range of.All() {
		l, is := v.Value.(hujson.Literal)
		if !is || l.Kind() != '"' || !strings.Contains(l.String(), "${") {
			continue
		}
		text := l.String()
		for _, m := range hostVariable.FindAllStringSubmatch(text, -1) {
			name, fallback, _ := strings.Cut(m[1], ":")
			if _, given := w.LocalEnv[name]; given {
				continue
			}
			text = strings.ReplaceAll(text, m[0], fallback)
			w.say(p, p.name, "${localEnv:"+name+"} is of this machine; --devcontainer-env "+name+" leaves it")
		}
		if text != l.String() {
			v.Value = hujson.String(text)
		}
	}
}

// member rewrites a property that others do not depend on.
func (w *writing) member(p property) error {
	if why, is := removed[p.name]; is {
		if empty(p.value) {
			w.remove(p.name)
		} else {
			w.drop(p, why)
		}
		return nil
	}
	switch p.name {
	case "build":
		return w.build(p)
	case "dockerFile", "context":
		return w.path(p, p.name)
	case "features":
		return w.features(p)
	case "overrideFeatureInstallOrder":
		var ids []string
		if err := p.into(w.file, &ids); err != nil {
			return err
		}
		for i, id := range ids {
			ids[i] = w.moved(id, true)
		}
		w.set(ids, p.name)
	case "mounts":
		return w.mounts(p)
	case "workspaceMount":
		var mount string
		if err := p.into(w.file, &mount); err != nil {
			return err
		}
		m := mountFields(mount)
		if m["type"] != "bind" || !ofCheckout.MatchString(m["source"]) ||
			!only(m, "type", "source", "target", "consistency") {
			w.drop(p, "it attaches other directories than the checkout")
		}
	case "hostRequirements":
		var need map[string]json.RawMessage
		if err := p.into(w.file, &need); err != nil {
			return err
		}
		if gpu, is := need["gpu"]; is && !empty(gpu) {
			w.drop(p, "a device would be the container's", "gpu")
		}
	}
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

// moved returns a path relative to the directory of the file, relative to that of the written one.
func (w *writing) moved(name string, feature bool) string {
	relative := strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../")
	if feature && !relative || path.IsAbs(name) || strings.HasPrefix(name, "${") {
		return name
	}
	return path.Join(w.back, name)
}

func (w *writing) path(p property, at ...string) error {
	var name string
	if err := p.into(w.file, &name); err != nil {
		return err
	}
	w.set(w.moved(name, false), at...)
	return nil
}

// build moves the paths of a build, and takes the options of the program that builds.
func (w *writing) build(p property) error {
	var given map[string]json.RawMessage
	if err := p.into(w.file, &given); err != nil {
		return err
	}
	for _, key := range []string{"dockerfile", "context"} {
		if value, is := given[key]; is {
			if err := w.path(property{name: p.name + "." + key, line: p.line, value: value}, p.name, key); err != nil {
				return err
			}
		}
	}
	if given["dockerfile"] != nil && given["context"] == nil {
		w.set(w.moved(".", false), p.name, "context")
	}
	if options, is := given["options"]; is && !empty(options) {
		w.drop(p, "they may attach the network or directories of this machine", "options")
	}
	return nil
}

// features moves the paths of features.
func (w *writing) features(p property) error {
	var given map[string]json.RawMessage
	if err := p.into(w.file, &given); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(given)) {
		moved := w.moved(id, true)
		if moved == id {
			continue
		}
		options := given[id]
		w.remove(p.name, id)
		w.set(options, p.name, moved)
	}
	return nil
}

// mounts keeps volumes of this container alone.
func (w *writing) mounts(p property) error {
	var given []json.RawMessage
	if err := p.into(w.file, &given); err != nil {
		return err
	}
	kept := []json.RawMessage{}
	for _, raw := range given {
		m := map[string]string{}
		var text string
		if err := json.Unmarshal(raw, &text); err == nil {
			m = mountFields(text)
		} else if err := json.Unmarshal(raw, &m); err != nil {
			return p.wrong(w.file, "a mount is a text, or an object of texts")
		}
		own := m["type"] == "tmpfs" || m["type"] == "volume" && (m["source"] == "" ||
			strings.Contains(m["source"], "${devcontainerId}"))
		if own && only(m, "type", "source", "target") {
			kept = append(kept, raw)
			continue
		}
		w.say(p, p.name+" "+string(raw), "of mounts, volumes of this container are kept: those without a source, or with "+
			"${devcontainerId} in it")
	}
	w.set(kept, p.name)
	return nil
}

// mountFields reads a mount as "docker run --mount" has it, with the first name of each field.
func mountFields(text string) map[string]string {
	m := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "src":
			name = "source"
		case "dst", "destination":
			name = "target"
		}
		m[name] = value
	}
	return m
}

// runArgs keeps options that widen nothing, and adds those of the confinement.
func (w *writing) runArgs(p property) error {
	var given []string
	if p.name != "" {
		if err := p.into(w.file, &given); err != nil {
			return err
		}
	}
	least := lower(lower(w.Limits, w.out.Limits), cove.Limits{CPUs: w.Machine.CPUs}) // Docker takes no more than there are
	args := []string{"--network=none", "--security-opt=no-new-privileges",
		"--security-opt=seccomp=${localWorkspaceFolder}/" + w.confine.Seccomp, "--cap-drop=ALL"}
	for _, c := range w.confine.Capabilities {
		args = append(args, "--cap-add="+c)
	}
	for option, value := range options(given) {
		text := strings.TrimSpace(option + " " + value)
		_, limit := limitArgs[option]
		switch {
		case noEffect(option, value) && option != "--init" && option != "--rm" && option != "--read-only":
		case limit: // the lower one is taken
		case slices.Contains(keptArgs, option) && (option != "--env" && option != "-e" || strings.Contains(value, "=")):
			if args = append(args, option); value != "" || !slices.Contains(single, option) {
				args = append(args, value)
			}
		case option == "--network" || option == "--net":
			w.say(p, p.name+" "+text, "the gateway is the network")
		default:
			w.say(p, p.name+" "+text, "it is not known to widen nothing")
		}
	}
	for _, limit := range []struct {
		option string
		value  string
		is     bool
	}{
		{"--memory", sizeText(least.Memory), least.Memory > 0},
		{"--cpus", fmt.Sprint(least.CPUs), least.CPUs > 0},
		{"--pids-limit", strconv.FormatInt(least.PIDs, 10), least.PIDs > 0},
	} {
		if limit.is {
			args = append(args, limit.option+"="+limit.value)
		}
	}
	w.set(args, "runArgs")
	return nil
}

// environment adds the variables of the confinement, which win.
func (w *writing) environment(byName map[string]property) error {
	for _, name := range []string{"containerEnv", "remoteEnv"} {
		p, is := byName[name]
		var given map[string]*string
		if is {
			if err := p.into(w.file, &given); err != nil {
				return err
			}
		}
		for _, key := range slices.Sorted(maps.Keys(given)) {
			if _, own := w.confine.Env[key]; own {
				w.drop(p, "the gateway's authority has it", key)
			}
		}
		if name == "containerEnv" && !is {
			w.set(map[string]string{}, name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.confine.Env)) {
		w.set(w.confine.Env[key], "containerEnv", key)
	}
	return nil
}

// commands has the first of the commands that run once wait for the gateway, and that of each start.
func (w *writing) commands(byName map[string]property) {
	first := slices.IndexFunc(lifecycle[:2], func(m moment) bool { return !empty(valueOf(byName[m.name])) })
	name := "postCreateCommand"
	if first >= 0 {
		name = lifecycle[first].name
	}
	w.chain(name, byName[name])
	if start := byName["postStartCommand"]; !empty(valueOf(start)) {
		w.chain(start.name, start)
	}
}

func valueOf(p property) json.RawMessage {
	if p.name == "" {
		return json.RawMessage("null")
	}
	return p.value
}

// chain has a command wait first, in whichever form it is: a string, an array, or an object of both.
func (w *writing) chain(name string, p property) {
	var command any
	if err := json.Unmarshal(valueOf(p), &command); err != nil {
		w.err = err
		return
	}
	if named, is := command.(map[string]any); is && len(named) > 0 {
		for key, step := range named {
			named[key] = w.after(step)
		}
		w.set(named, name)
		return
	}
	w.set(w.after(command), name)
}

func (w *writing) after(command any) any {
	switch c := command.(type) {
	case string:
		if c != "" {
			return "(" + w.confine.Wait + ") || exit\n" + c
		}
	case []any:
		if len(c) > 0 {
			return append([]any{"/bin/sh", "-c", "(" + w.confine.Wait + ") && exec \"$@\"", "sh"}, c...)
		}
	}
	return w.confine.Wait
}
