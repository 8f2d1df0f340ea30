// Package message is the form in which agents report what they say and do: one line of NDJSON each, the same for every
// agent. Transcripts are stored in it, and the API streams it. docs/messages.md is its manual.
package message

import (
	"encoding/json"
	"time"
)

// Version is the version of the form of a Message. It changes when something that is there changes its meaning
// or goes; what is new does not change it, so that readers pass over fields and types they do not know.
const Version = 1

// Types of Message.
const (
	TypeThinking   = "thinking"    // Content: what the agent says on its way
	TypeToolCall   = "tool_call"   // Call, Tool, Input
	TypeToolResult = "tool_result" // Call, Tool, Output, IsError
	TypeResult     = "result"      // Content, Data, IsError: how the task ended; once
	TypeUsage      = "usage"       // Usage: of the run so far; the last message, of the whole
)

// Message is one thing that an agent says or does, whichever agent it is: one
// line of NDJSON. docs/messages.md is its manual.
type Message struct {
	Version   int             `json:"version" doc:"Of this form: 1"`
	Type      string          `json:"type" enum:"thinking,tool_call,tool_result,result,usage"`
	Session   string          `json:"session_id,omitempty" doc:"The agent's own name for the conversation, with which it can be resumed"`
	Model     string          `json:"model,omitempty" doc:"Which model said it, where that is known"`
	Content   string          `json:"content,omitempty" doc:"Text: of thinking, and the answer of a result"`
	Reasoning bool            `json:"reasoning,omitempty" doc:"Of thinking that the model keeps to itself, in contrast to what it tells"`
	Call      string          `json:"call_id,omitempty" doc:"Joins a tool_result to its tool_call"`
	Parent    string          `json:"parent_call_id,omitempty" doc:"Of what a helper of the agent's says and does: the tool_call that began it"`
	Tool      string          `json:"tool,omitempty" doc:"Name of the tool, as the agent calls it"`
	Input     json.RawMessage `json:"input,omitempty" doc:"What the tool was given: a JSON object"`
	Output    string          `json:"output,omitempty" doc:"What the tool answered"`
	IsError   bool            `json:"is_error,omitempty" doc:"Of a tool_result: the tool failed; of a result: the agent could not do it"`
	Data      json.RawMessage `json:"data,omitempty" doc:"Of a result: the answer as JSON, valid by the schema that was asked for"`
	Usage     *AgentUsage     `json:"usage,omitempty"`
	Time      time.Time       `json:"time,omitzero" doc:"When it came, where it is recorded"`
}

// AgentUsage counts an agent's use of models. Input excludes tokens read from a cache and tokens written to one.
type AgentUsage struct {
	InputTokens      int64   `json:"input_tokens"`
	OutputTokens     int64   `json:"output_tokens"`
	CacheReadTokens  int64   `json:"cache_read_tokens,omitempty"`
	CacheWriteTokens int64   `json:"cache_write_tokens,omitempty"`
	Cost             float64 `json:"cost,omitempty" doc:"Dollars, where it is known"`
	Duration         float64 `json:"duration,omitempty" doc:"Seconds"`
	Turns            int     `json:"turns,omitempty" doc:"Answers of the model"`
}

// Plus is the sum of both.
func (u AgentUsage) Plus(v AgentUsage) AgentUsage {
	return AgentUsage{
		InputTokens: u.InputTokens + v.InputTokens, OutputTokens: u.OutputTokens + v.OutputTokens,
		CacheReadTokens: u.CacheReadTokens + v.CacheReadTokens, CacheWriteTokens: u.CacheWriteTokens + v.CacheWriteTokens,
		Cost: u.Cost + v.Cost, Duration: u.Duration + v.Duration, Turns: u.Turns + v.Turns,
	}
}
