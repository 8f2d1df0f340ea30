package docker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/cove-sandbox/cove/internal/engine/local"
)

// frame is what the daemon sends for one write of a container's.
func frame(kind byte, data string) string {
	h := []byte{kind, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(h[4:], uint32(len(data)))
	return string(h) + data
}

func readAll(raw string) (string, *stream, error) {
	s := &stream{r: bufio.NewReader(iotest.OneByteReader(strings.NewReader(raw)))}
	got, err := io.ReadAll(s)
	return string(got), s, err
}

func TestStream(t *testing.T) {
	for _, c := range []struct {
		name, raw, want, complaint string
		fails                      bool
	}{
		{name: "nothing"},
		{name: "one frame", raw: frame(1, "hello"), want: "hello"},
		{name: "frames run together", raw: frame(1, "he") + frame(1, "") + frame(1, "llo"), want: "hello"},
		{name: "errors are kept aside", raw: frame(1, "a") + frame(2, "cannot") + frame(1, "b"), want: "ab",
			complaint: "cannot"},
		{name: "messages of the daemon's too", raw: frame(3, "gone"), complaint: "gone"},
		{name: "no terminal tricks", raw: frame(2, "\x1b[2Jx\u009b"), complaint: "?[2Jx?"},
		{name: "cut in a header", raw: frame(1, "a") + "\x01\x00", want: "a", fails: true},
		{name: "cut in a frame", raw: frame(1, "hello")[:10], want: "he"},
		{name: "an unknown kind", raw: frame(4, "x"), fails: true},
		{name: "input as output", raw: frame(0, "x"), fails: true},
		{name: "something else", raw: "HTTP/1.1 500 Internal", fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, s, err := readAll(c.raw)
			if got != c.want || (err != nil) != c.fails || s.complaint.Text(nil) != c.complaint {
				t.Errorf("%q, %q, %v", got, s.complaint.Text(nil), err)
			}
		})
	}
}

func TestComplaintsAreBounded(t *testing.T) {
	got, s, err := readAll(frame(2, strings.Repeat("x", 3*local.MaxComplaint)) + frame(2, "more") + frame(1, "output"))
	if got != "output" || err != nil || len(s.complaint.Text(nil)) != local.MaxComplaint {
		t.Errorf("%q, %d bytes of complaint, %v", got, len(s.complaint.Text(nil)), err)
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte(frame(1, "hello") + frame(2, "x")))
	f.Add([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := &stream{r: bufio.NewReader(bytes.NewReader(raw))}
		got, err := io.ReadAll(s)
		if len(got) > len(raw) || len(s.complaint.Text(nil)) > 4*local.MaxComplaint {
			t.Errorf("%d bytes from %d, %d of complaint", len(got), len(raw), len(s.complaint.Text(nil)))
		}
		if errors.Is(err, io.ErrShortBuffer) {
			t.Error(err)
		}
	})
}
