package flags

import (
	"path"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// Volumes are the flags for directories of a sandbox's own.
type Volumes struct{ disk, memory []string }

// Add defines the flags.
func (o *Volumes) Add(f *pflag.FlagSet) {
	f.StringArrayVar(&o.disk, "volume", nil,
		"have a directory of its own at `TARGET`, which lasts as long as the sandbox (repeatable)")
	f.StringArrayVar(&o.memory, "tmpfs", nil,
		"have an empty directory in memory at `TARGET[:SIZE]`, as /fast:64M (repeatable)")
}

// Request returns the volumes, in their order. Errors: InvalidArgument.
func (o *Volumes) Request() (all []api.Volume, err error) {
	for _, text := range o.disk {
		if strings.Contains(text, ":") {
			return nil, cove.Errorf(cove.InvalidArgument, "--volume %s is more than a place inside", text).
				WithHint("give the place alone, as --volume /data; --mount attaches a directory of this machine")
		}
		all = append(all, api.Volume{Target: path.Clean(text)})
	}
	for _, text := range o.memory {
		target, size, sized := strings.Cut(text, ":")
		v := api.Volume{Target: path.Clean(target), Memory: true}
		if sized {
			n, err := ui.ParseSize(size, 1<<20)
			if err != nil {
				return nil, inFlag("--tmpfs", err)
			}
			v.SizeMB = n >> 20
		}
		all = append(all, v)
	}
	return all, nil
}
