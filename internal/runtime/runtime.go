// Package runtime declares how a snippet of each language runs: file name, command, probe, defaults; and decides what
// limits and what environment a caller may ask for. A runtime is one small file of this package, named in All.
package runtime

import (
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
)

// All lists the runtimes in the order they are shown.
func All() []Runtime {
	return []Runtime{python, node, bash, sh, ruby, perl, golang}
}

// Lookup finds a runtime by its name or an alias, in any case; that of Image, too, which All leaves out.
func Lookup(name string) (Runtime, error) {
	folded := strings.ToLower(name)
	if folded == Image {
		return image, nil
	}
	var names []string
	for _, r := range All() {
		if r.Name == folded || slices.Contains(r.Aliases, folded) {
			return r, nil
		}
		names = append(names, r.Name)
	}
	problem := cove.Errorf(cove.InvalidArgument, "there is no runtime %.64q", name)
	if name == "" {
		problem = cove.Errorf(cove.InvalidArgument, "no language is given")
	}
	return Runtime{}, problem.WithHint("choose one of %s", strings.Join(names, ", "))
}
