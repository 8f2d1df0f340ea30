package engines

import (
	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/docker"
	"github.com/cove-sandbox/cove/internal/engine/native"
	"github.com/cove-sandbox/cove/internal/instance"
)

func openNative(o Options) (engine.Engine, error) {
	return native.New(native.Options{Guest: o.Guest, RunDir: o.RunDir, Instance: o.Instance,
		CgroupParent: o.CgroupParent, Ready: o.Ready, Single: o.Single, Paths: o.Paths,
		Disks: o.Disks, Log: o.Log})
}

func openDocker(o Options) (engine.Engine, error) { return docker.New(dockerOptions(o, false)) }

func openPodman(o Options) (engine.Engine, error) { return docker.New(dockerOptions(o, true)) }

func dockerOptions(o Options, podman bool) docker.Options {
	return docker.Options{Podman: podman, Guest: o.Guest, RunDir: o.RunDir, Groups: o.CgroupParent, Instance: o.Instance,
		Paths: o.Paths, Log: o.Log}
}

// note records that the instance uses an engine, for the process that removes what it leaves.
func note(o Options, name string) error {
	if err := instance.Note(o.RunDir, o.Instance, name); err != nil {
		return cove.Errorf(cove.StorageFull, "the run directory cannot be used: %w", err).
			WithHint("choose another with --run-dir or COVE_RUN_DIR")
	}
	return nil
}
