//go:build linux

package native

import (
	"bytes"
	"context"
	"debug/elf"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// groupParent is this test process's own: others may test at the same time.
var groupParent = "cove-test-" + strconv.Itoa(os.Getpid())

// open makes an engine with a run directory of its own.
func open(t testing.TB) *Engine {
	t.Helper()
	run := t.TempDir()
	passable(run)
	return openIn(t, run)
}

// openIn is an engine, and the instance that it belongs to, in a run directory.
func openIn(t testing.TB, run string) *Engine {
	t.Helper()
	bin := enginetest.BuildGuest(t)
	in, err := instance.Hold(run)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{Guest: bin, RunDir: run, Instance: in.ID, CgroupParent: groupParent,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Ready: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(); in.Release() })
	return e
}

// passable lets guests through to a directory of a test.
func passable(dir string) {
	for ; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		os.Chmod(dir, 0o755)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: idmapped mounts and id ranges")
	}
}

var limits = cove.Limits{Memory: 256 << 20, CPUs: 1, PIDs: 50, Disk: 100 << 20, Inodes: 20000, OpenFiles: 1024}

// run makes a sandbox on a root filesystem, runs a shell script in it, and returns what it printed.
func run(t *testing.T, e *Engine, root engine.Rootfs, b engine.Binding, script string) (string, guest.Exit) {
	t.Helper()
	sb := bound(t, e, root, b)
	defer sb.Destroy(context.Background())
	return output(t, sb, script)
}

// bound makes a sandbox on a root filesystem and binds it.
func bound(t *testing.T, e *Engine, root engine.Rootfs, b engine.Binding) engine.Sandbox {
	t.Helper()
	ctx := context.Background()
	sb, err := e.Prepare(ctx, engine.Template{
		ID: cove.NewSandboxID(), Shape: cove.Shape{Limits: limits, User: cove.CodeUser},
		Rootfs: root, Network: cove.NetworkNone,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Bind(ctx, b); err != nil {
		sb.Destroy(ctx)
		t.Fatal(err)
	}
	return sb
}

// output runs a shell script in a sandbox and returns what it printed.
func output(t *testing.T, sb engine.Sandbox, script string) (string, guest.Exit) {
	t.Helper()
	ctx := context.Background()
	p, err := sb.Guest().Start(ctx, guest.ProcessSpec{Args: []string{"sh", "-c", script + "\n"},
		Env: rootfs.Env(cove.CodeUser), Dir: "/", Alone: true})
	if err != nil {
		t.Fatal(err)
	}
	var errs []byte
	done := make(chan struct{})
	go func() { errs, _ = io.ReadAll(p.Stderr()); close(done) }()
	out, _ := io.ReadAll(p.Stdout())
	<-done
	exit, err := p.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return string(out) + string(errs), exit
}

// TestGroupsGoWithTheirEngines, their parent with the last of them.
func TestGroupsGoWithTheirEngines(t *testing.T) {
	exists := func() (found []string) {
		filepath.WalkDir(cgroup.Mount, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && d.Name() == groupParent {
				found = append(found, path)
			}
			return nil
		})
		return found
	}
	one, other := open(t), open(t)
	parents := exists()
	if len(parents) == 0 {
		t.Skip("there are no control groups to make any in")
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	if found := exists(); !slices.Equal(found, parents) {
		t.Errorf("of %v, which an engine uses, only this is left: %v", parents, found)
	}
	_, err := os.Stat(filepath.Join(parents[0], "cgroup.pressure"))
	slow := err != nil && other.hierarchy.Version() == 2
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	if slow {
		t.Skip("this kernel enables controllers slowly, so that the parent stays")
	}
	if found := exists(); len(found) != 0 {
		t.Errorf("left behind: %v", found)
	}
}

// TestMountKeepsOwnership: files in a mount are the sandbox's user's inside and
// their owner's outside, those made inside as well.
func TestMountKeepsOwnership(t *testing.T) {
	needRoot(t)
	e := open(t)
	for name, uid := range map[string]int{"root's": 0, "a user's": 4711} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "old"), []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, p := range []string{dir, filepath.Join(dir, "old")} {
				if err := os.Chown(p, uid, uid); err != nil {
					t.Fatal(err)
				}
			}
			b := engine.Binding{Mounts: []cove.Mount{{Source: dir, Target: "/data"}}}
			out, exit := run(t, e, engine.Rootfs{Kind: engine.RootfsHost}, b,
				"cat /data/old; stat -c %u /data/old; echo new > /data/new; chmod 755 /data/new")
			if exit.Code != 0 || out != "old65534\n" {
				t.Errorf("%q, %+v", out, exit)
			}
			fi, err := os.Stat(filepath.Join(dir, "new"))
			if err != nil {
				t.Fatal(err)
			}
			if st := fi.Sys().(*syscall.Stat_t); int(st.Uid) != uid || int(st.Gid) != uid {
				t.Errorf("the new file belongs to %d:%d, want %d", st.Uid, st.Gid, uid)
			}
		})
	}
}

// TestImageIsPrivate: a sandbox writes to its own overlay; the tree stays as it is, with the owners it has.
func TestImageIsPrivate(t *testing.T) {
	needRoot(t)
	e := open(t)
	dir := imageTree(t)
	if err := os.WriteFile(filepath.Join(dir, "etc", "secret"), []byte("root only"), 0o600); err != nil {
		t.Fatal(err)
	}
	root := engine.Rootfs{Kind: engine.RootfsDir, Dir: dir}
	out, _ := run(t, e, root, engine.Binding{}, `
stat -c '%u %a' /etc/secret
cat /etc/secret
echo mine > /shared/mine && cat /shared/mine
echo changed > /shared/file && cat /shared/file
cat /etc/hostname`)
	for _, want := range []string{"0 600\n", "Permission denied", "mine\n", "changed\n", "cove\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %q", want, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "shared", "mine")); err == nil {
		t.Error("a file of the sandbox is in the image")
	}
	if data, _ := os.ReadFile(filepath.Join(dir, "shared", "file")); string(data) != "original" {
		t.Errorf("the image's file is %q", data)
	}
	if out, _ := run(t, e, root, engine.Binding{}, "cat /shared/file"); out != "original" {
		t.Errorf("the next sandbox sees %q", out)
	}
}

// TestImageDirectories: who may can remove directories that the image came with and make them anew, where the kernel's
// tmpfs can take note of that (6.6); elsewhere there is an error, and the doctor says why.
func TestImageDirectories(t *testing.T) {
	e := open(t)
	dir := imageTree(t)
	deep := filepath.Join(dir, "shared", "old", "deep")
	if err := os.MkdirAll(deep, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{deep, filepath.Dir(deep)} {
		os.Chmod(d, 0o777)
		if err := os.WriteFile(filepath.Join(d, "file"), []byte("original"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	works := enginetest.TmpfsXattrs(t)
	for name, c := range map[string]struct{ script, want string }{
		"removed":               {"rm -r /shared/old && ls /shared", "file\n"},
		"removed and made anew": {"rm -r /shared/old && mkdir /shared/old && ls -A /shared/old", ""},
		"moved": {"mv /shared/old /shared/new && ls /shared && cat /shared/new/deep/file",
			"file\nnew\noriginal"},
	} {
		t.Run(name, func(t *testing.T) {
			out, exit := run(t, e, engine.Rootfs{Kind: engine.RootfsDir, Dir: dir}, engine.Binding{}, c.script)
			if works && (exit.Code != 0 || out != c.want) {
				t.Errorf("exit code %d, %q, want %q", exit.Code, out, c.want)
			}
			if !works && (exit.Code == 0 || !strings.Contains(out, "Input/output error")) {
				t.Errorf("exit code %d, %q, want an error", exit.Code, out)
			}
			if data, _ := os.ReadFile(filepath.Join(deep, "file")); string(data) != "original" {
				t.Errorf("the image's file is %q", data)
			}
		})
	}
}

// imageTree is a small root filesystem with some of the host's programs in it.
func imageTree(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "image")
	passable(filepath.Dir(dir))
	for _, d := range []string{"", "etc", "shared"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	os.Chmod(filepath.Join(dir, "shared"), 0o777)
	if err := os.WriteFile(filepath.Join(dir, "shared", "file"), []byte("original"), 0o666); err != nil {
		t.Fatal(err)
	}
	os.Chmod(filepath.Join(dir, "shared", "file"), 0o666)
	for _, name := range []string{"sh", "cat", "stat", "ls", "rm", "mkdir", "mv"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		copyProgram(t, dir, path, "/bin/"+name)
	}
	return dir
}

// copyProgram copies a program, and the libraries it is linked with, into a tree where its loader finds them.
func copyProgram(t *testing.T, root, from, to string) {
	t.Helper()
	to = filepath.Join(root, to)
	if _, err := os.Stat(to); err == nil {
		return
	}
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	program, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(from, err)
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			loader, _ := io.ReadAll(p.Open())
			path := strings.TrimRight(string(loader), "\x00")
			copyProgram(t, root, path, path)
		}
	}
	libraries, _ := program.ImportedLibraries()
	for _, name := range libraries {
		found, _ := filepath.Glob("/lib/*-linux-gnu/" + name)
		if found == nil {
			found, _ = filepath.Glob("/lib*/" + name)
		}
		if found == nil {
			t.Fatalf("%s needs %s, which is not where it is looked for", from, name)
		}
		copyProgram(t, root, found[0], found[0])
	}
}

// TestHostileImage: links in an image where the sandbox has its own places
// lead nowhere: they are replaced inside, or refused.
func TestHostileImage(t *testing.T) {
	needRoot(t)
	e := open(t)
	for _, place := range []string{"proc", "sys", "dev"} {
		t.Run(place+" is a link", func(t *testing.T) {
			dir := imageTree(t)
			if err := os.Symlink("/shared", filepath.Join(dir, place)); err != nil {
				t.Fatal(err)
			}
			_, err := e.Prepare(t.Context(), engine.Template{
				ID: cove.NewSandboxID(), Shape: cove.Shape{Limits: limits, User: cove.CodeUser},
				Rootfs: engine.Rootfs{Kind: engine.RootfsDir, Dir: dir}, Network: cove.NetworkNone,
			})
			if cove.ErrorCode(err) != cove.Unavailable || !strings.Contains(err.Error(), "symbolic link") {
				t.Errorf("got %v", err)
			}
		})
	}
	canary := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(canary, []byte("untouched"), 0o666); err != nil {
		t.Fatal(err)
	}
	passable(filepath.Dir(canary))
	dir := imageTree(t)
	for _, name := range []string{"etc/resolv.conf", "etc/hosts", "work", "tmp"} {
		if err := os.Symlink(canary, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	sb, err := e.Prepare(t.Context(), engine.Template{
		ID: cove.NewSandboxID(), Shape: cove.Shape{Limits: limits, User: cove.CodeUser},
		Rootfs: engine.Rootfs{Kind: engine.RootfsDir, Dir: dir}, Network: cove.NetworkNone,
	})
	if err == nil {
		sb.Destroy(t.Context())
	}
	if data, _ := os.ReadFile(canary); string(data) != "untouched" {
		t.Errorf("a file of the host is now %q", data)
	}
}

// TestOneProcess: the user has all of a limit of one, however often, and not many more.
func TestOneProcess(t *testing.T) {
	needRoot(t)
	e := open(t)
	for range 40 {
		ctx := t.Context()
		one := limits
		one.PIDs = 1
		sb, err := e.Prepare(ctx, engine.Template{
			ID: cove.NewSandboxID(), Shape: cove.Shape{Limits: one, User: cove.CodeUser},
			Rootfs: engine.Rootfs{Kind: engine.RootfsHost}, Network: cove.NetworkNone,
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := tasks(t, sb.(*sandbox)); n != 1 {
			t.Errorf("a new sandbox counts %d tasks", n)
		}
		err = sb.Bind(ctx, engine.Binding{})
		if err == nil {
			err = sb.Guest().WriteFile(ctx, cove.WorkDir+"/x", 0o644, []byte("x"))
		}
		if err != nil {
			t.Fatal(err)
		}
		p, err := sb.Guest().Start(ctx, guest.ProcessSpec{Args: []string{"sh", "-c", "for i in 1 2 3 4; do sleep 5 & done"},
			Env: rootfs.Env(cove.CodeUser), Dir: "/", Alone: true})
		if err != nil {
			t.Fatalf("the first process was refused: %v", err)
		}
		io.Copy(io.Discard, p.Stdout())
		if exit, err := p.Wait(ctx); err != nil || exit.Code == 0 {
			t.Errorf("five processes were not refused: %+v, %v", exit, err)
		}
		sb.Destroy(ctx)
	}
}
