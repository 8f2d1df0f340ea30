package image

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/test/await"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

// childEnv makes this program a child for tests that need another process: one to kill, one without privileges.
const childEnv = "COVE_IMAGE_TEST_CHILD"

// child runs in the other process; its argument is "DIRECTORY COMMAND ARGUMENT".
func child() int {
	dir, rest, _ := strings.Cut(os.Getenv(childEnv), " ")
	command, arg, _ := strings.Cut(rest, " ")
	s, err := Open(Options{Dir: dir})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	ctx := context.Background()
	switch command {
	case "pull":
		_, err = s.Pull(ctx, arg, PullOptions{})
	case "import":
		_, err = s.Import(ctx, arg, "imported", ImportOptions{})
	case "prune":
		_, err = s.Prune(ctx, nil)
	}
	if err != nil {
		fmt.Println(cove.ErrorCode(err), err)
		return 1
	}
	return 0
}

func command(dir, what, arg string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{dir, what, arg}, " "))
	return cmd
}

// TestKilled kills processes while they download and unpack. Their remains count as nothing, and the next start removes
// them.
func TestKilled(t *testing.T) {
	big := layerOf(t, item{name: "bin/"}, item{name: "bin/closed/", mode: 0o555},
		item{name: "bin/closed/big", body: strings.Repeat("some content ", 300_000)})
	last := layerOf(t, item{name: "bin/last", body: "last"})
	lastDigest, err := last.Digest()
	if err != nil {
		t.Fatal(err)
	}
	// The last layer never comes, so that the first is unpacked and the process still runs.
	entered := make(chan struct{}, 10)
	host := startRegistry(t, tamper(lastDigest.String(), func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if r.Header.Get("User-Agent") == "" || strings.HasPrefix(r.Header.Get("User-Agent"), "cove/") {
			entered <- struct{}{}
		}
		<-r.Context().Done()
	}))
	push(t, host+"/app:1", imageOf(t, runtime.GOARCH, big, last))
	dir := filepath.Join(t.TempDir(), "images")
	for round := range 3 {
		cmd := command(dir, "pull", host+"/app:1")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-entered
		if round > 0 { // at the first request, and after unpacking began
			waitFor(t, func() bool {
				found, _ := filepath.Glob(filepath.Join(dir, "tmp", "*", "rootfs", "bin", "closed", "big"))
				return len(found) > 0
			})
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		left, err := os.ReadDir(filepath.Join(dir, "tmp"))
		if err != nil || len(left) == 0 {
			t.Errorf("round %d: nothing was left to remove (%v): the test was too early or too late", round, err)
		}
		s := storeAt(t, dir)
		wantNoLitter(t, s, 0)
		if _, err := s.Resolve(t.Context(), host+"/app:1"); cove.ErrorCode(err) != cove.ImageMissing {
			t.Errorf("after a kill: %v", err)
		}
	}
	push(t, host+"/ok:1", imageOf(t, runtime.GOARCH, big))
	if _, err := storeAt(t, dir).Pull(t.Context(), host+"/ok:1", PullOptions{}); err != nil {
		t.Errorf("the store is of no use after kills: %v", err)
	}
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	await.That(t, "the store does what it is asked", ok)
}

// TestFullDisk fills a small file system at every stage.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a small tmpfs")
	}
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=4m,nr_inodes=200"); err != nil {
		t.Skipf("a tmpfs cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Errorf("something of the store is still open: %v", err)
			_ = unix.Unmount(disk, unix.MNT_DETACH)
		}
	})
	host := startRegistry(t, nil)
	small := strings.Repeat("x", 100_000)
	noise := make([]byte, 6<<20) // does not fit, and does not compress
	if _, err := io.ReadFull(randomReader{}, noise); err != nil {
		t.Fatal(err)
	}
	var many []item
	for i := range 500 {
		many = append(many, item{name: fmt.Sprintf("bin/%d", i), body: "x"})
	}
	push(t, host+"/small:1", imageOf(t, runtime.GOARCH, layerOf(t, item{name: "bin/sh", body: small})))
	push(t, host+"/download:1", imageOf(t, runtime.GOARCH, layerOf(t, item{name: "bin/sh", body: string(noise)})))
	push(t, host+"/unpack:1", imageOf(t, runtime.GOARCH,
		layerOf(t, item{name: "bin/sh", body: strings.Repeat("x", 6<<20)})))
	push(t, host+"/inodes:1", imageOf(t, runtime.GOARCH, layerOf(t, many...)))
	src := t.TempDir()
	tarFile := writeFile(t, filepath.Join(src, "root.tar"), tarOf(t, item{name: "bin/sh", body: string(noise)}))
	docker := writeFile(t, filepath.Join(src, "docker.tar.gz"),
		gz(t, tarOf(t, item{name: "manifest.json", body: "[]"}, item{name: "x", body: string(noise)})))
	rootDir := filepath.Join(src, "root")
	writeFile(t, filepath.Join(rootDir, "bin", "sh"), noise)

	s := storeAt(t, filepath.Join(disk, "images"))
	ctx := t.Context()
	if _, err := s.Pull(ctx, host+"/small:1", PullOptions{}); err != nil {
		t.Fatalf("control: %v", err)
	}
	for name, err := range map[string]error{
		"download": second(s.Pull(ctx, host+"/download:1", PullOptions{})),
		"unpack":   second(s.Pull(ctx, host+"/unpack:1", PullOptions{})),
		"inodes":   second(s.Pull(ctx, host+"/inodes:1", PullOptions{})), "tar": second(s.Resolve(ctx, "tar:"+tarFile)),
		"docker-archive": second(s.Resolve(ctx, "docker-archive:"+docker)),
		"dir":            second(s.Import(ctx, rootDir, "x", ImportOptions{})),
	} {
		if cove.ErrorCode(err) != cove.StorageFull || cove.ErrorHint(err) == "" {
			t.Errorf("%s: code %q: %v", name, cove.ErrorCode(err), err)
		}
	}
	wantNoLitter(t, s, 1)
	if r, err := s.Resolve(ctx, host+"/small:1"); err != nil || readTree(t, r.Dir)["bin/sh"] != small {
		t.Errorf("what was there is lost: %v", err)
	}

	if err := unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, "size=4m,nr_inodes=200"); err != nil {
		t.Fatal(err)
	}
	s = storeAt(t, s.dir)
	if r, err := s.Resolve(ctx, host+"/small:1"); err != nil {
		t.Errorf("a read-only store can be used: %v", err)
	} else if release, err := s.Hold(ctx, r.Digest); err != nil {
		t.Errorf("an image of a read-only store can be held: %v", err)
	} else {
		release()
	}
	if _, err := s.Pull(ctx, host+"/unpack:1", PullOptions{}); cove.ErrorCode(err) != cove.StorageFull {
		t.Errorf("pull into a read-only store: code %q: %v", cove.ErrorCode(err), err)
	}
}

type randomReader struct{}

func (randomReader) Read(p []byte) (int, error) { return unix.Getrandom(p, 0) }

// TestWithoutRoot runs everything as an ordinary account: with directories that it may not write, and owners that it
// cannot set.
func TestWithoutRoot(t *testing.T) {
	img := imageOf(t, runtime.GOARCH, append(baseLayers(t),
		layerOf(t, item{name: "ro/", mode: 0o555}, item{name: "ro/file", body: "x", mode: 0o444, uid: 1234},
			item{name: "ro/none/", mode: 0o1}),
		layerOf(t, item{name: "ro/later", body: "y", uid: 12}, item{name: "ro/.wh.file"}))...)
	host := startRegistry(t, nil)
	push(t, host+"/app:1", img)
	home, err := os.MkdirTemp("", "cove-image") // other accounts cannot reach the test's own directory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	as := uint32(os.Geteuid())
	credential := &syscall.SysProcAttr{}
	program := os.Args[0]
	if as == 0 {
		as = 65534
		credential.Credential = &syscall.Credential{Uid: as, Gid: as}
		data, err := os.ReadFile(os.Args[0]) // the account may be unable to read the test binary
		if err != nil {
			t.Fatal(err)
		}
		program = filepath.Join(home, "test")
		if err := os.WriteFile(program, data, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(home, int(as), int(as)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	tarFile := writeFile(t, filepath.Join(home, "root.tar"),
		tarOf(t, item{name: "bin/", mode: 0o500}, item{name: "bin/sh", body: "x", uid: 77}))
	run := func(what, arg string, want int) {
		t.Helper()
		cmd := command(filepath.Join(home, "images"), what, arg)
		cmd.Path, cmd.SysProcAttr, cmd.Dir = program, credential, home
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
			t.Fatalf("%s as %d: %v\n%s", what, as, cmd.ProcessState, out)
		}
	}
	run("pull", host+"/app:1", 0)
	run("import", tarFile, 0)
	s := storeAt(t, filepath.Join(home, "images"))
	wantNoLitter(t, s, 2)
	if os.Geteuid() == 0 { // otherwise parts are unreadable by design
		r, err := s.Resolve(t.Context(), host+"/app:1")
		if err != nil || r.Kind != engine.RootfsDir {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(r.Dir, "ro", "later"))
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != as {
			t.Errorf("belongs to %+v, %v", info, err)
		}
		if info, err = os.Stat(filepath.Join(r.Dir, "ro")); err != nil || info.Mode().Perm() != 0o555 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		if _, err := os.Stat(filepath.Join(r.Dir, "ro", "file")); !os.IsNotExist(err) {
			t.Errorf("whited out, but: %v", err)
		}
	}
	if err := os.Remove(filepath.Join(home, "images", "index.json")); err != nil { // now no image has a name
		t.Fatal(err)
	}
	run("prune", "", 0)
	wantNoLitter(t, s, 0)
}
