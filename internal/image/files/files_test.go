package files

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/image/layer"
	"github.com/cove-sandbox/cove/internal/image/unpack"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/test/await"
	"github.com/cove-sandbox/cove/test/delegate"
	"github.com/cove-sandbox/cove/test/inner"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == Command {
		Serve()
		return
	}
	os.Exit(m.Run())
}

// user is the id of an ordinary user, and first that of the first of the user's subordinate ids.
const (
	user  = 61002
	first = 1610743808
)

// userEnv has the directory of a test that runs as the ordinary user.
const userEnv = "COVE_TEST_FILES"

// TestAsUser runs the tests of the process apart as an ordinary user with subordinate ids.
func TestAsUser(t *testing.T) {
	if os.Getenv(userEnv) != "" {
		t.Skip("this is the user")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, who becomes the user")
	}
	dir, err := os.MkdirTemp("", "cf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	in := func(name string) string { return filepath.Join(dir, name) }
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	accounts, err := os.ReadFile("/etc/passwd")
	for _, err := range []error{err, os.Chmod(dir, 0o755), os.WriteFile(in("files.test"), program, 0o755),
		os.Mkdir(in("own"), 0o700), os.Chown(in("own"), user, user),
		os.WriteFile(in("ids"), fmt.Appendf(nil, "%d:%d:65536\n", user, first), 0o644),
		os.WriteFile(in("passwd"), fmt.Appendf(accounts, "cove-files:x:%d:%[1]d::/:/bin/sh\n", user), 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	args := append([]string{"--mount", "--propagation", "slave", "sh", "-c", `cd "$0" && mount --bind ids /etc/subuid &&
		mount --bind ids /etc/subgid && mount --bind passwd /etc/passwd && exec "$@"`, dir}, delegate.As(user)...)
	cmd := exec.CommandContext(t.Context(), "unshare", append(append(args, in("files.test"), "-test.run=^TestApart"),
		inner.Args...)...)
	cmd.Env = append(os.Environ(), userEnv+"="+in("own"), "USER=cove-files", "HOME="+in("own"), "TMPDIR="+in("own"))
	output, err := inner.NewOutput()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = output, output
	_ = cmd.Run() // the exit code says it, and what ran
	output.Report(t, cmd.ProcessState.ExitCode())
}

// ofUser returns the work on files of the ordinary user, and an empty directory.
func ofUser(t *testing.T) (*Files, string) {
	t.Helper()
	if os.Getenv(userEnv) == "" {
		t.Skip("runs in TestAsUser")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f := New(local.FindIDs(), self)
	if !f.Apart() || !f.Owners() {
		t.Fatal("there is no process apart")
	}
	dir, err := os.MkdirTemp(os.Getenv(userEnv), "t")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Remove(dir); err != nil {
			t.Error(err)
		}
		f.apart.stop()
		await.That(t, "the process apart has ended", func() bool { return process(t) == 0 })
	})
	return f, dir
}

// process returns the process apart of this one; 0: there is none.
func process(t *testing.T) int {
	t.Helper()
	all, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		text, err := os.ReadFile(name)
		if fields := strings.Fields(string(text)); err == nil && len(fields) > 0 {
			pid, err := strconv.Atoi(fields[0])
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	return 0
}

// archive is a tar archive of entries.
func archive(t *testing.T, all ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range all {
		err := w.WriteHeader(&h)
		if err == nil && h.Size > 0 {
			_, err = w.Write(make([]byte, h.Size))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func fill(t *testing.T, f *Files, dir string, room func(int64, int64) error,
	archives ...io.Reader) (unpack.Stats, error) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	tree, err := f.Unpack(t.Context(), dir, unpack.DefaultLimits(), room)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	for _, a := range archives {
		if _, err := tree.Apply(t.Context(), a, unpack.Layer); err != nil {
			return unpack.Stats{}, err
		}
	}
	return tree.Finish()
}

// TestApartOwners: what is unpacked has the owners of its archive, which are subordinate ids on the host, and root's
// files are the user's. Flattened, all are the user's.
func TestApartOwners(t *testing.T) {
	f, dir := ofUser(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	var asked int64
	stats, err := fill(t, f, at("tree"), func(bytes, _ int64) error { asked = max(asked, bytes); return nil },
		bytes.NewReader(archive(t, tar.Header{Name: "bin/", Mode: 0o755, Typeflag: tar.TypeDir},
			tar.Header{Name: "bin/su", Mode: 0o4755, Size: 3},
			tar.Header{Name: "home/", Mode: 0o700, Uid: 1000, Gid: 50, Typeflag: tar.TypeDir},
			tar.Header{Name: "home/file", Mode: 0o600, Uid: 1000, Gid: 65535, Size: 20 << 20},
			tar.Header{Name: "gone", Mode: 0o600})),
		bytes.NewReader(archive(t, tar.Header{Name: ".wh.gone"}, tar.Header{Name: "home/linked", Typeflag: tar.TypeLink,
			Linkname: "home/file"})))
	if err != nil || stats.Files != 3 || asked == 0 {
		t.Fatalf("%+v, asked %d, %v", stats, asked, err)
	}
	owner := func(name string, mode uint32, uid, gid uint32) {
		t.Helper()
		at, err := f.Open(t.Context(), hostpath.Own{Dir: dir, Name: name})
		if err != nil {
			t.Fatal(err)
		}
		defer at.Close()
		info, err := at.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); st.Mode&0o7777 != mode || st.Uid != uid || st.Gid != gid {
			t.Errorf("%s has %o %d:%d", name, st.Mode&0o7777, st.Uid, st.Gid)
		}
	}
	owner("tree/bin/su", 0o4755, user, user)
	owner("tree/home", 0o700, first+999, first+49)
	owner("tree/home/file", 0o600, first+999, first+65534)
	if _, err := os.ReadDir(at("tree/home")); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("the user reads the directory of another: %v", err)
	}
	if err := f.Flatten(t.Context(), rootfs.Stack{at("tree")}, at("flat")); err != nil {
		t.Fatal(err)
	}
	owner("flat/home", 0o700, user, user)
	owner("flat/home/linked", 0o600, user, user)
	a, err1 := os.Stat(at("flat/home/file"))
	b, err2 := os.Stat(at("flat/home/linked"))
	if err := errors.Join(err1, err2); err != nil || !os.SameFile(a, b) {
		t.Errorf("names of one file are two: %v", err)
	}
	size, err := f.Measure(t.Context(), at("tree"))
	if err != nil || size != (Size{Bytes: 40<<20 + 3, Files: 3}) {
		t.Errorf("it measures %+v, %v", size, err)
	}
	var written bytes.Buffer
	if err := f.Write(t.Context(), &written, at("tree")); err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(&written)
	for {
		h, err := r.Next()
		if err != nil {
			t.Fatal("the archive has no file of home: ", err)
		}
		if h.Name == "home/file" {
			if h.Uid != 1000 || h.Gid != 65535 || h.Mode != 0o600 {
				t.Errorf("%+v", h)
			}
			break
		}
	}
}

// TestApartIsSealed: the process apart has the capabilities over files alone, gains no others, and writes nowhere but
// in the tree, whatever an archive says.
func TestApartIsSealed(t *testing.T) {
	f, dir := ofUser(t)
	outside := filepath.Join(dir, "outside")
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := fill(t, f, filepath.Join(dir, "tree"), nil, bytes.NewReader(archive(t,
		tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: outside},
		tar.Header{Name: "up", Typeflag: tar.TypeSymlink, Linkname: "../outside"})),
		bytes.NewReader(archive(t, tar.Header{Name: "out/file", Mode: 0o644}, tar.Header{Name: "up/file", Mode: 0o644})))
	if left, e := os.ReadDir(outside); e != nil || len(left) > 0 {
		t.Errorf("outside of the tree is %v, %v", left, e)
	}
	t.Log(err) // either is right: it is refused, or lies in the tree
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process(t)))
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{`CapEff:\s+000000008000001b`, `CapPrm:\s+000000008000001b`,
		fmt.Sprintf(`Uid:\s+%d\s+%[1]d\s+%[1]d`, user)}
	if _, _, err := syscall.AllThreadsSyscall(syscall.SYS_GETPID, 0, 0, 0); err == 0 { // not with the race detector
		lines = append(lines, `NoNewPrivs:\s+1`)
	}
	for _, line := range lines {
		if !regexp.MustCompile(`(?m)^` + line).Match(status) {
			t.Errorf("there is no %s in\n%s", line, status)
		}
	}
}

// TestApartErrors: errors keep their codes and causes on the way, and after each of them the work goes on.
func TestApartErrors(t *testing.T) {
	f, dir := ofUser(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	if _, err := f.Measure(t.Context(), at("nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a missing directory: %v", err)
	}
	if err := f.Give(t.Context(), at("nowhere"), layer.Owner{}, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a missing directory: %v", err)
	}
	big := archive(t, tar.Header{Name: "big", Mode: 0o600, Size: 30 << 20})
	if _, err := fill(t, f, at("1"), nil, strings.NewReader("no archive at all")); cove.ErrorCode(err) !=
		cove.InvalidArgument {
		t.Errorf("of no archive: %v", err)
	}
	full := cove.Errorf(cove.StorageFull, "it is full").WithHint("make room")
	_, err := fill(t, f, at("2"), func(int64, int64) error { return full }, bytes.NewReader(big))
	if cove.ErrorCode(err) != cove.StorageFull || cove.ErrorMessage(err) != "it is full" ||
		cove.ErrorHint(err) != "make room" {
		t.Errorf("without room: %v", err)
	}
	broken := errors.New("the network is gone")
	_, err = fill(t, f, at("3"), nil, io.MultiReader(bytes.NewReader(big[:20<<20]), failing{broken}))
	if !errors.Is(err, broken) {
		t.Errorf("of a layer that breaks off: %v", err)
	}
	canceled(t, f, at("4"))
	if err := syscall.Kill(process(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the work goes on in another process", func() bool {
		_, err := f.Measure(t.Context(), at("3"))
		if err != nil && cove.ErrorCode(err) != cove.Unavailable {
			t.Fatal(err)
		}
		return err == nil
	})
}

// canceled unpacks a file that does not end, until it is canceled. Nothing writes any more then.
func canceled(t *testing.T, f *Files, dir string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var head bytes.Buffer
	err := errors.Join(tar.NewWriter(&head).WriteHeader(&tar.Header{Name: "big", Mode: 0o600, Size: 8 << 30}),
		os.Mkdir(dir, 0o700))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := f.Unpack(ctx, dir, unpack.DefaultLimits(), func(int64, int64) error { cancel(); return nil })
	if err != nil {
		t.Fatal(err)
	}
	_, err = tree.Apply(ctx, io.MultiReader(&head, ended{ctx}), unpack.Layer)
	if cove.ErrorCode(err) != cove.Canceled && !errors.Is(err, context.Canceled) {
		t.Errorf("when it was canceled: %v", err)
	}
	if err := errors.Join(tree.Close(), f.Remove(dir)); err != nil {
		t.Error(err)
	}
}

// ended reads zeros until its context ends, as a download does.
type ended struct{ context.Context }

func (e ended) Read(p []byte) (int, error) {
	clear(p)
	return len(p), e.Err()
}

// TestApartKilled: a layer is not taken to be unpacked by a process that has been killed.
func TestApartKilled(t *testing.T) {
	f, dir := ofUser(t)
	big := archive(t, tar.Header{Name: "big", Mode: 0o600, Size: 30 << 20})
	kill := func(int64, int64) error { return syscall.Kill(process(t), syscall.SIGKILL) }
	if _, err := fill(t, f, filepath.Join(dir, "tree"), kill, bytes.NewReader(big)); cove.ErrorCode(err) !=
		cove.Unavailable {
		t.Errorf("it says %v", err)
	}
	await.That(t, "it is gone", func() bool { return process(t) == 0 })
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }

// TestApartMeasuresAll: no mode and no owner hides what a sandbox has written, with subordinate ids and without.
func TestApartMeasuresAll(t *testing.T) {
	f, dir := ofUser(t)
	for _, name := range []string{"closed", "listed", "given"} {
		at := filepath.Join(dir, name)
		err := errors.Join(os.Mkdir(at, 0o700), os.WriteFile(filepath.Join(at, "file"), make([]byte, 1<<20), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	err = errors.Join(err, os.Chmod(filepath.Join(dir, "closed"), 0), os.Chmod(filepath.Join(dir, "listed"), 0o400))
	if err != nil {
		t.Fatal(err)
	}
	check := func(of string) {
		t.Helper()
		if _, _, err := hostdisk.Tree(t.Context(), dir); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s, without the rights: %v", of, err)
		}
		over := Over(local.FindIDs(), self)
		defer over.apart.stop()
		bytes, files, err := over.Tree(t.Context(), dir)
		if err != nil || bytes < 3<<20 || files != 7 {
			t.Errorf("%s: %d bytes, %d files, %v", of, bytes, files, err)
		}
	}
	t.Run("alone", func(t *testing.T) {
		t.Setenv("PATH", "/nowhere") // without the tools no subordinate id is used
		check("of the user's own id")
	})
	if err := f.Give(t.Context(), filepath.Join(dir, "given"), layer.Owner{UID: 5, GID: 5}, 0o700); err != nil {
		t.Fatal(err)
	}
	check("of subordinate ids")
}
