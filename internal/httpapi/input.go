package httpapi

import (
	"errors"
	"io"
	"sync"

	"github.com/cove-sandbox/cove"
)

// inputPipe carries the body of POST /executions/{id}/stdin to the program.
type inputPipe struct {
	*io.PipeReader
	writer *io.PipeWriter
	who    cove.Principal // who started the execution; no other caller may write

	mu    sync.Mutex
	taken bool
}

func newInputPipe(who cove.Principal) *inputPipe {
	r, w := io.Pipe()
	return &inputPipe{PipeReader: r, writer: w, who: who}
}

// take makes the caller the one who writes; there is only one.
func (p *inputPipe) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.taken
	p.taken = true
	return first
}

// errEnded is returned to a writer when the execution has ended.
var errEnded = errors.New("the execution has ended")

func (p *inputPipe) end() { p.PipeReader.CloseWithError(errEnded) }

// inputs are the executions that wait for their input. Its zero value is ready.
type inputs struct {
	mu   sync.Mutex
	byID map[cove.ExecutionID]*inputPipe
}

func (i *inputs) add(id cove.ExecutionID, p *inputPipe) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.byID == nil {
		i.byID = map[cove.ExecutionID]*inputPipe{}
	}
	i.byID[id] = p
}

func (i *inputs) remove(p *inputPipe) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for id, other := range i.byID {
		if other == p {
			delete(i.byID, id)
		}
	}
}

func (i *inputs) find(id cove.ExecutionID) *inputPipe {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.byID[id]
}
