package modeltest

import (
	"encoding/json"
	"net/http"
	"strings"
)

// gemini is Gemini's generateContent, whose path says the model and whether it is a stream.
type gemini struct{}

const geminiStream = ":streamGenerateContent"

type geminiPart struct {
	Text    string          `json:"text"`
	Thought bool            `json:"thought"`
	Call    json.RawMessage `json:"functionCall"`
	Result  json.RawMessage `json:"functionResponse"`
}

func (gemini) read(r *http.Request, body []byte) (*asked, error) {
	a := &asked{stream: strings.HasSuffix(r.URL.Path, geminiStream)}
	a.list = a.stream && r.URL.Query().Get("alt") != "sse"
	if _, name, ok := strings.Cut(r.URL.Path, "/models/"); ok {
		a.model, _, _ = strings.Cut(name, ":")
	}
	var doc struct {
		Contents []struct {
			Role  string       `json:"role"`
			Parts []geminiPart `json:"parts"`
		} `json:"contents"`
		Tools []struct {
			Functions []struct {
				Name   string `json:"name"`
				Schema schema `json:"parametersJsonSchema"`
				Older  schema `json:"parameters"` // types are written in capitals
			} `json:"functionDeclarations"`
		} `json:"tools"`
		Config struct {
			Form *property `json:"responseJsonSchema"`
		} `json:"generationConfig"`
	}
	if err := decode(body, &doc); err != nil {
		return nil, err
	}
	a.form = doc.Config.Form
	for _, c := range doc.Contents {
		for _, p := range c.Parts {
			a.items = append(a.items, p.item(c.Role))
		}
	}
	for _, t := range doc.Tools {
		for _, f := range t.Functions {
			if f.Schema.Properties == nil {
				f.Schema = f.Older
			}
			a.tools = append(a.tools, tool{name: f.Name, schema: f.Schema})
		}
	}
	return a, nil
}

func (p geminiPart) item(role string) item {
	switch {
	case p.Result != nil:
		return item{result, string(p.Result)}
	case role == "model":
		return item{model, p.Text + string(p.Call)}
	case role == "user" || role == "": // which is who speaks where nobody is named
		return item{user, p.Text}
	}
	return item{system, p.Text}
}

// chunk is a piece of an answer; the last one has a reason and what was used.
func (gemini) chunk(a *asked, said *answer, parts []any, last bool) map[string]any {
	candidate := map[string]any{"index": 0, "content": map[string]any{"role": "model", "parts": parts}}
	c := map[string]any{"candidates": []any{candidate}, "modelVersion": a.model, "responseId": said.place.name("", 0)}
	if last {
		u := said.usage
		input := u.Input + u.CacheRead + u.CacheWrite // what was cached counts as input
		candidate["finishReason"] = "STOP"
		c["usageMetadata"] = map[string]any{"promptTokenCount": input, "cachedContentTokenCount": u.CacheRead,
			"candidatesTokenCount": u.Output, "totalTokenCount": input + u.Output}
	}
	return c
}

func (gemini) thought(text string) any { return map[string]any{"text": text, "thought": true} }

func (gemini) words(text string) any { return map[string]any{"text": text} }

func (gemini) calls(said *answer) []any {
	all := []any{}
	for i, c := range said.calls {
		all = append(all, map[string]any{"functionCall": map[string]any{"id": said.place.name("call_", i),
			"name": c.tool.name, "args": c.input},
			"thoughtSignature": "c2NyaXB0ZWQ="})
	}
	return all
}

func (g gemini) whole(a *asked, said *answer) any {
	parts := []any{}
	if said.thinking != "" {
		parts = append(parts, g.thought(said.thinking))
	}
	if said.text != "" {
		parts = append(parts, g.words(said.text))
	}
	return g.chunk(a, said, append(parts, g.calls(said)...), true)
}

func (g gemini) events(a *asked, said *answer) []event {
	var all []event
	for _, piece := range pieces(said.thinking) {
		all = append(all, event{data: g.chunk(a, said, []any{g.thought(piece)}, false)})
	}
	for _, piece := range pieces(said.text) {
		all = append(all, event{data: g.chunk(a, said, []any{g.words(piece)}, false), text: true})
	}
	for _, call := range g.calls(said) {
		all = append(all, event{data: g.chunk(a, said, []any{call}, false)})
	}
	return append(all, event{data: g.chunk(a, said, []any{g.words("")}, true)})
}

func (gemini) failure(status int, message string) any {
	kind := map[int]string{401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED",
		503: "UNAVAILABLE"}[status]
	switch {
	case kind != "":
	case status < 500:
		kind = "INVALID_ARGUMENT"
	default:
		kind = "INTERNAL"
	}
	return map[string]any{"error": map[string]any{"code": status, "message": message, "status": kind}}
}

func (g gemini) broken(status int, message string) event {
	return event{data: g.failure(status, message)}
}
