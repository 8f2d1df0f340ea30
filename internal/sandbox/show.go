package sandbox

import (
	"cmp"
	"path"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// View is a sandbox, or a checkout in a shared one, as a caller sees it.
type View struct {
	store.Sandbox
	Within    cove.SandboxID   // the sandbox that contains a checkout; empty for a sandbox
	Place     string           // of the checkout, inside
	Terminals []terminals.Info // while it runs; nil in lists
	Disk      workspace.Used   // of its workspace and home; zero in lists
	Services  []View           // of its group, in their order; nil for a service
	Made      []hostpath.Made  // in mounts, of one that has ended; Stop tells it
}

// Listing is the sandboxes that a caller sees, newest first.
type Listing struct {
	Sandboxes []View
	Orphans   []string // ids of workspaces and sandboxes without a record; for the machine's owner
}

// Exposed returns the variables whose real tokens a sandbox with these mounts can read.
func Exposed(mounts []cove.Mount) (variables []string) {
	for _, m := range mounts {
		if path.Dir(m.Target) == cove.Tokens {
			variables = append(variables, path.Base(m.Target))
		}
	}
	return variables
}

// infosOf returns the state of a sandbox's terminals.
func infosOf(ttys *terminals.Set) []terminals.Info {
	all := []terminals.Info{}
	for _, t := range ttys.List() {
		all = append(all, t.Info())
	}
	return all
}

// box returns the id of the sandbox that runs, or does not.
func (v View) box() cove.SandboxID { return cmp.Or(v.Within, v.ID) }

// wrongState says what can be done with a sandbox instead.
func wrongState(record store.Sandbox, doing string) error {
	e := cove.Errorf(cove.Conflict, "the sandbox %s is %s: it is not possible to %s it", record.Name, record.State, doing)
	switch record.State {
	case cove.StateStopped:
		return e.WithHint("start it with \"cove start %s\"", record.Name)
	case cove.StatePaused:
		return e.WithHint("resume it with \"cove resume %s\"", record.Name)
	case cove.StateFailed:
		return e.WithHint("%s; remove it with \"cove destroy %s\"", cmp.Or(record.Reason, "it has failed"), record.Name)
	}
	return e.WithHint("try again in a moment")
}
