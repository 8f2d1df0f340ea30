package tools

import (
	"fmt"
	"strings"
	"sync"
)

// capture keeps the beginning and the end of a command's output.
type capture struct {
	mu    sync.Mutex // guards the fields below
	head  []byte
	tail  []byte // the end, at most twice the bytes to keep
	total int64
}

const half = maxOutput / 2

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total += int64(len(p))
	rest := p
	if room := half - len(c.head); room > 0 {
		take := min(room, len(rest))
		c.head = append(c.head, rest[:take]...)
		rest = rest[take:]
	}
	if len(rest) > half {
		rest = rest[len(rest)-half:]
	}
	c.tail = append(c.tail, rest...)
	if len(c.tail) > 2*half {
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-half:]...)
	}
	return len(p), nil
}

// take returns the output since the last call.
func (c *capture) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	tail := c.tail[max(0, len(c.tail)-half):]
	left := c.total - int64(len(c.head)) - int64(len(tail))
	text := string(c.head)
	if left > 0 {
		text += fmt.Sprintf("\n[… %d bytes are left out: put output into a file to see all of it …]\n", left)
	}
	text += string(tail)
	c.head, c.tail, c.total = nil, nil, 0
	return strings.TrimRight(strings.ToValidUTF8(text, "\uFFFD"), "\n")
}
