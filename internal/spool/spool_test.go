package spool

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// owner is the principal whose outputs may take all that there is.
var owner = cove.MachineOwner()

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newSpool(t testing.TB, o Options) *Spool {
	o.Dir = t.TempDir()
	if o.Disk == 0 {
		o.Disk = 1 << 30
	}
	s := New(o)
	t.Cleanup(func() {
		if memory, disk := s.Used(); memory != 0 || disk != 0 {
			t.Errorf("%d bytes of memory and %d of disk are still taken", memory, disk)
		}
		if left, err := os.ReadDir(o.Dir); err != nil || len(left) > 0 {
			t.Errorf("left in the directory: %v, %v", left, err)
		}
	})
	return s
}

// text returns n bytes that tell their place.
func text(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(b)
	return b
}

func content(t testing.TB, s *Stream) []byte {
	t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(s, 0, s.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSizes: what is written comes back, wherever it lies, and the limit of a stream is its own.
func TestSizes(t *testing.T) {
	const limit = 3<<20 + 5
	for _, memory := range []int64{0, 1000, 300 << 10, 64 << 20} {
		for _, n := range []int{0, 1, 511, 513, 70_000, beginning - 1, beginning, beginning + 1, limit - 1, limit,
			limit + 9} {
			s := newSpool(t, Options{Memory: memory})
			o, want := s.New(owner, limit, limit), text(n)
			for at, step := 0, 1; at < n; at, step = at+step, min(step*3+1, 50_000) {
				p := want[at:min(at+step, n)]
				fits := min(len(p), max(0, limit-at))
				if a, b := o.Stdout().Write(p), o.Stderr().Write(p); a != fits || b != fits {
					t.Fatalf("%d of memory, %d bytes: at %d, %d and %d of %d were kept", memory, n, at, a, b, len(p))
				}
			}
			want = want[:min(n, limit)]
			if !bytes.Equal(content(t, o.Stdout()), want) || !bytes.Equal(content(t, o.Stderr()), want) {
				t.Errorf("%d of memory, %d bytes: other bytes came back", memory, n)
			}
			if used, _ := s.Used(); used > memory {
				t.Errorf("%d bytes of memory are taken, of %d", used, memory)
			}
			if n <= beginning && memory > 4*beginning && o.file != nil || n > beginning && o.file == nil {
				t.Errorf("%d of memory, %d bytes: a file %v", memory, n, o.file != nil)
			}
			o.Release()
		}
	}
}

// TestHolders: an output is there until its last holder has released it, and then takes nothing.
func TestHolders(t *testing.T) {
	s := newSpool(t, Options{Memory: 1 << 20})
	o := s.New(owner, 8<<20, 8<<20)
	o.Stdout().Write(text(4 << 20))
	if memory, disk := s.Used(); memory == 0 || disk < 3<<20 {
		t.Errorf("%d of memory and %d of disk are taken", memory, disk)
	}
	if !o.Hold() {
		t.Fatal("it has a holder")
	}
	o.Release()
	if !bytes.Equal(content(t, o.Stdout()), text(4<<20)) {
		t.Error("it is gone, while it is held")
	}
	o.Release()
	if o.Hold() || o.Stdout().Size() != 0 || o.Stdout().Write([]byte("x")) != 0 {
		t.Error("it is there after its last holder")
	}
	var none *Output
	none.Release()
	if none.Stdout().Size() != 0 || len(content(t, none.Stderr())) != 0 {
		t.Error("no output has bytes")
	}
	given := Text("one", "two")
	if string(content(t, given.Stdout())) != "one" || string(content(t, given.Stderr())) != "two" {
		t.Error("a text is another")
	}
	given.Release()
}

// TestFollowed: readers see what is kept while more is written, by several outputs at once.
func TestFollowed(t *testing.T) {
	s := newSpool(t, Options{Memory: 1 << 20})
	var all sync.WaitGroup
	for range 8 {
		o, want := s.New(owner, 2<<20, 1<<20), text(2<<20)
		all.Go(func() {
			defer o.Release()
			var streams sync.WaitGroup
			for _, f := range []struct {
				s    *Stream
				want []byte
			}{{o.Stdout(), want}, {o.Stderr(), want[:1<<20]}} {
				streams.Go(func() {
					for at := 0; at < len(f.want); at += 10_000 {
						f.s.Write(f.want[at:min(at+10_000, len(f.want))])
					}
				})
				streams.Go(func() {
					var got []byte
					for len(got) < len(f.want) {
						for p, err := range f.s.Chunks(int64(len(got))) {
							if err != nil {
								t.Error(err)
								return
							}
							got = append(got, p...)
						}
					}
					if !bytes.Equal(got, f.want) {
						t.Error("a reader got other bytes")
					}
				})
			}
			streams.Wait()
		})
	}
	all.Wait()
}

// TestBounds: an output that finds no room keeps its beginning, and others go on once there is room again.
func TestBounds(t *testing.T) {
	s := newSpool(t, Options{Memory: 64 << 10, Disk: 2 << 20})
	first, second := s.New(owner, 8<<20, 8<<20), s.New(owner, 8<<20, 8<<20)
	kept := first.Stdout().Write(text(4 << 20))
	if kept < 2<<20 || kept > 2<<20+64<<10+always || first.Stdout().Write([]byte("more")) != 0 {
		t.Errorf("%d bytes were kept", kept)
	}
	if !bytes.Equal(content(t, first.Stdout()), text(kept)) {
		t.Error("the beginning is another")
	}
	if n := second.Stdout().Write(text(100_000)); n != always {
		t.Errorf("%d bytes were kept beyond the bounds", n)
	}
	if _, err := s.Of(owner, string(text(100_000)), ""); !errors.Is(err, ErrNoRoom) {
		t.Errorf("a text beyond the bounds: %v", err)
	}
	first.Release()
	if n := second.Stderr().Write(text(100_000)); n != 100_000 {
		t.Errorf("%d bytes were kept of what has room again", n)
	}
	second.Release()
}

// TestShares: a caller whose outputs flood leaves memory and disk space for the outputs of the next callers, and all
// that it had is there again afterwards.
func TestShares(t *testing.T) {
	s := newSpool(t, Options{Memory: 512 << 10, Disk: 16 << 20})
	var flood []*Output
	dropped := false
	for !dropped {
		o := s.New(cove.KeyHolder("flood"), 1<<20, 1<<20)
		dropped = o.Stdout().Write(text(1<<20)) < 1<<20
		flood = append(flood, o)
	}
	if memory, disk := s.Used(); memory != 224<<10 || disk < 6<<20 || disk > 7<<20 {
		t.Errorf("the flood takes %d of memory and %d of disk", memory, disk)
	}
	for i, who := range []cove.Principal{cove.KeyHolder("calm"), cove.LocalUser(1000), cove.KeyHolder("late"), owner} {
		before, _ := s.Used()
		o := s.New(who, 1<<20, 1<<20)
		if n := o.Stdout().Write(text(1 << 20)); n != 1<<20 {
			t.Errorf("%d bytes were kept of caller %d", n, i)
		}
		if memory, _ := s.Used(); memory == before {
			t.Errorf("caller %d has no memory", i)
		}
		flood = append(flood, o)
	}
	for _, o := range flood {
		o.Release()
	}
}

// TestFloor: outputs leave space free on the disk.
func TestFloor(t *testing.T) {
	s := newSpool(t, Options{Free: 1 << 60})
	o := s.New(owner, 8<<20, 8<<20)
	if n := o.Stdout().Write(text(100_000)); n != always {
		t.Errorf("%d bytes were kept", n)
	}
	o.Release()
}

// TestFullDisk: on a file system that is full, what fits is kept, and nothing fails or waits.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a file system of its own is mounted")
	}
	s := newSpool(t, Options{})
	if err := unix.Mount("tmpfs", s.o.Dir, "tmpfs", 0, "size=5m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(s.o.Dir, 0) })
	o := s.New(owner, 16<<20, 16<<20)
	stdout, stderr := o.Stdout().Write(text(3<<20)), o.Stderr().Write(text(4<<20))
	if stdout != 3<<20 || stderr != 2<<20+always {
		t.Errorf("%d and %d bytes were kept", stdout, stderr)
	}
	if !bytes.Equal(content(t, o.Stdout()), text(stdout)) || !bytes.Equal(content(t, o.Stderr()), text(stderr)) {
		t.Error("other bytes came back")
	}
	o.Release()
	again := s.New(owner, 16<<20, 16<<20)
	if n := again.Stdout().Write(text(4 << 20)); n != 4<<20 {
		t.Errorf("%d bytes were kept of what has room again", n)
	}
	again.Release()
}

// TestNoFile: without a directory or descriptors, the beginning is kept.
func TestNoFile(t *testing.T) {
	s := New(Options{Dir: "/nonexistent", Memory: 4096, Disk: 1 << 20})
	o := s.New(owner, 1<<20, 1<<20)
	defer o.Release()
	if n := o.Stdout().Write(text(100_000)); n != always+4096 || !bytes.Equal(content(t, o.Stdout()), text(n)) {
		t.Errorf("%d bytes were kept", n)
	}
	if _, err := s.file(); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestKilled: nothing is left of a process that is killed.
func TestKilled(t *testing.T) {
	if dir := os.Getenv("COVE_TEST_SPOOL"); dir != "" {
		New(Options{Dir: dir, Disk: 1 << 30}).New(owner, 4<<20, 0).Stdout().Write(text(4 << 20))
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	dir := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	child.Env = append(os.Environ(), "COVE_TEST_SPOOL="+dir)
	if err := child.Run(); err == nil || child.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the child ended with %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestString: a record has the beginning of a text, at least what it asks for and whole characters.
func TestString(t *testing.T) {
	s := newSpool(t, Options{})
	o := s.New(owner, 1<<20, 1<<20)
	defer o.Release()
	o.Stdout().Write([]byte(strings.Repeat("é\xff\xfe", 50_000)))
	whole := strings.Repeat("é\uFFFD", 50_000)
	for _, least := range []int{0, 1, 2, 3, 4, 5, 6, 100, len(whole) - 1, len(whole), len(whole) + 1} {
		got, err := o.Stdout().String(least)
		if err != nil || len(got) < min(least, len(whole)) || len(got) > least+2 || !strings.HasPrefix(whole, got) ||
			strings.ToValidUTF8(got, "") != got {
			t.Errorf("at least %d: %d bytes, %v", least, len(got), err)
		}
	}
}

// FuzzSpool: two streams that share a file are each what was written to it, as bytes and as text.
func FuzzSpool(f *testing.F) {
	f.Add([]byte("hello\n"), []byte("oops\n"), uint32(3), uint16(100))
	f.Add([]byte("\xe2\x82"), []byte("\xac\xff\xff\x80é"), uint32(600), uint16(0))
	f.Add(bytes.Repeat([]byte("\xff\xf0\x9f\x98\x80"), 100), []byte{}, uint32(40_000), uint16(4096))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, a, b []byte, times uint32, memory uint16) {
		s := New(Options{Dir: dir, Memory: int64(memory), Disk: 1 << 30})
		limit := int64(len(a)+len(b)) * 20
		o := s.New(owner, limit, limit/2)
		var stdout, stderr []byte
		for i := range int(times % 64) {
			p, q := a, b
			if i%3 == 1 {
				p, q = b, a
			}
			stdout = append(stdout, p[:o.Stdout().Write(p)]...)
			stderr = append(stderr, q[:o.Stderr().Write(q)]...)
		}
		for _, c := range []struct {
			s     *Stream
			want  []byte
			limit int64
		}{{o.Stdout(), stdout, limit}, {o.Stderr(), stderr, limit / 2}} {
			if got := content(t, c.s); !bytes.Equal(got, c.want) || int64(len(got)) > c.limit {
				t.Fatalf("%q, want %q", got, c.want)
			}
			var got []byte
			for p, err := range c.s.Text() {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, p...)
			}
			if want := strings.ToValidUTF8(string(c.want), "\uFFFD"); string(got) != want {
				t.Fatalf("the text is %q, want %q", got, want)
			}
			for n := range min(len(c.want), 20) {
				p := make([]byte, 3)
				m, err := c.s.ReadAt(p, int64(n))
				if !bytes.Equal(p[:m], c.want[n:min(n+3, len(c.want))]) || (err == io.EOF) != (n+3 > len(c.want)) {
					t.Fatalf("at %d: %q, %v", n, p[:m], err)
				}
			}
		}
		o.Release()
		if memory, disk := s.Used(); memory != 0 || disk != 0 {
			t.Fatalf("%d and %d bytes are still taken", memory, disk)
		}
	})
}

// FuzzDecoder: how the bytes of a text arrive does not matter.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte("a\xe2\x82\xac\xff\xff\xe2"), uint64(5))
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		var d decoder
		var got []byte
		r := rand.New(rand.NewPCG(seed, 1))
		for rest := in; len(rest) > 0; {
			n := 1 + r.IntN(min(len(rest), 5))
			got = append(got, d.decode(rest[:n:n], false)...)
			rest = rest[n:]
		}
		got = append(got, d.decode(nil, true)...)
		if want := strings.ToValidUTF8(string(in), "\uFFFD"); string(got) != want {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}
