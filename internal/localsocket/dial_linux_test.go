package localsocket

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove"
)

// TestDialRefusesOthers: a program of another user that listens where Cove's should is not asked anything.
func TestDialRefusesOthers(t *testing.T) {
	if path := os.Getenv("COVE_TEST_DIAL"); path != "" {
		c, err := Dial(t.Context(), path)
		if err == nil {
			c.Write([]byte("code"))
			c.Close()
		}
		if cove.ErrorCode(err) != cove.Forbidden || cove.ErrorHint(err) == "" {
			t.Errorf("it connects: %v", err)
		}
		return
	}
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	own, err := Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatalf("its own: %v", err)
	}
	own.Close()
	if os.Geteuid() != 0 {
		t.Skip("a listener of another user needs root")
	}
	// The credentials of a listener are those with which it began to listen.
	received := make(chan []byte)
	listen := make(chan net.Listener)
	go func() {
		l, err := asUser(61004, filepath.Join(dir, "other"))
		if err != nil {
			t.Error(err)
		}
		listen <- l
	}()
	other := <-listen
	if other == nil {
		return
	}
	defer other.Close()
	go func() {
		c, err := other.Accept()
		if err != nil {
			return
		}
		all, _ := io.ReadAll(c)
		received <- all
	}()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDialRefusesOthers$")
	cmd.Env = append(os.Environ(), "COVE_TEST_DIAL="+other.Addr().String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if all := <-received; len(all) > 0 {
		t.Errorf("it was told %q", all)
	}
}

// asUser listens as another user, on a thread that ends with the goroutine.
func asUser(uid int, path string) (net.Listener, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		return nil, err
	}
	runtime.LockOSThread() // never unlocked
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 {
		return nil, e
	}
	if err := syscall.Listen(fd, 1); err != nil {
		return nil, err
	}
	return net.FileListener(f)
}
