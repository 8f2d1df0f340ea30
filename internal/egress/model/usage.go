package model

import (
	"encoding/json"
	"strings"
)

// Usage is the use of models by calls. Input excludes tokens of a provider's cache, which have other prices.
type Usage struct {
	Requests   int64   `json:"requests"`
	Input      int64   `json:"input_tokens"`
	Output     int64   `json:"output_tokens"`
	CacheRead  int64   `json:"cache_read_tokens"`   // tokens
	CacheWrite int64   `json:"cache_write_tokens"`  // tokens
	Cost       float64 `json:"cost,omitempty"`      // dollars, as far as prices are known
	Estimated  int64   `json:"estimated,omitempty"` // requests whose answer did not state usage
}

// Tokens returns the sum of all tokens.
func (u Usage) Tokens() int64 { return u.Input + u.Output + u.CacheRead + u.CacheWrite }

// Plus returns the sum of u and v.
func (u Usage) Plus(v Usage) Usage {
	return Usage{u.Requests + v.Requests, u.Input + v.Input, u.Output + v.Output, u.CacheRead + v.CacheRead,
		u.CacheWrite + v.CacheWrite, u.Cost + v.Cost, u.Estimated + v.Estimated}
}

// answerPlaces are the places of model and usage in answers: single objects, and the events of Anthropic's streams and
// of the Responses API.
var answerPlaces = []string{"model", "usage", "message.model", "message.usage", "response.model", "response.usage"}

// Meter reads usage from an answer as it passes, JSON or server-sent events. It never fails, and buffers a few KiB.
type Meter struct {
	scan  scan
	event *events // nil: the answer is one document

	model  string
	usage  Usage
	begun  bool  // the answer has stated its input
	said   bool  // and its final usage
	pieces int64 // events, or bytes
}

// NewMeter returns a meter for an answer of a content type.
func NewMeter(contentType string) *Meter {
	m := &Meter{}
	m.scan.places, m.scan.found = answerPlaces, m.found
	kind, _, _ := strings.Cut(contentType, ";")
	if strings.EqualFold(strings.TrimSpace(kind), "text/event-stream") {
		m.event = &events{data: func(c byte) { m.scan.next(c) }, end: func() { m.pieces++; m.scan.reset() }}
	}
	return m
}

// Write implements io.Writer, and never fails.
func (m *Meter) Write(p []byte) (int, error) {
	if m.event == nil {
		m.pieces += int64(len(p))
		return m.scan.Write(p)
	}
	for _, c := range p {
		m.event.next(c)
	}
	return len(p), nil
}

// Model returns the model that the answer states, or "".
func (m *Meter) Model() string { return m.model }

// Usage returns the use so far of one request of asked bytes. Usage that the answer does not state is estimated: four
// bytes, or an event of a stream, are a token. Cost is the answer's own figure, which few state.
func (m *Meter) Usage(asked int64) Usage {
	u := m.usage
	u.Requests = 1
	if m.said {
		return u
	}
	u.Estimated = 1
	if !m.begun {
		u.Input = (asked + 3) / 4
	}
	said := m.pieces
	if m.event == nil {
		said = (said + 3) / 4
	}
	u.Output = max(u.Output, said)
	return u
}

func (m *Meter) found(place string, value []byte) {
	switch {
	case value == nil:
	case strings.HasSuffix(place, "model"):
		json.Unmarshal(value, &m.model)
	default:
		m.add(value, place != "message.usage") // its first figure is partial
	}
}

// counts are providers' usage fields. A field of an unexpected type is ignored.
type counts struct {
	Input         count   `json:"input_tokens"` // Anthropic, Responses
	Output        count   `json:"output_tokens"`
	CacheCreation count   `json:"cache_creation_input_tokens"` // Anthropic: in addition to the input
	CacheRead     count   `json:"cache_read_input_tokens"`
	InputDetails  details `json:"input_tokens_details"` // Responses: part of the input
	Prompt        count   `json:"prompt_tokens"`        // chat completions, embeddings
	Completion    count   `json:"completion_tokens"`
	PromptDetails details `json:"prompt_tokens_details"` // part of the prompt
	Cost          float64 `json:"cost"`                  // OpenRouter: dollars
}

type details struct {
	Cached     count `json:"cached_tokens"`
	CacheWrite count `json:"cache_write_tokens"`
}

type count int64

// UnmarshalJSON accepts any number, and ignores everything else.
func (c *count) UnmarshalJSON(b []byte) error {
	var f float64
	if json.Unmarshal(b, &f) == nil && f > 0 {
		*c = count(min(f, 1e12))
	}
	return nil
}

// add records usage stated so far. Later figures are totals, so the larger number counts.
func (m *Meter) add(value []byte, whole bool) {
	var c *counts
	json.Unmarshal(value, &c) // mismatches stay 0
	if c == nil || c.Input+c.Output+c.Prompt+c.Completion+c.CacheRead+c.CacheCreation == 0 {
		return // null, as in most events
	}
	m.begun, m.said = true, m.said || whole
	read := c.InputDetails.Cached + c.PromptDetails.Cached
	write := c.PromptDetails.CacheWrite + c.InputDetails.CacheWrite
	input := max(0, c.Input+c.Prompt-read-write)
	u := &m.usage
	u.Input = max(u.Input, int64(input))
	u.Output = max(u.Output, int64(c.Output+c.Completion))
	u.CacheRead = max(u.CacheRead, int64(c.CacheRead+read))
	u.CacheWrite = max(u.CacheWrite, int64(c.CacheCreation+write))
	if c.Cost > 0 && c.Cost < 1e6 {
		u.Cost = max(u.Cost, c.Cost)
	}
}

type events struct {
	data func(byte) // a byte of an event's data
	end  func()     // the end of an event with data

	line    int  // bytes of this line so far
	field   bool // the line may still be a "data:" line
	carries bool // the line is a "data:" line
	any     bool // the event has data
	cr      bool // the last byte was a carriage return
}

const dataField = "data:"

func (e *events) next(c byte) {
	if c == '\n' && e.cr {
		e.cr = false
		return
	}
	e.cr = c == '\r'
	if c == '\n' || c == '\r' {
		e.endLine()
		return
	}
	e.line++
	switch n := e.line; {
	case n <= len(dataField):
		e.field = (n == 1 || e.field) && c == dataField[n-1]
		e.carries = e.field && n == len(dataField)
		e.any = e.any || e.carries
	case e.carries:
		e.data(c)
	}
}

func (e *events) endLine() {
	switch {
	case e.line == 0 && e.any:
		e.end()
		e.any = false
	case e.carries:
		e.data('\n')
	}
	e.line, e.field, e.carries = 0, false, false
}
