package devcontainer

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/compose"
	"github.com/cove-sandbox/cove/internal/runtime"
)

// environmentOf returns the variables of a service: those of its files, and its own over them.
func (c *composed) environmentOf(s compose.Service) (map[string]string, error) {
	all, from := map[string]string{}, map[string]property{}
	for i, f := range s.EnvFiles {
		p := c.at(s.Name, "env_file")
		if i > maxReferred || f.Format != "" && f.Format != "raw" {
			return nil, p.wrong(c.file, "%.80q is no format of it, or the files are many", f.Format)
		}
		name, err := c.inCheckout(p, f.Path, c.dir)
		if err != nil {
			return nil, err
		}
		data, err := c.read(name, f.Required)
		if err != nil {
			return nil, err
		}
		file := compose.File{Path: name, Data: data}
		more, err := c.variablesOf(file, f.Format == "raw", c.env)
		if err != nil {
			return nil, err
		}
		for key, value := range more {
			all[key], from[key] = value, property{file: name, line: compose.EnvLine(file, key)}
		}
	}
	for key, value := range s.Environment {
		at := c.at(s.Name, "environment", key)
		if value == nil {
			c.leave(at, at.name, unknownWhy("env:"+key))
			continue
		}
		all[key], from[key] = *value, at
	}
	var env map[string]string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		name := "services." + s.Name + ".environment." + key
		if err := runtime.CheckEnv(map[string]string{key: all[key]}); err != nil {
			c.leave(from[key], name, cove.ErrorMessage(err))
			continue
		}
		if env == nil {
			env = map[string]string{}
		}
		env[key] = all[key]
		c.take(from[key], name, all[key])
	}
	return env, nil
}

// image returns the image of a service, or its build.
func (c *composed) image(s compose.Service) (name string, b *Build, err error) {
	p := c.at(s.Name, "image")
	switch {
	case s.Build != nil:
		b, err = c.buildOf(s)
		return "", b, err
	case s.Image == "":
		return "", nil, c.at(s.Name).wrong(c.file, "it has neither an image nor a build")
	}
	if is, err := reference(c.evaluation, p, s.Image); err != nil || !is {
		return "", nil, err
	}
	c.take(p, p.name, s.Image)
	return s.Image, nil, nil
}

// buildOf takes the build of a service. Its paths are those of devcontainer.json's: in the checkout, and nowhere else.
func (c *composed) buildOf(s compose.Service) (*Build, error) {
	p, of := c.at(s.Name, "build"), s.Build
	if strings.Contains(of.Context, "://") || strings.Contains(of.Context, "@") {
		return nil, p.wrong(c.file, "%.200q is no directory of the repository", of.Context)
	}
	b := &Build{Target: of.Target}
	var err error
	if b.Context, err = c.inCheckout(p, cmp.Or(of.Context, "."), c.dir); err != nil {
		return nil, err
	}
	if b.Dockerfile, err = c.inCheckout(p, cmp.Or(of.Dockerfile, "Dockerfile"), b.Context); err != nil {
		return nil, err
	}
	c.take(p, p.name, path.Join(b.Context, "")+" by "+b.Dockerfile)
	if b.Target != "" {
		c.take(p, p.name+".target", b.Target)
	}
	for _, name := range slices.Sorted(maps.Keys(of.Args)) {
		value := of.Args[name]
		if given, is := c.env[name]; value == nil && is {
			value = &given
		}
		if name == "" || value == nil {
			c.leave(p, p.name+".args."+name, unknownWhy("env:"+name))
			continue
		}
		if b.Args == nil {
			b.Args = map[string]string{}
		}
		b.Args[name] = *value
		c.take(p, p.name+".args."+name, *value)
	}
	if of.Inline != "" {
		c.refuse(p, p.name+".dockerfile_inline", "write a Dockerfile, and name it")
	}
	for _, key := range of.Others {
		c.leave(p, p.name+"."+key, "Cove builds the image, and takes no options of Docker")
	}
	return b, nil
}
