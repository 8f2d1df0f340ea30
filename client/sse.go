package client

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// event is one server-sent event.
type event struct {
	id   string
	name string // "message" when the stream names none
	data string
}

var (
	errEventTooLarge = errors.New("an event of the stream is too large")
	errBrokenOff     = errors.New("the stream broke off")
)

// eventReader takes a text/event-stream apart, as the HTML standard's section
// on server-sent events defines it, with a bound on what one event may hold.
type eventReader struct {
	r      *bufio.Reader
	limit  int
	began  bool
	skipLF bool // the line before ended in CR: a LF still belongs to it
	lastID string
}

func newEventReader(r io.Reader, limit int) *eventReader {
	return &eventReader{r: bufio.NewReaderSize(r, 32<<10), limit: limit}
}

// next returns the next event that has data. It returns io.EOF at the end of
// the stream, and errBrokenOff when an event was under way.
func (e *eventReader) next() (event, error) {
	ev := event{name: "message"}
	var data []string
	size := 0
	for {
		line, err := e.line(e.limit - size)
		if err != nil {
			if err == io.EOF && (size > 0 || line != "") {
				err = errBrokenOff
			}
			return event{}, err
		}
		if line == "" {
			if data == nil {
				ev, size = event{name: "message"}, 0 // nothing to dispatch
				continue
			}
			ev.id, ev.data = e.lastID, strings.Join(data, "\n")
			return ev, nil
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "": // a comment: the heartbeat
			continue
		case "event":
			ev.name = value
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

// line reads up to a CR, LF or CRLF. It does not wait for what follows a CR.
func (e *eventReader) line(limit int) (string, error) {
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
			return "", errEventTooLarge
		}
		b = append(b, c)
	}
}

// dropMark removes a byte order mark from the start of the stream.
func (e *eventReader) dropMark(c *byte) error {
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
