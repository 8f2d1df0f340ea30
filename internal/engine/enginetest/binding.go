package enginetest

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/linux/relayed"
)

var bindingTests = []test{
	{name: "the host name is what was asked for", kernel: true, run: hostName},
	{name: "a directory read-only", kernel: true, run: mountReadOnly},
	{name: "a directory whose programs do not run", kernel: true, run: mountNoExec},
	{name: "a directory whose symbolic links lead nowhere", kernel: true, run: mountNoFollow},
	{name: "a directory to write to", kernel: true, run: mountWritable},
	{name: "a single file", kernel: true, run: mountFile},
	{name: "a mount keeps what was prepared out of the way", kernel: true, run: mountTwice},
	{name: "a source that is not there", kernel: true, run: mountMissing},
	{name: "an attachment read-only", kernel: true, run: attachReadOnly},
	{name: "an attachment to write to is the user's", kernel: true, run: attachWritable},
	{name: "an attachment whose programs and links lead nowhere", kernel: true, run: attachFlags},
	{name: "an attachment of one file", kernel: true, run: attachFile},
	{name: "an attachment where no user's mount may be from", kernel: true, run: attachUnjudged},
	{name: "mounts lie on attachments", kernel: true, run: attachBelow},
	{name: "an attachment that is swapped is what was opened", kernel: true, run: attachSwapped},
	{name: "an overlay leaves what is below as it is", kernel: true, run: overlayApart},
	{name: "an overlay counts for the disk limit", kernel: true, run: overlayCounts},
	{name: "an overlay whose changes are kept", kernel: true, run: overlayKept},
	{name: "an overlay below which files go", kernel: true, run: overlayLater},
	{name: "an overlay with something in its place", kernel: true, run: overlayWithout},
	{name: "an overlay that the engine cannot make", kernel: true, run: overlayUnsupported},
	{name: "a file of Cove's own", kernel: true, run: ownFile},
	{name: "a listener in the sandbox's network", kernel: true, run: listener},
	{name: "a connection into the sandbox", kernel: true, run: reach},
	{name: "every way out leads to the listeners", kernel: true, run: waysOut},
}

func hostName(t *testing.T, x *env) {
	sb := x.prepare(t)
	if err := sb.Bind(x.ctx, engine.Binding{Hostname: "some-name"}); err != nil {
		t.Fatalf("Bind: %v", err)
	}
	x.want(t, sb, command("cat", "/proc/sys/kernel/hostname"), "some-name\n")
}

// shared is a host directory for a sandbox to have.
func (x *env) shared(t *testing.T) string {
	t.Helper()
	if !x.caps.LateMount {
		t.Skip("the engine attaches nothing: " + x.caps.Missing["late_mount"])
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "given"), []byte("by the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (x *env) mounted(t *testing.T, mounts ...cove.Mount) engine.Sandbox {
	t.Helper()
	sb := x.prepare(t)
	if err := sb.Bind(x.ctx, engine.Binding{Hostname: "sandbox", Mounts: mounts}); err != nil {
		t.Fatalf("Bind: %v", err)
	}
	return sb
}

func mountReadOnly(t *testing.T, x *env) {
	dir := x.shared(t)
	sb := x.mounted(t, cove.Mount{Source: dir, Target: cove.Workspace, ReadOnly: true})
	x.want(t, sb, command("cat", cove.Workspace+"/given"), "by the host")
	r := x.output(t, sb, shell("echo taken > "+cove.Workspace+"/given"))
	if r.exit.Code == 0 || !strings.Contains(r.stderr, "Read-only file system") {
		t.Errorf("writing to a read-only mount: %+v", r)
	}
	if r = x.output(t, sb, shell("echo new > "+cove.Workspace+"/new")); r.exit.Code == 0 {
		t.Errorf("a new file in a read-only mount: %+v", r)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "given")); err != nil || string(b) != "by the host" {
		t.Errorf("the host's file is %q, %v", b, err)
	}
}

func mountNoExec(t *testing.T, x *env) {
	dir := x.shared(t)
	if err := os.WriteFile(filepath.Join(dir, "program"), []byte("#!/bin/sh\necho runs\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	mount := cove.Mount{Source: dir, Target: "/shared", NoExec: true}
	if !x.caps.MountFlags {
		sb := x.prepare(t)
		if err := sb.Bind(x.ctx, engine.Binding{Mounts: []cove.Mount{mount}}); cove.ErrorCode(err) != cove.Unsupported {
			t.Errorf("Bind: %v", err)
		}
		return
	}
	sb := x.mounted(t, mount)
	r := x.output(t, sb,
		shell("/shared/program; echo $?; sh /shared/program; echo more > /shared/more && cat /shared/more"))
	if r.stdout != "126\nruns\nmore\n" {
		t.Errorf("%q %q", r.stdout, r.stderr)
	}
}

func mountNoFollow(t *testing.T, x *env) {
	if !x.caps.MountFlags {
		t.Skip("the engine has no flags for mounts")
	}
	dir := x.shared(t)
	for name, target := range map[string]string{"up": "/", "file": "given"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	sb := x.mounted(t, cove.Mount{Source: dir, Target: "/shared", NoFollow: true})
	r := x.output(t, sb,
		shell("readlink /shared/up; cd /shared/up 2>/dev/null; echo $?; cat /shared/file 2>/dev/null; echo $?; cat "+
			"/shared/given"))
	if r.stdout != "/\n2\n1\nby the host" {
		t.Errorf("%q %q", r.stdout, r.stderr)
	}
}

func mountWritable(t *testing.T, x *env) {
	dir := x.shared(t)
	sb := x.mounted(t, cove.Mount{Source: dir, Target: cove.Workspace})
	x.want(t, sb, shell("echo from inside > "+cove.Workspace+"/new; cat "+cove.Workspace+"/given"), "by the host")
	if b, err := os.ReadFile(filepath.Join(dir, "new")); err != nil || string(b) != "from inside\n" {
		t.Errorf("the host finds %q, %v", b, err)
	}
	x.destroy(t, sb)
	if b, err := os.ReadFile(filepath.Join(dir, "given")); err != nil || string(b) != "by the host" {
		t.Errorf("after Destroy the host's file is %q, %v", b, err)
	}
}

func mountFile(t *testing.T, x *env) {
	dir := x.shared(t)
	sb := x.mounted(t, cove.Mount{Source: filepath.Join(dir, "given"), Target: "/work/only/this", ReadOnly: true})
	x.want(t, sb, command("cat", "/work/only/this"), "by the host")
}

func mountTwice(t *testing.T, x *env) {
	dir := x.shared(t)
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	sb := x.mounted(t,
		cove.Mount{Source: dir, Target: cove.Workspace, ReadOnly: true},
		cove.Mount{Source: dir, Target: "/work/again", ReadOnly: true})
	x.want(t, sb, command("cat", cove.Workspace+"/given", "/work/again/given"), "by the hostby the host")
	x.want(t, sb, shell("echo mine > /work/f; cat /work/f"), "mine\n")
}

func mountMissing(t *testing.T, x *env) {
	dir := x.shared(t)
	sb := x.prepare(t)
	err := sb.Bind(x.ctx, engine.Binding{Hostname: "sandbox", Mounts: []cove.Mount{{Source: filepath.Join(dir, "nowhere"),
		Target: cove.Workspace}}})
	wantCode(t, "Bind", err, cove.NotFound)
	if _, err := os.Stat(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("the missing directory was made on the host")
	}
	x.destroyed(t, sb)
}

// ownFile: shown read-only in place of what the root filesystem has, and made where it has nothing.
func ownFile(t *testing.T, x *env) {
	if !x.caps.Files {
		t.Skip("the engine shows no files of Cove's own: " + x.caps.Missing["files"])
	}
	dir := t.TempDir()
	for d := dir; d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("by Cove\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	sb := x.prepare(t)
	b := engine.Binding{Hostname: "sandbox"}
	err := b.Show(hostpath.Own{Dir: dir, Name: "file"}, engine.File{Target: "/etc/passwd"},
		engine.File{Target: "/etc/some/where/new"},
		engine.File{Target: "/etc/group", Existing: true}, engine.File{Target: "/etc/nowhere", Existing: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := sb.Bind(x.ctx, b); err != nil {
		t.Fatalf("Bind: %v", err)
	}
	x.want(t, sb, command("cat", "/etc/passwd", "/etc/some/where/new", "/etc/group"), "by Cove\nby Cove\nby Cove\n")
	if r := x.output(t, sb, command("cat", "/etc/nowhere")); r.exit.Code == 0 {
		t.Errorf("made where nothing was: %+v", r)
	}
	r := x.output(t, sb, command("sh", "-c", "echo more >> /etc/some/where/new"))
	if r.exit.Code == 0 || !strings.Contains(r.stderr, "Read-only") && !strings.Contains(r.stderr, "denied") {
		t.Errorf("written to: %+v", r)
	}
}

func reach(t *testing.T, x *env) {
	if !x.caps.Listeners {
		t.Skip("the engine makes no listeners: " + x.caps.Missing["listeners"])
	}
	for _, at := range []guest.Listen{{Network: "tcp4", Address: "127.0.0.1:8080"},
		{Network: "tcp6", Address: "[::1]:8080"}} {
		sb := x.prepare(t)
		if err := sb.Bind(x.ctx, engine.Binding{Hostname: "sandbox", Listeners: []guest.Listen{at}}); err != nil {
			t.Fatalf("Bind: %v", err)
		}
		x.reaches(t, sb, 8080, sb.Listeners())
	}
}

// reaches has the host connect to a port at which one of the sandbox's sockets listens, twice, and to one where none
// does.
func (x *env) reaches(t *testing.T, sb engine.Sandbox, port uint16, listeners []*os.File) {
	t.Helper()
	if !x.caps.Reach {
		t.Skip("the engine connects into no sandbox: " + x.caps.Missing["reach"])
	}
	r, ok := sb.(engine.Reacher)
	if !ok || len(listeners) != 1 {
		t.Fatalf("it says that it can be connected to, and is no Reacher; or has %d listeners", len(listeners))
	}
	ln, err := net.FileListener(listeners[0])
	listeners[0].Close()
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, word := range []string{"first", "second"} {
		c, err := r.Reach(x.ctx, port)
		if err != nil {
			t.Fatalf("Reach: %v", err)
		}
		inside, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(inside, word)
		inside.Close()
		if said, err := io.ReadAll(c); string(said) != word {
			t.Errorf("it says %q, %v; want %q", said, err, word)
		}
		c.Close()
	}
	_, err = r.Reach(x.ctx, port+1)
	wantCode(t, "connecting where nothing listens", err, cove.Unavailable)
	x.destroy(t, sb)
	_, err = r.Reach(x.ctx, port)
	wantCode(t, "connecting into one that is gone", err, cove.Unavailable)
}

func listener(t *testing.T, x *env) {
	if !x.caps.Listeners {
		t.Skip("the engine makes no listeners: " + x.caps.Missing["listeners"])
	}
	sb := x.prepare(t)
	if err := sb.Bind(x.ctx, engine.Binding{Hostname: "sandbox",
		Listeners: []guest.Listen{{Network: "tcp4", Address: "127.0.0.1:8080"}}}); err != nil {
		t.Fatalf("Bind: %v", err)
	}
	files := sb.Listeners()
	if len(files) != 1 {
		t.Fatalf("%d listeners, want 1", len(files))
	}
	defer files[0].Close()
	ln, err := relayed.Listener(files[0], "127.0.0.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		ln.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now().Add(20 * time.Second))
		c, err := ln.Accept()
		if err != nil {
			t.Errorf("Accept: %v", err)
			return
		}
		defer c.Close()
		c.Write([]byte("from the host\n"))
	}()
	x.want(t, sb, command("bash", "-c", "cat < /dev/tcp/127.0.0.1/8080"), "from the host\n")
	<-served
}
