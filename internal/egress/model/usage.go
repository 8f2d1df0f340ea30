package model

import (
	"encoding/json"
	"net/http"
	"strconv"
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

// Minus returns what u has more than v.
func (u Usage) Minus(v Usage) Usage {
	return Usage{u.Requests - v.Requests, u.Input - v.Input, u.Output - v.Output, u.CacheRead - v.CacheRead,
		u.CacheWrite - v.CacheWrite, u.Cost - v.Cost, u.Estimated - v.Estimated}
}

// answerPlaces are the places of model and usage in answers, in small letters: single objects, the events of
// Anthropic's streams and of the Responses API, Gemini's, and what Bedrock adds to the last event of any model.
var answerPlaces = []string{"model", "usage", "message.model", "message.usage", "response.model", "response.usage",
	"modelversion", "usagemetadata", invocation}

const invocation = "amazon-bedrock-invocationmetrics"

// Meter reads usage from an answer as it passes: JSON, a list of it, server-sent events, or AWS's event streams. It
// never fails, and buffers little.
type Meter struct {
	scan  scan
	event *events // set for server-sent events
	frame *frames // set for AWS's event streams
	list  list    // of documents, in other answers

	model    string
	usage    Usage
	outside  Usage // as Bedrock counts it, for models whose own answers do not state it
	embeds   bool  // the answer has no words
	begun    bool  // the answer has stated its input
	said     bool  // and its final usage
	counted  bool  // outside is set
	pieces   int64 // events, documents of a list, or bytes
	streamed bool  // pieces are events or documents
}

// NewMeter returns a meter for an answer of an endpoint with a header.
func NewMeter(e Endpoint, h http.Header) *Meter {
	m := &Meter{embeds: e.embeds()}
	m.scan.places, m.scan.found = answerPlaces, m.found
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	switch kind = strings.ToLower(strings.TrimSpace(kind)); kind {
	case "text/event-stream":
		m.streamed = true
		m.event = &events{data: func(c byte) { m.scan.next(c) }, end: func() { m.pieces++; m.scan.reset() }}
	case frameStream:
		m.streamed = true
		m.frame = &frames{payload: func(p []byte) {
			m.pieces++
			m.scan.Write(framed(p))
			m.scan.reset()
		}}
	}
	m.head(h)
	return m
}

// head reads the header of Bedrock's answers, which counts the tokens of every model.
func (m *Meter) head(h http.Header) {
	read := func(name string) int64 {
		n, err := strconv.ParseInt(h.Get("X-Amzn-Bedrock-"+name+"-Token-Count"), 10, 64)
		if err != nil || n < 0 {
			return 0
		}
		return min(n, maxCount)
	}
	m.outside = Usage{Input: read("Input"), Output: read("Output"), CacheRead: read("Cache-Read-Input"),
		CacheWrite: read("Cache-Write-Input")}
	m.counted = m.outside != Usage{}
}

// Write implements io.Writer, and never fails.
func (m *Meter) Write(p []byte) (int, error) {
	switch {
	case m.frame != nil:
		m.frame.write(p)
	case m.event != nil:
		for _, c := range p {
			m.event.next(c)
		}
	default:
		m.document(p)
	}
	return len(p), nil
}

// list is the state of an answer that may be a list of documents, as Gemini's streams are without alt=sse.
type list int

const (
	unknown list = iota
	single
	several
)

// document reads one document, or each of a list.
func (m *Meter) document(p []byte) {
	for i, c := range p {
		if m.list == unknown && strings.IndexByte(" \t\r\n", c) < 0 {
			if m.list = single; c == '[' {
				m.list, m.streamed, m.pieces = several, true, 0
				continue
			}
		}
		if m.list != several {
			m.pieces++
			if m.list == single {
				m.pieces += int64(len(p) - i - 1)
				m.scan.Write(p[i:])
				return
			}
			continue
		}
		if m.scan.depth == 0 && !m.scan.inString {
			if c != '{' { // what is between documents
				continue
			}
			m.pieces++
			m.scan.reset()
		}
		m.scan.next(c)
	}
}

// Model returns the model that the answer states, or "".
func (m *Meter) Model() string { return m.model }

// Usage returns the use so far of one request of asked bytes. Usage that the answer does not state is estimated: four
// bytes, or an event of a stream, are a token. Cost is the answer's own figure, which few state.
func (m *Meter) Usage(asked int64) Usage {
	u := m.usage
	if !m.said && m.counted {
		u, m.said = m.outside, true
		m.usage = u
	}
	u.Requests = 1
	if m.said {
		return u
	}
	u.Estimated = 1
	if !m.begun {
		u.Input = (asked + 3) / 4
	}
	said := m.pieces
	switch {
	case m.embeds:
		said = 0
	case !m.streamed:
		said = (said + 3) / 4
	}
	u.Output = max(u.Output, said)
	return u
}

func (m *Meter) found(place string, value []byte) {
	switch {
	case value == nil:
	case strings.HasSuffix(place, "model"), place == "modelversion":
		json.Unmarshal(value, &m.model)
	case place == invocation:
		var c *counts
		if json.Unmarshal(value, &c); c != nil {
			m.counted = true
			m.outside = Usage{Input: int64(c.InputCount), Output: int64(c.OutputCount), CacheRead: int64(c.ReadCount),
				CacheWrite: int64(c.WriteCount)}
		}
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

	ConverseInput  count `json:"inputTokens"` // Bedrock's Converse: without what is cached
	ConverseOutput count `json:"outputTokens"`
	ConverseRead   count `json:"cacheReadInputTokens"`
	ConverseWrite  count `json:"cacheWriteInputTokens"`

	Contents   count `json:"promptTokenCount"`        // Gemini
	Cached     count `json:"cachedContentTokenCount"` // part of the contents
	ToolUse    count `json:"toolUsePromptTokenCount"` // in addition to the contents
	Candidates count `json:"candidatesTokenCount"`
	Thoughts   count `json:"thoughtsTokenCount"` // in addition to the candidates, at the same price

	InputCount  count `json:"inputTokenCount"` // Bedrock's metrics of an invocation
	OutputCount count `json:"outputTokenCount"`
	ReadCount   count `json:"cacheReadInputTokenCount"`
	WriteCount  count `json:"cacheWriteInputTokenCount"`
}

func (c *counts) input() count {
	part := c.InputDetails.Cached + c.PromptDetails.Cached + c.PromptDetails.CacheWrite + c.InputDetails.CacheWrite +
		c.Cached
	return max(0, c.Input+c.Prompt+c.Contents-part) + c.ToolUse + c.ConverseInput
}

func (c *counts) output() count {
	return c.Output + c.Completion + c.Candidates + c.Thoughts + c.ConverseOutput
}

func (c *counts) read() count {
	return c.CacheRead + c.InputDetails.Cached + c.PromptDetails.Cached + c.Cached + c.ConverseRead
}

func (c *counts) write() count {
	return c.CacheCreation + c.PromptDetails.CacheWrite + c.InputDetails.CacheWrite + c.ConverseWrite
}

type details struct {
	Cached     count `json:"cached_tokens"`
	CacheWrite count `json:"cache_write_tokens"`
}

type count int64

const maxCount = 1e12 // tokens; more is a mistake

// UnmarshalJSON accepts any number, and ignores everything else.
func (c *count) UnmarshalJSON(b []byte) error {
	var f float64
	if json.Unmarshal(b, &f) == nil && f > 0 {
		*c = count(min(f, maxCount))
	}
	return nil
}

// add records usage stated so far. Later figures are totals, so the larger number counts.
func (m *Meter) add(value []byte, whole bool) {
	var c *counts
	json.Unmarshal(value, &c) // mismatches stay 0
	if c == nil || c.input()+c.output()+c.read()+c.write() == 0 {
		return // null, as in most events
	}
	m.begun, m.said = true, m.said || whole
	u := &m.usage
	u.Input = max(u.Input, int64(c.input()))
	u.Output = max(u.Output, int64(c.output()))
	u.CacheRead = max(u.CacheRead, int64(c.read()))
	u.CacheWrite = max(u.CacheWrite, int64(c.write()))
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
