package httpapi

import (
	"context"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
)

// download answers with what write writes. What fails before that is answered
// with a status; what fails later breaks the answer off.
func download(ctx context.Context, kind string,
	write func(cove.Principal, io.Writer) error) (*huma.StreamResponse, error) {
	ex := exchangeOf(ctx)
	return &huma.StreamResponse{Body: func(huma.Context) {
		out := &documentWriter{w: ex.w, kind: kind}
		err := write(ex.who, out)
		switch {
		case err != nil && !out.begun:
			writeError(ex, err)
		case err != nil:
			ex.failure = err
			panic(http.ErrAbortHandler)
		default:
			out.begin()
		}
	}}, nil
}

// documentWriter begins an answer when there is something to write.
type documentWriter struct {
	w     *response
	kind  string
	begun bool
}

func (d *documentWriter) begin() {
	if !d.begun {
		d.begun = true
		d.w.Header().Set("Content-Type", d.kind)
		d.w.WriteHeader(http.StatusOK)
	}
}

func (d *documentWriter) Write(p []byte) (int, error) {
	d.begin()
	return d.w.Write(p)
}
