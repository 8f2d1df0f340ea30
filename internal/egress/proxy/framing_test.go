package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/egress/policy/policytest"
)

// pass feeds bytes through framing in pieces of the given size.
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
		for name, bytes := range policytest.Unclear {
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
		for name, bytes := range policytest.Clear {
			all := strings.Repeat(bytes, 3)
			if passed, err := pass(all, piece); err != nil || passed != all {
				t.Errorf("%s, by %d: %v", name, piece, err)
			}
		}
	}
}

// FuzzFraming: the same bytes pass, however they are split; and Go's parser reads the passed bytes as framing does,
// request by request.
func FuzzFraming(f *testing.F) {
	for _, s := range policytest.Unclear {
		if len(s) < 4<<10 { // long ones make the fuzzer slow
			f.Add([]byte(s), uint8(3))
		}
	}
	for _, s := range policytest.Clear {
		f.Add([]byte(s+s), uint8(5))
	}
	f.Fuzz(func(t *testing.T, all []byte, piece uint8) {
		whole, errWhole := pass(string(all), len(all)+1)
		parts, errParts := pass(string(all), int(piece)+1)
		if fmt.Sprint(errWhole) != fmt.Sprint(errParts) {
			t.Fatalf("whole: %v, in parts: %v", errWhole, errParts)
		}
		// Up to the refused line, which may have been passed in parts.
		if !strings.HasPrefix(parts, whole) {
			t.Fatalf("whole: %q, in parts: %q", whole, parts)
		}
		agree(t, whole)
	})
}

// agree compares both parsers on the passed bytes.
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
