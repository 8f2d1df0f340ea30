package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cove-sandbox/cove"
)

const (
	maxDepth    = 5   // labels that a wildcard may match
	maxWildcard = 100 // bytes of them, dots included: DNS carries data in labels
)

// pattern matches host names: one name, or all names up to depth labels below one.
type pattern struct {
	name  string // the exact name, or a wildcard's suffix with its dot
	depth int    // 0 for an exact name
}

// parsePattern reads NAME or *.NAME.
func parsePattern(s string, depth int) (pattern, error) {
	suffix, wildcard := strings.CutPrefix(s, "*.")
	if strings.Contains(suffix, "*") {
		return pattern{}, cove.Errorf(cove.InvalidArgument,
			"%s is no host pattern: \"*\" stands for whole labels in front of a name", quote(s)).
			WithHint("for example *.example.com; a name by itself is exact")
	}
	h, err := ParseHost(suffix)
	switch {
	case err != nil:
		return pattern{}, err
	case h.Name() == "":
		return pattern{}, cove.Errorf(cove.InvalidArgument, "%s is an address, which needs a rule by cidrs",
			quote(s)).WithHint("cidrs: [%s]", h)
	case wildcard:
		return pattern{name: "." + h.Name(), depth: depth}, nil
	}
	return pattern{name: h.Name()}, nil
}

func (p pattern) String() string {
	if p.depth > 0 {
		return "*" + p.name
	}
	return p.name
}

// match reports whether p matches a canonical name. A wildcard does not match the name below which it stands.
func (p pattern) match(name string) bool {
	if p.depth == 0 {
		return name == p.name
	}
	labels, ok := strings.CutSuffix(name, p.name)
	return ok && len(labels) <= maxWildcard && strings.Count(labels, ".") < p.depth && name != HostService
}

// covers reports whether p matches every name that q matches.
func (p pattern) covers(q pattern) bool {
	if q.depth == 0 {
		return p.match(q.name)
	}
	if p.depth == 0 {
		return false
	}
	between, ok := strings.CutSuffix(q.name, p.name) // "" or ".b" for *.b.x under *.x
	return ok && strings.Count(between, ".")+q.depth <= p.depth && (between == "" || between[0] == '.')
}

// portRange is an inclusive range of ports.
type portRange struct{ low, high uint16 }

var (
	webPorts = []portRange{{80, 80}, {443, 443}} // default of a rule that allows
	allPorts = []portRange{{1, 65535}}           // default of a rule that denies
)

// parsePorts reads N or N-M.
func parsePorts(s string) (portRange, error) {
	a, b, isRange := strings.Cut(s, "-")
	low, err := ParsePort(a)
	if err != nil || !isRange {
		return portRange{low, low}, err
	}
	high, err := ParsePort(b)
	if err == nil && high < low {
		err = cove.Errorf(cove.InvalidArgument, "%s is no range of ports: its end is before its beginning", quote(s))
	}
	return portRange{low, high}, err
}

func (r portRange) String() string {
	if r.low == r.high {
		return strconv.Itoa(int(r.low))
	}
	return fmt.Sprintf("%d-%d", r.low, r.high)
}

func hasPort(ranges []portRange, port uint16) bool {
	return slices.ContainsFunc(ranges, func(r portRange) bool { return r.low <= port && port <= r.high })
}

// coversPorts reports whether a contains every port of b.
func coversPorts(a, b []portRange) bool {
	for _, r := range b {
		for port := uint32(r.low); port <= uint32(r.high); {
			next := port
			for _, s := range a {
				if uint32(s.low) <= port && port <= uint32(s.high) {
					next = max(next, uint32(s.high)+1)
				}
			}
			if next == port {
				return false
			}
			port = next
		}
	}
	return true
}

func parseMethod(s string) (string, error) {
	if why := objectionToMethod(s); why != "" {
		return "", cove.Errorf(cove.InvalidArgument, "%s is no method for a rule: %s", quote(s), why)
	}
	return s, nil
}

func objectionToMethod(s string) string {
	if s == "" || len(s) > 32 {
		return "a method has 1 to 32 letters"
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; !('A' <= c && c <= 'Z' || c == '-' && i > 0) {
			return "methods are written in capitals"
		}
	}
	switch s {
	case "CONNECT":
		return "nothing is tunnelled within a request"
	case "TRACE", "TRACK":
		return "it would show what the gateway adds to a request"
	}
	return ""
}

// glob is a path pattern of decoded segments: "*" matches one segment, "**" any number, including none.
type glob struct {
	text     string
	segments []string
	literal  []bool
}

func parseGlob(s string) (glob, error) {
	bad := func(why string) (glob, error) {
		return glob{}, cove.Errorf(cove.InvalidArgument, "%s is no path pattern: %s", quote(s), why)
	}
	if !strings.HasPrefix(s, "/") {
		return bad("it does not begin with a slash")
	}
	if !utf8.ValidString(s) {
		return bad("it is not UTF-8")
	}
	g := glob{text: s}
	for _, segment := range strings.Split(s[1:], "/") {
		literal := segment != "*" && segment != "**"
		if literal && strings.Contains(segment, "*") {
			return bad("\"*\" stands for a whole segment, and \"**\" for any number of them (a real asterisk is %2A)")
		}
		if literal {
			segment = encodeForeign(segment)
		}
		g.segments, g.literal = append(g.segments, segment), append(g.literal, literal)
	}
	if why := objectionToPath("/" + strings.Join(g.segments, "/")); why != "" {
		return bad(why)
	}
	for i, segment := range g.segments {
		if g.literal[i] {
			decoded, _ := appendDecoded(nil, segment, '/')
			g.segments[i] = string(decoded)
		}
	}
	return g, nil
}

// encodeForeign encodes characters that a pattern may contain unencoded.
func encodeForeign(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf || s[i] == ' ' {
			fmt.Fprintf(&b, "%%%02X", s[i])
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// match reports whether g matches a decoded path, in which encoded slashes separate segments if split.
func (g glob) match(path []byte, split bool) bool {
	at, seg := 1, 0 // the first segment begins after the leading slash
	star, starAt := -1, 0
	for at <= len(path) {
		if seg < len(g.segments) && !g.literal[seg] && g.segments[seg] == "**" {
			star, starAt = seg, at
			seg++
			continue
		}
		end := segmentEnd(path, at, split)
		switch {
		case seg < len(g.segments) && (g.literal[seg] && same(path[at:end], g.segments[seg]) || !g.literal[seg] && end > at):
			seg++
			at = end + 1
		case star >= 0: // extend the last "**" by one segment
			starAt = segmentEnd(path, starAt, split) + 1
			at, seg = starAt, star+1
		default:
			return false
		}
	}
	for seg < len(g.segments) && !g.literal[seg] && g.segments[seg] == "**" {
		seg++
	}
	return seg == len(g.segments)
}

func same(segment []byte, literal string) bool {
	if len(segment) != len(literal) {
		return false
	}
	for i, c := range segment {
		if c == encodedSlash {
			c = '/'
		}
		if c != literal[i] {
			return false
		}
	}
	return true
}

// tooDeep reports whether name fails to match only because of its number of labels.
func (p pattern) tooDeep(name string) bool {
	return !p.match(name) && pattern{p.name, maxName}.match(name)
}
