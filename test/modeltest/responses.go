package modeltest

import (
	"encoding/json"
	"net/http"
)

// responses is OpenAI's Responses.
type responses struct{ chat }

// openAIItem is one of a conversation.
type openAIItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	Output    json.RawMessage `json:"output"`
	ID        string          `json:"id"`
	Call      string          `json:"call_id"`
	Arguments string          `json:"arguments"`
	Input     string          `json:"input"`
	Tools     []openAITool    `json:"tools"` // of additional_tools
}

func (responses) read(_ *http.Request, body []byte) (*asked, error) {
	var doc struct {
		Model  string          `json:"model"`
		Stream bool            `json:"stream"`
		Key    string          `json:"prompt_cache_key"`
		Input  json.RawMessage `json:"input"`
		Tools  []openAITool    `json:"tools"`
	}
	if err := decode(body, &doc); err != nil {
		return nil, err
	}
	a := &asked{model: doc.Model, stream: doc.Stream, session: doc.Key, tools: offered(doc.Tools, "")}
	var text string
	if json.Unmarshal(doc.Input, &text) == nil {
		a.items = []item{{user, text}}
		return a, nil
	}
	var items []openAIItem
	if err := decode(doc.Input, &items); err != nil {
		return nil, err
	}
	for _, i := range items {
		a.items = append(a.items, i.item())
		a.tools = append(a.tools, offered(i.Tools, "")...)
	}
	return a, nil
}

// offered are tools with those of namespaces.
func offered(tools []openAITool, namespace string) []tool {
	var all []tool
	for _, t := range tools {
		switch t.Type {
		case "namespace":
			all = append(all, offered(t.Tools, t.Name)...)
		case "function", "custom":
			all = append(all, tool{name: t.Name, namespace: namespace, freeform: t.Type == "custom", schema: t.Parameters})
		}
	}
	return all
}

func (i openAIItem) item() item {
	switch i.Type {
	case "function_call", "custom_tool_call", "reasoning":
		return item{model, i.Call + i.Arguments + i.Input}
	case "function_call_output", "custom_tool_call_output":
		return item{result, i.Call + textOf(i.Output)}
	case "message", "":
		switch i.Role {
		case "user":
			return item{user, textOf(i.Content)}
		case "assistant":
			return item{model, textOf(i.Content)}
		}
	}
	return item{system, textOf(i.Content)}
}

// output is an answer's items.
func (responses) output(said *answer) []map[string]any {
	all := []map[string]any{}
	if said.thinking != "" {
		all = append(all, map[string]any{"type": "reasoning", "id": said.place.name("rs_", 0),
			"summary": []any{map[string]any{"type": "summary_text", "text": said.thinking}}})
	}
	if said.text != "" {
		all = append(all, map[string]any{"type": "message", "id": said.place.name("msg_", 0), "role": "assistant",
			"status":  "completed",
			"content": []any{map[string]any{"type": "output_text", "text": said.text, "annotations": []any{}}}})
	}
	for i, c := range said.calls {
		one := map[string]any{"type": "function_call", "id": said.place.name("fc_", i),
			"call_id": said.place.name("call_", i), "status": "completed",
			"name": c.tool.name, "arguments": c.arguments()}
		if c.tool.freeform {
			delete(one, "arguments")
			one["type"], one["id"], one["input"] = "custom_tool_call", said.place.name("ctc_", i), c.text
		}
		if c.tool.namespace != "" {
			one["namespace"] = c.tool.namespace
		}
		all = append(all, one)
	}
	return all
}

func (responses) response(a *asked, said *answer, status string) map[string]any {
	return map[string]any{"id": said.place.name("resp_", 0), "object": "response", "created_at": 1767225600,
		"status": status, "error": nil, "incomplete_details": nil,
		"instructions": nil, "metadata": map[string]any{}, "model": a.model, "output": []any{}, "parallel_tool_calls": true,
		"temperature": 1, "tool_choice": "auto",
		"tools": []any{}, "top_p": 1}
}

func (r responses) whole(a *asked, said *answer) any {
	whole := r.response(a, said, "completed")
	u := said.usage
	input := u.Input + u.CacheRead + u.CacheWrite
	whole["output"] = r.output(said)
	whole["usage"] = map[string]any{"input_tokens": input,
		"input_tokens_details": map[string]any{"cached_tokens": u.CacheRead},
		"output_tokens":        u.Output, "output_tokens_details": map[string]any{"reasoning_tokens": 0},
		"total_tokens": input + u.Output}
	return whole
}

func (r responses) events(a *asked, said *answer) []event {
	var all []event
	add := func(kind string, fields map[string]any, text bool) {
		fields["type"], fields["sequence_number"] = kind, len(all)
		all = append(all, event{name: kind, data: fields, text: text})
	}
	add("response.created", map[string]any{"response": r.response(a, said, "in_progress")}, false)
	add("response.in_progress", map[string]any{"response": r.response(a, said, "in_progress")}, false)
	for i, one := range r.output(said) {
		in := func(more map[string]any) map[string]any {
			more["item_id"], more["output_index"] = one["id"], i
			return more
		}
		begun := map[string]any{}
		for name, value := range one {
			begun[name] = value
		}
		part := map[string]any{"type": "output_text", "text": "", "annotations": []any{}}
		switch one["type"] {
		case "reasoning":
			begun["summary"] = []any{}
			add("response.output_item.added", map[string]any{"output_index": i, "item": begun}, false)
			summary := map[string]any{"type": "summary_text", "text": said.thinking}
			add("response.reasoning_summary_part.added",
				in(map[string]any{"summary_index": 0, "part": map[string]any{"type": "summary_text", "text": ""}}), false)
			for _, piece := range pieces(said.thinking) {
				add("response.reasoning_summary_text.delta", in(map[string]any{"summary_index": 0, "delta": piece}), false)
			}
			add("response.reasoning_summary_text.done", in(map[string]any{"summary_index": 0, "text": said.thinking}), false)
			add("response.reasoning_summary_part.done", in(map[string]any{"summary_index": 0, "part": summary}), false)
		case "message":
			begun["content"], begun["status"] = []any{}, "in_progress"
			add("response.output_item.added", map[string]any{"output_index": i, "item": begun}, false)
			add("response.content_part.added", in(map[string]any{"content_index": 0, "part": part}), false)
			for _, piece := range pieces(said.text) {
				add("response.output_text.delta", in(map[string]any{"content_index": 0, "delta": piece, "logprobs": []any{}}), true)
			}
			add("response.output_text.done",
				in(map[string]any{"content_index": 0, "text": said.text, "logprobs": []any{}}), false)
			add("response.content_part.done", in(map[string]any{"content_index": 0, "part": one["content"].([]any)[0]}), false)
		case "function_call", "custom_tool_call":
			field, kind := "arguments", "response.function_call_arguments"
			if one["type"] == "custom_tool_call" {
				field, kind = "input", "response.custom_tool_call_input"
			}
			begun[field], begun["status"] = "", "in_progress"
			add("response.output_item.added", map[string]any{"output_index": i, "item": begun}, false)
			for _, piece := range pieces(one[field].(string)) {
				add(kind+".delta", in(map[string]any{"delta": piece}), false)
			}
			add(kind+".done", in(map[string]any{field: one[field], "name": one["name"]}), false)
		}
		add("response.output_item.done", map[string]any{"output_index": i, "item": one}, false)
	}
	add("response.completed", map[string]any{"response": r.whole(a, said)}, false)
	return all
}

func (r responses) broken(status int, message string) event {
	kind := "server_error"
	if status == 429 {
		kind = "rate_limit_exceeded"
	}
	failed := map[string]any{"id": "resp_failed", "object": "response", "status": "failed", "output": []any{},
		"error": map[string]any{"code": kind, "message": message}}
	return event{name: "response.failed", data: map[string]any{"type": "response.failed", "response": failed}}
}
