//go:build linux

package executor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/unixconn"
	"github.com/cove-sandbox/cove/test/await"
)

type ending struct {
	pid    int
	status unix.WaitStatus
}

// start starts an executor with no namespaces of its own.
func start(t *testing.T) (*Client, chan ending) {
	t.Helper()
	conn, theirs, err := unixconn.Pair()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	n := int(null.Fd())
	pid, err := Clone(0, -1, nil, [4]int{n, n, n, int(theirs.Fd())})
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan ending, 10)
	c := NewClient(conn, func(pid int, status unix.WaitStatus) error {
		ended <- ending{pid, status}
		return nil
	})
	t.Cleanup(func() {
		c.Close()
		var status unix.WaitStatus
		if _, err := unix.Wait4(pid, &status, 0, nil); err != nil || status != 0 {
			t.Errorf("the executor ended with %v, %v", status, err)
		}
	})
	return c, ended
}

func TestCalls(t *testing.T) {
	c, _ := start(t)
	dir := t.TempDir()
	for range 3 {
		s := New(16, 1)
		s.Doing("write")
		fd := s.Call(unix.SYS_OPENAT, Number(unix.AT_FDCWD), s.Text(dir+"/a"), Number(unix.O_RDWR|unix.O_CREAT),
			Number(0o600))
		s.Do(unix.SYS_WRITE, fd, s.Text("hello, world"), Number(5))
		s.Do(unix.SYS_PREAD64, fd, s.Answer().At(8), Number(8), Number(1))
		s.Store(s.Answer(), 8, fd)
		s.Do(unix.SYS_MKDIRAT, Number(unix.AT_FDCWD), s.Text(dir), Number(0o700))
		s.Unless(unix.EEXIST)
		s.Do(unix.SYS_FCHMOD, s.File(0), Number(0o640))
		s.Give(fd)
		mine, err := os.Create(dir + "/b")
		if err != nil {
			t.Fatal(err)
		}
		answer, files, err := c.Run(t.Context(), s, int(mine.Fd()))
		if err != nil || len(files) != 1 || string(answer[8:12]) != "ello" || answer[0] < firstTemporary {
			t.Fatalf("%q, %v, %v", answer, files, err)
		}
		text, err := io.ReadAll(io.NewSectionReader(files[0], 0, 10))
		info, statErr := mine.Stat()
		if string(text) != "hello" || err != nil || statErr != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%q, %v, %v", text, err, info.Mode())
		}
		files[0].Close()
		mine.Close()
	}
	s := New(0, 0)
	s.Doing("look for what is not there")
	s.Do(unix.SYS_CHDIR, s.Text(dir+"/none"))
	_, _, err := c.Run(t.Context(), s)
	var failure *Error
	if !errors.As(err, &failure) || failure.Errno != unix.ENOENT || !strings.HasPrefix(err.Error(), "look for") {
		t.Error(err)
	}
}

// spawn starts a program whose output is a pipe, which it gives.
func spawn(s *Script, args ...string) {
	pipe := s.Space(8)
	s.Do(unix.SYS_PIPE2, pipe, Number(unix.O_CLOEXEC))
	r, w := s.Load(pipe, 4), s.Load(pipe.At(4), 4)
	s.Give(r)
	pid := s.Fork(func() {
		s.Doing("output")
		s.Do(unix.SYS_DUP3, w, Number(1), Number(0))
		s.Do(unix.SYS_RT_SIGPROCMASK, Number(2), s.Space(8), Number(0), Number(8))
		var words []Value
		for _, a := range args {
			words = append(words, s.Text(a))
		}
		s.Doing("exec")
		s.Do(unix.SYS_EXECVE, s.Text(args[0]), s.Words(append(words, Number(0))...), s.Words(Number(0)))
	})
	s.Store(s.Answer(), 8, pid)
}

func TestFork(t *testing.T) {
	c, ended := start(t)
	for range 20 {
		s := New(8, 0)
		spawn(s, "/bin/sh", "-c", "echo $0; exit 3", "name")
		answer, files, err := c.Run(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(files[0])
		files[0].Close()
		e := <-ended
		if string(text) != "name\n" || err != nil || e.pid != int(answer[0])|int(answer[1])<<8|int(answer[2])<<16 ||
			e.status.ExitStatus() != 3 {
			t.Fatalf("%q, %v, %v, %v", text, err, e, answer)
		}
	}
	s := New(8, 0)
	spawn(s, "/none")
	_, _, err := c.Run(t.Context(), s)
	var failure *Error
	if !errors.As(err, &failure) || failure.Errno != unix.ENOENT || failure.Doing != "exec" {
		t.Error(err)
	}
	select {
	case e := <-ended:
		t.Errorf("the end of a child that was never a program is told: %v", e)
	default:
	}
}

// TestFinally has what is to be done in any case done after an error, too.
func TestFinally(t *testing.T) {
	c, _ := start(t)
	for _, fails := range []bool{false, true} {
		dir := t.TempDir()
		s := New(0, 0)
		s.Doing("fail")
		if fails {
			caught := s.Label()
			s.Do(unix.SYS_CHDIR, s.Text(dir+"/none"))
			s.On(AnyError, caught)
			s.Here(caught)
			s.Fail(s.Errno())
		}
		s.Finally(func() {
			s.Doing("make")
			s.Do(unix.SYS_MKDIRAT, Number(unix.AT_FDCWD), s.Text(dir+"/made"), Number(0o700))
			s.Do(unix.SYS_MKDIRAT, Number(unix.AT_FDCWD), s.Text(dir+"/made"), Number(0o700))
			s.Unless(unix.EEXIST)
		})
		_, _, err := c.Run(t.Context(), s)
		if fails != errors.Is(err, unix.ENOENT) || !fails && err != nil {
			t.Error(fails, err)
		}
		if _, err := os.Stat(dir + "/made"); err != nil {
			t.Error(fails, err)
		}
	}
}

// TestDoor: an executor with a door outlives its connections, in the middle of a script too. It collects children that
// end meanwhile, keeps what is in its slots, and tells the next connection of its own children alone.
func TestDoor(t *testing.T) {
	c, ended := start(t)
	path := t.TempDir() + "/door"
	door, err := unixconn.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s := New(16, 1)
	s.Keep(s.File(0), FirstSlot)
	Door(s, FirstSlot)
	spawn(s, "/bin/sleep", "600")
	s.Store(s.Answer().At(8), 8, s.Call(unix.SYS_GETPID))
	answer, files, err := c.Run(t.Context(), s, int(door.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	door.Close()
	files[0].Close()
	child := int(binary.NativeEndian.Uint64(answer))
	text, err := New(0, 0).encode(0)
	if err == nil {
		_, err = c.conn.Write(text[:len(text)/2]) // and no more
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c.Close()
		conn, err := unixconn.Dial(path)
		if err != nil {
			t.Fatal(err)
		}
		c = NewClient(conn, func(pid int, status unix.WaitStatus) error {
			ended <- ending{pid, status}
			return nil
		})
		s := New(8, 0)
		s.Store(s.Answer(), 8, s.Call(unix.SYS_GETPID))
		if again, _, err := c.Run(t.Context(), s); err != nil || !bytes.Equal(again, answer[8:]) {
			t.Fatalf("%v, %v; want %v", again, err, answer[8:])
		}
	}
	c.Close()
	if err := unix.Kill(child, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the child is collected", func() bool { return unix.Kill(child, 0) == unix.ESRCH })
	conn, err := unixconn.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	c = NewClient(conn, func(pid int, status unix.WaitStatus) error {
		ended <- ending{pid, status}
		return nil
	})
	last := New(8, 0)
	spawn(last, "/bin/sh", "-c", "exit 3")
	answer, files, err = c.Run(t.Context(), last)
	if err != nil {
		t.Fatal(err)
	}
	files[0].Close()
	if e := <-ended; uint64(e.pid) != binary.NativeEndian.Uint64(answer) || e.status.ExitStatus() != 3 {
		t.Errorf("told of %+v", e)
	}
	end := New(0, 0)
	end.Do(unix.SYS_EXIT_GROUP, Number(0))
	if _, _, err := c.Run(t.Context(), end); !errors.Is(err, ErrGone) {
		t.Errorf("it ends with %v", err)
	}
	c.Close()
}
