package model

import (
	"encoding/json"
	"slices"
	"strings"
)

// scan parses JSON as it passes and reports the values at some places. Its memory is bounded by those values.
//
// A place is the path of keys, at most two: "usage", "message.usage". Keys are compared in lower case, since some
// servers ignore case; a repeated key is reported each time.
type scan struct {
	places []string
	found  func(place string, value []byte) // nil: the value is too long

	depth     int
	object    [3]bool   // whether the containers at depth 1 and 2 are objects
	keys      [3]string // current keys, by depth
	expectKey bool

	inString, escaped, isKey bool
	key                      []byte

	place    string // place of the value being collected
	at       int    // its depth
	value    []byte
	overflow bool

	bad  bool // the document is not JSON
	done bool // the document is complete
}

const (
	maxKey   = 128
	maxValue = 16 << 10
)

// Write implements io.Writer, and never fails.
func (s *scan) Write(p []byte) (int, error) {
	for _, c := range p {
		s.next(c)
	}
	return len(p), nil
}

func (s *scan) next(c byte) {
	if s.inString {
		s.stringByte(c)
		return
	}
	switch c {
	case ' ', '\t', '\n', '\r':
		s.collect(c)
	case '"':
		s.collect(c)
		s.inString, s.isKey = true, s.expectKey
		s.key = s.key[:0]
		s.beginTop()
	case '{', '[':
		s.collect(c)
		s.beginTop()
		s.depth++
		if s.depth < len(s.object) {
			s.object[s.depth], s.keys[s.depth] = c == '{', ""
		}
		s.expectKey = c == '{'
	case '}', ']':
		if s.place != "" && s.depth == s.at { // a number or a word
			s.report()
		}
		if s.depth--; s.depth < 0 {
			s.bad, s.depth = true, 0
		}
		s.collect(c)
		if s.place != "" && s.depth == s.at {
			s.report()
		}
		s.expectKey = false
		s.done = s.depth == 0
	case ',':
		if s.place != "" && s.depth == s.at {
			s.report()
		}
		s.collect(c)
		s.expectKey = s.depth < len(s.object) && s.object[s.depth]
	case ':':
		s.collect(c)
		s.expectKey = false
		s.beginValue()
	default:
		if !strings.ContainsRune("0123456789+-.aeflnrstuE", rune(c)) {
			s.bad = true
		}
		s.collect(c)
		s.beginTop()
	}
}

func (s *scan) beginTop() {
	if s.depth == 0 && s.done {
		s.bad = true // two documents
	}
}

func (s *scan) stringByte(c byte) {
	s.collect(c)
	switch {
	case s.escaped:
		s.escaped = false
	case c == '\\':
		s.escaped = true
	case c == '"':
		s.inString = false
		if s.isKey && s.depth < len(s.keys) {
			s.keys[s.depth] = keyOf(s.key)
		}
		s.expectKey = false
		return
	case c < ' ':
		s.bad = true
	}
	if s.isKey && len(s.key) <= maxKey {
		s.key = append(s.key, c)
	}
}

// keyOf returns a key in lower case; "" if it is longer than any place's.
func keyOf(raw []byte) string {
	if len(raw) > maxKey {
		return ""
	}
	var k string
	if json.Unmarshal([]byte(`"`+string(raw)+`"`), &k) != nil {
		return ""
	}
	return strings.ToLower(k)
}

func (s *scan) beginValue() {
	if s.place != "" || s.depth < 1 || s.depth >= len(s.keys) || !s.object[s.depth] {
		return
	}
	place := s.keys[1]
	if s.depth == 2 {
		if !s.object[1] {
			return
		}
		place += "." + s.keys[2]
	}
	if slices.Contains(s.places, place) {
		s.place, s.at, s.value, s.overflow = place, s.depth, s.value[:0], false
	}
}

func (s *scan) collect(c byte) {
	switch {
	case s.place == "":
	case len(s.value) >= maxValue:
		s.overflow = true
	default:
		s.value = append(s.value, c)
	}
}

func (s *scan) report() {
	place, value := s.place, s.value
	s.place = ""
	if s.overflow {
		value = nil
	}
	s.found(place, value)
}

func (s *scan) reset() {
	*s = scan{places: s.places, found: s.found, key: s.key[:0], value: s.value[:0]}
}
