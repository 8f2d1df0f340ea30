package devcontainer

import (
	"encoding/json"
	"strings"
)

// leaveMounts names what a file would have attached, each with the reason of its kind.
func (p property) leaveMounts(v *evaluation) {
	for _, raw := range p.each() {
		fields := map[string]string{}
		var line string
		if json.Unmarshal(raw, &line) == nil {
			line, _ = v.vars.expand(line)
			for part := range strings.SplitSeq(line, ",") {
				key, value, _ := strings.Cut(part, "=")
				fields[strings.TrimSpace(key)] = value
			}
		} else if json.Unmarshal(raw, &fields) != nil {
			fields = map[string]string{}
		}
		target := fields["target"] + fields["destination"] + fields["dst"]
		why := widening["mounts"]
		switch fields["type"] {
		case "volume":
			why = "a sandbox has no volumes; what is written in its home and checkout is kept until it is destroyed"
		case "tmpfs":
			why = "a sandbox has /tmp, and nothing else is attached"
		}
		v.leave(p, strings.TrimSpace(p.name+" "+target), why)
	}
}
