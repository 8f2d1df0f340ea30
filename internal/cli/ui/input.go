package ui

import (
	"context"
	"os"

	"github.com/cove-sandbox/cove"
)

// CancelReader reads a file until a context ends.
type CancelReader struct {
	f     *os.File
	waker *Waker
	stop  func() bool
}

// NewCancelReader reads f until ctx ends; close it after use.
func NewCancelReader(ctx context.Context, f *os.File) (*CancelReader, error) {
	w, err := NewWaker()
	if err != nil {
		return nil, err
	}
	return &CancelReader{f: f, waker: w, stop: context.AfterFunc(ctx, w.Wake)}, nil
}

// Read implements io.Reader. Errors: Canceled.
func (r *CancelReader) Read(b []byte) (int, error) {
	switch ready, err := r.waker.Input(r.f); {
	case err != nil:
		return 0, err
	case !ready:
		return 0, cove.Errorf(cove.Canceled, "it was ended")
	}
	return r.f.Read(b)
}

// Close stops the reader; the file stays open.
func (r *CancelReader) Close() {
	r.stop()
	r.waker.Close()
}
