package modeltest

import (
	"encoding/json"
	"net/http"
)

// chat is OpenAI's chat completions.
type chat struct{}

// openAITool is one in a request of either of OpenAI's APIs.
type openAITool struct {
	Type       string       `json:"type"`
	Name       string       `json:"name"`
	Parameters schema       `json:"parameters"`
	Tools      []openAITool `json:"tools"` // of a namespace
}

// textOf is content's words: a text, or parts that have texts.
func textOf(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &parts) == nil {
		for _, p := range parts {
			text += p.Text
		}
	}
	return text
}

func (chat) read(_ *http.Request, body []byte) (*asked, error) {
	var doc struct {
		Model   string `json:"model"`
		Stream  bool   `json:"stream"`
		User    string `json:"user"`
		Options struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
			Calls   json.RawMessage `json:"tool_calls"`
		} `json:"messages"`
		Tools []struct {
			Function openAITool `json:"function"`
		} `json:"tools"`
	}
	if err := decode(body, &doc); err != nil {
		return nil, err
	}
	a := &asked{model: doc.Model, stream: doc.Stream, usage: doc.Options.Usage, session: doc.User}
	for _, m := range doc.Messages {
		by := map[string]author{"user": user, "assistant": model, "tool": result, "function": result, "system": system,
			"developer": system}
		i := item{system, textOf(m.Content)}
		if of, ok := by[m.Role]; ok {
			i.by = of
		}
		i.text += string(m.Calls)
		a.items = append(a.items, i)
	}
	for _, t := range doc.Tools {
		a.tools = append(a.tools, tool{name: t.Function.Name, schema: t.Function.Parameters})
	}
	return a, nil
}

func (chat) usage(u Usage) map[string]any {
	input := u.Input + u.CacheRead + u.CacheWrite // OpenAI counts what was cached as input
	return map[string]any{"prompt_tokens": input, "completion_tokens": u.Output, "total_tokens": input + u.Output,
		"prompt_tokens_details": map[string]any{"cached_tokens": u.CacheRead}}
}

func (chat) finish(said *answer) string {
	if len(said.calls) > 0 {
		return "tool_calls"
	}
	return "stop"
}

func (chat) calls(said *answer) []map[string]any {
	var all []map[string]any
	for i, c := range said.calls {
		all = append(all, map[string]any{"index": i, "id": said.place.name("call_", i), "type": "function",
			"function": map[string]any{"name": c.tool.name, "arguments": c.arguments()}})
	}
	return all
}

func (c chat) whole(a *asked, said *answer) any {
	message := map[string]any{"role": "assistant", "content": said.text, "refusal": nil}
	if said.thinking != "" {
		message["reasoning_content"] = said.thinking
	}
	if calls := c.calls(said); calls != nil {
		message["tool_calls"] = calls
	}
	return map[string]any{"id": said.place.name("chatcmpl-", 0), "object": "chat.completion", "created": 1767225600,
		"model": a.model, "usage": c.usage(said.usage),
		"choices": []any{map[string]any{"index": 0, "message": message, "logprobs": nil, "finish_reason": c.finish(said)}}}
}

func (c chat) events(a *asked, said *answer) []event {
	var all []event
	chunk := func(choices []any, usage any, text bool) {
		data := map[string]any{"id": said.place.name("chatcmpl-", 0), "object": "chat.completion.chunk",
			"created": 1767225600, "model": a.model, "choices": choices}
		if a.usage {
			data["usage"] = usage
		}
		all = append(all, event{data: data, text: text})
	}
	delta := func(delta map[string]any, finish any, text bool) {
		chunk([]any{map[string]any{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish}}, nil, text)
	}
	delta(map[string]any{"role": "assistant", "content": ""}, nil, false)
	for _, piece := range pieces(said.thinking) {
		delta(map[string]any{"reasoning_content": piece}, nil, false)
	}
	for _, piece := range pieces(said.text) {
		delta(map[string]any{"content": piece}, nil, true)
	}
	for i, call := range c.calls(said) {
		function := call["function"].(map[string]any)
		arguments := function["arguments"].(string)
		function["arguments"] = ""
		delta(map[string]any{"tool_calls": []any{call}}, nil, false)
		for _, piece := range pieces(arguments) {
			delta(map[string]any{"tool_calls": []any{map[string]any{"index": i,
				"function": map[string]any{"arguments": piece}}}}, nil, false)
		}
	}
	delta(map[string]any{}, c.finish(said), false)
	if a.usage {
		chunk([]any{}, c.usage(said.usage), false)
	}
	return append(all, event{data: "[DONE]"})
}

func (chat) failure(status int, message string) any {
	kind, code := "invalid_request_error", any(nil)
	switch {
	case status == 401:
		code = "invalid_api_key"
	case status == 429:
		kind, code = "requests", "rate_limit_exceeded"
	case status >= 500:
		kind, code = "server_error", "server_error"
	}
	return map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil, "code": code}}
}

func (c chat) broken(status int, message string) event {
	return event{data: c.failure(status, message)}
}
