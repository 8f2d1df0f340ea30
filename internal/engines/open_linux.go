package engines

import (
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/docker"
	"github.com/cove-sandbox/cove/internal/engine/native"
)

func openNative(o Options) (engine.Engine, error) {
	return native.New(native.Options{Guest: o.Guest, RunDir: o.RunDir, Instance: o.Instance,
		CgroupParent: o.CgroupParent, Ready: o.Ready, Single: o.Single, Paths: o.Paths, Log: o.Log})
}

func openDocker(o Options) (engine.Engine, error) {
	return docker.New(docker.Options{Guest: o.Guest, RunDir: o.RunDir, Instance: o.Instance, Paths: o.Paths, Log: o.Log})
}
