// Package model sends questions to models, through any of the supported APIs: a conversation goes out, and a complete
// answer returns. Callers do not see the differences between the APIs. The worker uses it inside a sandbox, and the
// host for single answers.
package model

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cove-sandbox/cove/message"
)

// Role is the author of a Message.
type Role string

const (
	User      Role = "user"
	Assistant Role = "assistant"
)

// Message is one turn of a conversation. Roles alternate, the user begins, and every Call of the assistant has its
// Result in the next message.
type Message struct {
	Role  Role   `json:"role"`
	Parts []Part `json:"parts"`
}

// PartKind is the kind of a Part.
type PartKind string

const (
	Text      PartKind = "text"
	Reasoning PartKind = "reasoning" // the model's reasoning
	Call      PartKind = "call"      // call of a tool, by the assistant
	Result    PartKind = "result"    // result of a call, by the user
)

// Part is one piece of a Message.
type Part struct {
	Kind PartKind `json:"kind"`
	Text string   `json:"text,omitempty"` // also the output of a Result's tool
	// of a Text of the user: written by Cove, not the task's author
	Note    bool            `json:"note,omitempty"`
	ID      string          `json:"id,omitempty"`     // joins Result to Call
	Tool    string          `json:"tool,omitempty"`   // of a Call
	Input   json.RawMessage `json:"input,omitempty"`  // of a Call; an object
	Cut     bool            `json:"cut,omitempty"`    // of a Call whose Input is incomplete
	Failed  bool            `json:"failed,omitempty"` // of a Result
	Opaque  json.RawMessage `json:"opaque,omitempty"` // Reasoning in an API's own form, which it requires back
	Dialect Dialect         `json:"dialect,omitempty"`
}

// Texts returns the joined texts of the parts of a kind.
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

// Calls returns the calls in a message.
func (m Message) Calls() []Part {
	return slices.DeleteFunc(slices.Clone(m.Parts), func(p Part) bool { return p.Kind != Call })
}

// Tool is a tool for the model to call.
type Tool struct { // as Anthropic's API has it
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Input       json.RawMessage `json:"input_schema"` // its JSON Schema
}

// Request is a question to a model.
type Request struct {
	Model     string
	System    string
	Messages  []Message
	Tools     []Tool
	MaxOutput int // tokens; 0: the endpoint's default, if it has one
}

// Stop is the reason for the end of an answer.
type Stop string

const (
	Done    Stop = "done"
	Called  Stop = "called"  // it contains calls, and waits for results
	Cut     Stop = "cut"     // it reached the maximum length
	Refused Stop = "refused" // the model, or a filter, refuses to answer
)

// Answer is a model's answer.
type Answer struct {
	Message Message
	Stop    Stop
	Model   string // the endpoint's name for it
	Usage   message.AgentUsage
}

// Dialect is the API of an endpoint.
type Dialect string

const (
	Anthropic Dialect = "anthropic"        // Messages
	Chat      Dialect = "openai-chat"      // chat completions
	Responses Dialect = "openai-responses" // Responses
)

// Dialects lists all dialects.
var Dialects = []Dialect{Anthropic, Chat, Responses}

// decoder assembles an answer from the events of its stream.
type decoder interface {
	// event processes one event. Its errors are failures, or report malformed data.
	event(data []byte) error
	// answer returns the answer so far, and whether the stream is complete.
	answer() (Answer, bool)
}

// maxParts bounds an answer; the reader bounds its bytes.
const maxParts = 10_000

var errParts = fmt.Errorf("the answer has more than %d parts", maxParts)

// object returns the input of a call as far as received: {} if empty; cut reports text that is no JSON object.
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
