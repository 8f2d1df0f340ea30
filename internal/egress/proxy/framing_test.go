package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// malformed are beginnings of connections that must not be read as requests by
// anybody. Each ends with a request that must not get through either.
var malformed = map[string]string{
	"leading CRLF":                 "\r\nGET / HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"leading LF":                   "\nGET / HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"leading space":                " GET / HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"bare LF after request line":   "GET / HTTP/1.1\nHost: allowed.lab\r\n\r\n",
	"bare LF after field":          "GET / HTTP/1.1\r\nHost: allowed.lab\n\r\n",
	"bare LF at the end":           "GET / HTTP/1.1\r\nHost: allowed.lab\r\n\n",
	"bare CR in field":             "GET / HTTP/1.1\r\nHost: allowed.lab\r\nA: b\rc\r\n\r\n",
	"bare CR in request line":      "GET /\r HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"CR CR LF":                     "GET / HTTP/1.1\r\nHost: allowed.lab\r\r\n\r\n",
	"folded line":                  "GET / HTTP/1.1\r\nHost: allowed.lab\r\nA: b\r\n c\r\n\r\n",
	"folded line with tab":         "GET / HTTP/1.1\r\nHost: allowed.lab\r\nA: b\r\n\tc\r\n\r\n",
	"folded first line":            "GET / HTTP/1.1\r\n Host: allowed.lab\r\n\r\n",
	"NUL in field":                 "GET / HTTP/1.1\r\nHost: allowed.lab\r\nA: b\x00c\r\n\r\n",
	"NUL in target":                "GET /\x00 HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"two spaces":                   "GET  / HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"tab for space":                "GET\t/\tHTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"space in target":              "GET /a b HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"fragment":                     "GET /#a HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"backslash":                    "GET /\\a HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"bytes beyond ASCII in target": "GET /\xc3\xbc HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"HTTP/0.9":                     "GET /\r\n\r\n",
	"HTTP/0.9 with version":        "GET / HTTP/0.9\r\nHost: allowed.lab\r\n\r\n",
	"HTTP/1.2":                     "GET / HTTP/1.2\r\nHost: allowed.lab\r\n\r\n",
	"HTTP/2.0":                     "GET / HTTP/2.0\r\nHost: allowed.lab\r\n\r\n",
	"http/1.1":                     "GET / http/1.1\r\nHost: allowed.lab\r\n\r\n",
	"prior knowledge":              "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"method in small letters":      "get / HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"no Host":                      "GET / HTTP/1.1\r\n\r\n",
	"two Hosts":                    "GET / HTTP/1.1\r\nHost: allowed.lab\r\nHost: allowed.lab\r\n\r\n",
	"two Hosts that differ":        "GET / HTTP/1.1\r\nHost: allowed.lab\r\nHost: denied.lab\r\n\r\n",
	"Host with space":              "GET / HTTP/1.1\r\nHost : allowed.lab\r\n\r\n",
	"empty name":                   "GET / HTTP/1.1\r\nHost: allowed.lab\r\n: a\r\n\r\n",
	"no colon":                     "GET / HTTP/1.1\r\nHost: allowed.lab\r\nabc\r\n\r\n",
	"TE with space":                "POST / HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
	"CL and TE":                    "POST / HTTP/1.1\r\nHost: allowed.lab\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"TE and CL":                    "POST / HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
	"two CL":                       "POST / HTTP/1.1\r\nHost: allowed.lab\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
	"two CL that differ":           "POST / HTTP/1.1\r\nHost: allowed.lab\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na",
	"list of CL":                   "POST / HTTP/1.1\r\nHost: allowed.lab\r\nContent-Length: 1, 1\r\n\r\na",
	"CL with sign":                 "POST / HTTP/1.1\r\nHost: allowed.lab\r\nContent-Length: +1\r\n\r\na",
	"negative CL":                  "POST / HTTP/1.1\r\nHost: allowed.lab\r\nContent-Length: -1\r\n\r\na",
	"CL in hex":                    "POST / HTTP/1.1\r\nHost: allowed.lab\r\nContent-Length: 0x1\r\n\r\na",
	"empty CL":                     "POST / HTTP/1.1\r\nHost: allowed.lab\r\nContent-Length: \r\n\r\na",
	"huge CL":                      "POST / HTTP/1.1\r\nHost: allowed.lab\r\nContent-Length: 99999999999999999999\r\n\r\na",
	"two TE":                       "POST / HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"TE identity":                  "POST / HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding: identity\r\n\r\n",
	"TE unknown":                   "POST / HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
	"TE list":                      "POST / HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	"TE quoted":                    "POST / HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
	"TE with vertical tab":         "POST / HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
	"TE in HTTP/1.0":               "POST / HTTP/1.0\r\nHost: allowed.lab\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"chunk with sign":              "POST / HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\na\r\n0\r\n\r\n",
	"chunk with 0x":                "POST / HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
	"chunk with space":             "POST / HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding: chunked\r\n\r\n1 \r\na\r\n0\r\n\r\n",
	"chunk extension":              "POST / HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\na\r\n0\r\n\r\n",
	"chunk ends with LF":           "POST / HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\n0\r\n\r\n",
	"chunk size ends with LF":      "POST / HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n",
	"chunk longer than it says":    "POST / HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
	"chunk overflows":              "POST / HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\na\r\n0\r\n\r\n",
	"folded trailer":               "POST / HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n c\r\n\r\n",
	"too many fields":              "GET / HTTP/1.1\r\nHost: allowed.lab\r\n" + strings.Repeat("A: b\r\n", maxHeadFields) + "\r\n",
	"too long a field":             "GET / HTTP/1.1\r\nHost: allowed.lab\r\nA: " + strings.Repeat("b", maxHeadBytes) + "\r\n\r\n",
	"too long a target":            "GET /" + strings.Repeat("b", maxHeadBytes) + " HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
	"too long without an end":      "GET /" + strings.Repeat("b", 2*maxHeadBytes),
	"too long trailers":            "POST / HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("A: "+strings.Repeat("b", 1000)+"\r\n", 100) + "\r\n",
	"absolute form, other Host":    "GET http://allowed.lab/ HTTP/1.1\r\nHost: denied.lab\r\n\r\n",
	"absolute form with a user":    "GET http://allowed.lab@denied.lab/ HTTP/1.1\r\nHost: allowed.lab@denied.lab\r\n\r\n",
	"CONNECT with a body":          "CONNECT allowed.lab:443 HTTP/1.1\r\nHost: allowed.lab:443\r\nContent-Length: 5\r\n\r\nabcde",
	"TLS":                          "\x16\x03\x01\x00\x05hello\n",
}

// wellFormed are requests that real clients send.
var wellFormed = map[string]string{
	"plain":            "GET /a?b=c HTTP/1.1\r\nHost: allowed.lab\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n",
	"empty value":      "GET / HTTP/1.1\r\nHost: allowed.lab\r\nA:\r\nB: \t \r\n\r\n",
	"latin 1":          "GET / HTTP/1.1\r\nHost: allowed.lab\r\nA: \xe4\r\n\r\n",
	"HTTP/1.0":         "GET / HTTP/1.0\r\nHost: allowed.lab\r\n\r\n",
	"body":             "POST / HTTP/1.1\r\nHost: allowed.lab\r\nContent-Length: 5\r\n\r\nab\r\n\n",
	"empty body":       "POST / HTTP/1.1\r\nHost: allowed.lab\r\nContent-Length: 0\r\n\r\n",
	"chunks":           "POST / HTTP/1.1\r\nHost: allowed.lab\r\ntransfer-encoding: Chunked\r\n\r\n5\r\nab\r\n\n\r\n00A\r\n0123456789\r\n0\r\n\r\n",
	"trailers":         "POST / HTTP/1.1\r\nHost: allowed.lab\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n1\r\na\r\n0\r\nA: b\r\n\r\n",
	"absolute form":    "GET http://allowed.lab:8080/ HTTP/1.1\r\nHost: ALLOWED.lab:8080\r\n\r\n",
	"slashes in query": "GET /?u=http://a@b/ HTTP/1.1\r\nHost: allowed.lab\r\n\r\n",
}

// pass sends all through framing in pieces of the given size.
func pass(all string, piece int) (passed string, err error) {
	var f framing
	var out strings.Builder
	for rest := []byte(all); len(rest) > 0 && err == nil; {
		var n int
		p := rest[:min(piece, len(rest))]
		n, err = f.next(p)
		out.Write(p[:n])
		rest = rest[len(p):]
	}
	return out.String(), err
}

func TestFraming(t *testing.T) {
	for _, piece := range []int{1, 2, 7, 1 << 20} {
		for name, bytes := range malformed {
			passed, err := pass(bytes, piece)
			if err == nil {
				t.Errorf("%s, by %d: passed", name, piece)
			}
			if r, readErr := http.ReadRequest(bufio.NewReader(strings.NewReader(passed))); readErr == nil {
				if _, readErr = io.Copy(io.Discard, r.Body); readErr == nil {
					t.Errorf("%s, by %d: a whole request passed: %q", name, piece, passed)
				}
			}
		}
		for name, bytes := range wellFormed {
			all := strings.Repeat(bytes, 3)
			if passed, err := pass(all, piece); err != nil || passed != all {
				t.Errorf("%s, by %d: %v", name, piece, err)
			}
		}
	}
}

// FuzzFraming: however the bytes come, the same of them pass; and what passes
// is to Go's parser what it is to framing, request by request.
func FuzzFraming(f *testing.F) {
	for _, s := range malformed {
		if len(s) < 4<<10 { // long ones make the fuzzer slow
			f.Add([]byte(s), uint8(3))
		}
	}
	for _, s := range wellFormed {
		f.Add([]byte(s+s), uint8(5))
	}
	f.Fuzz(func(t *testing.T, all []byte, piece uint8) {
		whole, errWhole := pass(string(all), len(all)+1)
		parts, errParts := pass(string(all), int(piece)+1)
		if fmt.Sprint(errWhole) != fmt.Sprint(errParts) {
			t.Fatalf("whole: %v, in parts: %v", errWhole, errParts)
		}
		// Up to the line at which it was refused, which may have been passed in parts.
		if !strings.HasPrefix(parts, whole) {
			t.Fatalf("whole: %q, in parts: %q", whole, parts)
		}
		agree(t, whole)
	})
}

// agree reads what has passed by both parsers.
func agree(t *testing.T, passed string) {
	reader := bufio.NewReader(strings.NewReader(passed))
	for rest := []byte(passed); len(rest) > 0; {
		var f framing
		end := 0 // of the first message
		for end < len(rest) {
			f.next(rest[end : end+1])
			end++
			if f.state == atRequestLine && f.bytes == 0 || f.state == inTunnel {
				break
			}
		}
		if f.state == inTunnel {
			return
		}
		r, err := http.ReadRequest(reader)
		if f.state != atRequestLine || f.bytes != 0 {
			if err == nil {
				if _, err = io.Copy(io.Discard, r.Body); err == nil {
					t.Fatalf("to framing %q is incomplete; to Go it is a request", rest)
				}
			}
			return
		}
		if err != nil {
			return // Go is the stricter one: a 400
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		line, _, _ := bytes.Cut(rest, []byte("\r\n"))
		if got := r.Method + " " + r.RequestURI + " " + r.Proto; got != string(line) {
			t.Fatalf("framing read %q, Go %q", line, got)
		}
		rest = rest[end:]
		if left := reader.Buffered(); left > len(rest) {
			t.Fatalf("Go has not read %q to its end", rest)
		}
	}
}
