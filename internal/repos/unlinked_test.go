package repos

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// TestUnlinkedCounts: what a process of a sandbox has removed and holds open counts as its workspace's, once for each
// file, until it is closed. What a process outside holds does not.
func TestUnlinkedCounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing the root directory of a process needs root")
	}
	s := newStore(t, nil)
	w := create(t, s, workspace.Spec{ID: cove.NewSandboxID(), Name: "x"})
	used := func() workspace.Used {
		t.Helper()
		u, err := s.disks.Used(t.Context(), w.ID)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	before := used()
	outside, err := os.Create(filepath.Join(w.Directory, "outside"))
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	if _, err := outside.Write(make([]byte, 2<<20)); err != nil {
		t.Fatal(err)
	}
	if u := used(); u.Bytes < before.Bytes+2<<20 {
		t.Errorf("not tested: %+v", u)
	}
	if err := os.Remove(outside.Name()); err != nil {
		t.Fatal(err)
	}
	if u := used(); u.Bytes != before.Bytes || u.Files != before.Files {
		t.Errorf("of a process outside: %+v, before %+v", u, before)
	}

	root := t.TempDir() // of a process whose workspace is the checkout
	at := filepath.Join(root, "workspace")
	program, err := os.ReadFile("/proc/self/exe")
	if err = errors.Join(err, os.Mkdir(at, 0o755), os.Mkdir(filepath.Join(root, "tmp"), 0o755),
		os.WriteFile(filepath.Join(root, "victim"), program, 0o755),
		syscall.Mount(w.Directory, at, "", syscall.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	defer syscall.Unmount(at, syscall.MNT_DETACH)
	cmd := exec.Command("/victim", "-test.run=^TestUnlinkedVictim$", "-test.count=1")
	cmd.Env, cmd.Dir = []string{"COVE_TEST_UNLINKED=1"}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	out, e := cmd.StdoutPipe()
	if err = errors.Join(err, e); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 1)
	if _, err := io.ReadFull(out, text); err != nil || text[0] != '.' {
		t.Fatalf("it says %q, %v", text, err)
	}
	if u := used(); u.Bytes-before.Bytes < 3<<20 || u.Bytes-before.Bytes > 3<<20+64<<10 || u.Files != before.Files+1 {
		t.Errorf("open and removed: %+v, before %+v", u, before)
	}
	in.Close()
	cmd.Wait()
	if u := used(); u != before {
		t.Errorf("closed: %+v, before %+v", u, before)
	}
}

// TestUnlinkedVictim is the process of TestUnlinkedCounts: it holds a removed file twice.
func TestUnlinkedVictim(t *testing.T) {
	if os.Getenv("COVE_TEST_UNLINKED") == "" {
		t.Skip("TestUnlinkedCounts starts it")
	}
	f, err := os.Create("/workspace/inside")
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(make([]byte, 3<<20))
	again, e := os.Open(f.Name())
	if err := errors.Join(err, e, os.Remove(f.Name())); err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString(".")
	io.Copy(io.Discard, os.Stdin)
	again.Close()
	f.Close()
}
