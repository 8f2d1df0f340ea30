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

// Progress says what a build does: the parts of it that have begun, several at a time, and how each ends.
type Progress struct {
	clock clock.Clock
	hides *redact.Set // secrets

	mu     sync.Mutex // parts go on side by side, and the output of each comes from two streams
	view   view
	number int // parts that have begun
}

// view shows parts. Progress calls one method at a time.
type view interface {
	begin(p *Part)
	line(p *Part, text string)   // about a part
	output(p *Part, text string) // of its command
	end(p *Part, how ending, text string)
	pause()
}

// ending is how a part has ended.
type ending int

const (
	done ending = iota
	cached
	canceled
	failed
)

// New returns the progress of a build as lines, in which secrets are masked.
func New(out io.Writer, clock clock.Clock, hides *redact.Set) *Progress {
	return &Progress{clock: clock, hides: hides, view: plain{out}}
}

// Pause lets another program write where the progress is shown, until a part begins or ends.
func (p *Progress) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.view.pause()
}

// Begin begins a part of the build.
func (p *Progress) Begin(format string, args ...any) *Part {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.number++
	part := &Part{of: p, number: p.number, start: p.clock.Monotonic(), text: p.printable(fmt.Sprintf(format, args...))}
	p.view.begin(part)
	return part
}

// printable masks secrets, and leaves out what a terminal would obey.
func (p *Progress) printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return -1
		}
		return r
	}, p.hides.Text(text))
}

// Part is a part of a build that has begun. Its user ends it once, by End, Cancel or Fail.
type Part struct {
	of     *Progress
	number int
	start  clock.Instant
	text   string
	hit    bool
	rest   []byte // output that is no whole line yet

	notes, last []string // as a terminal shows them; see screen
}

// Line says something about the part.
func (p *Part) Line(format string, args ...any) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.of.view.line(p, p.of.printable(fmt.Sprintf(format, args...)))
}

// Cached says that the part was taken from an earlier build.
func (p *Part) Cached() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.hit = true
}

// End ends the part.
func (p *Part) End() {
	if p.hit {
		p.end(cached, "")
	} else {
		p.end(done, "")
	}
}

// Cancel ends the part because another one has failed.
func (p *Part) Cancel() { p.end(canceled, "") }

// Fail ends the part with an error, which it returns.
func (p *Part) Fail(err error) error {
	p.end(failed, p.of.printable(err.Error()))
	return err
}

func (p *Part) end(how ending, text string) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if len(p.rest) > 0 {
		p.put(len(p.rest))
	}
	p.of.view.end(p, how, text)
}

func (p *Part) took() time.Duration { return p.of.clock.Since(p.start) }

// MaxLine is the most bytes of a line of output that are said at once, and no less than the most of a secret's.
const MaxLine = 8 << 10

// Write takes output of the part's command.
func (p *Part) Write(data []byte) (int, error) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	for rest := data; len(rest) > 0; {
		line, more, ended := bytes.Cut(rest, []byte("\n"))
		p.rest, rest = append(p.rest, line...), more
		for len(p.rest) > 2*MaxLine {
			p.put(MaxLine)
		}
		if ended {
			p.put(len(p.rest))
		}
	}
	return len(data), nil
}

// put says the first bytes of a line. What follows is there, too, as a secret may go on in it.
func (p *Part) put(n int) {
	p.rest = []byte(p.of.hides.Text(string(p.rest)))
	n = min(n, len(p.rest))
	p.of.view.output(p, p.of.printable(string(p.rest[:n])))
	p.rest = p.rest[n:]
}

// plain writes a line for all that is said, after "#NUMBER ", as docker build --progress=plain does.
type plain struct{ out io.Writer }

func (v plain) begin(p *Part)             { v.line(p, p.text) }
func (v plain) line(p *Part, text string) { fmt.Fprintf(v.out, "#%d %s\n", p.number, text) }

func (v plain) output(p *Part, text string) {
	v.line(p, fmt.Sprintf("%.3f %s", p.took().Seconds(), text))
}

func (v plain) end(p *Part, how ending, text string) {
	switch how {
	case done:
		text = fmt.Sprintf("DONE %.1fs", p.took().Seconds())
	case cached:
		text = "CACHED"
	case canceled:
		text = "CANCELED"
	case failed:
		v.line(p, "ERROR: "+text)
		return
	}
	v.line(p, text)
	fmt.Fprintln(v.out)
}

func (v plain) pause() {}
