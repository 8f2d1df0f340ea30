//go:build !linux

package engines

import (
	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

func openNative(Options) (engine.Engine, error) {
	return nil, cove.Errorf(cove.Unsupported, "sandboxes run on Linux only")
}

func openDocker(o Options) (engine.Engine, error) { return openNative(o) }

func openPodman(o Options) (engine.Engine, error) { return openNative(o) }

func note(Options, string) error { return nil }
