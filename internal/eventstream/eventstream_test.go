package eventstream

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func readAll(r io.Reader, limit int) ([]Event, error) {
	er := NewReader(r, limit)
	var all []Event
	for {
		ev, err := er.Next()
		if err != nil {
			return all, err
		}
		all = append(all, ev)
	}
}

func TestReader(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []Event
		err      error
	}{
		{"nothing", "", nil, io.EOF},
		{"one", "id: 1\nevent: stdout\ndata: x\n\n", []Event{{"1", "stdout", "x"}}, io.EOF},
		{"no name", "data: x\n\n", []Event{{"", "message", "x"}}, io.EOF},
		{"no space after the colon", "data:x\n\n", []Event{{"", "message", "x"}}, io.EOF},
		{"only one space is taken off", "data:  x\n\n", []Event{{"", "message", " x"}}, io.EOF},
		{"several data lines", "data: a\ndata: b\n\n", []Event{{"", "message", "a\nb"}}, io.EOF},
		{"empty data", "data\n\n", []Event{{"", "message", ""}}, io.EOF},
		{"heartbeats", ":\n\n: still here\n\ndata: x\n\n:\n", []Event{{"", "message", "x"}}, io.EOF},
		{"an event without data is none", "event: stdout\n\ndata: x\n\n", []Event{{"", "message", "x"}}, io.EOF},
		{"the id stays", "id: 7\ndata: a\n\ndata: b\n\n", []Event{{"7", "message", "a"}, {"7", "message", "b"}}, io.EOF},
		{"an id with NUL is ignored", "id: 1\x002\ndata: a\n\n", []Event{{"", "message", "a"}}, io.EOF},
		{"CRLF", "event: e\r\ndata: x\r\n\r\n", []Event{{"", "e", "x"}}, io.EOF},
		{"CR", "event: e\rdata: x\r\r", []Event{{"", "e", "x"}}, io.EOF},
		{"byte order mark", "\xef\xbb\xbfdata: x\n\n", []Event{{"", "message", "x"}}, io.EOF},
		{"byte order mark is not one", "\xef\xbbdata: x\n\ndata: y\n\n", []Event{{"", "message", "y"}}, io.EOF},
		{"unknown fields", "retry: 10\nfoo: bar\ndata: x\n\n", []Event{{"", "message", "x"}}, io.EOF},
		{"a colon in the data", "data: a:b\n\n", []Event{{"", "message", "a:b"}}, io.EOF},
		{"U+2028 is no line end", "data: a\u2028b\n\n", []Event{{"", "message", "a\u2028b"}}, io.EOF},
		{"cut within a line", "data: x", nil, ErrBrokenOff},
		{"cut before the blank line", "data: x\n", nil, ErrBrokenOff},
		{"a line too long", "data: " + strings.Repeat("x", 100) + "\n\n", nil, ErrTooLarge},
		{"lines too many", strings.Repeat("data: xxxx\n", 20), nil, ErrTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, r := range map[string]io.Reader{"whole": strings.NewReader(c.in),
				"byte by byte": iotest.OneByteReader(strings.NewReader(c.in))} {
				got, err := readAll(r, 80)
				if !errors.Is(err, c.err) || !slices.Equal(got, c.want) {
					t.Errorf("%s: %+v, %v; want %+v, %v", name, got, err, c.want, c.err)
				}
			}
		})
	}
}

// TestReaderDoesNotWaitAfterCR: the LF of a CRLF may come late.
func TestReaderDoesNotWaitAfterCR(t *testing.T) {
	pr, pw := io.Pipe()
	go func() {
		io.WriteString(pw, "data: x\r\n\r")
	}()
	ev, err := NewReader(pr, 100).Next()
	if err != nil || ev.Data != "x" {
		t.Fatalf("%+v, %v", ev, err)
	}
	pr.Close()
}

func FuzzReader(f *testing.F) {
	f.Add("id: 1\nevent: stdout\ndata: {\"data\":\"x\"}\n\n: heartbeat\n\n")
	f.Add("\xef\xbb\xbfdata: a\rdata: b\r\n\r\n")
	f.Add("data\n\nid\x00: x\n\n")
	f.Fuzz(func(t *testing.T, in string) {
		const limit = 256
		whole, err1 := readAll(strings.NewReader(in), limit)
		bytewise, err2 := readAll(iotest.OneByteReader(strings.NewReader(in)), limit)
		if !slices.Equal(whole, bytewise) || !errors.Is(err1, err2) {
			t.Fatalf("how the bytes arrive matters: %+v %v, %+v %v", whole, err1, bytewise, err2)
		}
		for _, ev := range whole {
			if len(ev.Data)+len(ev.Name) > 2*limit {
				t.Fatalf("an event of %d bytes came through", len(ev.Data)+len(ev.Name))
			}
		}
	})
}

// FuzzEventRoundTrip: a client reads the events that a server writes.
func FuzzEventRoundTrip(f *testing.F) {
	f.Add("stdout", "line")
	f.Add("done", "two\nlines")
	f.Fuzz(func(t *testing.T, name, data string) {
		if strings.ContainsAny(name, "\r\n") || strings.Contains(data, "\r") || name == "" {
			t.Skip("such events cannot be written")
		}
		in := "event: " + name + "\ndata: " + strings.ReplaceAll(data, "\n", "\ndata: ") + "\n\n"
		got, err := readAll(strings.NewReader(in), len(in)+1)
		if err != io.EOF || len(got) != 1 || got[0].Name != name || got[0].Data != data {
			t.Fatalf("%q: %+v, %v", in, got, err)
		}
	})
}
