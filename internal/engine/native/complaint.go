//go:build linux

package native

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"time"
)

// complaint collects the beginning of what the guest writes to its standard error, which it does only when it fails.
type complaint struct {
	r    *os.File
	mu   sync.Mutex
	buf  bytes.Buffer
	done chan struct{}
}

// open makes the guest's end.
func (c *complaint) open() (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.r, c.done = r, make(chan struct{})
	go c.read()
	return w, nil
}

func (c *complaint) read() {
	defer close(c.done)
	const most = 4 << 10
	p := make([]byte, 1024)
	for {
		n, err := c.r.Read(p)
		c.mu.Lock()
		c.buf.Write(p[:min(n, max(most-c.buf.Len(), 0))])
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// text returns the output once the guest has ended, or within a moment.
func (c *complaint) text() string {
	if c.r == nil {
		return ""
	}
	select {
	case <-c.done:
	case <-time.After(100 * time.Millisecond):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	line, _, _ := bytes.Cut(c.buf.Bytes(), []byte("\n\ngoroutine"))
	return fmt.Sprintf("%q", bytes.TrimSpace(line))
}

func (c *complaint) close() {
	if c.r != nil {
		c.r.Close()
		<-c.done
	}
}
