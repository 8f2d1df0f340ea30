package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cove-sandbox/cove/message"
)

type chatRequest struct {
	Model     string        `json:"model"`
	Messages  []chatMessage `json:"messages"`
	Tools     []chatTool    `json:"tools,omitempty"`
	Stream    bool          `json:"stream"`
	Options   any           `json:"stream_options"`
	MaxTokens int           `json:"max_completion_tokens,omitempty"`
}

type chatMessage struct {
	Role    string     `json:"role"`
	Content *string    `json:"content"` // null beside calls
	Calls   []chatCall `json:"tool_calls,omitempty"`
	CallID  string     `json:"tool_call_id,omitempty"`
}

type chatTool struct {
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name        string          `json:"name,omitempty"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Arguments   string          `json:"arguments,omitempty"`
}

type chatCall struct {
	Index    int          `json:"index"`
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function chatFunction `json:"function"`
}

// encodeChat writes for OpenAI's chat completions, which many others implement,
// https://platform.openai.com/docs/api-reference/chat-streaming.
func encodeChat(r Request) any {
	out := chatRequest{Model: r.Model, Stream: true, MaxTokens: r.MaxOutput,
		Options: map[string]bool{"include_usage": true}}
	say := func(role, text string) { out.Messages = append(out.Messages, chatMessage{Role: role, Content: &text}) }
	if r.System != "" {
		say("system", r.System)
	}
	for _, t := range r.Tools {
		out.Tools = append(out.Tools, chatTool{"function",
			chatFunction{Name: t.Name, Description: t.Description, Parameters: t.Input}})
	}
	for _, m := range r.Messages {
		for _, p := range m.Parts {
			if p.Kind == Result {
				text := p.Text // the API has no field for a failure
				if p.Failed {
					text = "Error: " + text
				}
				out.Messages = append(out.Messages, chatMessage{Role: "tool", CallID: p.ID, Content: &text})
			}
		}
		text, calls := m.Texts(Text), m.Calls()
		if len(calls) == 0 {
			if text != "" || m.Role == Assistant {
				say(string(m.Role), text)
			}
			continue
		}
		to := chatMessage{Role: "assistant"}
		if text != "" {
			to.Content = &text
		}
		for i, c := range calls {
			to.Calls = append(to.Calls, chatCall{Index: i, ID: c.ID, Type: "function",
				Function: chatFunction{Name: c.Tool, Arguments: string(c.Input)}})
		}
		out.Messages = append(out.Messages, to)
	}
	return out
}

type chatDecoder struct {
	said                     func(string)
	text, reasoning, refusal []byte
	calls                    []chatCall
	arguments                [][]byte // of each call
	model, stop              string
	usage                    *chatUsage
	ended                    bool
}

type chatUsage struct {
	Input   int64 `json:"prompt_tokens"`
	Output  int64 `json:"completion_tokens"`
	Details struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func (d *chatDecoder) event(data []byte) error {
	if string(data) == "[DONE]" {
		d.ended = true
		return nil
	}
	var e struct {
		Model   string     `json:"model"`
		Usage   *chatUsage `json:"usage"`
		Error   *fault     `json:"error"`
		Choices []struct {
			Delta struct {
				Content   string     `json:"content"`
				Refusal   string     `json:"refusal"`
				Reasoning string     `json:"reasoning_content"` // of DeepSeek and llama.cpp
				Thinking  string     `json:"reasoning"`         // of OpenRouter
				Calls     []chatCall `json:"tool_calls"`
			} `json:"delta"`
			Stop string `json:"finish_reason"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return err
	}
	if e.Error != nil {
		return failure(e.Error)
	}
	if e.Model != "" {
		d.model = e.Model
	}
	if e.Usage != nil {
		d.usage = e.Usage
	}
	if len(e.Choices) == 0 {
		return nil
	}
	c := e.Choices[0] // one was requested
	d.text = append(d.text, c.Delta.Content...)
	d.refusal = append(d.refusal, c.Delta.Refusal...)
	if c.Delta.Content != "" {
		d.said(c.Delta.Content)
	}
	if d.reasoning = append(d.reasoning, c.Delta.Reasoning...); c.Delta.Reasoning == "" {
		d.reasoning = append(d.reasoning, c.Delta.Thinking...)
	}
	for _, part := range c.Delta.Calls {
		if err := d.call(part); err != nil {
			return err
		}
	}
	if c.Stop != "" {
		d.stop = c.Stop
	}
	return nil
}

// call extends the call of an index, or begins one: some endpoints give all calls one index, and tell them apart by id.
func (d *chatDecoder) call(part chatCall) error {
	for i, known := range slices.Backward(d.calls) {
		if known.Index == part.Index && (part.ID == "" || part.ID == known.ID) {
			d.calls[i].Function.Name += part.Function.Name
			d.arguments[i] = append(d.arguments[i], part.Function.Arguments...)
			return nil
		}
	}
	if len(d.calls) == maxParts {
		return errParts
	}
	d.calls = append(d.calls, part)
	d.arguments = append(d.arguments, []byte(part.Function.Arguments))
	return nil
}

func (d *chatDecoder) answer() (Answer, bool) {
	a := Answer{Model: d.model, Message: Message{Role: Assistant}, Stop: Done}
	if d.usage != nil {
		a.Usage = message.AgentUsage{InputTokens: max(0, d.usage.Input-d.usage.Details.Cached), OutputTokens: d.usage.Output,
			CacheReadTokens: d.usage.Details.Cached}
	}
	if len(d.reasoning) > 0 {
		a.Message.Parts = append(a.Message.Parts, Part{Kind: Reasoning, Text: string(d.reasoning), Dialect: Chat})
	}
	if text := string(d.text) + string(d.refusal); text != "" {
		a.Message.Parts = append(a.Message.Parts, Part{Kind: Text, Text: text})
	}
	for i, c := range d.calls {
		c.ID = cmp.Or(c.ID, fmt.Sprintf("call_%d", i+1))
		input, cut := object(string(d.arguments[i]))
		a.Message.Parts = append(a.Message.Parts, Part{Kind: Call, ID: c.ID, Tool: c.Function.Name, Input: input, Cut: cut})
	}
	switch {
	case d.stop == "length":
		a.Stop = Cut
	case d.stop == "content_filter", len(d.refusal) > 0:
		a.Stop = Refused
	case len(d.calls) > 0:
		a.Stop = Called
	}
	return a, d.ended || d.stop != ""
}
