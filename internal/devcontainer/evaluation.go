package devcontainer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
)

// evaluation is one file while it is judged.
type evaluation struct {
	Context
	file  File
	vars  variables
	mount string   // where the file has the checkout inside
	asked property // that which says the user
	// buildLine is a line about the build.
	buildLine int
	composed  bool        // of files of Compose
	service   string      // of Compose, which is the sandbox
	limits    cove.Limits // of that service
	limitsIn  string      // its file
	wish      cove.Limits
	names     map[string]bool // of properties that say something
	out       *Effective
}

func (v *evaluation) origin(key string) string { return cmp.Or(v.Origins[key], FromUser) }

func (v *evaluation) add(key, value, from string) {
	v.out.Values = append(v.out.Values, Value{key, value, from})
}

func (v *evaluation) at(p property) string {
	return fmt.Sprintf("%s:%d", cmp.Or(p.file, v.file.Path), p.line)
}

func (v *evaluation) take(p property, key, value string) { v.add(key, value, v.at(p)) }

func (v *evaluation) leave(p property, key, why string) {
	v.out.LeftOut = append(v.out.LeftOut, LeftOut{key, p.file, p.line, why})
}

func (v *evaluation) refuse(p property, key, why string) {
	v.out.Unsupported = append(v.out.Unsupported, LeftOut{key, p.file, p.line, why})
}

func (v *evaluation) text(p property) (string, error) {
	var s string
	err := p.into(v.file, &s)
	s, _ = v.vars.expand(s)
	return s, err
}

func empty(value json.RawMessage) bool {
	return slices.Contains([]string{"false", "null", "[]", "{}", `""`},
		strings.Join(strings.Fields(string(value)), ""))
}

func unknownWhy(variable string) string {
	if name, ok := strings.CutPrefix(variable, "containerEnv:"); ok {
		return "it needs " + name + " of the image's environment, which is not known before"
	}
	_, name, _ := strings.Cut(variable, ":")
	return "it needs " + name + " of this machine's environment; --devcontainer-env " + name + " gives it"
}

// never are properties that are left out whatever they say.
var never = map[string]string{
	"initializeCommand":    "it would run on this machine, outside of the sandbox",
	"portsAttributes":      "an editor shows ports by it; \"cove forward\" has no use for it",
	"otherPortsAttributes": "an editor shows ports by it; \"cove forward\" has no use for it",
	"shutdownAction":       "\"cove stop\" and \"cove destroy\" end a sandbox",
	"overrideCommand":      "a sandbox runs Cove's guest, and the image's command not",
	"updateRemoteUserUID":  "the checkout belongs to the sandbox's own user anyway",
	"userEnvProbe":         "the environment is what the image and the file say",
	"secrets":              "there is no secret in a sandbox; the gateway sets credentials: --credential NAME",
}

// widening are properties that would weaken the wall; false and empty values of them do not.
var widening = map[string]string{
	"privileged":  "it would take the wall away",
	"capAdd":      "programs in a sandbox have no capabilities; --debuggers has debuggers work without",
	"securityOpt": "the filter of system calls stays; --debuggers has debuggers work under it",
	"mounts":      "a file of a repository attaches nothing; do it yourself: --mount SOURCE:TARGET",
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
	v.out.Values = slices.DeleteFunc(v.out.Values, func(v Value) bool { return v.Key == "workspaceFolder" })
	v.take(p, "workspaceFolder", v.out.WorkDir)
	return nil
}

// reference reports whether a name is the reference of an image, and refuses one that names something of this machine.
// Errors: InvalidArgument.
func reference(v *evaluation, p property, name string) (bool, error) {
	if name == "" || strings.HasPrefix(name, "-") || strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune("$\"'\\", r)
	}) {
		return false, p.wrong(v.file, "%.200q is no reference of an image", name)
	}
	scheme, _, _ := strings.Cut(name, ":")
	if name == "host" || slices.Contains([]string{"dir", "tar", "oci", "file"}, scheme) || strings.HasPrefix(name, "/") {
		v.refuse(p, p.name, "a file of a repository names an image by a reference, and nothing of this machine")
		return false, nil
	}
	return true, nil
}
