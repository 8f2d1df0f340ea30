// Package model asks models, whichever API they are behind: a conversation goes
// out, an answer comes back whole. What differs between the APIs ends here.
package model

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cove-sandbox/cove/api"
)

// Role is who says a Message.
type Role string

const (
	User      Role = "user"
	Assistant Role = "assistant"
)

// Message is one turn of a conversation. Roles alternate, the user begins, and
// every Call of the assistant has its Result in the message after.
type Message struct {
	Role  Role   `json:"role"`
	Parts []Part `json:"parts"`
}

// PartKind is what a Part is.
type PartKind string

const (
	Text      PartKind = "text"
	Reasoning PartKind = "reasoning" // what a model says to itself
	Call      PartKind = "call"      // of a tool, by the assistant
	Result    PartKind = "result"    // of a call, by the user
)

// Part is one piece of a Message.
type Part struct {
	Kind    PartKind        `json:"kind"`
	Text    string          `json:"text,omitempty"`   // also what the tool of a Result answered
	Note    bool            `json:"note,omitempty"`   // of a Text of the user: the worker says it, not who set the task
	ID      string          `json:"id,omitempty"`     // joins Result to Call
	Tool    string          `json:"tool,omitempty"`   // of a Call
	Input   json.RawMessage `json:"input,omitempty"`  // of a Call; an object
	Cut     bool            `json:"cut,omitempty"`    // of a Call whose Input did not come to its end
	Failed  bool            `json:"failed,omitempty"` // of a Result
	Opaque  json.RawMessage `json:"opaque,omitempty"` // Reasoning as an API gave it, and wants it back
	Dialect Dialect         `json:"dialect,omitempty"`
}

// Texts are the parts of a kind, their texts joined.
func (m Message) Texts(kind PartKind) string {
	var s string
	for _, p := range m.Parts {
		if p.Kind == kind {
			if s != "" {
				s += "\n"
			}
			s += p.Text
		}
	}
	return s
}

// Calls are the calls in a message.
func (m Message) Calls() []Part {
	return slices.DeleteFunc(slices.Clone(m.Parts), func(p Part) bool { return p.Kind != Call })
}

// Tool is what a model may call.
type Tool struct {
	Name        string
	Description string
	Input       json.RawMessage // its JSON Schema
}

// Request is what a model is asked.
type Request struct {
	Model     string
	System    string
	Messages  []Message
	Tools     []Tool
	MaxOutput int // tokens; 0 leaves it to the endpoint where it can be left
}

// Stop is why an answer ended.
type Stop string

const (
	Done    Stop = "done"
	Called  Stop = "called"  // tools, and waits for their results
	Cut     Stop = "cut"     // at the bound on its length
	Refused Stop = "refused" // the model, or a filter before it, does not answer
)

// Answer is what a model said.
type Answer struct {
	Message Message
	Stop    Stop
	Model   string // as the endpoint names it
	Usage   api.AgentUsage
}

// Dialect is the API of an endpoint.
type Dialect string

const (
	Anthropic Dialect = "anthropic"        // Messages
	Chat      Dialect = "openai-chat"      // chat completions
	Responses Dialect = "openai-responses" // Responses
)

// Dialects lists them.
var Dialects = []Dialect{Anthropic, Chat, Responses}

// codec is what a Dialect consists of.
type codec interface {
	path() string // below the base
	encode(Request) any
	decoder() decoder
}

// decoder puts one answer together from the events of its stream.
type decoder interface {
	// event takes one. Errors are failures, or say what is malformed.
	event(data []byte) error
	// answer is what came, and whether the stream had come to its end.
	answer() (Answer, bool)
}

var codecs = map[Dialect]codec{Anthropic: anthropic{}, Chat: chat{}, Responses: responses{}}

// maxParts bounds an answer; the bytes of it are bounded by whoever reads them.
const maxParts = 10_000

var errParts = fmt.Errorf("the answer has more than %d parts", maxParts)

// object is the input of a call, as far as it came: an empty one is {}, and one
// that is no JSON object was cut off.
func object(raw string) (input json.RawMessage, cut bool) {
	if raw == "" {
		return json.RawMessage("{}"), false
	}
	var o map[string]json.RawMessage
	if json.Unmarshal([]byte(raw), &o) != nil || o == nil {
		return json.RawMessage("{}"), true
	}
	return json.RawMessage(raw), false
}
