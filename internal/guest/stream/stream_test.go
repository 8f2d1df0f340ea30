//go:build linux

package stream

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// line is the guest's end of an output and the program's.
type line struct {
	ours   *Output
	theirs *os.File
}

func pipeLine(t *testing.T) line {
	t.Helper()
	theirs, ours, err := Pipe(true)
	if err != nil {
		t.Fatal(err)
	}
	return newLine(t, ours, theirs)
}

// hostilePipe returns a pipe that blocks since its other owner has said so.
func hostilePipe(t *testing.T) line {
	l := pipeLine(t)
	conn, err := l.ours.file.SyscallConn()
	if err == nil {
		err = conn.Control(func(fd uintptr) { unix.SetNonblock(int(fd), false) })
	}
	if err != nil {
		t.Fatal(err)
	}
	l.ours = NewPipeOutput(l.ours.file)
	return l
}

// terminalLine returns the ends of a raw terminal.
func terminalLine(t *testing.T) line {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	master := int(ours.Fd())
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := newLine(t, ours, BlockingFile(slave))
	mode, err := unix.IoctlGetTermios(slave, unix.TCGETS)
	if err == nil {
		mode.Oflag &^= unix.OPOST
		err = unix.IoctlSetTermios(slave, unix.TCSETS, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newLine(t *testing.T, ours, theirs *os.File) line {
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return line{NewOutput(ours), theirs}
}

// TestCut: a stream that another process holds open ends after the bytes written so far, whether the reader waits
// already or comes later.
func TestCut(t *testing.T) {
	for name, c := range map[string]struct {
		line  func(*testing.T) line
		holds int
	}{
		"pipe":     {pipeLine, 32 << 10},
		"hostile":  {hostilePipe, 32 << 10},
		"terminal": {terminalLine, 3 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			text := bytes.Repeat([]byte("0123456789abcde\n"), c.holds/16)
			t.Run("full", func(t *testing.T) {
				l := c.line(t)
				if _, err := l.theirs.Write(text); err != nil {
					t.Fatal(err)
				}
				l.ours.Cut()
				if got, err := io.ReadAll(l.ours); err != nil || !bytes.Equal(got, text) {
					t.Errorf("%d bytes of %d, or others, %v", len(got), len(text), err)
				}
			})
			t.Run("empty", func(t *testing.T) {
				l := c.line(t)
				waits := make(chan struct{})
				go func() {
					<-waits
					l.ours.Cut()
				}()
				l.theirs.Write([]byte("x"))
				p := make([]byte, 8)
				if n, err := l.ours.Read(p); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				close(waits)
				if n, err := l.ours.Read(p); n != 0 || err != io.EOF {
					t.Errorf("%d bytes, %v", n, err)
				}
			})
			t.Run("written to for ever", func(t *testing.T) {
				l := c.line(t)
				if _, err := l.theirs.Write(text); err != nil {
					t.Fatal(err)
				}
				l.ours.Cut()
				p := make([]byte, 1024)
				for total := 0; ; {
					n, err := l.ours.Read(p)
					if total += n; err == io.EOF && total >= len(text) {
						break
					} else if err != nil || total > len(text)+uncounted {
						t.Fatalf("%d bytes, %v", total, err)
					}
					if _, err := l.theirs.Write(p[:n]); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}
