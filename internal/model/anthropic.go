package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cove-sandbox/cove/message"
)

// defaultOutput is the default limit of an answer, in tokens: the API requires one.
const defaultOutput = 8192

type anthropicRequest struct {
	Model     string             `json:"model"`
	MaxTokens int                `json:"max_tokens"`
	Stream    bool               `json:"stream"`
	System    []anthropicPart    `json:"system,omitempty"`
	Messages  []anthropicMessage `json:"messages"`
	Tools     []Tool             `json:"tools,omitempty"`
}

type anthropicMessage struct {
	Role    Role  `json:"role"`
	Content []any `json:"content"` // anthropicPart, or the API's own form
}

type anthropicPart struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   string          `json:"content,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
	Thinking  string          `json:"thinking,omitempty"`
	Signature string          `json:"signature,omitempty"`
	Data      string          `json:"data,omitempty"`
	Cache     any             `json:"cache_control,omitempty"`
}

// encodeAnthropic writes for Anthropic's Messages API, https://docs.anthropic.com/en/api/messages-streaming.
func encodeAnthropic(r Request) any {
	out := anthropicRequest{Model: r.Model, MaxTokens: cmp.Or(r.MaxOutput, defaultOutput), Stream: true, Tools: r.Tools}
	// Unchanged prefixes are read from the cache: tools and system to the first mark, the conversation to the second.
	cache := map[string]string{"type": "ephemeral"}
	if r.System != "" {
		out.System = []anthropicPart{{Type: "text", Text: r.System, Cache: cache}}
	}
	for i, m := range r.Messages {
		to := anthropicMessage{Role: m.Role, Content: []any{}}
		for j, p := range m.Parts {
			var part anthropicPart
			switch p.Kind {
			case Text:
				if strings.TrimSpace(p.Text) == "" {
					continue // the API refuses it
				}
				part = anthropicPart{Type: "text", Text: p.Text}
			case Call:
				part = anthropicPart{Type: "tool_use", ID: p.ID, Name: p.Tool, Input: p.Input}
			case Result:
				part = anthropicPart{Type: "tool_result", ToolUseID: p.ID, Content: p.Text, IsError: p.Failed}
			case Reasoning:
				if p.Dialect == Anthropic && p.Opaque != nil {
					to.Content = append(to.Content, p.Opaque)
				}
				continue
			}
			if m.Role == User && i == len(r.Messages)-1 && j == len(m.Parts)-1 {
				part.Cache = cache
			}
			to.Content = append(to.Content, part)
		}
		if len(to.Content) == 0 { // which it refuses too
			to.Content = []any{anthropicPart{Type: "text", Text: "(nothing)"}}
		}
		out.Messages = append(out.Messages, to)
	}
	return out
}

type anthropicDecoder struct {
	said  func(string)
	parts map[int]*anthropicBlock
	order []int
	model string
	usage anthropicUsage
	stop  string
	ended bool
}

func newAnthropicDecoder(said func(string)) decoder {
	return &anthropicDecoder{said: said, parts: map[int]*anthropicBlock{}}
}

type anthropicBlock struct {
	anthropicPart
	text, input, thinking, signature []byte
}

type anthropicUsage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}

// over applies a later count, which is a total.
func (u *anthropicUsage) over(v *anthropicUsage) {
	if v == nil {
		return
	}
	u.Input, u.Output = max(u.Input, v.Input), max(u.Output, v.Output)
	u.CacheRead, u.CacheWrite = max(u.CacheRead, v.CacheRead), max(u.CacheWrite, v.CacheWrite)
}

func (d *anthropicDecoder) event(data []byte) error {
	var e struct {
		Type    string `json:"type"`
		Index   int    `json:"index"`
		Message struct {
			Model string          `json:"model"`
			Usage *anthropicUsage `json:"usage"`
		} `json:"message"`
		Block anthropicPart `json:"content_block"`
		Delta struct {
			Text      string `json:"text"`
			Partial   string `json:"partial_json"`
			Thinking  string `json:"thinking"`
			Signature string `json:"signature"`
			Stop      string `json:"stop_reason"`
		} `json:"delta"`
		Usage *anthropicUsage `json:"usage"`
		Error *fault          `json:"error"`
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return err
	}
	switch e.Type {
	case "message_start":
		d.model = e.Message.Model
		d.usage.over(e.Message.Usage)
	case "content_block_start":
		if d.parts[e.Index] != nil {
			return fmt.Errorf("the block %d begins twice", e.Index)
		}
		if len(d.order) == maxParts {
			return errParts
		}
		b := &anthropicBlock{anthropicPart: e.Block, text: []byte(e.Block.Text), thinking: []byte(e.Block.Thinking),
			signature: []byte(e.Block.Signature)}
		d.parts[e.Index] = b
		d.order = append(d.order, e.Index)
		d.say(e.Block.Text)
	case "content_block_delta":
		b := d.parts[e.Index]
		if b == nil {
			return fmt.Errorf("the block %d goes on and has not begun", e.Index)
		}
		b.text = append(b.text, e.Delta.Text...)
		b.input = append(b.input, e.Delta.Partial...)
		b.thinking = append(b.thinking, e.Delta.Thinking...)
		b.signature = append(b.signature, e.Delta.Signature...)
		d.say(e.Delta.Text)
	case "message_delta":
		d.stop = e.Delta.Stop
		d.usage.over(e.Usage)
	case "message_stop":
		d.ended = true
	case "error":
		return failure(e.Error)
	}
	return nil
}

func (d *anthropicDecoder) say(text string) {
	if text != "" {
		d.said(text)
	}
}

func (d *anthropicDecoder) answer() (Answer, bool) {
	a := Answer{Model: d.model, Message: Message{Role: Assistant}, Stop: Done, Usage: message.AgentUsage{
		InputTokens: d.usage.Input, OutputTokens: d.usage.Output, CacheReadTokens: d.usage.CacheRead,
		CacheWriteTokens: d.usage.CacheWrite,
	}}
	for _, i := range d.order {
		b := d.parts[i]
		switch b.Type {
		case "text":
			a.Message.Parts = append(a.Message.Parts, Part{Kind: Text, Text: string(b.text)})
		case "tool_use":
			raw := string(b.input)
			if raw == "" && len(b.Input) > 0 {
				raw = string(b.Input)
			}
			input, cut := object(raw)
			a.Message.Parts = append(a.Message.Parts, Part{Kind: Call, ID: b.ID, Tool: b.Name, Input: input, Cut: cut})
		case "thinking", "redacted_thinking":
			back := map[string]string{"type": b.Type, "data": b.Data}
			if b.Type == "thinking" {
				back = map[string]string{"type": b.Type, "thinking": string(b.thinking), "signature": string(b.signature)}
			}
			opaque, _ := json.Marshal(back) // strings only
			a.Message.Parts = append(a.Message.Parts, Part{Kind: Reasoning, Text: string(b.thinking), Opaque: opaque,
				Dialect: Anthropic})
		}
	}
	switch d.stop {
	case "tool_use":
		a.Stop = Called
	case "max_tokens", "model_context_window_exceeded":
		a.Stop = Cut
	case "refusal":
		a.Stop = Refused
	}
	return a, d.ended
}
