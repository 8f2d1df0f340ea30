package modeltest

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// messages is Anthropic's Messages.
type messages struct{}

type anthropicBlock struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	Content json.RawMessage `json:"content"` // of a tool_result
	ID      string          `json:"id"`
	Name    string          `json:"name"`
}

// blocksOf reads content, which is a text or a list of blocks.
func blocksOf(content json.RawMessage) ([]anthropicBlock, error) {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []anthropicBlock{{Type: "text", Text: text}}, nil
	}
	var all []anthropicBlock
	if err := json.Unmarshal(content, &all); err != nil {
		return nil, fmt.Errorf("content is neither a text nor blocks: %w", err)
	}
	return all, nil
}

func (messages) read(_ *http.Request, body []byte) (*asked, error) {
	var doc struct {
		Model    string `json:"model"`
		Stream   bool   `json:"stream"`
		Metadata struct {
			User string `json:"user_id"`
		} `json:"metadata"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Name   string `json:"name"`
			Schema schema `json:"input_schema"`
		} `json:"tools"`
	}
	if err := decode(body, &doc); err != nil {
		return nil, err
	}
	a := &asked{model: doc.Model, stream: doc.Stream, session: doc.Metadata.User}
	for _, m := range doc.Messages {
		blocks, err := blocksOf(m.Content)
		if err != nil {
			return nil, err
		}
		for _, b := range blocks {
			a.items = append(a.items, b.item(m.Role))
		}
	}
	for _, t := range doc.Tools {
		a.tools = append(a.tools, tool{name: t.Name, schema: t.Schema})
	}
	return a, nil
}

func (b anthropicBlock) item(role string) item {
	switch {
	case b.Type == "tool_result":
		return item{result, string(b.Content)}
	case role == "assistant":
		return item{model, b.Type + b.ID + b.Text}
	case role == "user" && b.Type == "text":
		return item{user, b.Text}
	}
	return item{system, b.Text}
}

// content is an answer's blocks.
func (messages) content(said *answer) []map[string]any {
	all := []map[string]any{}
	if said.thinking != "" {
		all = append(all, map[string]any{"type": "thinking", "thinking": said.thinking, "signature": said.place.name("", -1)})
	}
	if said.text != "" {
		all = append(all, map[string]any{"type": "text", "text": said.text})
	}
	for i, c := range said.calls {
		all = append(all, map[string]any{"type": "tool_use", "id": said.place.name("toolu_", i), "name": c.tool.name,
			"input": c.input})
	}
	return all
}

func (m messages) message(a *asked, said *answer) map[string]any {
	return map[string]any{"id": said.place.name("msg_", 0), "type": "message", "role": "assistant", "model": a.model,
		"content":     []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": m.usage(said, 1)}
}

func (messages) usage(said *answer, output int64) map[string]any {
	return map[string]any{"input_tokens": said.usage.Input, "output_tokens": output,
		"cache_read_input_tokens": said.usage.CacheRead, "cache_creation_input_tokens": said.usage.CacheWrite}
}

func (messages) stop(said *answer) string {
	if len(said.calls) > 0 {
		return "tool_use"
	}
	return "end_turn"
}

func (m messages) whole(a *asked, said *answer) any {
	whole := m.message(a, said)
	whole["content"], whole["stop_reason"], whole["usage"] = m.content(said), m.stop(said),
		m.usage(said, said.usage.Output)
	return whole
}

func (m messages) events(a *asked, said *answer) []event {
	all := []event{{name: "message_start", data: map[string]any{"type": "message_start", "message": m.message(a, said)}},
		{name: "ping", data: map[string]any{"type": "ping"}}}
	for i, block := range m.content(said) {
		add := func(kind, field string, value any, text bool) {
			all = append(all, event{name: kind, data: map[string]any{"type": kind, "index": i, field: value}, text: text})
		}
		delta := func(kind, field, text string) {
			for _, piece := range pieces(text) {
				add("content_block_delta", "delta", map[string]any{"type": kind, field: piece}, kind == "text_delta")
			}
		}
		switch block["type"] {
		case "thinking":
			add("content_block_start", "content_block", map[string]any{"type": "thinking", "thinking": "",
				"signature": ""}, false)
			delta("thinking_delta", "thinking", said.thinking)
			add("content_block_delta", "delta", map[string]any{"type": "signature_delta",
				"signature": block["signature"]}, false)
		case "text":
			add("content_block_start", "content_block", map[string]any{"type": "text", "text": ""}, false)
			delta("text_delta", "text", said.text)
		default:
			add("content_block_start", "content_block", map[string]any{"type": "tool_use", "id": block["id"],
				"name": block["name"], "input": map[string]any{}}, false)
			delta("input_json_delta", "partial_json", string(block["input"].(json.RawMessage)))
		}
		all = append(all, event{name: "content_block_stop", data: map[string]any{"type": "content_block_stop", "index": i}})
	}
	return append(all,
		event{name: "message_delta", data: map[string]any{"type": "message_delta",
			"delta": map[string]any{"stop_reason": m.stop(said), "stop_sequence": nil},
			"usage": m.usage(said, said.usage.Output)}},
		event{name: "message_stop", data: map[string]any{"type": "message_stop"}})
}

func (messages) failure(status int, message string) any {
	kind := map[int]string{401: "authentication_error", 403: "permission_error", 404: "not_found_error",
		413: "request_too_large",
		429: "rate_limit_error", 529: "overloaded_error"}[status]
	switch {
	case kind != "":
	case status < 500:
		kind = "invalid_request_error"
	default:
		kind = "api_error"
	}
	return map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": message}}
}

func (m messages) broken(status int, message string) event {
	return event{name: "error", data: m.failure(status, message)}
}
