package enginetest

import (
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
)

// Refuse rather than degrade: a template that needs what the engine cannot enforce makes nothing.
var refusalTests = []test{
	{name: "a capability is a promise or a reason", run: capabilitiesMakeSense},
	{name: "an isolation that is not offered", run: refuses(func(t *engine.Template, _ engine.Capabilities) bool {
		t.Isolation = "glass"
		return true
	})},
	{name: "a network mode that is not offered", run: refuses(func(t *engine.Template, _ engine.Capabilities) bool {
		t.Network = "wormhole"
		return true
	})},
	{name: "an image of an engine that holds none", run: refuses(func(t *engine.Template, c engine.Capabilities) bool {
		t.Rootfs = engine.Rootfs{Kind: engine.RootfsImage, Image: "debian:stable-slim"}
		return !c.OwnImages
	})},
	{name: "a memory limit that cannot be held", run: refuses(func(t *engine.Template, c engine.Capabilities) bool {
		t.Limits.Memory = 128 << 20
		return !c.MemoryLimit || !c.SwapLimit
	})},
	{name: "a CPU limit that cannot be held", run: refuses(func(t *engine.Template, c engine.Capabilities) bool {
		t.Limits.CPUs = 1
		return !c.CPULimit
	})},
	{name: "a limit of processes that cannot be held", run: refuses(func(t *engine.Template, c engine.Capabilities) bool {
		t.Limits.PIDs = 50
		return !c.PIDsLimit
	})},
	{name: "a disk limit that cannot be held", run: refuses(func(t *engine.Template, c engine.Capabilities) bool {
		t.Limits.Disk, t.Limits.Inodes = 32<<20, 2000
		return !c.DiskLimit
	})},
	{name: "temporary places whose programs run all the same", run: refuses(func(t *engine.Template,
		c engine.Capabilities) bool {
		t.NoExec = true
		return !c.NoExec
	})},
	{name: "an image that is not there", run: imageMissing},
	{name: "a directory that is not there", run: dirMissing},
	{name: "listeners of an engine that makes none",
		run: refusesBinding(func(b *engine.Binding, c engine.Capabilities) bool {
			b.Listeners = []guest.Listen{{Network: "tcp4", Address: "127.0.0.1:0"}}
			return !c.Listeners
		})},
	{name: "attachments of an engine that attaches none",
		run: refusesBinding(func(b *engine.Binding, c engine.Capabilities) bool {
			b.Attachments = []engine.Attachment{{Target: cove.Workspace, ReadOnly: true}}
			return !c.LateMount
		})},
	{name: "attachments with owners of an engine without layers",
		run: refusesBinding(func(b *engine.Binding, c engine.Capabilities) bool {
			b.Attachments = []engine.Attachment{{Target: "/data", ReadOnly: true, Memory: &engine.Memory{}}}
			return !c.Layers
		})},
	{name: "mounts of an engine that attaches none",
		run: refusesBinding(func(b *engine.Binding, c engine.Capabilities) bool {
			b.Mounts = []cove.Mount{{Source: "/usr", Target: cove.Workspace, ReadOnly: true}}
			return !c.LateMount
		})},
}

func capabilitiesMakeSense(t *testing.T, x *env) {
	if x.eng.Name() == "" {
		t.Error("the engine has no name")
	}
	if len(x.caps.Isolations) == 0 || len(x.caps.Networks) == 0 {
		t.Errorf("the engine offers nothing: %+v", x.caps)
	}
	if err := x.caps.Check(x.template()); err != nil {
		t.Errorf("the suite's own template is refused: %v", err)
	}
	for name, why := range x.caps.Missing {
		if why == "" {
			t.Errorf("capability %q is missing for no reason", name)
		}
	}
}

// refuses tests a template that change makes impossible; change says whether it did.
func refuses(change func(*engine.Template, engine.Capabilities) bool) func(*testing.T, *env) {
	return func(t *testing.T, x *env) {
		tmpl := x.template()
		if !change(&tmpl, x.caps) {
			t.Skip("the engine can do this; the tests of what it can do are elsewhere")
		}
		sb, err := x.eng.Prepare(x.ctx, tmpl)
		if err == nil {
			x.destroy(t, sb)
		}
		wantCode(t, "Prepare", err, cove.Unsupported)
		if cove.ErrorHint(err) == "" {
			t.Errorf("%v: nothing says what to do", err)
		}
	}
}

func refusesBinding(change func(*engine.Binding, engine.Capabilities) bool) func(*testing.T, *env) {
	return func(t *testing.T, x *env) {
		b := engine.Binding{Hostname: "sandbox"}
		if !change(&b, x.caps) {
			t.Skip("the engine can do this; the tests of what it can do are elsewhere")
		}
		wantCode(t, "Bind", x.prepare(t).Bind(x.ctx, b), cove.Unsupported)
	}
}

func imageMissing(t *testing.T, x *env) {
	if !x.caps.OwnImages {
		t.Skip("the engine holds no images")
	}
	tmpl := x.template()
	tmpl.Rootfs = engine.Rootfs{Kind: engine.RootfsImage, Image: "cove.invalid/no/such:image"}
	_, err := x.eng.Prepare(x.ctx, tmpl)
	wantCode(t, "Prepare", err, cove.ImageMissing)
	if cove.ErrorHint(err) == "" {
		t.Errorf("%v: nothing says how to get the image", err)
	}
}

func dirMissing(t *testing.T, x *env) {
	tmpl := x.template()
	tmpl.Rootfs = engine.Rootfs{Kind: engine.RootfsDir, Dir: t.TempDir() + "/nowhere"}
	_, err := x.eng.Prepare(x.ctx, tmpl)
	wantCode(t, "Prepare", err, cove.ImageMissing)
}
