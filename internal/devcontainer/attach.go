package devcontainer

import (
	"cmp"
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// attached describes what a file would have attached to a sandbox or a service, as "docker run --mount" has it.
type attached struct {
	kind, source, target, size string
	image                      bool // the programs are those of an image
}

// takeMounts takes the volumes of a property, and names what else it would have attached, each with the reason of its
// kind.
func takeMounts(v *evaluation, p property) {
	for _, raw := range p.each() {
		m, own := map[string]string{}, map[string]any{}
		var line string
		if json.Unmarshal(raw, &line) == nil {
			m = mountFields(line)
		} else if json.Unmarshal(raw, &own) == nil {
			for name, value := range own {
				if text, is := value.(string); is {
					m[name] = text
				}
			}
		}
		for name, text := range m {
			m[name], _ = v.vars.expand(text)
		}
		a := attached{kind: m["type"], source: m["source"], target: m["target"], size: m["tmpfs-size"],
			image: v.out.Image != "" || v.out.Build != nil || v.names["image"] || v.names["build"] || v.names["dockerFile"]}
		if a.kind == "" && a.target != "" && !strings.HasPrefix(a.source, "/") {
			a.kind = "volume" // as "docker run --mount" has it
		}
		takeVolume(v, p, p.name, &v.out.Volumes, a)
	}
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

// takeVolume adds a volume to those of a sandbox or a service, or says why there is none.
func takeVolume(v *evaluation, p property, key string, to *[]cove.Volume, a attached) {
	name := strings.TrimSpace(key + " " + a.target)
	one := cove.Volume{Target: inside(v, a.target), Memory: a.kind == "tmpfs"}
	if one.Memory && a.size != "" && !size(a.size, &one.Size) {
		v.leave(p, name, "its size is none: "+strconv.Quote(a.size))
		return
	}
	if a.kind != "volume" && !one.Memory {
		v.leave(p, name, cmp.Or(leftMounts[a.kind], widening["mounts"]))
		return
	}
	// The programs of an image are changed in its own places alone, and those of the machine in none.
	valid := rootfs.ValidatePlace
	if !a.image {
		valid = rootfs.ValidateTarget
	}
	in := func(dir string) bool { return one.Target == dir || strings.HasPrefix(one.Target, dir+"/") }
	switch all := slices.Concat(*to, []cove.Volume{one}); {
	case one.Memory && slices.ContainsFunc([]string{"/tmp", "/var/tmp", "/run", "/dev/shm"}, in):
		v.take(p, name, "in memory, as in every sandbox")
	case one.Target == cove.Workspace:
		v.leave(p, name, "the checkout of a sandbox is its own, at "+cove.Workspace)
	case slices.ContainsFunc([]string{cove.Workspace, cove.Home}, func(own string) bool {
		return own == one.Target || strings.HasPrefix(own, one.Target+"/")
	}):
		v.leave(p, name, "it would hide what is the sandbox's own; what is written in its home is kept anyway")
	case valid(one.Target) != nil:
		v.leave(p, name, cove.ErrorMessage(valid(one.Target)))
	case cove.CheckVolumes(all) != nil:
		v.leave(p, name, cove.ErrorMessage(cove.CheckVolumes(all)))
	default:
		*to = all
		text := "on the sandbox's disk"
		if one.Memory {
			if text = "in memory"; one.Size > 0 {
				text += ", " + sizeText(max(one.Size, 1<<20))
			}
		}
		v.take(p, strings.TrimSuffix(key, "s")+" "+one.Target, text)
	}
}

// inside returns the place in a sandbox of one that a file names, which may lie in the checkout.
func inside(v *evaluation, place string) string {
	if place = path.Clean(place); place == "." {
		return ""
	}
	mount := cmp.Or(v.mount, path.Join("/workspaces", path.Base(v.Local)))
	if below, in := strings.CutPrefix(place+"/", mount+"/"); in {
		return path.Join(cove.Workspace, below)
	}
	return place
}

// leftMounts has reasons to leave out kinds of mounts.
var leftMounts = map[string]string{
	"image":   "the files of another image are not attached; copy them in the build of an image",
	"cluster": "a sandbox has volumes of its own alone",
	"npipe":   "it is about another system",
}

// each returns the values of a list, or the only one. A list that is empty has none.
func (p property) each() (all []json.RawMessage) {
	if json.Unmarshal(p.value, &all) != nil && !empty(p.value) {
		all = []json.RawMessage{p.value}
	}
	return all
}
