package model

import (
	"encoding/json"

	"github.com/cove-sandbox/cove/message"
)

type responsesRequest struct {
	Model        string          `json:"model"`
	Instructions string          `json:"instructions,omitempty"`
	Input        []any           `json:"input"` // responsesItem, or the API's own form
	Tools        []responsesTool `json:"tools,omitempty"`
	Stream       bool            `json:"stream"`
	Store        bool            `json:"store"`             // the worker stores the conversation itself
	Include      []string        `json:"include,omitempty"` // to get reasoning in a repeatable form
	MaxTokens    int             `json:"max_output_tokens,omitempty"`
}

type responsesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      bool            `json:"strict"`
}

type responsesItem struct {
	Type      string             `json:"type"`
	Role      Role               `json:"role,omitempty"`
	Content   []responsesContent `json:"content,omitempty"`
	CallID    string             `json:"call_id,omitempty"`
	Name      string             `json:"name,omitempty"`
	Arguments string             `json:"arguments,omitempty"`
	Output    *string            `json:"output,omitempty"`
	Summary   []responsesContent `json:"summary,omitempty"`
}

type responsesContent struct {
	Type    string `json:"type"`
	Text    string `json:"text,omitempty"`
	Refusal string `json:"refusal,omitempty"`
}

// encodeResponses writes for OpenAI's Responses, https://platform.openai.com/docs/api-reference/responses-streaming.
func encodeResponses(r Request) any {
	out := responsesRequest{Model: r.Model, Instructions: r.System, Stream: true, MaxTokens: r.MaxOutput,
		Include: []string{"reasoning.encrypted_content"}, Input: []any{}}
	for _, t := range r.Tools {
		out.Tools = append(out.Tools, responsesTool{Type: "function", Name: t.Name, Description: t.Description,
			Parameters: t.Input})
	}
	for _, m := range r.Messages {
		for _, p := range m.Parts {
			switch p.Kind {
			case Text:
				if p.Text == "" {
					continue
				}
				kind := "input_text"
				if m.Role == Assistant {
					kind = "output_text"
				}
				out.Input = append(out.Input, responsesItem{Type: "message", Role: m.Role,
					Content: []responsesContent{{Type: kind, Text: p.Text}}})
			case Call:
				out.Input = append(out.Input, responsesItem{Type: "function_call", CallID: p.ID, Name: p.Tool,
					Arguments: string(p.Input)})
			case Result:
				text := p.Text // the API has no field for a failure
				if p.Failed {
					text = "Error: " + text
				}
				out.Input = append(out.Input, responsesItem{Type: "function_call_output", CallID: p.ID, Output: &text})
			case Reasoning:
				if p.Dialect == Responses && p.Opaque != nil {
					out.Input = append(out.Input, p.Opaque)
				}
			}
		}
	}
	return out
}

type responsesDecoder struct {
	said   func(string)
	items  []json.RawMessage
	end    responsesEnd
	ended  bool
	reason string
}

type responsesEnd struct {
	Model  string            `json:"model"`
	Output []json.RawMessage `json:"output"`
	Usage  struct {
		Input   int64 `json:"input_tokens"`
		Output  int64 `json:"output_tokens"`
		Details struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"input_tokens_details"`
	} `json:"usage"`
	Error      *fault `json:"error"`
	Incomplete struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
}

func (d *responsesDecoder) event(data []byte) error {
	var e struct {
		Type     string          `json:"type"`
		Item     json.RawMessage `json:"item"`
		Delta    json.RawMessage `json:"delta"` // of a text: a string
		Response responsesEnd    `json:"response"`
		Error    *fault          `json:"error"`
		fault
	}
	if string(data) == "[DONE]" { // sent by some compatible endpoints
		return nil
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return err
	}
	switch e.Type {
	case "response.output_text.delta":
		var text string
		if err := json.Unmarshal(e.Delta, &text); err != nil {
			return err
		}
		d.said(text)
	case "response.output_item.done":
		var item responsesItem
		if err := json.Unmarshal(e.Item, &item); err != nil {
			return err
		}
		if len(d.items) == maxParts {
			return errParts
		}
		d.items = append(d.items, e.Item)
	case "response.completed", "response.incomplete":
		for _, raw := range e.Response.Output {
			var item responsesItem
			if err := json.Unmarshal(raw, &item); err != nil {
				return err
			}
		}
		d.end, d.ended, d.reason = e.Response, true, e.Response.Incomplete.Reason
	case "response.failed":
		return failure(e.Response.Error)
	case "error":
		if e.Error != nil {
			return failure(e.Error)
		}
		return failure(&e.fault)
	}
	return nil
}

func (d *responsesDecoder) answer() (Answer, bool) {
	u := d.end.Usage
	a := Answer{Model: d.end.Model, Message: Message{Role: Assistant}, Stop: Done,
		Usage: message.AgentUsage{InputTokens: max(0, u.Input-u.Details.Cached), OutputTokens: u.Output,
			CacheReadTokens: u.Details.Cached}}
	items := d.items
	if len(items) == 0 {
		items = d.end.Output
	}
	for _, raw := range items {
		var item responsesItem
		if json.Unmarshal(raw, &item) != nil {
			continue // it was read before
		}
		switch item.Type {
		case "message":
			for _, c := range item.Content {
				if c.Refusal != "" {
					a.Stop = Refused
				}
				if text := c.Text + c.Refusal; text != "" {
					a.Message.Parts = append(a.Message.Parts, Part{Kind: Text, Text: text})
				}
			}
		case "function_call":
			input, cut := object(item.Arguments)
			a.Message.Parts = append(a.Message.Parts, Part{Kind: Call, ID: item.CallID, Tool: item.Name, Input: input, Cut: cut})
			if a.Stop == Done {
				a.Stop = Called
			}
		case "reasoning":
			p := Part{Kind: Reasoning, Opaque: raw, Dialect: Responses}
			for _, c := range item.Summary {
				if p.Text != "" {
					p.Text += "\n"
				}
				p.Text += c.Text
			}
			a.Message.Parts = append(a.Message.Parts, p)
		}
	}
	switch d.reason {
	case "max_output_tokens":
		a.Stop = Cut
	case "content_filter":
		a.Stop = Refused
	}
	return a, d.ended
}
