package gateway

import (
	"sync"
	"time"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// presetIndex finds the preset that would allow a host of a package registry. It asks the machine's tools for their
// registries, once, at the first host that is denied: some of them take a second to answer.
type presetIndex struct {
	machine policy.Machine

	once  sync.Once
	ready chan struct{} // closed when found is complete
	found func(h policy.Host, port uint16) string
}

// presetPatience bounds how long a denial waits for the tools. A later one has their answer.
const presetPatience = time.Second

func newPresetIndex(m policy.Machine) *presetIndex {
	return &presetIndex{machine: m, ready: make(chan struct{})}
}

// begin asks the tools, if nothing has asked them yet.
func (x *presetIndex) begin() {
	x.once.Do(func() {
		go func() { // it ends with the tools, whose time the machine bounds
			defer close(x.ready)
			x.found = policy.RegistryPresets(x.machine.Registry)
		}()
	})
}

// of returns the name of the preset that allows a host and port, or "" where none does or the tools do not answer.
func (x *presetIndex) of(h policy.Host, port uint16) string {
	if x.machine.Registry == nil || !h.Public() {
		return ""
	}
	x.begin()
	late := time.NewTimer(presetPatience)
	defer late.Stop()
	select {
	case <-x.ready:
		return x.found(h, port)
	case <-late.C:
		return ""
	}
}
