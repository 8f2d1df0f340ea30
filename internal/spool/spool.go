// Package spool keeps what programs write. The beginning of each output lies in memory, of which all outputs together
// have a budget, and the rest in a file without a name, which goes with the process, whatever way that ends.
//
// An output has one writer for each of its streams, and any number of readers, who may read what is kept while more is
// written. What finds no room is dropped, with all that follows it in its stream: Write tells how much it kept.
package spool

import (
	"cmp"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/share"
)

// Options bound a Spool.
type Options struct {
	Dir    string // of the files, on a disk
	Memory int64  // bytes of memory for all outputs, beside the first 16 KiB of each stream
	Disk   int64  // bytes of files for all outputs
	Free   int64  // bytes that outputs leave free on the file system of Dir
	Log    *slog.Logger
}

const (
	// beginning is the most of one stream that lies in memory, in bytes: fewer than a small output that is usual, and
	// enough that an execution without much to say never has a file.
	beginning = 128 << 10
	// always is the first part of each stream, in bytes, which is kept outside the budget: what one caller leaves unread
	// takes nothing of it from another. Those who may have outputs are bounded, and so is what this takes together.
	always = 16 << 10
	// Sizes of the pieces of memory, which double: a line should not take as much as a page of text.
	smallestPiece, largestPiece = 512, 64 << 10
	// extent is the disk space that a stream takes at once, in bytes.
	extent = 1 << 20
	// tellInterval is how often the log tells that outputs were dropped.
	tellInterval = time.Minute
)

// Spool holds outputs within its bounds. Its methods, and those of its outputs, may be called concurrently.
type Spool struct {
	o Options

	memory, disk *share.Pool // bytes

	mu   sync.Mutex // taken after that of an Output
	told time.Time  // when the log told last that something was dropped
}

// New returns a Spool without outputs.
func New(o Options) *Spool {
	return &Spool{o: o, memory: share.New(o.Memory), disk: share.New(o.Disk)}
}

// Used returns the bytes that outputs take of memory and of files.
func (s *Spool) Used() (memory, disk int64) { return s.memory.Taken(), s.disk.Taken() }

// piece returns memory for at most want more bytes of a principal's stream with so many already; none where the budget
// is used up. A piece lies in the budget or outside it as a whole.
func (s *Spool) piece(who cove.Principal, already, want int64) []byte {
	size := min(max(already, smallestPiece, min(want, largestPiece)), largestPiece, beginning-already)
	if already < always {
		return make([]byte, 0, min(size, always-already))
	}
	if size = s.memory.TakeUpTo(who, size); size == 0 {
		return nil
	}
	return make([]byte, 0, size)
}

var errBounds = errors.New("the outputs of executions take as much of the disk as they may (server.output_disk_mb)")

// reserve takes n bytes of disk space for a principal, at an offset of a file. No other program can use them up before
// they are written.
func (s *Spool) reserve(who cove.Principal, f *os.File, at, n int64) error {
	if !s.disk.Take(who, n) {
		return errBounds
	}
	err := allocate(f, at, n, s.o.Free)
	if err != nil {
		s.disk.Give(who, n)
	}
	return err
}

// allocate allocates n bytes at an offset of a file, unless less than free is left on its file system then. Other
// outputs go on meanwhile: a disk may be slow.
func allocate(f *os.File, at, n, free int64) error {
	var of unix.Statfs_t
	if err := again(func() error { return unix.Fstatfs(int(f.Fd()), &of) }); err == nil &&
		int64(of.Bavail)*of.Bsize-n < free {
		return unix.ENOSPC
	}
	err := again(func() error { return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, at, n) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

// again calls a system call until no signal interrupts it: the runtime of Go sends many, and tmpfs heeds them.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// file makes a file without a name. Where the file system has none, its name is removed at once.
func (s *Spool) file() (*os.File, error) {
	fd, err := unix.Open(s.o.Dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC|unix.O_EXCL, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), s.o.Dir), nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) {
		return nil, &os.PathError{Op: "open", Path: s.o.Dir, Err: err}
	}
	f, err := os.CreateTemp(s.o.Dir, "output-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// tell logs that output was dropped, at the first time and then once in tellInterval.
func (s *Spool) tell(err error) {
	s.mu.Lock()
	due := time.Since(s.told) >= tellInterval
	if due {
		s.told = time.Now()
	}
	s.mu.Unlock()
	if due {
		cmp.Or(s.o.Log, slog.New(slog.DiscardHandler)).Warn("there is no room for an execution's output, which is truncated",
			"directory", s.o.Dir, "error", err)
	}
}
