package policy

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/cove-sandbox/cove"
)

const (
	maxHostInput = 1024 // bytes, before any parsing
	maxName      = 253  // bytes of a name without its trailing dot (RFC 1035, 2.3.4)
	maxLabel     = 63
)

// Host is the target of a connection, in the one form that policy, DNS filter and dialer share: a name in lower case
// made of LDH labels (letters, digits, hyphens; IDNA applied, no trailing dot), or an address. Hosts are comparable
// with ==. The zero Host is none.
type Host struct {
	name string
	addr netip.Addr // never mapped IPv4, never with a zone
}

// ParseHost parses a host from a URL, a Host header, an SNI or a configuration. Letters are lowered, IDNA is applied
// and one trailing dot is dropped. Every spelling that inet_aton(3) accepts is an address. All else is refused: control
// characters, spaces, "%", brackets other than [IPv6], zones, empty or overlong labels, names whose last label is a
// number. HostServiceAlias is HostService. Errors: InvalidArgument.
func ParseHost(s string) (Host, error) {
	if s == "" {
		return Host{}, cove.Errorf(cove.InvalidArgument, "the host is empty")
	}
	if len(s) > maxHostInput {
		return Host{}, cove.Errorf(cove.InvalidArgument, "the host has %d bytes; a name has at most %d", len(s), maxName)
	}
	if inner, ok := strings.CutPrefix(s, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		if !closed || !strings.Contains(inner, ":") {
			return Host{}, badHost(s, "brackets are for IPv6 addresses")
		}
		return parseV6(s, inner)
	}
	if strings.Contains(s, ":") {
		return parseV6(s, s)
	}
	name, err := toASCII(s)
	if err != nil {
		return Host{}, err
	}
	name = strings.TrimSuffix(name, ".")
	if addr, ok := inetAton(name); ok {
		return Host{addr: addr}, nil
	}
	if why := objectionToName(name); why != "" {
		return Host{}, badHost(s, why)
	}
	if name == HostServiceAlias {
		name = HostService
	}
	return Host{name: name}, nil
}

// HostOf returns the host of an address; the zero Host for an invalid address or one with a zone.
func HostOf(a netip.Addr) Host {
	if !a.IsValid() || a.Zone() != "" {
		return Host{}
	}
	return Host{addr: a.Unmap()}
}

// Name returns the name, or "" where the host is an address.
func (h Host) Name() string { return h.name }

// Addr returns the address, if the host is one.
func (h Host) Addr() (netip.Addr, bool) { return h.addr, h.addr.IsValid() }

// Public reports whether h is a name as public ones are: below a domain, and below none that is reserved for a machine
// or its network (RFC 6761, 6762, 9476, and ICANN's .internal).
func (h Host) Public() bool {
	i := strings.LastIndexByte(h.name, '.')
	return i > 0 && !slices.Contains([]string{"internal", "local", "localhost", "localdomain", "invalid", "onion", "alt",
		"arpa"}, h.name[i+1:])
}

// IsZero reports whether h is the zero Host.
func (h Host) IsZero() bool { return h == Host{} }

// String returns the name, or the address without brackets.
func (h Host) String() string {
	if h.addr.IsValid() {
		return h.addr.String()
	}
	return h.name
}

// Authority returns host:port, with brackets where the host needs them.
func (h Host) Authority(port uint16) string {
	return net.JoinHostPort(h.String(), strconv.Itoa(int(port)))
}

func badHost(s, why string) error {
	return cove.Errorf(cove.InvalidArgument, "%s is not a host: %s", quote(s), why)
}

// quote returns input for a message, escaped and truncated.
func quote(s string) string {
	const most = 100
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "…"
	}
	return strconv.QuoteToASCII(s)
}

func parseV6(s, inner string) (Host, error) {
	if strings.Contains(inner, "%") {
		return Host{}, badHost(s, "zones mean nothing beyond this machine")
	}
	a, err := netip.ParseAddr(inner)
	if err != nil || !a.Is6() {
		return Host{}, badHost(s, "it is not an IPv6 address")
	}
	return HostOf(a), nil
}

// lookup is UTS 46 as browsers have it: names such as r3---sn-x are in use, so such hyphens are not checked.
var lookup = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.CheckHyphens(false))

// toASCII returns s in ASCII and lower case, mapped by IDNA where needed.
func toASCII(s string) (string, error) {
	plain, lower := true, true
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= utf8.RuneSelf:
			plain = false
		case c <= ' ' || c == 0x7f:
			return "", badHost(s, "it has a space or a control character")
		case 'A' <= c && c <= 'Z':
			lower = false
		}
	}
	if plain {
		if !lower {
			s = strings.ToLower(s)
		}
		return s, nil
	}
	if !utf8.ValidString(s) {
		return "", badHost(s, "it is not UTF-8")
	}
	if strings.ContainsFunc(s, invisible) {
		return "", badHost(s, "it has characters that cannot be seen")
	}
	name, err := lookup.ToASCII(s)
	if err != nil {
		return "", badHost(s, "IDNA refuses it")
	}
	return name, nil
}

// invisible reports characters that IDNA drops, so that two names become one. IDNA keeps and checks joiners.
func invisible(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Variation_Selector) && r != '\u200c' && r != '\u200d'
}

// objectionToName returns why a name in ASCII and lower case, without its trailing dot, is invalid, or "".
func objectionToName(name string) string {
	if len(name) > maxName {
		return "it is longer than " + strconv.Itoa(maxName) + " bytes"
	}
	label := name
	for rest, more := name, true; more; {
		label, rest, more = strings.Cut(rest, ".")
		if why := objectionToLabel(label); why != "" {
			return why
		}
	}
	if isNumber(label) {
		return "a name does not end in a number, and it is not an address"
	}
	return ""
}

func objectionToLabel(label string) string {
	switch {
	case label == "":
		return "it has an empty label"
	case len(label) > maxLabel:
		return "it has a label longer than " + strconv.Itoa(maxLabel) + " bytes"
	case label[0] == '-' || label[len(label)-1] == '-':
		return "a label begins or ends with a hyphen"
	}
	for i := 0; i < len(label); i++ {
		if c := label[i]; !isLetterOrDigit(c) && c != '-' {
			return "names have letters, digits, hyphens and dots only"
		}
	}
	if strings.HasPrefix(label, "xn--") && !isALabel(label) {
		return "it has an xn-- label that no name is written as"
	}
	return ""
}

func isLetterOrDigit(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

// isALabel reports whether an xn-- label is the only spelling of a name, and not a second one.
func isALabel(label string) bool {
	u, err := lookup.ToUnicode(label)
	if err != nil || !strings.ContainsFunc(u, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return false
	}
	back, err := lookup.ToASCII(u)
	return err == nil && back == label
}

// isNumber reports whether a resolver may read a last label as a part of an address (WHATWG URL, "ends in a number").
func isNumber(label string) bool {
	if digits, isHex := strings.CutPrefix(label, "0x"); isHex {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// inetAton parses an IPv4 address in every form of inet_aton(3): one to four parts, each decimal, octal (0…) or
// hexadecimal (0x…), the last one filling the remaining bytes.
func inetAton(s string) (netip.Addr, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return netip.Addr{}, false
	}
	var value uint64
	for n, rest, more := 1, s, true; more; n++ {
		if n > 4 {
			return netip.Addr{}, false
		}
		var part string
		part, rest, more = strings.Cut(rest, ".")
		v, ok := atonPart(part)
		bits := 8
		if !more {
			bits = 8 * (5 - n) // the last part fills the remaining bytes
		}
		if !ok || v>>bits != 0 {
			return netip.Addr{}, false
		}
		value = value<<bits | v
	}
	return netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)}), true
}

func atonPart(s string) (uint64, bool) {
	base := 10
	if digits, ok := strings.CutPrefix(s, "0x"); ok {
		s, base = digits, 16
	} else if len(s) > 1 && s[0] == '0' {
		s, base = s[1:], 8
	}
	v, err := strconv.ParseUint(s, base, 64)
	return v, err == nil
}

// ParsePort parses a port: digits only, 1 to 65535, no sign, no leading zero. Errors: InvalidArgument.
func ParsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16) // which takes no sign
	if err != nil || s[0] == '0' {
		return 0, cove.Errorf(cove.InvalidArgument,
			"%s is not a port: a port is a number from 1 to 65535, without sign or leading zero", quote(s))
	}
	return uint16(n), nil
}

// ParseAuthority parses host[:port], with IPv6 addresses in brackets. The port defaults to defaultPort; if that is 0
// the port is required. Errors: InvalidArgument.
func ParseAuthority(s string, defaultPort uint16) (Host, uint16, error) {
	host, port, hasPort := s, "", false
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		host, port, hasPort = s[:i], s[i+1:], true
	}
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		return Host{}, 0, badHost(s, "an IPv6 address stands in brackets")
	}
	h, err := ParseHost(host)
	if err != nil {
		return Host{}, 0, err
	}
	p := defaultPort
	if hasPort {
		p, err = ParsePort(port)
	} else if defaultPort == 0 {
		err = cove.Errorf(cove.InvalidArgument, "%s has no port", quote(s))
	}
	if err != nil {
		return Host{}, 0, err
	}
	return h, p, nil
}
