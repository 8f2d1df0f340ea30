package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

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

type idInput struct {
	ID string `path:"id" doc:"The execution's id" example:"ex_0123456789abcdefghjkmnpqrs"`
}

// sendInput is POST /executions/{id}/stdin.
func (s *Server) sendInput(ctx context.Context, in *idInput) (*huma.StreamResponse, error) {
	id, err := cove.ParseExecutionID(in.ID)
	if err != nil {
		return nil, noExecution(in.ID)
	}
	ex := exchangeOf(ctx)
	p := s.inputs.find(id)
	if p == nil || p.who != ex.who {
		return nil, cove.Errorf(cove.NotFound, "no execution %.64q waits for input", in.ID).
			WithHint("start it with POST /execute/stream and stdin_stream")
	}
	if !p.take() {
		return nil, cove.Errorf(cove.Conflict, "the input of %s is being sent already", id).WithHint("send it in one request")
	}
	return &huma.StreamResponse{Body: func(huma.Context) { s.pump(ex, p) }}, nil
}

// pump passes the body on at the pace at which the program reads.
func (s *Server) pump(ex *exchange, p *inputPipe) {
	stop := context.AfterFunc(ex.r.Context(), func() { p.writer.CloseWithError(io.ErrUnexpectedEOF) })
	defer stop()
	_, err := io.Copy(p.writer, ex.r.Body)
	switch {
	case errors.Is(err, errEnded):
		// The rest of the body is not waited for.
		ex.w.Header().Set("Connection", "close")
		http.NewResponseController(ex.w).SetReadDeadline(time.Now())
		s.writeError(ex, cove.Errorf(cove.Conflict, "the execution ended before it had read its input"))
	case err != nil:
		p.writer.CloseWithError(io.ErrUnexpectedEOF)
		s.writeError(ex, cove.Errorf(cove.Canceled, "the input broke off: %w", err))
	default:
		p.writer.Close()
		ex.w.WriteHeader(http.StatusNoContent)
	}
}
