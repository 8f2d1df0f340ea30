package run

import (
	"bytes"

	"github.com/cove-sandbox/cove"
)

// maxLine is the longest line that an agent may print, in bytes: a message with a file in it has its place there.
const maxLine = 32 << 20

// lines splits what comes into lines.
type lines struct {
	rest []byte // the beginning of one
	from int    // where in rest to look for its end
}

// push takes what comes next, and hands out whole lines without their ends.
// Errors: AgentProtocol for one that is too long, and those of take.
func (l *lines) push(p []byte, take func([]byte) error) error {
	l.rest = append(l.rest, p...)
	for {
		end := bytes.IndexByte(l.rest[l.from:], '\n')
		if end < 0 {
			if l.from = len(l.rest); l.from > maxLine {
				return cove.Errorf(cove.AgentProtocol, "the agent has printed a line of more than %d MiB, which begins with %.200q",
					maxLine>>20, l.rest[:200])
			}
			return nil
		}
		line := l.rest[:l.from+end]
		l.rest, l.from = l.rest[l.from+end+1:], 0
		if err := take(bytes.TrimSuffix(line, []byte("\r"))); err != nil {
			return err
		}
	}
}

// end hands out what is left without an end.
func (l *lines) end(take func([]byte) error) error {
	rest := l.rest
	l.rest, l.from = nil, 0
	if len(rest) == 0 {
		return nil
	}
	return take(rest)
}
