package devcontainer

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/internal/compose"
)

// composeOf takes the service that is the sandbox, and those beside it. Errors: InvalidArgument, NotFound, Forbidden,
// TooLarge, Unsupported.
func composeOf(v *evaluation, p, service, run property) error {
	v.composed = true
	if v.Checkout == nil || v.Merge == nil {
		v.refuse(p, p.name, "Cove makes such a dev container in its own sandboxes only")
		return nil
	}
	c := &composed{evaluation: v}
	names, err := c.paths(p)
	if err != nil {
		return err
	}
	if service.name == "" {
		return p.wrong(v.file, "service is missing, which says the one that is worked in")
	}
	if v.service, err = v.text(service); err != nil {
		return err
	}
	c.dir = path.Dir(names[0])
	if err := c.variables(); err != nil {
		return err
	}
	var files []compose.File
	for _, name := range names {
		data, err := c.read(name, true)
		if err != nil {
			return err
		}
		files = append(files, compose.File{Path: name, Data: data})
		v.take(p, p.name, name)
	}
	if c.Project, err = compose.Read(files); err != nil {
		return err
	}
	if c.Merged, err = v.Merge(compose.Request{Files: files, Env: c.env}); err != nil {
		return err
	}
	main, is := c.Services[v.service]
	if !is {
		return service.wrong(v.file, "there is no service %.80q in %s", v.service, strings.Join(names, ", "))
	}
	v.take(service, service.name, v.service)
	for _, name := range c.Unset {
		file, line := c.Variable(name)
		v.leave(property{file: file, line: line}, "${"+name+"}", unknownWhy("env:"+name))
	}
	if err := c.main(main); err != nil {
		return err
	}
	neighbours, err := c.neighbours(main, run)
	if err != nil {
		return err
	}
	c.alike(append([]string{v.service}, neighbours...))
	for _, name := range neighbours {
		if err := c.neighbour(c.Services[name]); err != nil {
			return err
		}
	}
	return nil
}

// neighbours returns the services that run beside the main one: those of runServices, without it all that no profile
// keeps back, and those on which one of them or the main one depends.
func (c *composed) neighbours(main compose.Service, run property) (names []string, err error) {
	var wanted, back []string
	if run.name != "" {
		if err := run.into(c.file, &wanted); err != nil {
			return nil, err
		}
	}
	if len(wanted) == 0 {
		for _, name := range slices.Sorted(maps.Keys(c.Services)) {
			if profiles := c.Services[name].Profiles; len(profiles) == 0 {
				wanted = append(wanted, name)
			} else if name != c.service {
				back = append(back, name)
			}
		}
	}
	wanted = append(wanted, c.dependencies(main)...)
	for ; len(wanted) > 0; wanted = wanted[1:] {
		name := wanted[0]
		if name == c.service || slices.Contains(names, name) {
			continue
		}
		s, is := c.Services[name]
		if !is {
			return nil, c.at(c.service, "depends_on").wrong(c.file, "there is no service %.80q to run", name)
		}
		names = append(names, name)
		wanted = append(wanted, c.dependencies(s)...)
	}
	for _, name := range back {
		if !slices.Contains(names, name) {
			c.leave(c.at(name, "profiles"), "services."+name, "its profiles keep it back; runServices names it")
		}
	}
	names = slices.DeleteFunc(names, c.ends)
	slices.Sort(names)
	return names, nil
}

func (c *composed) dependencies(s compose.Service) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(s.DependsOn)) {
		if _, is := c.Services[name]; is || s.DependsOn[name].Required {
			names = append(names, name)
		}
	}
	for _, link := range s.Links {
		name, _, _ := strings.Cut(link, ":")
		names = append(names, name)
	}
	return names
}

// ends reports whether a service is a job that others wait for, and leaves it out.
func (c *composed) ends(name string) bool {
	for _, other := range slices.Sorted(maps.Keys(c.Services)) {
		if c.Services[other].DependsOn[name].Ends {
			c.leave(c.at(other, "depends_on", name), "services."+name,
				"a service of Cove stays; have postCreateCommand do what ends")
			return true
		}
	}
	return false
}
