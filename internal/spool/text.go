package spool

import (
	"errors"
	"io"
	"iter"
	"strings"
	"unicode/utf8"
)

// MaxChunk is how much is read at a time, in bytes.
const MaxChunk = 32 << 10

// Chunks returns what is kept from an offset on, in pieces that are valid until the next one.
func (s *Stream) Chunks(from int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		end := s.Size()
		buf := make([]byte, min(MaxChunk, max(0, end-from)))
		for from < end {
			n, err := s.ReadAt(buf[:min(int64(len(buf)), end-from)], from)
			if err != nil && !errors.Is(err, io.EOF) {
				yield(nil, err)
				return
			}
			from += int64(n)
			if !yield(buf[:n], nil) {
				return
			}
		}
	}
}

// Text returns what is kept as UTF-8, in pieces of whole characters that are valid until the next one. Each run of
// bytes that are none is one U+FFFD, as in strings.ToValidUTF8.
func (s *Stream) Text() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var t decoder
		for p, err := range s.Chunks(0) {
			if err != nil {
				yield(nil, err)
				return
			}
			if p = t.decode(p, false); len(p) > 0 && !yield(p, nil) {
				return
			}
		}
		if p := t.decode(nil, true); len(p) > 0 {
			yield(p, nil)
		}
	}
}

// String returns the beginning of what is kept as UTF-8: all of it, or at least so many bytes.
func (s *Stream) String(least int) (string, error) {
	var b strings.Builder
	b.Grow(int(min(int64(least), s.Size())))
	for p, err := range s.Text() {
		if err != nil {
			return "", err
		}
		b.Write(p[:whole(p, least-b.Len())])
		if b.Len() >= least {
			break
		}
	}
	return b.String(), nil
}

// whole returns the length of the characters of p of which n bytes are a part.
func whole(p []byte, n int) int {
	for n < len(p) && !utf8.RuneStart(p[n]) {
		n++
	}
	return min(n, len(p))
}

// decoder replaces what is not UTF-8 in a text that comes in pieces.
type decoder struct {
	rest []byte // the beginning of a character
	bad  bool   // the last byte before rest was replaced
	buf  []byte
}

// decode returns the text of the next piece, as far as its characters are whole, or of the last.
func (d *decoder) decode(p []byte, last bool) []byte {
	if len(d.rest) > 0 {
		p = append(d.rest, p...)
		d.rest = nil
	}
	if end := Whole(p); end < len(p) && !last {
		d.rest = append([]byte(nil), p[end:]...)
		p = p[:end]
	}
	if len(p) == 0 || utf8.Valid(p) {
		d.bad = d.bad && len(p) == 0
		return p
	}
	d.buf = d.buf[:0]
	for len(p) > 0 {
		r, n := utf8.DecodeRune(p)
		bad := r == utf8.RuneError && n == 1
		if !bad || !d.bad {
			d.buf = utf8.AppendRune(d.buf, r)
		}
		d.bad = bad
		p = p[n:]
	}
	return d.buf
}

// Whole returns the length of p without a character that is cut off at its end: pieces of a stream end anywhere.
func Whole(p []byte) int {
	for i := 1; i <= min(len(p), utf8.UTFMax-1); i++ {
		if c := p[len(p)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(p[len(p)-i:]) {
				return len(p) - i
			}
			break
		}
	}
	return len(p)
}
