//go:build linux

package native

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/rootfs"
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

// TestOwnersAndMemory: attachments whose files keep their owners, and those in memory, anywhere in a root filesystem
// but at the places of the wall.
func TestOwnersAndMemory(t *testing.T) {
	e := open(t)
	if !e.root {
		t.Skip("needs root: files have owners")
	}
	dir := imageTree(t)
	copyProgram(t, dir, "/bin/chown", "bin/chown")
	tree := t.TempDir()
	passable(filepath.Dir(tree))
	passable(tree)
	if err := os.WriteFile(filepath.Join(tree, "file"), []byte("content"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(tree, "file"), 33, 44); err != nil {
		t.Fatal(err)
	}
	place := func(name string) *os.File {
		t.Helper()
		f, err := os.OpenFile(name, unix.O_PATH, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	bind := func(all ...engine.Attachment) (engine.Sandbox, error) {
		t.Helper()
		sb, err := e.Prepare(t.Context(), engine.Template{ID: cove.NewSandboxID(), Network: cove.NetworkNone,
			Rootfs: engine.Rootfs{Kind: engine.RootfsDir, Dir: dir}, Shape: cove.Shape{Limits: limits, User: cove.RootUser}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sb.Destroy(context.WithoutCancel(t.Context())) })
		return sb, sb.Bind(t.Context(), engine.Binding{Hostname: "box", Attachments: all})
	}
	sb, err := bind(engine.Attachment{Place: place(tree), Target: "/etc/tree", Owners: true},
		engine.Attachment{Place: place(filepath.Join(tree, "file")), Target: "/usr/one", Owners: true, ReadOnly: true},
		engine.Attachment{Target: "/root/key", ReadOnly: true, Memory: &engine.Memory{Data: []byte("key"), Mode: 0o440,
			UID: 5, GID: 6}},
		engine.Attachment{Target: "/usr/empty", Memory: &engine.Memory{Mode: 0o1777}},
		engine.Attachment{Target: "/usr/small", Memory: &engine.Memory{Mode: 0o755, Size: 64 << 10}})
	if err != nil {
		t.Fatal(err)
	}
	out, exit := output(t, sb, `stat -c '%u:%g %a' /etc/tree/file /usr/one /root/key /usr/empty
cat /usr/one /root/key; echo; (echo x > /usr/one) 2> /dev/null; (echo x > /root/key) 2> /dev/null
echo mine > /etc/tree/mine && chown 55:66 /etc/tree/mine; echo > /usr/empty/x
i=0; l=01234567890123456789012345678901; while [ $i -lt 200 ]; do echo $l$l; i=$((i+1)); done > /tmp/k
full=; for n in 1 2 3 4 5 6 7 8 9; do cat /tmp/k >> /usr/small/x || full=full; done 2> /dev/null; echo $full`)
	const want = "33:44 640\n33:44 640\n5:6 440\n0:0 1777\ncontentkey\nfull\n"
	if out != want || exit.Code != 0 {
		t.Errorf("%q, %+v, want %q", out, exit, want)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(tree, "mine"), &st); err != nil || st.Uid != 55 || st.Gid != 66 {
		t.Errorf("what it made is of %d:%d outside, %v", st.Uid, st.Gid, err)
	}
	for _, target := range []string{"/", "/proc", "/proc/x", "/sys", "/dev/shm", rootfs.Own, "relative", "/usr/../dev"} {
		_, err := bind(engine.Attachment{Target: target, Memory: &engine.Memory{}})
		if cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("%s: %v", target, err)
		}
	}
}
