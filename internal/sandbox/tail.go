package sandbox

import (
	"bytes"
	"strings"
	"sync"
)

// maxSaid is how much of what a program says is kept, in bytes.
const maxSaid = 4 << 10

// tail keeps the end of the bytes that are written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > maxSaid {
		t.b = bytes.Clone(t.b[len(t.b)-maxSaid:])
	}
	return len(p), nil
}

// text returns the last line.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(string(bytes.ToValidUTF8(t.b, []byte("\uFFFD"))))
	return text[strings.LastIndexByte(text, '\n')+1:]
}
