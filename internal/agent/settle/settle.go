// Package settle completes what agents report for all who receive it: times, bounded texts, and the document that a
// schema requires of the answer.
package settle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/jsonschema"
	"github.com/cove-sandbox/cove/message"
)

const (
	maxShown = 256 << 10 // bytes of one text in a message
	maxInput = 256 << 10 // bytes of a tool's input
)

// Message completes a parser's message for all receivers, wherever the agent works: it adds the time, adds the document
// that schema requires to an answer (nil requires none), and truncates long texts. It returns the message also with an
// error, the reason why the answer is invalid. It is pure. Errors: SchemaMismatch.
func Message(m message.Message, schema []byte, at time.Time) (message.Message, error) {
	m, err := fit(m, schema)
	m = shorten(m)
	m.Version, m.Time = message.Version, at.UTC().Truncate(time.Microsecond)
	return m, err
}

// shorten returns a bounded message: long texts are truncated, with a note. The document of a schema stays whole, since
// it would be invalid otherwise.
func shorten(m message.Message) message.Message {
	m.Content, m.Output = cutText(m.Content, maxShown), cutText(m.Output, maxShown)
	if len(m.Input) > maxInput {
		m.Input = cutInput(m.Input)
	}
	return m
}

// cutText returns at most limit bytes of a text, with a note.
func cutText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	at := limit
	for at > 0 && !utf8.RuneStart(s[at]) {
		at--
	}
	return s[:at] + fmt.Sprintf("\n[cut: %d of %d bytes]", at, len(s))
}

// cutInput truncates long texts in a JSON document, repeatedly until it is small enough.
func cutInput(input json.RawMessage) json.RawMessage {
	for limit := maxInput / 4; limit >= 256; limit /= 4 {
		d := json.NewDecoder(bytes.NewReader(input))
		d.UseNumber()
		var v any
		if d.Decode(&v) != nil {
			break
		}
		if b, err := json.Marshal(cutTexts(v, limit)); err == nil && len(b) <= maxInput {
			return b
		}
	}
	b, _ := json.Marshal(map[string]int{"cut: bytes": len(input)}) // it always encodes
	return b
}

func cutTexts(v any, limit int) any {
	switch v := v.(type) {
	case string:
		return cutText(v, limit)
	case []any:
		for i := range v {
			v[i] = cutTexts(v[i], limit)
		}
	case map[string]any:
		for k := range v {
			v[k] = cutTexts(v[k], limit)
		}
	}
	return v
}

// fit returns a result with the document that a schema requires, extracted from text if necessary; other messages are
// unchanged. Errors: SchemaMismatch, with the reason.
func fit(m message.Message, schema []byte) (message.Message, error) {
	if schema == nil || m.Type != message.TypeResult || m.IsError {
		return m, nil
	}
	if m.Data == nil {
		document, ok := jsonschema.Document(m.Content)
		if !ok {
			return m, cove.Errorf(cove.SchemaMismatch, "the answer is no JSON document: %.200q", m.Content)
		}
		m.Data = document
	}
	return m, jsonschema.Validate(schema, m.Data)
}
