package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
)

var fileTests = []test{
	{name: "what is written is read", run: writeRead},
	{name: "a large file in pieces", run: largeFile},
	{name: "writing again replaces", run: overwrite},
	{name: "parents are made", run: parents},
	{name: "modes are kept", run: modes},
	{name: "a file longer than asked for is an error", run: readLimit},
	{name: "stat, list, mkdir, remove", run: directories},
	{name: "names are names", run: oddNames},
	{name: "symlinks are followed inside, and described as links", run: symlinks},
	{name: "symlink loops end", run: symlinkLoops},
	{name: "a FIFO does not hang", run: fifo},
	{name: "a device is no file", run: device},
	{name: "what the user may not", run: filePermissions},
	{name: "paths that make no sense", run: badPaths},
	{name: "processes and the host see the same files", run: sameFiles},
	{name: "a parked program waits for its file", run: parked},
	{name: "no program is parked", run: notParked},
	{name: "a program from a zygote", run: copied},
}

func (x *env) write(t *testing.T, sb engine.Sandbox, path, data string) {
	t.Helper()
	if err := sb.Guest().WriteFile(x.ctx, path, 0o644, []byte(data)); err != nil {
		t.Fatalf("WriteFile %s: %v", path, err)
	}
}

func (x *env) read(t *testing.T, sb engine.Sandbox, path, want string) {
	t.Helper()
	if got, err := sb.Guest().ReadFile(x.ctx, path, 1<<20); err != nil || string(got) != want {
		t.Errorf("ReadFile %s: %q, %v, want %q", path, got, err, want)
	}
}

func writeRead(t *testing.T, x *env) {
	sb := x.bound(t)
	for _, data := range []string{"hello\n", "", "\x00\xff binary"} {
		x.write(t, sb, cove.WorkDir+"/f", data)
		x.read(t, sb, cove.WorkDir+"/f", data)
		info, err := sb.Guest().Stat(x.ctx, cove.WorkDir+"/f")
		if err != nil || info.Size != int64(len(data)) || info.Name != "f" || !fs.FileMode(info.Mode).IsRegular() {
			t.Errorf("Stat: %+v, %v", info, err)
		}
	}
}

func largeFile(t *testing.T, x *env) {
	sb := x.bound(t)
	data := noise(2*guest.MaxPayload + 4321)
	if err := sb.Guest().WriteFile(x.ctx, cove.WorkDir+"/large", 0o644, data); err != nil {
		t.Fatal(err)
	}
	got, err := sb.Guest().ReadFile(x.ctx, cove.WorkDir+"/large", int64(len(data)))
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d of %d bytes came back, equal: %t; %v", len(got), len(data), bytes.Equal(got, data), err)
	}
}

func overwrite(t *testing.T, x *env) {
	sb := x.bound(t)
	x.write(t, sb, cove.WorkDir+"/f", "a long first version")
	x.write(t, sb, cove.WorkDir+"/f", "short")
	x.read(t, sb, cove.WorkDir+"/f", "short")
}

func parents(t *testing.T, x *env) {
	sb := x.bound(t)
	x.write(t, sb, cove.WorkDir+"/a/b/c/f", "deep")
	x.want(t, sb, command("cat", "a/b/c/f"), "deep")
}

func modes(t *testing.T, x *env) {
	sb := x.bound(t)
	for _, mode := range []uint32{0o600, 0o644, 0o755, 0o400} {
		path := fmt.Sprintf("%s/f%o", cove.WorkDir, mode)
		if err := sb.Guest().WriteFile(x.ctx, path, mode, []byte("#!/bin/sh\necho ran\n")); err != nil {
			t.Fatal(err)
		}
		info, err := sb.Guest().Stat(x.ctx, path)
		if err != nil || fs.FileMode(info.Mode) != fs.FileMode(mode) {
			t.Errorf("a file written with mode %o is %+v, %v", mode, info, err)
		}
		if mode == 0o755 {
			x.want(t, sb, command(path), "ran\n")
		}
	}
}

func readLimit(t *testing.T, x *env) {
	sb := x.bound(t)
	x.write(t, sb, cove.WorkDir+"/f", "0123456789")
	if _, err := sb.Guest().ReadFile(x.ctx, cove.WorkDir+"/f", 10); err != nil {
		t.Errorf("exactly at the limit: %v", err)
	}
	_, err := sb.Guest().ReadFile(x.ctx, cove.WorkDir+"/f", 9)
	wantFailure(t, "one byte beyond", err, guest.FailInvalid)
}

func directories(t *testing.T, x *env) {
	sb := x.bound(t)
	g := sb.Guest()
	dir := cove.WorkDir + "/dir"
	if err := g.Mkdir(x.ctx, dir+"/sub", 0o750); err != nil {
		t.Fatalf("Mkdir: %v", err)
	}
	x.write(t, sb, dir+"/one", "1")
	x.write(t, sb, dir+"/two", "22")
	infos, err := g.List(x.ctx, dir)
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	var got []string
	for _, i := range infos {
		got = append(got, fmt.Sprintf("%s %d %t", i.Name, min(i.Size, 9)*b2i(!fs.FileMode(i.Mode).IsDir()),
			fs.FileMode(i.Mode).IsDir()))
	}
	slices.Sort(got)
	if want := []string{"one 1 false", "sub 0 true", "two 2 false"}; !slices.Equal(got, want) {
		t.Errorf("List: %q, want %q", got, want)
	}
	if info, err := g.Stat(x.ctx, dir+"/sub"); err != nil || fs.FileMode(info.Mode) != fs.ModeDir|0o750 {
		t.Errorf("Stat of a directory: %+v, %v", info, err)
	}
	if err := g.Remove(x.ctx, dir); err != nil {
		t.Errorf("Remove: %v", err)
	}
	_, err = g.Stat(x.ctx, dir)
	wantFailure(t, "Stat of what was removed", err, guest.FailNotFound)
	_, err = g.List(x.ctx, dir)
	wantFailure(t, "List of what was removed", err, guest.FailNotFound)
	_, err = g.ReadFile(x.ctx, dir+"/one", 10)
	wantFailure(t, "ReadFile of what was removed", err, guest.FailNotFound)
	_, err = g.ReadFile(x.ctx, cove.WorkDir, 10)
	wantFailure(t, "ReadFile of a directory", err, guest.FailInvalid)
	if infos, err = g.List(x.ctx, cove.WorkDir); err != nil || len(infos) != 0 {
		t.Errorf("List of an empty directory: %+v, %v", infos, err)
	}
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func oddNames(t *testing.T, x *env) {
	sb := x.bound(t)
	for _, name := range []string{"a b", "new\nline", "☃", "-rf", "*", "$HOME", "..x", "...", strings.Repeat("n", 255)} {
		path := cove.WorkDir + "/" + name
		x.write(t, sb, path, name)
		x.read(t, sb, path, name)
		if err := sb.Guest().Remove(x.ctx, path); err != nil {
			t.Errorf("Remove %q: %v", name, err)
		}
	}
}

func symlinks(t *testing.T, x *env) {
	sb := x.bound(t)
	x.write(t, sb, cove.WorkDir+"/real/f", "content")
	x.output(t, sb, command("ln", "-s", "real", "link"))
	x.output(t, sb, command("ln", "-s", "/etc/passwd", "out"))
	x.read(t, sb, cove.WorkDir+"/link/f", "content")
	x.write(t, sb, cove.WorkDir+"/link/g", "through")
	x.read(t, sb, cove.WorkDir+"/real/g", "through")
	info, err := sb.Guest().Stat(x.ctx, cove.WorkDir+"/link")
	if err != nil || info.Target != "real" || fs.FileMode(info.Mode)&fs.ModeSymlink == 0 {
		t.Errorf("Stat of a link: %+v, %v", info, err)
	}
	// A link leads to where it leads inside, with the user's rights.
	err = sb.Guest().WriteFile(x.ctx, cove.WorkDir+"/out", 0o644, []byte("root::0:0::/:/bin/sh\n"))
	wantFailure(t, "writing through a link to what the user may not write", err, guest.FailPermission)
	if err := sb.Guest().Remove(x.ctx, cove.WorkDir+"/link"); err != nil {
		t.Errorf("Remove of a link: %v", err)
	}
	x.read(t, sb, cove.WorkDir+"/real/f", "content")
}

func symlinkLoops(t *testing.T, x *env) {
	sb := x.bound(t)
	x.output(t, sb, command("ln", "-s", "b", "a"))
	x.output(t, sb, command("ln", "-s", "a", "b"))
	_, err := sb.Guest().ReadFile(x.ctx, cove.WorkDir+"/a", 10)
	wantFailure(t, "reading a loop", err, guest.FailInvalid)
	wantFailure(t, "writing below a loop", sb.Guest().WriteFile(x.ctx, cove.WorkDir+"/a/f", 0o644, nil),
		guest.FailInvalid, guest.FailExists)
}

func fifo(t *testing.T, x *env) {
	sb := x.bound(t)
	if r := x.output(t, sb, command("mkfifo", "pipe")); r.exit.Code != 0 {
		t.Fatalf("mkfifo: %+v", r)
	}
	ctx, cancel := context.WithTimeout(x.ctx, 20*time.Second)
	defer cancel()
	_, err := sb.Guest().ReadFile(ctx, cove.WorkDir+"/pipe", 10)
	wantFailure(t, "reading a FIFO", err, guest.FailInvalid)
	wantFailure(t, "writing a FIFO", sb.Guest().WriteFile(ctx, cove.WorkDir+"/pipe", 0o644, []byte("x")),
		guest.FailInvalid)
	if info, err := sb.Guest().Stat(ctx, cove.WorkDir+"/pipe"); err != nil ||
		fs.FileMode(info.Mode)&fs.ModeNamedPipe == 0 {
		t.Errorf("Stat of a FIFO: %+v, %v", info, err)
	}
}

func device(t *testing.T, x *env) {
	sb := x.bound(t)
	_, err := sb.Guest().ReadFile(x.ctx, "/dev/zero", 10)
	wantFailure(t, "reading /dev/zero", err, guest.FailInvalid)
}

func filePermissions(t *testing.T, x *env) {
	sb := x.bound(t)
	g := sb.Guest()
	for _, path := range []string{"/etc/passwd", "/etc/new", "/new", "/usr/bin/new"} {
		wantFailure(t, "writing "+path, g.WriteFile(x.ctx, path, 0o644, []byte("x")), guest.FailPermission)
	}
	wantFailure(t, "making /new", g.Mkdir(x.ctx, "/new", 0o755), guest.FailPermission)
	wantFailure(t, "removing /etc/passwd", g.Remove(x.ctx, "/etc/passwd"), guest.FailPermission)
	if err := g.WriteFile(x.ctx, cove.WorkDir+"/closed", 0o200, []byte("x")); err != nil {
		t.Fatal(err)
	}
	_, err := g.ReadFile(x.ctx, cove.WorkDir+"/closed", 10)
	wantFailure(t, "reading a file without the r bit", err, guest.FailPermission)
	// The control: the same paths can be read.
	if b, err := g.ReadFile(x.ctx, "/etc/passwd", 1<<20); err != nil || !strings.Contains(string(b), "root:") {
		t.Errorf("/etc/passwd: %q, %v", b, err)
	}
}

func badPaths(t *testing.T, x *env) {
	g := x.bound(t).Guest()
	for _, path := range []string{"", "relative", "./x", "/a\x00b", "/work/" + strings.Repeat("n", 256), "/work" +
		strings.Repeat("/d", 3000)} {
		wantFailure(t, fmt.Sprintf("writing %.20q", path), g.WriteFile(x.ctx, path, 0o644, nil), guest.FailInvalid)
		_, err := g.ReadFile(x.ctx, path, 10)
		wantFailure(t, fmt.Sprintf("reading %.20q", path), err, guest.FailInvalid, guest.FailNotFound)
	}
	if _, err := g.List(x.ctx, cove.WorkDir); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func sameFiles(t *testing.T, x *env) {
	sb := x.bound(t)
	x.write(t, sb, cove.WorkDir+"/in", "from the host")
	x.want(t, sb, command("cat", "in"), "from the host")
	x.output(t, sb, shell("echo from inside > out"))
	x.read(t, sb, cove.WorkDir+"/out", "from inside\n")
}

// parked: a program begins to read its file before the file is there, and then has what it would have had.
func parked(t *testing.T, x *env) {
	sb := x.bound(t)
	const path, script = cove.WorkDir + "/main.sh", "echo \"$0 says\"\nexit 7\n"
	if err := guest.Park(x.ctx, sb.Guest(), path); err != nil {
		t.Fatal(err)
	}
	p, err := sb.Guest().Start(x.ctx, command("sh", "main.sh"))
	if err != nil {
		t.Fatal(err)
	}
	if err := guest.Release(x.ctx, sb.Guest(), path, 0o644, []byte(script)); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(p.Stdout())
	if exit, waited := p.Wait(x.ctx); err != nil || waited != nil || exit.Code != 7 || string(out) != "main.sh says\n" {
		t.Errorf("%q, %v, %+v, %v", out, err, exit, waited)
	}
	x.read(t, sb, path, script)
	infos, err := sb.Guest().List(x.ctx, cove.WorkDir)
	if err != nil || len(infos) != 1 || infos[0].Mode != 0o644 {
		t.Errorf("beside and at the place of the pipe: %+v, %v", infos, err)
	}
}

// copied: programs that are made from a zygote of a parked one wait as it does, in sandboxes of their own, for the
// Start that asks for them.
func copied(t *testing.T, x *env) {
	if !x.caps.Zygotes || x.suite.Lifetime == cove.LifetimeDetached {
		sb := x.bound(t)
		p := x.start(t, sb, command("sleep", "1000"))
		if f, err := guest.MakeZygote(x.ctx, p, cove.WorkDir+"/main.sh"); err == nil {
			f.Close()
			t.Error("an engine without zygotes makes one")
		}
		return
	}
	first := x.bound(t)
	const path = cove.WorkDir + "/main.sh"
	spec := command("sh", "main.sh")
	if err := guest.Park(x.ctx, first.Guest(), path); err != nil {
		t.Fatal(err)
	}
	parent := x.start(t, first, spec)
	if _, err := guest.MakeZygote(x.ctx, parent, cove.WorkDir+"/other.sh"); err == nil {
		t.Error("a zygote of a program that waits elsewhere")
	}
	zygote, err := guest.MakeZygote(x.ctx, parent, path)
	if err != nil {
		t.Fatal(err)
	}
	defer zygote.Close()
	sandboxes, programs := []engine.Sandbox{first}, []*guest.RemoteProcess{parent}
	for range 2 {
		sb := x.prepare(t)
		copied := &engine.Copy{Zygote: zygote, Path: path, Spec: spec}
		if err := sb.Bind(x.ctx, engine.Binding{Copy: copied}); err != nil {
			t.Fatal(err)
		}
		other := spec
		other.Args = []string{"sh", "other.sh"}
		_, err := sb.Guest().Start(x.ctx, other)
		if failure, ok := errors.AsType[*guest.Failure](err); !ok || failure.Kind != guest.FailState {
			t.Errorf("another program starts beside the copy: %v", err)
		}
		sandboxes, programs = append(sandboxes, sb), append(programs, x.start(t, sb, spec))
	}
	for i, p := range programs {
		script := fmt.Sprintf("echo \"$0 says %d\"; sleep 0; exit %d\n", i, 7+i)
		if err := guest.Release(x.ctx, sandboxes[i].Guest(), path, 0o644, []byte(script)); err != nil {
			t.Fatal(err)
		}
		if got := x.finish(t, p); got.exit.Code != 7+i || got.stdout != fmt.Sprintf("main.sh says %d\n", i) {
			t.Errorf("program %d: %+v", i, got)
		}
		x.want(t, sandboxes[i], command("cat", "main.sh"), script) // another one starts after it
	}
}

func notParked(t *testing.T, x *env) {
	sb := x.bound(t)
	const path = cove.WorkDir + "/main.sh"
	release := func(path string, data []byte, want guest.FailureKind) {
		t.Helper()
		err := guest.Release(x.ctx, sb.Guest(), path, 0o644, data)
		if failure, ok := errors.AsType[*guest.Failure](err); !ok || failure.Kind != want {
			t.Errorf("Release of %d bytes at %s: %v, want %s", len(data), path, err, want)
		}
	}
	release(path, []byte("x"), guest.FailState)
	if err := guest.Park(x.ctx, sb.Guest(), path); err != nil {
		t.Fatal(err)
	}
	release(path, make([]byte, guest.MaxParked+1), guest.FailInvalid)
	release(cove.WorkDir+"/other.sh", []byte("x"), guest.FailState)
}
