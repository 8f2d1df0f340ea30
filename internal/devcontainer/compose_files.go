package devcontainer

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/compose"
)

// composed is a project of Compose while it is judged.
type composed struct {
	*evaluation
	*compose.Project
	dir string            // of the first file, to which paths are relative
	env map[string]string // variables that files can refer to
}

// paths returns the paths of the files.
func (c *composed) paths(p property) (names []string, err error) {
	if strings.HasPrefix(strings.TrimSpace(string(p.value)), "[") {
		err = p.into(c.file, &names)
	} else {
		names = []string{""}
		err = p.into(c.file, &names[0])
	}
	for i, name := range names {
		if err != nil {
			return nil, err
		}
		name, _ = c.vars.expand(name)
		names[i], err = c.inCheckout(p, name, path.Dir(c.file.Path))
	}
	return names, err
}

// read returns a file of the checkout, which then belongs to what the user agrees to. One that need not be there may be
// nil.
func (c *composed) read(name string, must bool) ([]byte, error) {
	if data, is := c.out.Read[name]; is {
		return data, nil
	}
	f, err := read(c.Checkout, name)
	switch {
	case absent(err) && !must:
		return nil, nil
	case absent(err):
		return nil, cove.Errorf(cove.NotFound, "there is no %s", name)
	case err != nil:
		return nil, err
	}
	if c.out.Read == nil {
		c.out.Read = Files{}
	}
	if c.out.Read[name] = f.Data; len(c.out.Read) > maxReferred || c.out.Read.size() > maxFeatureAll {
		return nil, cove.Errorf(cove.TooLarge, "%s refers to more than %d files, or more than %d MiB", c.file.Path,
			maxReferred, maxFeatureAll>>20)
	}
	return f.Data, nil
}

const maxReferred = 64

// variables reads .env beside the first file. What the user gives goes before it.
func (c *composed) variables() error {
	name := path.Join(c.dir, ".env")
	data, err := c.read(name, false)
	if err != nil {
		return err
	}
	if c.env, err = c.variablesOf(compose.File{Path: name, Data: data}, false, c.LocalEnv); err == nil {
		maps.Copy(c.env, c.LocalEnv)
	}
	return err
}

// variablesOf reads a file of variables, and names those without a value to which it refers.
func (c *composed) variablesOf(f compose.File, raw bool, known map[string]string) (map[string]string, error) {
	all, unset, err := compose.Env(f, raw, known)
	for _, name := range slices.Sorted(maps.Keys(unset)) {
		c.leave(property{file: f.Path, line: unset[name]}, "${"+name+"}", unknownWhy("env:"+name))
	}
	return all, err
}

// at returns a member of a service as a property.
func (c *composed) at(service string, keys ...string) property {
	p := property{name: "services." + service + "." + strings.Join(keys, ".")}
	p.file, p.line = c.Where(append([]string{"services", service}, keys...)...)
	return p
}
