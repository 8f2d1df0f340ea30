package model

import (
	"encoding/json"
	"errors"
	"io"
	"sync"
)

// Question parses a request's body as it passes, for the model and the mode of the answer. check judges them. A refusal
// ends the body before it is complete, so that the provider has no valid request to answer.
type Question struct {
	io.ReadCloser
	check func(Asked) error
	scan  scan

	mu    sync.Mutex
	asked Asked // guarded by mu
	size  int64 // guarded by mu

	held []byte // to be read again
	err  error  // the reason for the body's end
}

// Asked are the relevant fields of a request.
type Asked struct {
	Model      string
	Background bool // answered later, outside the accounting
	Whole      bool // the body is complete
	Malformed  bool // the body is not JSON
}

// NewQuestion returns a reader of body. check is called for every field found, and may be nil.
func NewQuestion(body io.ReadCloser, check func(Asked) error) *Question {
	q := &Question{ReadCloser: body, check: check}
	q.scan.places, q.scan.found = []string{"model", "background"}, q.found
	return q
}

// Read implements io.Reader. It returns check's error in place of the bytes in question.
func (q *Question) Read(p []byte) (int, error) {
	n, err := 0, error(nil)
	if len(q.held) > 0 {
		n = copy(p, q.held)
		q.held = q.held[n:]
	} else {
		n, err = q.read(p)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.size += int64(n)
	return n, err
}

func (q *Question) read(p []byte) (int, error) {
	if q.err != nil {
		return 0, q.err
	}
	n, err := q.ReadCloser.Read(p)
	q.scan.Write(p[:n])
	q.mu.Lock()
	q.asked.Whole = q.scan.done
	asked := q.asked
	q.mu.Unlock()
	if q.check != nil && q.err == nil {
		asked.Malformed = q.scan.bad || errors.Is(err, io.EOF) && !q.scan.done
		q.err = q.check(asked)
	}
	if q.err != nil {
		return 0, q.err
	}
	return n, err
}

// Hold reads and judges a body, or its first most bytes, before it is read again.
func (q *Question) Hold(size, most int64) error {
	held := make([]byte, min(size, most))
	n, err := io.ReadFull(readFunc(q.read), held)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = nil // the next read returns it
	}
	q.held = held[:n]
	if err == nil && q.check != nil && !q.scan.done && size <= most {
		err = q.check(Asked{Malformed: true})
	}
	return err
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// Asked returns the fields found so far, and the number of bytes read.
func (q *Question) Asked() (a Asked, size int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.asked, q.size
}

func (q *Question) found(place string, value []byte) {
	q.mu.Lock()
	switch place {
	case "model":
		q.asked.Model = ""
		json.Unmarshal(value, &q.asked.Model)
	case "background":
		q.asked.Background = json.Unmarshal(value, &q.asked.Background) != nil || q.asked.Background
	}
	asked := q.asked
	q.mu.Unlock()
	if q.check != nil && q.err == nil && place == "model" { // each of them, if the key is repeated
		asked.Whole = true
		q.err = q.check(asked)
	}
}
