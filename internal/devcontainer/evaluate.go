package devcontainer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/runtime"
)

// Context holds the values of the user against which a file is judged.
type Context struct {
	Local    string            // directory of the checkout on the host
	LocalEnv map[string]string // of the host's environment, what the user's configuration names
	Limits   cove.Limits       // of the sandbox without the file
	Allowed  []string          // HOST and *.HOST that it may reach without the file
	Machine  cove.Limits       // what there is: cores and memory; zero is not known
}

// Origins of a Value, beside the file.
const (
	FromUser    = "the user's configuration"
	FromDefault = "default"
	FromCove    = "Cove"
)

// Value is one effective value, and whence it is.
type Value struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	From  string `json:"from"` // FILE:LINE, or an origin
}

// LeftOut is a property of the file that a sandbox does not take.
type LeftOut struct {
	Key  string `json:"key"`
	Line int    `json:"line"`
	Why  string `json:"why"`
}

// Effective holds the values that a sandbox takes of a devcontainer.json.
type Effective struct {
	File     string            `json:"file"`
	Name     string            `json:"name,omitempty"`
	Image    string            `json:"image,omitempty"` // empty is the user's own
	Env      map[string]string `json:"env,omitempty"`
	WorkDir  string            `json:"work_dir"` // absolute, inside
	Limits   cove.Limits       `json:"-"`        // only those that are lower than the user's
	Network  Network           `json:"network"`
	Commands []Command         `json:"commands,omitempty"`
	// Unsupported are properties without which the sandbox would not be what the file describes.
	Unsupported []LeftOut `json:"unsupported,omitempty"`
	LeftOut     []LeftOut `json:"left_out,omitempty"`
	Values      []Value   `json:"values"`
	// Refers are files of the checkout that belong to what the user agrees to.
	Refers []string `json:"refers,omitempty"`
}

// Err refuses a file that has properties which are not supported. Errors: Unsupported.
func (e *Effective) Err() error {
	if len(e.Unsupported) == 0 {
		return nil
	}
	u := e.Unsupported[0]
	return cove.Errorf(cove.Unsupported, "%s, line %d: %s: %s", e.File, u.Line, u.Key, u.Why).
		WithHint("--no-devcontainer leaves the file alone")
}

// evaluation is one file while it is judged.
type evaluation struct {
	Context
	file  File
	vars  variables
	mount string // where the file has the checkout inside
	wish  cove.Limits
	out   *Effective
}

// Evaluate judges a file. Errors: InvalidArgument, with the line.
func Evaluate(f File, c Context) (*Effective, error) {
	all, err := parse(f)
	if err != nil {
		return nil, err
	}
	v := &evaluation{Context: c, file: f, out: &Effective{File: f.Path, WorkDir: cove.Workspace}}
	v.vars = variables{local: c.Local, container: cove.Workspace, localEnv: c.LocalEnv, id: identity(c.Local, f.Path)}
	byName := map[string]property{}
	for _, p := range all {
		byName[p.name] = p
	}
	// The folder and the container's environment first: the values of others refer to them.
	for _, name := range []string{"workspaceMount", "workspaceFolder", "containerEnv"} {
		if p, ok := byName[name]; ok {
			if err := v.property(p); err != nil {
				return nil, err
			}
			delete(byName, name)
		}
	}
	for _, p := range all {
		if _, left := byName[p.name]; !left {
			continue
		}
		if err := v.property(p); err != nil {
			return nil, err
		}
	}
	v.conclude()
	return v.out, nil
}

// conclude adds what the file does not say, and narrows the limits.
func (v *evaluation) conclude() {
	e := v.out
	slices.SortStableFunc(e.Commands, func(a, b Command) int { return stage(a.Name) - stage(b.Name) })
	slices.SortStableFunc(e.LeftOut, func(a, b LeftOut) int { return cmp.Compare(a.Line, b.Line) })
	if e.Image == "" && len(e.Unsupported) == 0 {
		v.add("image", "the image of sandboxes that name none", FromUser)
	}
	if !slices.ContainsFunc(e.Values, func(v Value) bool { return v.Key == "workspaceFolder" }) {
		v.add("workspaceFolder", e.WorkDir, FromDefault)
	}
	v.add("user", "cove", FromCove)
	v.add("init", "true", FromCove)
	v.add("capabilities", "none", FromCove)
	least := lower(v.Limits, v.wish)
	for _, l := range []struct {
		key               string
		least, users, own float64
		text              string
	}{
		{"memory", float64(least.Memory), float64(v.Limits.Memory), float64(v.wish.Memory), sizeText(least.Memory)},
		{"cpus", least.CPUs, v.Limits.CPUs, v.wish.CPUs, fmt.Sprint(least.CPUs)},
		{"pids", float64(least.PIDs), float64(v.Limits.PIDs), float64(v.wish.PIDs), fmt.Sprint(least.PIDs)},
		{"disk", float64(least.Disk), float64(v.Limits.Disk), float64(v.wish.Disk), sizeText(least.Disk)},
	} {
		switch {
		case l.least == 0:
		case l.least == l.own && l.own != l.users:
			v.add(l.key, l.text, v.file.Path)
		case l.own > l.users:
			v.add(l.key, l.text, FromUser+", which is lower than the file's")
		default:
			v.add(l.key, l.text, FromUser)
		}
	}
	e.Limits = cove.Limits{}
	if least.Memory != v.Limits.Memory {
		e.Limits.Memory = least.Memory
	}
	if least.CPUs != v.Limits.CPUs {
		e.Limits.CPUs = least.CPUs
	}
	if least.PIDs != v.Limits.PIDs {
		e.Limits.PIDs = least.PIDs
	}
}

func (v *evaluation) add(key, value, from string) {
	v.out.Values = append(v.out.Values, Value{key, value, from})
}

func (v *evaluation) at(p property) string { return fmt.Sprintf("%s:%d", v.file.Path, p.line) }

func (v *evaluation) take(p property, key, value string) { v.add(key, value, v.at(p)) }

func (v *evaluation) leave(p property, key, why string) {
	v.out.LeftOut = append(v.out.LeftOut, LeftOut{key, p.line, why})
}

func (v *evaluation) refuse(p property, key, why string) {
	v.out.Unsupported = append(v.out.Unsupported, LeftOut{key, p.line, why})
}

// never are properties that are left out whatever they say.
var never = map[string]string{
	"initializeCommand":    "it would run on this machine, outside of the sandbox",
	"forwardPorts":         "no port of a sandbox is published on this machine",
	"appPort":              "no port of a sandbox is published on this machine",
	"portsAttributes":      "no port of a sandbox is published on this machine",
	"otherPortsAttributes": "no port of a sandbox is published on this machine",
	"shutdownAction":       "\"cove stop\" and \"cove destroy\" end a sandbox",
	"overrideCommand":      "a sandbox runs Cove's guest, and the image's command not",
	"updateRemoteUserUID":  "the checkout belongs to the sandbox's own user anyway",
	"userEnvProbe":         "the environment is what the image and the file say",
	"secrets":              "there is no secret in a sandbox; the gateway sets credentials: --credential NAME",
	"containerUser":        "programs run as the sandbox's own user",
	"runServices":          "it is about Docker Compose",
	"service":              "it is about Docker Compose",
}

// unsupported are properties without which a sandbox would be another one.
var unsupported = map[string]string{
	"build":             "images are not built here; build it elsewhere and name it in \"image\"",
	"dockerFile":        "images are not built here; build it elsewhere and name it in \"image\"",
	"features":          "features are not installed; use an image that has them",
	"dockerComposeFile": "Docker Compose is not supported; use \"image\"",
}

// widening are properties that would weaken the wall; false and empty values of them do not.
var widening = map[string]string{
	"privileged":  "it would take the wall away",
	"capAdd":      "programs in a sandbox have no capabilities",
	"securityOpt": "the filter of system calls stays; docs/system-calls.md says what it refuses, as debuggers",
	"mounts":      "a file of a repository attaches nothing; do it yourself: --mount SOURCE:TARGET",
}

// property judges one member of the file.
func (v *evaluation) property(p property) error {
	if why, ok := never[p.name]; ok {
		v.leave(p, p.name, why)
		return nil
	}
	if why, ok := unsupported[p.name]; ok {
		return v.another(p, why)
	}
	if why, ok := widening[p.name]; ok {
		if !empty(p.value) {
			v.leave(p, p.name, why)
		}
		return nil
	}
	if i := stage(p.name); i >= 0 {
		return v.command(p, lifecycle[i].when)
	}
	switch p.name {
	case "$schema", "init", "overrideFeatureInstallOrder":
		return nil // init is Cove's anyway
	case "name":
		return v.name(p)
	case "image":
		return v.image(p)
	case "workspaceMount":
		return v.workspaceMount(p)
	case "workspaceFolder":
		return v.workspaceFolder(p)
	case "containerEnv", "remoteEnv":
		return v.environment(p)
	case "remoteUser":
		return v.user(p)
	case "runArgs":
		return v.runArgs(p)
	case "hostRequirements":
		return v.hostRequirements(p)
	case "waitFor":
		return v.waitFor(p)
	case "customizations":
		return v.customizations(p)
	}
	v.leave(p, p.name, "Cove does not know it")
	return nil
}

func empty(value json.RawMessage) bool {
	return slices.Contains([]string{"false", "null", "[]", "{}", `""`},
		strings.Join(strings.Fields(string(value)), ""))
}

// another refuses a property that describes another environment, and notes the files that it names.
func (v *evaluation) another(p property, why string) error {
	if empty(p.value) {
		return nil
	}
	v.refuse(p, p.name, why)
	var named struct {
		Dockerfile string `json:"dockerfile"`
	}
	if p.name == "build" {
		if err := p.into(v.file, &named); err != nil {
			return err
		}
	}
	if p.name == "dockerFile" {
		if err := p.into(v.file, &named.Dockerfile); err != nil {
			return err
		}
	}
	if d := named.Dockerfile; d != "" {
		v.out.Refers = append(v.out.Refers, path.Join(path.Dir(v.file.Path), d))
	}
	return nil
}

func (v *evaluation) text(p property) (string, error) {
	var s string
	err := p.into(v.file, &s)
	s, _ = v.vars.expand(s)
	return s, err
}

func (v *evaluation) name(p property) error {
	name, err := v.text(p)
	v.out.Name = name
	v.take(p, p.name, name)
	return err
}

// image takes a reference only: a file must not name directories of the host.
func (v *evaluation) image(p property) error {
	name, err := v.text(p)
	if err != nil {
		return err
	}
	if name == "" {
		return p.wrong(v.file, "it is empty")
	}
	scheme, _, _ := strings.Cut(name, ":")
	if name == "host" || slices.Contains([]string{"dir", "tar", "oci", "file"}, scheme) || strings.HasPrefix(name, "/") {
		v.refuse(p, p.name, "a file of a repository names an image by a reference, and nothing of this machine")
		return nil
	}
	v.out.Image = name
	v.take(p, p.name, name)
	return nil
}

func (v *evaluation) workspaceMount(p property) error {
	mount, err := v.text(p)
	for part := range strings.SplitSeq(mount, ",") {
		for _, key := range []string{"target=", "destination=", "dst="} {
			if target, ok := strings.CutPrefix(part, key); ok {
				v.mount = path.Clean(target)
			}
		}
	}
	v.leave(p, p.name, "the checkout of a sandbox is its own, at "+cove.Workspace)
	return err
}

// workspaceFolder takes the directory in which programs begin. The checkout of a sandbox is at cove.Workspace, wherever
// the file has it.
func (v *evaluation) workspaceFolder(p property) error {
	dir, err := v.text(p)
	if err != nil {
		return err
	}
	mount := cmp.Or(v.mount, path.Join("/workspaces", path.Base(v.Local)))
	dir = path.Clean(dir)
	switch below, ok := strings.CutPrefix(dir+"/", mount+"/"); {
	case dir == cove.Workspace || strings.HasPrefix(dir, cove.Workspace+"/"):
		v.out.WorkDir = dir
	case ok:
		v.out.WorkDir = path.Join(cove.Workspace, below)
	default:
		v.leave(p, p.name, "the checkout of a sandbox is at "+cove.Workspace)
		return nil
	}
	v.vars.container = v.out.WorkDir
	v.take(p, p.name, v.out.WorkDir)
	return nil
}

// environment takes variables that a caller may set, whose values are known before the sandbox is.
func (v *evaluation) environment(p property) error {
	var given map[string]*string
	if err := p.into(v.file, &given); err != nil {
		return err
	}
	vars := v.vars
	if p.name == "remoteEnv" {
		vars.containerEnv = map[string]string{} // not nil: it may be referred to
		maps.Copy(vars.containerEnv, v.out.Env)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		key := p.name + "." + name
		if given[name] == nil {
			v.leave(p, key, "null unsets nothing: leave the variable out")
			continue
		}
		value, unknown := vars.expand(*given[name])
		if len(unknown) > 0 {
			v.leave(p, key, unknownWhy(unknown[0]))
			continue
		}
		if err := runtime.CheckEnv(map[string]string{name: value}); err != nil {
			v.leave(p, key, cove.ErrorMessage(err))
			continue
		}
		if v.out.Env == nil {
			v.out.Env = map[string]string{}
		}
		v.out.Env[name] = value
		v.take(p, key, value)
	}
	return nil
}

func unknownWhy(variable string) string {
	if name, ok := strings.CutPrefix(variable, "containerEnv:"); ok {
		return "it needs " + name + " of the image's environment, which is not known before"
	}
	_, name, _ := strings.Cut(variable, ":")
	return "it needs " + name + " of this machine's environment; --devcontainer-env " + name + " gives it"
}

func (v *evaluation) user(p property) error {
	name, err := v.text(p)
	if err != nil || name == "cove" {
		return err
	}
	why := "programs run as the sandbox's own user, cove"
	if name == "root" {
		why += "; --root has them be root inside"
	}
	v.leave(p, p.name+" "+name, why)
	return nil
}

func (v *evaluation) waitFor(p property) error {
	name, err := v.text(p)
	if err == nil {
		v.add(p.name, "the last command that runs once or at each start, not only "+name, FromCove)
	}
	return err
}

func (v *evaluation) command(p property, when When) error {
	all, err := steps(v.file, p, v.vars)
	if err != nil || len(all) == 0 {
		return err
	}
	v.out.Commands = append(v.out.Commands, Command{p.name, when, all, v.at(p)})
	for _, s := range all {
		v.take(p, strings.TrimSuffix(p.name+"."+s.Name, ".")+" ("+string(when)+")", strings.Join(s.Args, " "))
	}
	return nil
}
