package proxy

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Limits of one HTTP/1 message head; HTTP/2 has the same.
const (
	maxHeadBytes  = 64 << 10
	maxHeadFields = 200
)

// framing validates a client's HTTP/1 stream and refuses everything that two parsers could read as different messages.
// Go's parser is lenient in places (bare LF, folded lines, an empty line before the request line, two lengths, a Host
// header beside an absolute target), which does not matter behind framing: only unambiguous messages reach it.
//
// It changes no byte. The zero value expects a request.
type framing struct {
	state framingState
	line  []byte // the beginning of an incomplete line
	left  uint64 // bytes of a body or chunk
	bytes int    // of this head or these trailers
	count int    // fields of this head or these trailers
	head  head
	heads int // complete heads, without CONNECT
}

type framingState int

const (
	atRequestLine framingState = iota
	atField
	inBody
	atChunkSize
	inChunk
	atChunkEnd
	atTrailer
	inTunnel // after CONNECT: bytes of another protocol
)

// head holds the fields that determine the framing and destination of a request.
type head struct {
	method, target string
	old            bool // HTTP/1.0
	host           []string
	length         []string
	encoding       []string
}

var (
	errLineTooLong  = errors.New("a line or a head is too long")
	errTooMany      = errors.New("too many header fields")
	errLineEnd      = errors.New("a line does not end in CRLF")
	errControl      = errors.New("a control character in a header")
	errFolded       = errors.New("a folded header line")
	errRequestLine  = errors.New("malformed request line")
	errVersion      = errors.New("neither HTTP/1.1 nor HTTP/1.0")
	errField        = errors.New("malformed header line")
	errHost         = errors.New("not exactly one Host")
	errTwoTargets   = errors.New("Host and the target of the request differ")
	errTwoLengths   = errors.New("more than one statement of the length")
	errLength       = errors.New("malformed Content-Length")
	errEncoding     = errors.New("a transfer coding other than chunked")
	errConnectBody  = errors.New("CONNECT with a body")
	errChunk        = errors.New("malformed chunk")
	errUserInTarget = errors.New("a user in the target of the request")
)

// next validates p and returns the number of its bytes that may be passed on; err is set if the rest may not.
func (f *framing) next(p []byte) (n int, err error) {
	for n < len(p) {
		switch f.state {
		case inTunnel:
			return len(p), nil
		case inBody, inChunk:
			took := min(uint64(len(p)-n), f.left)
			n += int(took)
			if f.left -= took; f.left > 0 {
				break
			}
			if f.state == inChunk {
				f.state = atChunkEnd
			} else {
				f.begin()
			}
		default:
			took, line := f.takeLine(p[n:])
			if f.bytes += took; f.bytes > maxHeadBytes {
				return n, errLineTooLong
			}
			if line != nil {
				if err := f.readLine(line); err != nil {
					return n, err
				}
				f.line = f.line[:0]
			}
			n += took
		}
	}
	return n, nil
}

func (f *framing) begin() {
	*f = framing{line: f.line[:0], heads: f.heads}
}

// takeLine takes bytes up to the end of a line, and returns the line if it is complete.
func (f *framing) takeLine(p []byte) (took int, line []byte) {
	end := bytes.IndexByte(p, '\n')
	if end < 0 {
		f.line = append(f.line, p[:min(len(p), maxHeadBytes+1)]...)
		return len(p), nil
	}
	if len(f.line) == 0 {
		return end + 1, p[:end+1]
	}
	f.line = append(f.line, p[:end+1]...)
	return end + 1, f.line
}

func (f *framing) readLine(line []byte) error {
	text, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok {
		return errLineEnd
	}
	for _, c := range text {
		if c < ' ' && c != '\t' || c == 0x7f {
			return errControl
		}
	}
	switch f.state {
	case atRequestLine:
		f.state = atField
		return f.requestLine(string(text))
	case atField, atTrailer:
		if len(text) > 0 {
			return f.field(text)
		}
		if f.state == atTrailer {
			f.begin()
			return nil
		}
		return f.endOfHead()
	case atChunkSize:
		return f.chunkSize(text)
	case atChunkEnd:
		if len(text) > 0 {
			return errChunk
		}
		f.state, f.bytes = atChunkSize, 0
	}
	return nil
}

func (f *framing) requestLine(line string) error {
	method, rest, _ := strings.Cut(line, " ")
	target, version, ok := strings.Cut(rest, " ")
	if !ok || method == "" || target == "" || strings.Trim(method, methodLetters) != "" {
		return errRequestLine
	}
	if strings.ContainsFunc(target, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '#' || c == '\\' }) {
		return errRequestLine
	}
	switch version {
	case "HTTP/1.1":
	case "HTTP/1.0":
		f.head.old = true
	default:
		return errVersion
	}
	f.head.method, f.head.target = method, target
	return nil
}

const maxMethod = 32 // exceeds every method in use

// methodLetters are the bytes of a method. Some servers ignore its case, so lower case is refused.
const methodLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_"

func (f *framing) field(line []byte) error {
	if f.count++; f.count > maxHeadFields {
		return errTooMany
	}
	if line[0] == ' ' || line[0] == '\t' {
		return errFolded
	}
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return errField
	}
	if !httpguts.ValidHeaderFieldName(string(line[:colon])) {
		return errField
	}
	if f.state == atTrailer {
		return nil
	}
	switch name := line[:colon]; {
	case len(name) == len("host") && strings.EqualFold(string(name), "host"):
		f.head.host = append(f.head.host, value(line[colon+1:]))
	case len(name) == len("content-length") && strings.EqualFold(string(name), "content-length"):
		f.head.length = append(f.head.length, value(line[colon+1:]))
	case len(name) == len("transfer-encoding") && strings.EqualFold(string(name), "transfer-encoding"):
		f.head.encoding = append(f.head.encoding, value(line[colon+1:]))
	}
	return nil
}

func value(b []byte) string { return string(bytes.Trim(b, " \t")) }

func (f *framing) endOfHead() error {
	h := f.head
	if err := h.checkHost(); err != nil {
		return err
	}
	if len(h.length)+len(h.encoding) > 1 {
		return errTwoLengths
	}
	if h.method == "CONNECT" {
		if len(h.length)+len(h.encoding) > 0 {
			return errConnectBody
		}
		f.state = inTunnel
		return nil
	}
	f.heads++
	switch {
	case len(h.encoding) == 1:
		if h.old || !strings.EqualFold(h.encoding[0], "chunked") {
			return errEncoding
		}
		f.state, f.bytes, f.count = atChunkSize, 0, 0
	case len(h.length) == 1:
		length, ok := number(h.length[0], 10)
		if !ok {
			return errLength
		}
		if f.begin(); length > 0 {
			f.state, f.left = inBody, length
		}
	default:
		f.begin()
	}
	return nil
}

// checkHost requires one Host, equal to the host of an absolute target.
func (h head) checkHost() error {
	if len(h.host) > 1 || len(h.host) == 0 && !h.old {
		return errHost
	}
	authority := h.authority()
	if strings.Contains(authority, "@") {
		return errUserInTarget
	}
	if authority == "" || len(h.host) == 0 || strings.EqualFold(h.host[0], authority) {
		return nil
	}
	return errTwoTargets
}

// authority returns the host and port of a target in absolute form, as written. A CONNECT target is itself an
// authority, and its Host header is ignored: node puts the proxy's own name there, and it is not forwarded.
func (h head) authority() string {
	_, rest, absolute := strings.Cut(h.target, "://")
	if h.target[0] == '/' || !absolute {
		return ""
	}
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		return rest[:end]
	}
	return rest
}

// chunkSize accepts digits only. Extensions are hop-by-hop, have no use, and parsers have disagreed on them too often.
func (f *framing) chunkSize(line []byte) error {
	size, ok := number(string(line), 16)
	if !ok {
		return errChunk
	}
	f.bytes, f.count = 0, 0
	if size == 0 {
		f.state = atTrailer
		return nil
	}
	f.state, f.left = inChunk, size
	return nil
}

// number parses digits only, which is what ParseUint accepts in a given base.
func number(s string, base int) (n uint64, ok bool) {
	n, err := strconv.ParseUint(s, base, 64)
	return n, err == nil && len(s) <= 15
}

func closeWrite(c io.Closer) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
