// Package redact owns the removal of known values from everything that returns to a sandbox (invariant C4): headers,
// trailers and bodies, as a stream.
//
// A value is found plain and as encoders write it: in base64 of both alphabets at each of its three alignments, also
// in lines, in base32 at each of its five, in hex, in UTF-16 and UTF-32, and with any of its characters escaped as in
// URLs, JSON or HTML. With every character escaped, or where letters and digits are plain, it is found by the escapes
// of other languages too, and escaped twice. In names of headers and trailers it is found in either case. Each byte of
// a match is replaced by one other byte, so that lengths, frames and offsets are preserved: an event stream flows, and
// the frames of a WebSocket or gRPC stay whole.
//
// Values under other transformations are not found: reversed, encrypted, in other cases, in pieces that the origin puts
// between other text, in an archive.
package redact

import (
	"encoding/binary"
	"encoding/hex"
	"io"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/secret"
)

const (
	// MinLength is the minimum length of a value, in bytes; a shorter one would match unrelated text.
	MinLength = 8
	// MaxLength bounds memory, which is at most 1300 bytes for each byte of a value.
	MaxLength = 8 << 10
)

// Set is a compiled set of values to remove. It never changes. The nil Set finds nothing.
//
// It is a nondeterministic automaton. It runs only from positions where a filter on the next eight bytes matches.
type Set struct {
	filter [1 << filterBits / 64]uint64 // one bit for the hash of each beginning
	start  [256][]int32                 // by first byte, the next states
	first  []int32                      // state i has the edges edges[first[i]:first[i+1]]
	edges  []edge
	names  []string // the spellings that the name of a header can have, in lower case
	mask   byte
}

// edge leads to another state by either of two bytes, which are often equal.
type edge struct {
	a, b byte
	to   int32
}

const found = -1

// New compiles values, and returns nil without any. Errors: InvalidArgument for a value that is too short or too long.
func New(values ...secret.Value) (*Set, error) {
	if len(values) == 0 {
		return nil, nil
	}
	var all strings.Builder
	c := compiler{set: &Set{}}
	for _, v := range values {
		value := v.Reveal()
		if n := len(value); n < MinLength || n > MaxLength {
			return nil, cove.Errorf(cove.InvalidArgument,
				"a credential of %d bytes cannot be kept out of answers: it must have %d to %d", n, MinLength, MaxLength)
		}
		all.WriteString(value)
		c.set.names = append(c.set.names, strings.ToLower(value), hex.EncodeToString([]byte(value)))
		for _, p := range patterns(value) {
			c.add(p)
			c.admit(p, nil)
		}
	}
	c.set.mask = maskFor(all.String())
	return c.finish(), nil
}

// maskFor returns the replacement byte. It occurs in no value, so that the mask and its neighbours cannot form one.
func maskFor(values string) byte {
	for _, c := range []byte("*#x_.~^X0") {
		if strings.IndexByte(values, c) < 0 {
			return c
		}
	}
	return '*'
}

// candidate returns the first position from i where a value may begin: the filter matches, or too few bytes follow.
func (s *Set) candidate(b []byte, i int) int {
	for ; i+beginning <= len(b); i++ {
		h := hash(b[i:])
		if s.filter[h/64]&(1<<(h%64)) != 0 {
			break
		}
	}
	return i
}

func hash(b []byte) uint64 {
	return binary.LittleEndian.Uint64(b) * 0x9e3779b97f4a7c15 >> (64 - filterBits)
}

const filterBits = 18 // so large that other text seldom matches: 32 KiB for each set

// scanner runs a Set over a buffer that grows at its end.
type scanner struct {
	set    *Set
	active []thread // in the order of start
	next   []thread
	seen   []uint64 // one bit for each state in next
}

// thread is one attempt: its state, and the position where it began.
type thread struct {
	state int32
	start int
}

// scan continues at from, masks the values that end in b, and returns where the first that may be incomplete begins.
func (s *scanner) scan(b []byte, from int) int {
	for i := from; i < len(b); i++ {
		if len(s.active) == 0 {
			if i = s.set.candidate(b, i); i == len(b) {
				break
			}
		}
		s.step(b, i)
	}
	if len(s.active) > 0 {
		return s.active[0].start
	}
	return len(b)
}

// step processes b[i]: every thread advances or ends, and one may begin.
func (s *scanner) step(b []byte, i int) {
	if s.seen == nil {
		s.seen = make([]uint64, len(s.set.first)/64+1)
	}
	// Evaluate before reach masks the byte.
	c, begins := b[i], s.set.candidate(b[:min(i+beginning, len(b))], i) == i
	for _, t := range s.active {
		for _, e := range s.set.edges[s.set.first[t.state]:s.set.first[t.state+1]] {
			if e.a == c || e.b == c {
				s.reach(b, i, e.to, t.start)
			}
		}
	}
	if begins {
		for _, to := range s.set.start[c] {
			s.reach(b, i, to, i)
		}
	}
	for _, t := range s.next {
		s.seen[t.state/64] = 0
	}
	s.active, s.next = s.next, s.active[:0]
}

// reach enters a state. Of two threads in one state, the earlier one covers the other.
func (s *scanner) reach(b []byte, i int, state int32, start int) {
	if state == found {
		for j := start; j <= i; j++ { // no later step looks back
			b[j] = s.set.mask
		}
		return
	}
	if bit := uint64(1) << (state % 64); s.seen[state/64]&bit == 0 {
		s.seen[state/64] |= bit
		s.next = append(s.next, thread{state, start})
	}
}

// shift accounts for n bytes removed from the beginning of the buffer.
func (s *scanner) shift(n int) {
	for i := range s.active {
		s.active[i].start -= n
	}
}

// Text returns a string without the values.
func (s *Set) Text(text string) string {
	if s == nil || len(s.edges) == 0 || len(text) < MinLength {
		return text
	}
	b := []byte(text)
	if (&scanner{set: s}).scan(b, 0); string(b) == text {
		return text
	}
	return string(b)
}

// name returns the name of a header without the values. A header's name has no case, so values in it have none either.
func (s *Set) name(name string) string {
	lower := strings.ToLower(name)
	if len(name) < MinLength || len(lower) != len(name) {
		return name
	}
	clean := []byte(name)
	for _, value := range s.names {
		for i := 0; i+len(value) <= len(lower); i++ {
			if lower[i:i+len(value)] == value {
				copy(clean[i:], strings.Repeat(string(s.mask), len(value)))
			}
		}
	}
	return string(clean)
}

const buffered = 16 << 10 // the size of a Reader's reads, in bytes

// Reader returns a reader of from without the values. It holds back only a possible beginning of a value, and otherwise
// never waits for more bytes.
func (s *Set) Reader(from io.Reader) io.Reader {
	if s == nil || len(s.edges) == 0 {
		return from
	}
	return s.reader(from, buffered)
}

// Follow returns a reader of from without the values that now returns at each read. While now fails, every byte except
// line ends is masked. If the stream breaks off, a possible beginning of a value is not returned.
func Follow(from io.Reader, now func() (*Set, error)) io.Reader {
	return &reader{from: from, now: now, size: buffered}
}

func (s *Set) reader(from io.Reader, size int) *reader {
	return &reader{from: from, scanner: scanner{set: s}, size: size}
}

type reader struct {
	from    io.Reader
	now     func() (*Set, error) // nil: always the scanner's set
	scanner scanner
	size    int    // of a read, in bytes
	buffer  []byte // three parts:
	given   int    // buffer[:given] has been returned,
	ready   int    // buffer[given:ready] may be returned, and the rest is held back
	err     error  // of from, at its end
}

func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for r.given == r.ready {
		if r.err != nil {
			return 0, r.err
		}
		r.fill()
	}
	n := copy(p, r.buffer[r.given:r.ready])
	r.given += n
	return n, nil
}

// fill reads once, behind the bytes held back.
func (r *reader) fill() {
	held := len(r.buffer) - r.ready
	into := r.buffer
	if need := held + r.size; cap(into) < need {
		into = make([]byte, 2*held+r.size)
	}
	copy(into[:held], r.buffer[r.ready:])
	r.scanner.shift(r.ready)
	n, err := r.from.Read(into[held : held+r.size])
	r.buffer, r.given, r.err = into[:held+n], 0, err
	r.ready = r.scan(held)
	if err == io.EOF || err != nil && r.now == nil {
		r.ready = len(r.buffer) // an incomplete match at the end is no value
	}
}

// scan masks the values in the buffer, scanned up to before, and returns how many bytes may be returned.
func (r *reader) scan(before int) int {
	if r.now == nil {
		return r.scanner.scan(r.buffer, before)
	}
	set, err := r.now()
	if err != nil {
		for i, c := range r.buffer {
			if c != '\n' {
				r.buffer[i] = 'x'
			}
		}
		return len(r.buffer)
	}
	if set != r.scanner.set {
		r.scanner, before = scanner{set: set}, 0
	}
	if set == nil {
		return len(r.buffer)
	}
	return r.scanner.scan(r.buffer, before)
}
