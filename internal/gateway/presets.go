package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// presetIndex finds the preset that would allow a host of a package registry. It asks the machine's tools for their
// registries, once, at the first host that is denied: some of them take a second to answer.
type presetIndex struct {
	machine policy.Machine
	once    sync.Once

	mu      sync.Mutex
	found   map[presetPlace]string // the names of presets
	changed chan struct{}          // closed, and replaced, when a tool has answered; nil when all have
}

type presetPlace struct {
	host policy.Host
	port uint16
}

// presetPatience bounds how long a denial waits for the tools. A later one has their answer.
const presetPatience = time.Second

func newPresetIndex(m policy.Machine) *presetIndex {
	return &presetIndex{machine: m, found: map[presetPlace]string{}, changed: make(chan struct{})}
}

// begin asks the tools, if nothing has asked them yet.
func (x *presetIndex) begin() {
	x.once.Do(func() {
		go func() { // it ends with the tools, whose time the machine bounds
			policy.RegistryPresets(x.machine.Registry, func(name string, at []policy.Endpoint) {
				x.mu.Lock()
				defer x.mu.Unlock()
				for _, e := range at {
					if place := (presetPlace{e.Host, e.Port}); x.found[place] == "" { // each that has it would do
						x.found[place] = name
					}
				}
				close(x.changed)
				x.changed = make(chan struct{})
			})
			x.mu.Lock()
			defer x.mu.Unlock()
			close(x.changed)
			x.changed = nil
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
	for {
		x.mu.Lock()
		name, changed := x.found[presetPlace{h, port}], x.changed
		x.mu.Unlock()
		if name != "" || changed == nil {
			return name
		}
		if clock.Await(context.Background(), changed, late.C) != nil {
			return ""
		}
	}
}
