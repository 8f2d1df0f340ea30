package sandbox

import (
	"bytes"
	"strconv"
	"strings"
	"sync"

	"github.com/cove-sandbox/cove/internal/engine/process"
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

// lines returns the last lines in one, with everything that is not printable as %q has it.
func (t *tail) lines(most int) string {
	t.mu.Lock()
	text := strings.TrimSpace(string(t.b))
	t.mu.Unlock()
	all := strings.Split(text, "\n")
	all = all[max(0, len(all)-most):]
	for i, line := range all {
		all[i] = escaped(strings.TrimRight(line, "\r"))
	}
	return strings.Join(all, " | ")
}

// serviceProgram is the program of a service.
type serviceProgram struct {
	*process.Process
	said *tail // the end of its output
}

// ending says how a program has ended.
func (p *serviceProgram) ending(o process.Outcome) string {
	why := "its program has ended with exit code " + strconv.Itoa(o.Code)
	if said := p.said.lines(saidLines); said != "" {
		why += "; its last output: " + said
	}
	return why
}

// saidLines of a program's output are in the reason of its end.
const saidLines = 10
