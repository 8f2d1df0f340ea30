//go:build linux

package native

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
)

// TestLayers: changes to a root filesystem are kept in a directory, whatever range of ids its sandboxes have, and other
// sandboxes have them as layers above the tree.
func TestLayers(t *testing.T) {
	e := open(t)
	if !e.capabilities.Root {
		t.Skip("no root inside: " + e.capabilities.Missing["root"])
	}
	dir := imageTree(t)
	copyProgram(t, dir, "/bin/chown", "bin/chown")
	layers, err := os.MkdirTemp("", "cove-layers-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := local.FindIDs().RemoveAll(layers); err != nil {
			t.Error(err)
		}
	})
	passable(layers)
	in := func(layer string, root engine.Rootfs, script string) string {
		t.Helper()
		template := engine.Template{ID: cove.NewSandboxID(), Rootfs: root, Network: cove.NetworkNone, Layer: layer,
			Shape: cove.Shape{Limits: limits, User: cove.RootUser}}
		sb, err := e.Prepare(t.Context(), template)
		if err != nil {
			t.Fatal(err)
		}
		defer sb.Destroy(t.Context())
		if err := sb.Bind(t.Context(), engine.Binding{Hostname: "box"}); err != nil {
			t.Fatal(err)
		}
		out, exit := output(t, sb, script)
		if exit.Code != 0 {
			t.Errorf("%q, %+v", out, exit)
		}
		return out
	}
	layer := func(name string) string {
		t.Helper()
		path := filepath.Join(layers, name)
		if err := engine.MakeLayer(path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	base := engine.Rootfs{Kind: engine.RootfsDir, Dir: dir}
	first := layer("first")
	in(first, base, "echo one > /etc/one && chown 33:44 /etc/one && echo two > /shared/two && mkdir /shared/sub")
	if out := in(first, base, "stat -c %u:%g /etc/one; rm /shared/file; cat /shared/two"); out != "33:44\ntwo\n" {
		t.Errorf("the same layer again has %q", out)
	}
	above := base
	above.Layers = []string{engine.Changes(first)}
	second := layer("second")
	const want = "33:44\nsub\ntwo\nanew\n"
	if out := in(second, above, `stat -c %u:%g /etc/one; ls /shared; rm -r /shared/sub /shared/two; mkdir /shared/sub
		echo anew > /shared/sub/anew; ls /shared/sub`); out != want {
		t.Errorf("above a layer there is %q, want %q", out, want)
	}
	for i := range 40 { // whose names together are more than the kernel takes as paths
		more := layer(fmt.Sprint("more", i))
		above.Layers = append(above.Layers, engine.Changes(more))
	}
	above.Layers = append(above.Layers, engine.Changes(second))
	if out := in("", above, "ls /shared /shared/sub; cat /etc/one"); out != "/shared:\nsub\n\n/shared/sub:\nanew\none\n" {
		t.Errorf("above many layers there is %q", out)
	}
	if data, _ := os.ReadFile(filepath.Join(dir, "shared", "file")); string(data) != "original" {
		t.Errorf("the tree's file is %q", data)
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(engine.Changes(first), "shared/file"), &st); err != nil ||
		st.Mode != unix.S_IFCHR || st.Rdev != 0 {
		t.Errorf("what was removed is %+v, %v", st, err)
	}
	above.Layers = make([]string, engine.MaxLayers+1)
	_, err = e.Prepare(t.Context(), engine.Template{ID: cove.NewSandboxID(), Rootfs: above, Network: cove.NetworkNone,
		Shape: cove.Shape{Limits: limits, User: cove.RootUser}})
	if cove.ErrorCode(err) != cove.TooLarge {
		t.Errorf("too many layers: %v", err)
	}
}
