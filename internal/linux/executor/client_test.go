//go:build linux

package executor

import (
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// bytes is a message as an executor sends it.
func (m message) bytes() []byte {
	return slices.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&m)), unsafe.Sizeof(m)))
}

// liar is a client of an executor that the test plays.
func liar(t testing.TB) (*Client, *unixconn.Conn) {
	t.Helper()
	conn, theirs, err := unixconn.Pair()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(theirs.Fd()))
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	executor, err := unixconn.New(fd)
	if err != nil {
		t.Fatal(err)
	}
	known := 7
	c := NewClient(conn, func(pid int, _ unix.WaitStatus) error {
		if pid != known {
			return violation("the end of process %d", pid)
		}
		known = 0
		return nil
	})
	t.Cleanup(func() {
		c.Close()
		executor.Close()
	})
	return c, executor
}

// asking is a script with an answer of 8 bytes and a descriptor.
func asking() *Script {
	s := New(8, 0)
	s.Doing("ask")
	s.Give(s.Call(unix.SYS_DUP, Number(0)))
	return s
}

// TestLies: what no executor says ends its connection, with a reason.
func TestLies(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	truth := append(message{kind: messageAnswer, size: 8}.bytes(), make([]byte, 8)...)
	for name, test := range map[string]struct {
		say    []byte
		files  int
		end    bool // the executor ends afterwards
		clear  bool // it just ends
		answer bool // the script has one
	}{
		"the truth":              {say: truth, files: 1, answer: true, end: true, clear: true},
		"the end":                {end: true, clear: true},
		"half a message":         {say: truth[:7], end: true, clear: true},
		"half an answer":         {say: truth[:20], files: 1, end: true, clear: true},
		"no kind":                {say: message{}.bytes()},
		"another kind":           {say: message{kind: 3}.bytes()},
		"a long answer":          {say: message{kind: messageAnswer, size: 9}.bytes()},
		"a short answer":         {say: message{kind: messageAnswer}.bytes()},
		"four gigabytes":         {say: message{kind: messageAnswer, size: 1<<32 - 1}.bytes()},
		"a negative error":       {say: message{kind: messageAnswer, status: 1<<32 - 1}.bytes()},
		"a large error":          {say: message{kind: messageAnswer, status: 1 << 16}.bytes()},
		"an error of no call":    {say: message{kind: messageAnswer, status: 1, pid: 2}.bytes()},
		"an error and an answer": {say: message{kind: messageAnswer, status: 1, size: 8}.bytes()},
		"an error and a file":    {say: message{kind: messageAnswer, status: 1}.bytes(), files: 1},
		"no file":                {say: truth},
		"two files":              {say: truth, files: 2},
		"many files":             {say: truth, files: 60},
		"two answers":            {say: append(slices.Clone(truth), truth...), files: 1, answer: true},
		"an end of another":      {say: message{kind: messageExit, pid: 8}.bytes()},
		"an end with a file":     {say: message{kind: messageExit, pid: 7}.bytes(), files: 1},
		"an end with more":       {say: message{kind: messageExit, pid: 7, size: 1}.bytes()},
		"an end told twice": {say: append(message{kind: messageExit, pid: 7}.bytes(),
			message{kind: messageExit, pid: 7}.bytes()...)},
		"an error of a huge call": {say: message{kind: messageAnswer, status: 1, pid: 1<<32 - 1}.bytes()},
	} {
		t.Run(name, func(t *testing.T) {
			before := descriptors(t)
			c, executor := liar(t)
			go func() {
				io.ReadFull(executor, make([]byte, unsafe.Sizeof(header{})))
				executor.WriteFDs(test.say, slices.Repeat([]int{int(null.Fd())}, test.files))
				if test.end {
					executor.Close()
				}
			}()
			_, files, err := c.Run(t.Context(), asking())
			if test.answer != (err == nil) || err != nil && !errors.Is(err, ErrGone) {
				t.Errorf("the script: %v", err)
			}
			for _, f := range files {
				f.Close()
			}
			select {
			case <-c.Done():
			case <-time.After(10 * time.Second):
				t.Fatal("the connection goes on")
			}
			if _, ok := errors.AsType[*Violation](c.Err()); ok == test.clear {
				t.Errorf("the connection ends with %v", c.Err())
			}
			if _, _, err := c.Run(t.Context(), asking()); !errors.Is(err, ErrGone) {
				t.Errorf("the next script: %v", err)
			}
			executor.Close()
			if now := descriptors(t); now > before {
				t.Errorf("%d descriptors, before %d", now, before)
			}
		})
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestSilence: scripts do not wait without bound for an executor that does not answer.
func TestSilence(t *testing.T) {
	c, _ := liar(t)
	for range maxWaiting + 1 {
		go c.Run(t.Context(), New(8, 0))
	}
	select {
	case <-c.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("they wait for ever")
	}
	if _, ok := errors.AsType[*Violation](c.Err()); !ok {
		t.Errorf("the connection ends with %v", c.Err())
	}
}

// FuzzMessages: whatever an executor says, scripts end, and so does the connection. The
// instrumentation of "go test -fuzz" does not fit into functions that must not grow the stack: a test binary of
// "go test -c" fuzzes without it, by -test.fuzz and -test.fuzzcachedir.
func FuzzMessages(f *testing.F) {
	f.Add(append(message{kind: messageAnswer, size: 8}.bytes(), make([]byte, 8)...), uint8(1))
	f.Add(message{kind: messageExit, pid: 7}.bytes(), uint8(0))
	f.Add(message{kind: messageAnswer, status: 2}.bytes(), uint8(3))
	f.Add(message{kind: messageAnswer, size: 1<<32 - 1}.bytes(), uint8(0))
	f.Fuzz(func(t *testing.T, said []byte, files uint8) {
		c, executor := liar(t)
		answers := make(chan error, 3)
		for range cap(answers) {
			go func() {
				_, files, err := c.Run(t.Context(), asking())
				for _, f := range files {
					f.Close()
				}
				answers <- err
			}()
		}
		fds := slices.Repeat([]int{1}, int(files%8))
		io.ReadFull(executor, make([]byte, unsafe.Sizeof(header{})))
		if len(said) > 0 {
			executor.WriteFDs(said, fds)
		}
		executor.Close()
		for range cap(answers) {
			select {
			case <-answers:
			case <-time.After(10 * time.Second):
				t.Fatal("a script does not end")
			}
		}
		<-c.Done()
	})
}

// TestEncode: a script that an executor cannot take is not sent.
func TestEncode(t *testing.T) {
	for name, test := range map[string]struct {
		write    func(s *Script)
		files    int
		tooLarge bool
	}{
		"a label nowhere":             {write: func(s *Script) { s.Jump(s.Label()) }},
		"no label":                    {write: func(s *Script) { s.Jump(1) }},
		"a negative label":            {write: func(s *Script) { s.Jump(-1) }},
		"an error's label nowhere":    {write: func(s *Script) { s.Do(unix.SYS_GETPID); s.On(AnyError, s.Label()) }},
		"a condition's label nowhere": {write: func(s *Script) { s.JumpUnless(s.Var(), 1, 1, s.Label()) }},
		"too much data":               {write: func(s *Script) { s.Space(maxScript + 1) }, tooLarge: true},
		"too many calls": {write: func(s *Script) {
			for range 1 << 16 {
				s.Do(unix.SYS_GETPID)
			}
		}, tooLarge: true},
		"too many labels": {write: func(s *Script) {
			for range 1 << 16 {
				s.Here(s.Label())
			}
		}, tooLarge: true},
		"too many results": {write: func(s *Script) {
			for range registers {
				s.Var()
			}
		}},
		"a result among words": {write: func(s *Script) { s.Words(s.Var()) }},
		"three errors of a call": {write: func(s *Script) {
			s.Do(unix.SYS_GETPID)
			s.Unless(unix.ENOENT, unix.EEXIST, unix.EPERM)
		}},
		"too many files": {write: func(*Script) {}, files: maxFiles + 1},
		"too many given": {write: func(s *Script) {
			for range maxFiles + 1 {
				s.Give(Number(0))
			}
		}},
	} {
		s := New(0, test.files)
		test.write(s)
		if _, err := s.encode(test.files); err == nil || errors.Is(err, ErrTooLarge) != test.tooLarge {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := New(0, maxFiles) // the control
	s.Scope(func() {
		for range registers - maxFiles - 1 {
			s.Var()
		}
	})
	end := s.Label()
	s.Jump(end)
	s.Here(end)
	if _, err := s.encode(maxFiles); err != nil {
		t.Error(err)
	}
}
