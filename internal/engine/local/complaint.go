package local

import (
	"strings"
	"sync"
	"time"
)

// MaxComplaint is how much of a complaint is kept, in bytes.
const MaxComplaint = 4 << 10

// Complaint keeps the beginning of what a guest writes to its standard error, which it does only when it fails.
type Complaint struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer. It takes everything.
func (c *Complaint) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text.Write(p[:min(len(p), MaxComplaint-c.text.Len())])
	return len(p), nil
}

// Text returns what was kept once ended is closed, or within a moment; at once where that is nil. It keeps control
// characters of hostile output out of terminals.
func (c *Complaint) Text(ended <-chan struct{}) string {
	if ended != nil {
		select {
		case <-ended:
		case <-time.After(100 * time.Millisecond):
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, strings.TrimSpace(c.text.String()))
}
