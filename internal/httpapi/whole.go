package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/spool"
)

// wholeExecution is an api.Execution whose output is written from where it lies, without a copy of it in memory.
type wholeExecution struct {
	api.Execution
	output *spool.Output
}

// withOutput is the JSON of a value whose fields output and stderr, which follow each other, are empty in it.
type withOutput struct {
	value  any
	output *spool.Output
}

// writeJSON writes the same bytes as encodeJSON of a value that has the output as UTF-8.
func (o withOutput) writeJSON(w io.Writer) error {
	var b bytes.Buffer
	if err := encodeJSON(&b, o.value); err != nil {
		return err
	}
	// Texts have no such bytes: their quotation marks are escaped.
	before, after, ok := bytes.Cut(b.Bytes(), []byte(`"output":"","stderr":""`))
	if !ok {
		return fmt.Errorf("a %T has no place for output", o.value)
	}
	var text textWriter
	text.write(w, before)
	text.write(w, []byte(`"output":"`))
	text.stream(w, o.output.Stdout())
	text.write(w, []byte(`","stderr":"`))
	text.stream(w, o.output.Stderr())
	text.write(w, []byte(`"`))
	text.write(w, after)
	return text.err
}

// textWriter writes until something fails.
type textWriter struct {
	buf bytes.Buffer
	err error
}

func (t *textWriter) write(w io.Writer, p []byte) {
	if t.err == nil {
		_, t.err = w.Write(p)
	}
}

// stream writes a stream as the inside of a string of JSON.
func (t *textWriter) stream(w io.Writer, s *spool.Stream) {
	for p, err := range s.Text() {
		if err != nil && t.err == nil {
			t.err = err
		}
		if t.err != nil {
			return
		}
		t.buf.Reset()
		t.err = encodeJSON(&t.buf, string(p))
		t.write(w, bytes.TrimSuffix(t.buf.Bytes(), []byte("\"\n"))[1:])
	}
}

// encodeJSON writes JSON as answers have it.
func encodeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
