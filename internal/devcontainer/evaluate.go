package devcontainer

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/runtime"
)

// Evaluate judges a file. Errors: InvalidArgument, with the line.
func Evaluate(f File, c Context) (*Effective, error) {
	all, err := parse(f)
	if err != nil {
		return nil, err
	}
	v := &evaluation{Context: c, file: f, names: map[string]bool{},
		out: &Effective{File: f.Path, WorkDir: cove.Workspace}}
	v.vars = variables{local: c.Local, container: cove.Workspace, localEnv: c.LocalEnv, id: Identity(c.Local, f.Path)}
	byName := map[string]property{}
	for _, p := range all {
		byName[p.name], v.names[p.name] = p, !empty(p.value)
	}
	// The folder and the container's environment first: the values of others refer to them. What Compose says is below
	// what the file says.
	for _, name := range []string{"workspaceMount", "dockerComposeFile", "workspaceFolder", "containerEnv"} {
		p, ok := byName[name]
		switch {
		case !ok:
		case name == "dockerComposeFile" && !empty(p.value):
			err = composeOf(v, p, byName["service"], byName["runServices"])
		case name != "dockerComposeFile":
			err = v.property(p)
		}
		if err != nil {
			return nil, err
		}
		delete(byName, name)
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
	v.concludeBuild()
	if len(e.wanted) > 0 && e.Image == "" && e.Build == nil {
		v.refuse(property{line: e.wanted[0].line}, "features", "they are installed over an image, and the file names none")
	}
	slices.SortStableFunc(e.Commands, func(a, b Command) int { return stage(a.Name) - stage(b.Name) })
	slices.SortStableFunc(e.LeftOut, func(a, b LeftOut) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	if e.Image == "" && e.Build == nil && len(e.Unsupported) == 0 {
		v.add("image", "the image of sandboxes that name none", v.origin("image"))
	}
	if !slices.ContainsFunc(e.Values, func(v Value) bool { return v.Key == "workspaceFolder" }) {
		v.add("workspaceFolder", e.WorkDir, FromDefault)
	}
	v.concludeUser()
	v.add("init", "true", FromCove)
	v.add("capabilities", "none", FromCove)
	least, users, own, main := lower(v.Limits, v.wish), v.Limits, v.wish, v.limits
	number := func(n int64) float64 { return float64(n) }
	for _, l := range []struct {
		key                       string
		least, users, own, ofMain float64
		text                      string
	}{
		{"memory", number(least.Memory), number(users.Memory), number(own.Memory), number(main.Memory),
			sizeText(least.Memory)},
		{"cpus", least.CPUs, users.CPUs, own.CPUs, main.CPUs, fmt.Sprint(least.CPUs)},
		{"pids", number(least.PIDs), number(users.PIDs), number(own.PIDs), number(main.PIDs),
			fmt.Sprint(least.PIDs)},
		{"disk", number(least.Disk), number(users.Disk), number(own.Disk), number(main.Disk),
			sizeText(least.Disk)},
	} {
		switch {
		case l.least == 0:
		case l.least == l.own && l.own != l.users:
			from := v.file.Path
			if l.own == l.ofMain {
				from = v.limitsIn
			}
			v.add(l.key, l.text, from)
		case l.own > l.users:
			v.add(l.key, l.text, v.origin(l.key)+", which is lower than the file's")
		default:
			v.add(l.key, l.text, v.origin(l.key))
		}
	}
	e.Limits = narrowed(least, v.Limits)
}

// property judges one member of the file.
func (v *evaluation) property(p property) error {
	switch p.name {
	case "mounts":
		takeMounts(v, p)
		return nil
	case "forwardPorts", "appPort":
		takePorts(v, p)
		return nil
	}
	if why, ok := never[p.name]; ok {
		v.leave(p, p.name, why)
		return nil
	}
	if why, ok := widening[p.name]; ok {
		if !empty(p.value) {
			v.leave(p, p.name, why)
		}
		return nil
	}
	if v.composed && slices.Contains([]string{"image", "build", "dockerFile", "context"}, p.name) {
		v.leave(p, p.name, "the service "+v.service+" says it")
		return nil
	}
	if i := stage(p.name); i >= 0 {
		return v.command(p, lifecycle[i].when)
	}
	switch p.name {
	case "$schema", "init":
		return nil // init is Cove's anyway
	case "service", "runServices":
		if !v.composed {
			v.leave(p, p.name, "it is about dockerComposeFile, which is not there")
		}
		return nil
	case "overrideFeatureInstallOrder":
		return p.into(v.file, &v.out.order)
	case "features":
		return v.features(p)
	case "name":
		return v.name(p)
	case "image":
		return v.image(p)
	case "build":
		return v.build(p)
	case "dockerFile", "context":
		return v.buildPath(p, p.name)
	case "workspaceMount":
		return v.workspaceMount(p)
	case "workspaceFolder":
		return v.workspaceFolder(p)
	case "containerEnv", "remoteEnv":
		return v.environment(p)
	case "remoteUser", "containerUser":
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
	if is, err := reference(v, p, name); err != nil || !is {
		return err
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
		of := "services." + v.service + ".environment." + name
		v.out.Values = slices.DeleteFunc(v.out.Values, func(v Value) bool { return v.Key == of })
		v.take(p, key, value)
	}
	return nil
}

// user notes the user of one of the two properties. That of programs is remoteUser, without it containerUser.
func (v *evaluation) user(p property) error {
	name, err := v.text(p)
	if p.name == "remoteUser" || v.asked.name == "" {
		v.asked, v.out.User = p, name
	}
	return err
}

// concludeUser settles as whom programs run. A file of a repository does not have them be root inside.
func (v *evaluation) concludeUser() {
	name, p := v.out.User, v.asked
	account, _, _ := strings.Cut(name, ":")
	why := ""
	switch {
	case name == "" || name == "cove":
		v.out.User = ""
	case account == "root" || account == "0":
		why = "programs run as the user that the image names, else as cove; --root has them be root inside"
	case v.out.Image == "" && v.out.Build == nil:
		why = "the file names no image with users"
	default:
		v.take(p, "user", name)
		return
	}
	if v.out.User = ""; why != "" {
		v.leave(p, p.name+" "+name, why)
	}
	v.add("user", "the image's own, else cove", FromDefault)
}

func (v *evaluation) waitFor(p property) error {
	name, err := v.text(p)
	if err == nil {
		v.add(p.name, "the last command that runs once or at each start, not only "+name, FromCove)
	}
	return err
}
