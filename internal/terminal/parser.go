package terminal

import "unicode/utf8"

// Limits of a sequence. A sequence that exceeds them is dropped whole.
const (
	maxParams = 32
	maxParam  = 65535 // larger numbers are reduced to it
	maxString = 4096  // bytes of an operating system command, and of every string of lines
)

type actions interface {
	print(r rune)
	execute(c byte)
	escape(intermediate, final byte)
	control(q *sequence)
	command(data []byte)
}

// sequence is a control sequence: CSI, a private prefix, parameters, intermediates, a final byte.
type sequence struct {
	prefix, intermediate, final byte // 0 for none
	params                      []int
	colon                       []bool // the parameter belongs to the one before
}

// param returns parameter i, or otherwise if it is absent or zero.
func (q *sequence) param(i, otherwise int) int {
	if i < len(q.params) && q.params[i] > 0 {
		return q.params[i]
	}
	return otherwise
}

// number returns the relevant parameter of a sequence, 1 to most.
func (q *sequence) number(most int) int { return max(1, min(q.param(0, 1), most)) }

type parserState byte

const (
	ground parserState = iota
	inEscape
	inEscapeIntermediate
	inControl
	inControlIntermediate
	inControlIgnored // malformed, or too long
	inCommand
	inIgnored // a dropped string: DCS, SOS, PM, APC
)

// parser parses a stream as a VT500 does (DEC STD 070, and Paul Williams's diagram of its states), with UTF-8 in the
// ground state. Eight-bit controls are not recognised.
type parser struct {
	lines        bool // a string ends with its line, so that one without an end takes no other line with it
	state        parserState
	pending      int  // bytes since the ground state
	intermediate byte // 0 for none, 0xff for several
	seq          sequence
	begun        bool // a digit or a separator of seq's parameters has been read
	data         []byte
	overlong     bool
	ending       bool // the escape that may end a command has been read
	rest         [utf8.UTFMax]byte
	restLen      int
}

const several = 0xff

// parse passes the content of p to a. A character or sequence that p does not complete continues with the next call.
func (s *parser) parse(p []byte, a actions) {
	for _, c := range p {
		s.pending++
		s.step(c, a)
		if s.state == ground && s.restLen == 0 {
			s.pending = 0
		}
	}
}

func (s *parser) step(c byte, a actions) {
	if s.restLen > 0 {
		if s.rune(c, a) {
			return
		}
	}
	switch {
	case c == 0x1b:
		s.ending = s.state == inCommand
		s.state, s.intermediate = inEscape, 0
		return
	case c == 0x18 || c == 0x1a: // CAN, SUB
		s.state = ground
		return
	case c == 0x7f && s.state < inCommand:
		return
	case s.lines && s.state >= inCommand && (c == '\n' || s.pending > maxString):
		s.state = ground
		s.step(c, a)
		return
	case c < 0x20 && s.state < inCommand:
		a.execute(c)
		return
	}
	switch s.state {
	case ground:
		s.ground(c, a)
	case inEscape, inEscapeIntermediate:
		s.escape(c, a)
	case inControl, inControlIntermediate, inControlIgnored:
		s.control(c, a)
	case inCommand:
		s.command(c, a)
	}
}

func (s *parser) ground(c byte, a actions) {
	switch {
	case c < 0x80:
		a.print(rune(c))
	case c >= 0xc2 && c <= 0xf4:
		s.rest[0], s.restLen = c, 1
	default:
		a.print(utf8.RuneError)
	}
}

// rune continues a character; it returns false if c does not belong to it.
func (s *parser) rune(c byte, a actions) bool {
	s.rest[s.restLen] = c
	n := s.restLen + 1
	if c&0xc0 == 0x80 && !utf8.FullRune(s.rest[:n]) {
		s.restLen = n
		return true
	}
	s.restLen = 0
	if r, size := utf8.DecodeRune(s.rest[:n]); size == n {
		a.print(r)
		return true
	}
	a.print(utf8.RuneError)
	return c&0xc0 == 0x80 // else c begins something new
}

func (s *parser) escape(c byte, a actions) {
	if s.ending {
		s.ending = false
		if c == '\\' {
			s.state = ground
			if !s.overlong {
				a.command(s.data)
			}
			return
		}
	}
	switch {
	case c < 0x30:
		if s.intermediate != 0 {
			c = several
		}
		s.state, s.intermediate = inEscapeIntermediate, c
		return
	case s.state == inEscape && c == '[':
		s.state, s.begun = inControl, false
		s.seq = sequence{params: s.seq.params[:0], colon: s.seq.colon[:0]}
		return
	case s.state == inEscape && c == ']':
		s.state, s.data, s.overlong = inCommand, s.data[:0], false
		return
	case s.state == inEscape && (c == 'P' || c == 'X' || c == '^' || c == '_'):
		s.state = inIgnored
		return
	}
	s.state = ground
	if c < 0x7f {
		a.escape(s.intermediate, c)
	}
}

func (s *parser) control(c byte, a actions) {
	q := &s.seq
	switch {
	case c >= 0x40 && c < 0x7f:
		ignored := s.state == inControlIgnored
		s.state = ground
		if q.final = c; !ignored {
			a.control(q)
		}
	case c >= 0x7f || s.state == inControlIgnored:
		s.state = inControlIgnored
	case c < 0x30:
		if q.intermediate != 0 {
			c = several
		}
		s.state, q.intermediate = inControlIntermediate, c
	case s.state == inControlIntermediate:
		s.state = inControlIgnored
	case c >= '<':
		if s.begun || q.prefix != 0 {
			s.state = inControlIgnored
		}
		q.prefix = c
	default:
		s.param(c)
	}
}

// param reads a digit or a separator. An absent parameter is -1.
func (s *parser) param(c byte) {
	q := &s.seq
	if !s.begun {
		s.begun = true
		q.params, q.colon = append(q.params, -1), append(q.colon, false)
	}
	last := &q.params[len(q.params)-1]
	switch {
	case c <= '9':
		*last = min(max(*last, 0)*10+int(c-'0'), maxParam)
	case len(q.params) == maxParams:
		s.state = inControlIgnored
	default:
		q.params, q.colon = append(q.params, -1), append(q.colon, c == ':')
	}
}

func (s *parser) command(c byte, a actions) {
	switch {
	case c == 0x07:
		s.state = ground
		if !s.overlong {
			a.command(s.data)
		}
	case len(s.data) == maxString:
		s.overlong = true
	case c >= 0x20:
		s.data = append(s.data, c)
	}
}
