package terminal

import "strconv"

// color is 0 for the default, indexed|n for one of the 256, direct|RGB.
type color uint32

const (
	indexed color = 1 << 24
	direct  color = 2 << 24
)

type attribute uint16

const (
	bold attribute = 1 << iota
	dim
	italic
	blink
	reverse
	hidden
	struck
	overlined
	// The kind of underline is a number: 0 none, 1 single, 2 double, 3 curly, 4 dotted, 5 dashed.
	underlineUnit
	underlineMask = 7 * underlineUnit
)

// style is the appearance of a cell. The zero style is the default.
type style struct {
	fg, bg, ul color
	attributes attribute
}

func (s *style) set(a attribute)   { s.attributes |= a }
func (s *style) clear(a attribute) { s.attributes &^= a }
func (s *style) underline(kind int) {
	s.attributes = s.attributes&^underlineMask | attribute(kind)*underlineUnit
}

// marks maps a parameter to the attribute that it sets; other parameters clear attributes.
var marks = map[int]attribute{1: bold, 2: dim, 3: italic, 5: blink, 6: blink, 7: reverse, 8: hidden,
	9: struck, 53: overlined}
var unmarks = map[int]attribute{22: bold | dim, 23: italic, 25: blink, 27: reverse, 28: hidden, 29: struck,
	55: overlined, 24: underlineMask}

// apply executes SGR with these parameters.
func (s *style) apply(q *sequence) {
	if len(q.params) == 0 {
		*s = style{}
	}
	for i := 0; i < len(q.params); {
		end := i + 1
		for end < len(q.params) && q.colon[end] {
			end++
		}
		i = s.one(q.params, i, end)
	}
}

// one applies parameter i, whose subparameters end before end, and returns the next index.
func (s *style) one(params []int, i, end int) int {
	n := max(params[i], 0)
	switch {
	case n == 0:
		*s = style{}
	case n == 4:
		kind := 1
		if end > i+1 {
			kind = max(params[i+1], 0)
		}
		if kind <= 5 {
			s.underline(kind)
		}
	case n == 21:
		s.underline(2)
	case marks[n] != 0:
		s.set(marks[n])
	case unmarks[n] != 0:
		s.clear(unmarks[n])
	case n >= 30 && n <= 37:
		s.fg = indexed | color(n-30)
	case n >= 40 && n <= 47:
		s.bg = indexed | color(n-40)
	case n >= 90 && n <= 97:
		s.fg = indexed | color(n-90+8)
	case n >= 100 && n <= 107:
		s.bg = indexed | color(n-100+8)
	case n == 39:
		s.fg = 0
	case n == 49:
		s.bg = 0
	case n == 59:
		s.ul = 0
	case n == 38 || n == 48 || n == 58:
		c, next, ok := extended(params, i, end)
		switch {
		case !ok:
		case n == 38:
			s.fg = c
		case n == 48:
			s.bg = c
		case n == 58:
			s.ul = c
		}
		return next
	}
	return end
}

// extended reads the color after 38, 48 or 58 at i: 5 and an index, or 2 and red, green, blue. Colons separate them
// (then 2 may be followed by a color space), or semicolons.
func extended(params []int, i, end int) (c color, next int, ok bool) {
	rest := params[i+1:]
	if end > i+1 {
		rest, next = params[i+1:end], end
		if len(rest) >= 5 && rest[0] == 2 {
			rest = append([]int{2}, rest[2:5]...)
		}
	}
	switch {
	case len(rest) >= 2 && rest[0] == 5:
		c, ok = indexed|color(max(rest[1], 0)), rest[1] <= 255
		next = max(next, i+3)
	case len(rest) >= 4 && rest[0] == 2:
		c, ok = direct, true
		for _, v := range rest[1:4] {
			ok = ok && v <= 255
			c = c&^0xffffff | direct | (c<<8|color(max(v, 0)&0xff))&0xffffff
		}
		next = max(next, i+5)
	default:
		next = max(next, len(params)) // the meaning of the rest is unknown
	}
	return c, next, ok
}

// append appends the SGR for this style.
func (s style) append(b []byte) []byte {
	b = append(b, "\x1b[0"...)
	for _, n := range []int{1, 2, 3, 5, 7, 8, 9, 53} {
		if s.attributes&marks[n] != 0 {
			b = strconv.AppendInt(append(b, ';'), int64(n), 10)
		}
	}
	switch kind := s.attributes & underlineMask / underlineUnit; {
	case kind == 1:
		b = append(b, ";4"...)
	case kind > 1:
		b = append(b, ";4:"...)
		b = append(b, '0'+byte(kind))
	}
	b = appendColor(b, s.fg, 30, 90, 38)
	b = appendColor(b, s.bg, 40, 100, 48)
	b = appendColor(b, s.ul, 0, 0, 58)
	return append(b, 'm')
}

// appendColor appends a color as parameters: low is the first of the eight short ones, 0 if there are none, bright that
// of their bright ones.
func appendColor(b []byte, c color, low, bright, long int) []byte {
	n := int(c & 0xffffff)
	switch {
	case c == 0:
		return b
	case c&direct != 0:
		b = strconv.AppendInt(append(b, ';'), int64(long), 10)
		b = append(b, ";2"...)
		for shift := 16; shift >= 0; shift -= 8 {
			b = strconv.AppendInt(append(b, ';'), int64(n>>shift&0xff), 10)
		}
		return b
	case low > 0 && n < 8:
		return strconv.AppendInt(append(b, ';'), int64(low+n), 10)
	case low > 0 && n < 16:
		return strconv.AppendInt(append(b, ';'), int64(bright+n-8), 10)
	}
	b = strconv.AppendInt(append(b, ';'), int64(long), 10)
	b = append(b, ";5;"...)
	return strconv.AppendInt(b, int64(n), 10)
}
