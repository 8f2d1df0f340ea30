package unpack

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/mikelolasagasti/xz"

	"github.com/cove-sandbox/cove"
)

// Sizes of the blocks that are decompressed ahead.
const (
	blockSize = 256 << 10
	blocks    = 4
)

// stream decompresses, hashes and counts in its own goroutine, a few blocks ahead of the reader, so that two cores
// share the work. stop ends it.
type stream struct {
	full   chan block    // closed by the goroutine at its end
	empty  chan []byte   // returned buffers
	quit   chan struct{} // closed by stop
	hash   hash.Hash     // owned by the goroutine until full is closed
	rest   []byte
	held   []byte // the buffer that contains rest
	err    error  // the reason for the end, returned by every later Read
	closed func()
}

type block struct {
	data []byte
	err  error
}

func (t *Tree) newStream(ctx context.Context, r io.Reader) (*stream, error) {
	packed := &counter{r: r}
	plain, closePlain, err := decompressor(packed)
	if err != nil {
		return nil, err
	}
	s := &stream{
		full: make(chan block, blocks), empty: make(chan []byte, blocks), quit: make(chan struct{}),
		hash: sha256.New(), closed: closePlain,
	}
	for range blocks {
		s.empty <- make([]byte, blockSize)
	}
	go s.pump(ctx, plain, t.gauge(packed))
	return s, nil
}

// roomStep is how many bytes of archives are unpacked between two questions for room.
const roomStep = 16 << 20

// gauge returns the check of unpacked bytes against packed ones.
func (t *Tree) gauge(packed *counter) func(n int) error {
	var out int64
	return func(n int) error {
		out += int64(n)
		if t.bytes += int64(n); t.bytes > t.limits.Bytes {
			return t.limits.tooManyBytes()
		}
		if t.Room != nil && t.bytes >= t.roomAt {
			t.roomAt = t.bytes + roomStep
			if err := t.Room(t.bytes, roomStep); err != nil {
				return err
			}
		}
		if in := packed.n.Load(); out > RatioFloor && out/max(in, 1) > t.limits.Ratio {
			return cove.Errorf(cove.TooLarge, "a layer unpacks to more than %d times its size", t.limits.Ratio)
		}
		return nil
	}
}

func (s *stream) pump(ctx context.Context, r io.Reader, check func(int) error) {
	defer close(s.full)
	for {
		var buf []byte
		select {
		case buf = <-s.empty:
		case <-s.quit:
			return
		}
		n, err := io.ReadFull(r, buf)
		if err == io.ErrUnexpectedEOF {
			err = io.EOF // of this block; the decompressor reports a truncated archive as io.ErrUnexpectedEOF, mapped below
		}
		s.hash.Write(buf[:n])
		if e := check(n); e != nil {
			err = e
		}
		if e := ctx.Err(); e != nil {
			err = cove.Errorf(cove.Canceled, "unpacking was canceled: %w", e)
		}
		select {
		case s.full <- block{buf[:n], err}:
		case <-s.quit:
			return
		}
		if err != nil {
			return
		}
	}
}

func (s *stream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		if s.held != nil {
			s.empty <- s.held[:blockSize]
			s.held = nil
		}
		b := <-s.full
		s.rest, s.held, s.err = b.data, b.data, b.err
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// stop ends the goroutine and waits for it.
func (s *stream) stop() {
	close(s.quit)
	for range s.full { //nolint:revive // until closed
	}
	s.closed()
}

// digest is valid after Read has returned io.EOF.
func (s *stream) digest() string { return hex.EncodeToString(s.hash.Sum(nil)) }

// explain returns the error that ended the stream in preference to its effect on the reader.
func (s *stream) explain(err error) error {
	if s.err != nil && s.err != io.EOF {
		err = s.err
	}
	return malformed(err)
}

type counter struct {
	r io.Reader
	n atomic.Int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// decompressor detects the compression by the first bytes; media types of layers are often wrong.
func decompressor(r io.Reader) (io.Reader, func(), error) {
	none := func() {}
	b := bufio.NewReaderSize(r, blockSize)
	head, err := b.Peek(6)
	if err != nil && err != io.EOF {
		return nil, nil, malformed(err)
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, nil, malformed(err)
		}
		return whole{z}, none, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}),
		len(head) >= 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:4], []byte{0x2a, 0x4d, 0x18}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, nil, malformed(err)
		}
		return whole{z}, z.Close, nil
	case bytes.HasPrefix(head, []byte("BZh")):
		return whole{bzip2.NewReader(b)}, none, nil
	case bytes.HasPrefix(head, []byte("\xfd7zXZ")):
		z, err := xz.NewReader(b, xz.DefaultDictMax) // that of xz -9
		if err = unxz(err); err == errTruncated {
			err = malformed(err)
		}
		if err != nil {
			return nil, nil, err
		}
		return xzReader{z}, none, nil
	}
	return b, none, nil
}

// xzReader says what of an archive is not supported.
type xzReader struct{ r io.Reader }

func (x xzReader) Read(p []byte) (int, error) {
	n, err := x.r.Read(p)
	return n, unxz(err)
}

func unxz(err error) error {
	switch {
	case err == nil, err == io.EOF:
		return err
	case errors.Is(err, xz.ErrMemlimit), errors.Is(err, xz.ErrOptions), errors.Is(err, xz.ErrUnsupportedCheck):
		return cove.Errorf(cove.Unsupported, "the archive is compressed in a way that is not read: %w", err).
			WithHint("compress it as \"xz -9\" does")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, xz.ErrBuf):
		return errTruncated
	}
	return malformed(err)
}

// whole maps the error of a truncated stream to one that cannot be mistaken for a clean end.
type whole struct{ r io.Reader }

var errTruncated = errors.New("the compressed stream ends early")

func (w whole) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if err == io.ErrUnexpectedEOF {
		err = errTruncated
	}
	return n, err
}

// IsPlain reports whether a file's first bytes match no compression, and rewinds it.
func IsPlain(f io.ReadSeeker) (bool, error) {
	r, done, err := decompressor(f)
	if err != nil {
		return false, err
	}
	done()
	_, buffered := r.(*bufio.Reader)
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return false, cove.Errorf(cove.Internal, "read the archive: %w", err)
	}
	return buffered, nil
}

// IsArchive reports whether a file is a tar archive, plain or compressed, with anything in it, and rewinds it. Errors:
// Unsupported (a compression).
func IsArchive(f io.ReadSeeker) (bool, error) {
	r, done, err := decompressor(f)
	if cove.ErrorCode(err) == cove.Unsupported {
		return false, err
	}
	is := false
	if err == nil {
		_, err = tar.NewReader(r).Next()
		is = err == nil
		done()
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return false, cove.Errorf(cove.Internal, "read the archive: %w", err)
	}
	return is, nil
}

// Decompress copies a plain, gzip or zstd stream, within the limits on bytes and ratio; room is that of a Tree.
func Decompress(ctx context.Context, w io.Writer, r io.Reader, limits Limits,
	room func(bytes, step int64) error) error {
	t := &Tree{limits: limits, Room: room}
	s, err := t.newStream(ctx, r)
	if err != nil {
		return err
	}
	defer s.stop()
	_, err = io.Copy(w, s)
	switch {
	case s.err != nil && s.err != io.EOF:
		return malformed(s.err)
	case IsFull(err):
		return Full(err)
	}
	return err
}
