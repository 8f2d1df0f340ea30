//go:build linux

package backup

import (
	"archive/tar"
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/local"
)

// Command is the argument with which a program is the process apart: it calls Serve then. There the owners of files are
// as inside a sandbox, for which an ordinary user has subordinate ids.
const Command = "backup-files"

// Messages with the process apart: a request, then chunks of a tar in either direction, of which the last is Done.
type (
	request struct {
		Tree   *Tree  // to be packed
		Unpack string // or the directory into which a backup is unpacked
	}
	chunk struct {
		Data []byte
		Done bool
		// Failed is the error at the end, and Code and Errno what is known of it.
		Failed string
		Code   cove.Code
		Errno  int
	}
)

// chunks writes a stream as chunks.
type chunks struct{ *gob.Encoder }

func (c chunks) Write(p []byte) (int, error) { return len(p), c.Encode(chunk{Data: p}) }

func (c chunks) end(err error) error {
	last := chunk{Done: true}
	if err != nil {
		last.Failed, last.Code = err.Error(), cove.ErrorCode(err)
		if errno, ok := errors.AsType[unix.Errno](err); ok {
			last.Errno = int(errno)
		}
	}
	return c.Encode(last)
}

// readChunks copies the chunks of a stream to its end, and returns the other side's error.
func readChunks(in *gob.Decoder, out io.Writer) error {
	for {
		var c chunk
		if err := in.Decode(&c); err != nil {
			return cove.Errorf(cove.Unavailable, "the process that works on the files of a backup has ended: %w", err)
		}
		if c.Failed != "" {
			if c.Errno != 0 {
				return fmt.Errorf("%s (%w)", c.Failed, unix.Errno(c.Errno))
			}
			return cove.Errorf(c.Code, "%s", c.Failed)
		}
		if c.Done {
			return nil
		}
		if _, err := out.Write(c.Data); err != nil {
			return err
		}
	}
}

// apart is a conversation with the process apart.
type apart struct {
	net.Conn
	to   chunks
	from *gob.Decoder
}

// begin starts the process apart with a request.
func begin(m local.IDMap, program string, q request) (a apart, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return a, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "backup"), os.NewFile(uintptr(fds[1]), "backup")
	defer ours.Close()
	defer theirs.Close()
	if err := m.Start(program, Command, theirs); err != nil {
		return a, err
	}
	if a, err = talk(ours); err == nil {
		err = a.to.Encode(q)
	}
	return a, err
}

func talk(file *os.File) (a apart, err error) {
	if a.Conn, err = net.FileConn(file); err == nil {
		a.to, a.from = chunks{gob.NewEncoder(a)}, gob.NewDecoder(a)
	}
	return a, err
}

func packApart(m local.IDMap, program string, t Tree, out io.Writer) error {
	a, err := begin(m, program, request{Tree: &t})
	if err != nil {
		return err
	}
	defer a.Close()
	return readChunks(a.from, out)
}

// unpackApart judges a backup here, as the process apart does while it writes the files.
func unpackApart(ctx context.Context, m local.IDMap, program string, in io.Reader, dir string,
	check func(About) error) error {
	a, err := begin(m, program, request{Unpack: dir})
	if err != nil {
		return err
	}
	defer a.Close()
	defer context.AfterFunc(ctx, func() { a.Close() })()
	err = scan(bufio.NewReaderSize(io.TeeReader(in, a.to), 64<<10), check,
		func(*tar.Header, io.Reader) error { return nil })
	if e := a.to.end(nil); err == nil && e == nil {
		return readChunks(a.from, io.Discard)
	}
	if cove.ErrorCode(err) == cove.Internal { // perhaps what was said there has ended this
		err = errors.Join(err, readChunks(a.from, io.Discard))
	}
	return err
}

// Serve is the process apart, for one request.
func Serve() {
	syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
	a, err := talk(os.NewFile(3, "backup"))
	var q request
	if err == nil {
		err = a.from.Decode(&q)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s is for Cove itself\n", Command)
		os.Exit(2)
	}
	if q.Tree != nil {
		out := bufio.NewWriterSize(a.to, 64<<10)
		err = pack(*q.Tree, out)
		a.to.end(errors.Join(err, out.Flush()))
		return
	}
	in, out := io.Pipe()
	go func() { out.CloseWithError(readChunks(a.from, out)) }()
	a.to.end(unpack(context.Background(), in, q.Unpack, func(About) error { return nil }))
}
