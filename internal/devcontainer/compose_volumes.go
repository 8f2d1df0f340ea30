package devcontainer

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/compose"
)

// volume takes a volume of a service. why is the reason against a directory of the machine.
func (c *composed) volume(p property, m compose.Volume, to *[]cove.Volume, why string) {
	if m.Type == "bind" {
		c.leave(p, p.name+" "+m.Target, why)
		return
	}
	a := attached{kind: m.Type, source: m.Source, target: m.Target, image: true}
	if m.Size > 0 {
		a.size = strconv.FormatInt(m.Size, 10)
	}
	before := len(*to)
	takeVolume(c.evaluation, p, p.name, to, a)
	if len(*to) > before && slices.Contains(c.Elsewhere, m.Source) {
		c.leave(p, p.name+" "+m.Target+" of "+m.Source, "what is elsewhere is not attached: it begins empty, in the sandbox")
	}
}

// tmpfs takes the directories in memory of a service.
func (c *composed) tmpfs(s compose.Service, to *[]cove.Volume) {
	for _, text := range s.Tmpfs {
		target, options, _ := strings.Cut(text, ":")
		a := attached{kind: "tmpfs", target: target, image: true}
		for option := range strings.SplitSeq(options, ",") {
			if value, is := strings.CutPrefix(option, "size="); is {
				a.size = value
			}
		}
		p := c.at(s.Name, "tmpfs")
		takeVolume(c.evaluation, p, p.name, to, a)
	}
}

// alike notes where several of the services name one volume: each has its own.
func (c *composed) alike(services []string) {
	first := map[string]string{}
	for _, name := range services {
		for _, m := range c.Services[name].Volumes {
			other, there := first[m.Source]
			switch {
			case m.Type != "volume" || m.Source == "":
			case !there:
				first[m.Source] = name
			case other != name:
				p := c.at(name, "volumes")
				c.leave(p, p.name+" "+m.Source, other+" has it, too, and sandboxes share no files: each has its own")
			}
		}
	}
}
