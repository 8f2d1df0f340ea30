// Package progress says what a build does.
package progress

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/redact"
)

// Plain says what a build does, one line at a time, after "#NUMBER ", as docker build --progress=plain does.
type Plain struct {
	out   io.Writer
	clock clock.Clock

	mu     sync.Mutex // output comes from two streams
	number int
	start  clock.Instant
	hit    bool
	emit   func(text string)
	part   []byte      // a line that has not ended
	hides  *redact.Set // secrets
}

// New returns the progress of a build, in which secrets are masked.
func New(out io.Writer, clock clock.Clock, hides *redact.Set) *Plain {
	p := &Plain{out: out, clock: clock, hides: hides}
	p.emit = func(text string) { fmt.Fprintf(p.out, "#%d %s\n", p.number, text) }
	return p
}

// Pause lets another program write where the progress is shown.
func (p *Plain) Pause() {}

// Begin begins the next part of the build.
func (p *Plain) Begin(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.number++
	p.start, p.hit = p.clock.Monotonic(), false
	p.say(fmt.Sprintf(format, args...))
}

func (p *Plain) say(text string) {
	p.emit(printable(p.hides.Text(text)))
}

// Line says something of the present part.
func (p *Plain) Line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.say(fmt.Sprintf(format, args...))
}

// Cached says that the present part was taken from an earlier build.
func (p *Plain) Cached() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hit = true
}

func (p *Plain) took() time.Duration { return p.clock.Since(p.start) }

// End ends the present part.
func (p *Plain) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flush()
	if p.hit {
		p.say("CACHED")
	} else {
		p.say(fmt.Sprintf("DONE %.1fs", p.took().Seconds()))
	}
	fmt.Fprintln(p.out)
}

// Fail ends the present part with an error, which it returns.
func (p *Plain) Fail(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flush()
	p.say("ERROR: " + err.Error())
	return err
}

// MaxLine is the most bytes of a line of output that are said at once, and no less than the most of a secret's.
const MaxLine = 8 << 10

// Write takes output of a command.
func (p *Plain) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for rest := data; len(rest) > 0; {
		line, more, ended := bytes.Cut(rest, []byte("\n"))
		p.part, rest = append(p.part, line...), more
		for len(p.part) > 2*MaxLine {
			p.put(MaxLine)
		}
		if ended {
			p.put(len(p.part))
		}
	}
	return len(data), nil
}

// put says the first bytes of a line. What follows is there, too, as a secret may go on in it.
func (p *Plain) put(n int) {
	p.part = []byte(p.hides.Text(string(p.part)))
	p.say(fmt.Sprintf("%.3f %s", p.took().Seconds(), p.part[:n]))
	p.part = p.part[n:]
}

func (p *Plain) flush() {
	if len(p.part) > 0 {
		p.put(len(p.part))
	}
}

// printable leaves out what a terminal would obey.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return -1
		}
		return r
	}, text)
}
