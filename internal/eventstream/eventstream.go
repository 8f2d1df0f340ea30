// Package eventstream reads server-sent events from any source: their size is bounded, and a stream that breaks off is
// distinguished from one that ends.
package eventstream

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// Event is one server-sent event.
type Event struct {
	ID   string
	Name string // "message" when the stream names none
	Data string
}

var (
	ErrTooLarge  = errors.New("an event of the stream is too large")
	ErrBrokenOff = errors.New("the stream broke off")
)

// Reader parses a text/event-stream as defined by the HTML standard's section on server-sent events, with a limit on
// the size of one event.
type Reader struct {
	r      *bufio.Reader
	limit  int
	began  bool
	skipLF bool // the last line ended in CR; a LF still belongs to it
	lastID string
}

// NewReader reads events of at most limit bytes each.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 32<<10), limit: limit}
}

// Next returns the next event with data. It returns io.EOF at the end of the stream, and ErrBrokenOff in the middle of
// an event.
func (e *Reader) Next() (Event, error) {
	ev := Event{Name: "message"}
	var data []string
	size := 0
	for {
		line, err := e.line(e.limit - size)
		if err != nil {
			if err == io.EOF && (size > 0 || line != "") {
				err = ErrBrokenOff
			}
			return Event{}, err
		}
		if line == "" {
			if data == nil {
				ev, size = Event{Name: "message"}, 0 // nothing to dispatch
				continue
			}
			ev.ID, ev.Data = e.lastID, strings.Join(data, "\n")
			return ev, nil
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "": // a comment: the heartbeat
			continue
		case "event":
			ev.Name = value
		case "data":
			data = append(data, value)
		case "id":
			if !strings.Contains(value, "\x00") {
				e.lastID = value
			}
		}
		size += len(line) + 1
	}
}

// line reads up to a CR, LF or CRLF. It does not wait for a byte after a CR.
func (e *Reader) line(limit int) (string, error) {
	var b []byte
	for {
		c, err := e.r.ReadByte()
		if err != nil {
			return string(b), err
		}
		if !e.began {
			e.began = true
			if err := e.dropMark(&c); err != nil {
				return "", err
			}
		}
		if e.skipLF {
			e.skipLF = false
			if c == '\n' {
				continue
			}
		}
		if c == '\n' || c == '\r' {
			e.skipLF = c == '\r'
			return string(b), nil
		}
		if len(b) >= limit {
			return "", ErrTooLarge
		}
		b = append(b, c)
	}
}

// dropMark removes a byte order mark from the start of the stream.
func (e *Reader) dropMark(c *byte) error {
	const mark = "\xef\xbb\xbf"
	if *c != mark[0] {
		return nil
	}
	if rest, err := e.r.Peek(2); err != nil || string(rest) != mark[1:] {
		return nil
	}
	e.r.Discard(2)
	next, err := e.r.ReadByte()
	*c = next
	return err
}
