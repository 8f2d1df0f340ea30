package build

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/redact"
	"github.com/cove-sandbox/cove/internal/secret"
)

// progress says what a build does, one line at a time, after "#NUMBER ", as docker build --progress=plain does.
type progress struct {
	out   io.Writer
	clock clock.Clock

	mu     sync.Mutex // output comes from two streams
	number int
	start  clock.Instant
	hit    bool
	part   []byte      // a line that has not ended
	hides  *redact.Set // secrets
}

// MaxSecrets is the most bytes of all secrets of a build.
const MaxSecrets = 64 << 10

// hidden finds secrets in lines. Of one with several lines it finds each; none of less than redact.MinLength bytes.
func hidden(secrets map[string]secret.Value) (*redact.Set, error) {
	var all []secret.Value
	sum := 0
	for _, s := range secrets {
		if sum += len(s.Reveal()); sum > MaxSecrets {
			return nil, cove.Errorf(cove.TooLarge, "the secrets of the build have more than %d bytes", MaxSecrets)
		}
		for line := range strings.Lines(s.Reveal()) {
			line = strings.TrimRight(line, "\r\n")
			for len(line) >= redact.MinLength {
				piece := line[:min(len(line), redact.MaxLength)]
				all, line = append(all, secret.New(piece)), line[len(piece):]
			}
		}
	}
	return redact.New(all...)
}

// begin begins the next part of the build.
func (p *progress) begin(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.number++
	p.start, p.hit = p.clock.Monotonic(), false
	p.say(fmt.Sprintf(format, args...))
}

func (p *progress) say(text string) {
	fmt.Fprintf(p.out, "#%d %s\n", p.number, printable(p.hides.Text(text)))
}

// line says something of the present part.
func (p *progress) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.say(fmt.Sprintf(format, args...))
}

func (p *progress) cached() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hit = true
}

func (p *progress) took() time.Duration { return p.clock.Since(p.start) }

// end ends the present part.
func (p *progress) end() {
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

// fail ends the present part with an error, which it returns.
func (p *progress) fail(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flush()
	p.say("ERROR: " + err.Error())
	return err
}

// maxLine is the most bytes of a line of output that are said at once, and no less than the most of a secret's.
const maxLine = 8 << 10

// Write takes output of a command.
func (p *progress) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for rest := data; len(rest) > 0; {
		line, more, ended := bytes.Cut(rest, []byte("\n"))
		p.part, rest = append(p.part, line...), more
		for len(p.part) > 2*maxLine {
			p.put(maxLine)
		}
		if ended {
			p.put(len(p.part))
		}
	}
	return len(data), nil
}

// put says the first bytes of a line. What follows is there, too, as a secret may go on in it.
func (p *progress) put(n int) {
	p.part = []byte(p.hides.Text(string(p.part)))
	p.say(fmt.Sprintf("%.3f %s", p.took().Seconds(), p.part[:n]))
	p.part = p.part[n:]
}

func (p *progress) flush() {
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
