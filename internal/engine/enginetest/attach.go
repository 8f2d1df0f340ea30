package enginetest

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/hostpath"
)

// attached is a sandbox that is shown a directory, or a file in it, as a says.
func (x *env) attached(t *testing.T, dir, name string, a engine.Attachment, mounts ...cove.Mount) engine.Sandbox {
	t.Helper()
	b := engine.Binding{Hostname: "sandbox", Mounts: mounts}
	defer func() { b.Close() }()
	if err := b.Attach(hostpath.Own{Dir: dir, Name: name}, a); err != nil {
		t.Fatal(err)
	}
	sb := x.prepare(t)
	if err := sb.Bind(x.ctx, b); err != nil {
		t.Fatalf("Bind: %v", err)
	}
	return sb
}

func attachReadOnly(t *testing.T, x *env) {
	dir := x.shared(t)
	sb := x.attached(t, dir, ".", engine.Attachment{Target: cove.Workspace, ReadOnly: true})
	x.want(t, sb, command("cat", cove.Workspace+"/given"), "by the host")
	for _, script := range []string{"echo taken > given", "echo new > new", "rm -f given"} {
		r := x.output(t, sb, shell("cd "+cove.Workspace+" && "+script))
		if r.exit.Code == 0 || !strings.Contains(r.stderr, "Read-only file system") {
			t.Errorf("%q in a read-only attachment: %+v", script, r)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "given")); err != nil || string(b) != "by the host" {
		t.Errorf("the host's file is %q, %v", b, err)
	}
}

// attachWritable: what the sandbox's user makes is the attachment's owner's on the
// host, and the other way round, where the engine maps owners.
func attachWritable(t *testing.T, x *env) {
	dir := x.shared(t)
	if x.caps.MountOwners {
		for _, place := range []string{dir, filepath.Join(dir, "given")} {
			if err := os.Chmod(place, 0o700); err != nil { // its owner's alone
				t.Fatal(err)
			}
		}
	}
	sb := x.attached(t, dir, ".", engine.Attachment{Target: cove.Workspace})
	x.want(t, sb, shell("cd "+cove.Workspace+" && echo from inside > new && cat given"), "by the host")
	if b, err := os.ReadFile(filepath.Join(dir, "new")); err != nil || string(b) != "from inside\n" {
		t.Errorf("the host finds %q, %v", b, err)
	}
	if !x.caps.MountOwners {
		return
	}
	script := "cd " + cove.Workspace + " && echo more >> given; test -O given && test -O new && echo mine"
	x.want(t, sb, shell(script), "mine\n")
	if got, want := ownerOf(t, filepath.Join(dir, "new")), ownerOf(t, dir); got != want {
		t.Errorf("a new file belongs to %d on the host, its directory to %d", got, want)
	}
}

func ownerOf(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

func attachFlags(t *testing.T, x *env) {
	if !x.caps.MountFlags {
		t.Skip("the engine has no flags for mounts")
	}
	dir := x.shared(t)
	if err := os.WriteFile(filepath.Join(dir, "program"), []byte("#!/bin/sh\necho runs\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("given", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	sb := x.attached(t, dir, ".", engine.Attachment{Target: "/shared", NoExec: true, NoFollow: true})
	script := "/shared/program; echo $?; readlink /shared/link; cat /shared/link; echo $?; cat /shared/given"
	r := x.output(t, sb, shell(script))
	if r.stdout != "126\ngiven\n1\nby the host" {
		t.Errorf("%q %q", r.stdout, r.stderr)
	}
}

func attachFile(t *testing.T, x *env) {
	dir := x.shared(t)
	sb := x.attached(t, dir, "given", engine.Attachment{Target: "/opt/cove/only/this", ReadOnly: true})
	x.want(t, sb, command("cat", "/opt/cove/only/this"), "by the host")
}

// attachUnjudged: a directory that a user may not name is attached where it is
// Cove's own, and the user's wish is refused with the reason.
func attachUnjudged(t *testing.T, x *env) {
	dir := x.shared(t)
	own := filepath.Join(dir, ".local", "share", "cove", "workspaces", "one")
	if err := os.MkdirAll(own, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(own, "file"), []byte("of Cove's own"), 0o644); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, ".local", "share", "cove")
	sb := x.attached(t, home, "workspaces/one", engine.Attachment{Target: cove.Workspace})
	x.want(t, sb, command("cat", cove.Workspace+"/file"), "of Cove's own")

	sb = x.prepare(t)
	err := sb.Bind(x.ctx, engine.Binding{Mounts: []cove.Mount{{Source: own, Target: cove.Workspace}}})
	wantCode(t, "Bind", err, cove.Forbidden)
	if err != nil && !strings.Contains(err.Error(), "is refused: .local/share/cove") {
		t.Errorf("the reason is not said: %v", err)
	}
}

func attachBelow(t *testing.T, x *env) {
	dir, users := x.shared(t), x.shared(t)
	if err := os.Mkdir(filepath.Join(dir, "users"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(users, "given"), []byte("by the user"), 0o644); err != nil {
		t.Fatal(err)
	}
	sb := x.attached(t, dir, ".", engine.Attachment{Target: cove.Workspace},
		cove.Mount{Source: users, Target: cove.Workspace + "/users", ReadOnly: true})
	x.want(t, sb, command("cat", cove.Workspace+"/given", cove.Workspace+"/users/given"), "by the hostby the user")
}

// attachSwapped: whatever is put at its path after it was opened, a sandbox has
// the directory that was opened, or is not made.
func attachSwapped(t *testing.T, x *env) {
	base, bait := x.shared(t), x.shared(t)
	if err := os.WriteFile(filepath.Join(bait, "given"), []byte("the bait"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, swap := range map[string]func(place string) error{
		"for a link":              func(place string) error { return os.Symlink(bait, place) },
		"for another directory":   func(place string) error { return os.Rename(bait, place) },
		"for nothing":             func(string) error { return nil },
		"for a link on the way":   nil,
		"for itself, which stays": nil,
	} {
		place := filepath.Join(base, "way", "place")
		if err := os.MkdirAll(place, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(place, "given"), []byte("by the host"), 0o644); err != nil {
			t.Fatal(err)
		}
		var b engine.Binding
		if err := b.Attach(hostpath.Below(base, place), engine.Attachment{Target: cove.Workspace}); err != nil {
			t.Fatal(err)
		}
		aside := filepath.Join(base, "aside")
		var err error
		switch {
		case swap != nil:
			if err = os.Rename(place, aside); err == nil {
				err = swap(place)
			}
		case name == "for a link on the way":
			if err = os.Rename(filepath.Dir(place), aside); err == nil {
				err = os.Symlink(bait, filepath.Dir(place))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		sb := x.prepare(t)
		if err = sb.Bind(x.ctx, b); err == nil {
			if r := x.output(t, sb, command("cat", cove.Workspace+"/given")); r.stdout != "by the host" {
				t.Errorf("%s: inside is %q", name, r.stdout)
			}
		} else if name == "for itself, which stays" {
			t.Errorf("%s: %v", name, err)
		}
		b.Close()
		x.destroy(t, sb)
		os.RemoveAll(aside)
		os.RemoveAll(filepath.Dir(place))
		os.MkdirAll(bait, 0o777)
		if err := os.WriteFile(filepath.Join(bait, "given"), []byte("the bait"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
