package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

const stream = "text/event-stream; charset=utf-8"

// answers are providers' answers, shortened, with their usage.
var answers = []struct {
	name, kind, body string
	model            string
	want             Usage
}{
	{"messages", "application/json",
		`{"id":"msg_1","type":"message","model":"claude-x","content":[{"type":"text","text":"a \"usage\": ` +
			`{\"input_tokens\": ` +
			`999}"}],"usage":{"input_tokens":12,"cache_creation_input_tokens":100,"cache_read_input_tokens":2000,` +
			`"output_tokens":7,"server_tool_use":{"web_search_requests":1},"service_tier":"standard"}}`,
		"claude-x", Usage{Requests: 1, Input: 12, Output: 7, CacheRead: 2000, CacheWrite: 100}},
	{"messages, streaming", stream,
		"event: message_start\ndata: " +
			"{\"type\":\"message_start\",\"message\":{\"model\":\"claude-x\",\"usage\":{\"input_tokens\":25," +
			"\"cache_read_input_tokens\":5,\"output_tokens\":1}}}\n\n" +
			": ping\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"data: " +
			"{\\\"usage\\\":{\\\"output_tokens\\\":9999}}\"}}\n\n" +
			"event: message_delta\ndata: " +
			"{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":15}}\n\nevent: " +
			"message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
		"claude-x", Usage{Requests: 1, Input: 25, Output: 15, CacheRead: 5}},
	{"chat", "application/json",
		`{"model":"gpt-x","choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":30,"completion_tokens":10,` +
			`"total_tokens":40,"prompt_tokens_details":{"cached_tokens":20,"audio_tokens":0},` +
			`"completion_tokens_details":{"reasoning_tokens":3}}}`,
		"gpt-x", Usage{Requests: 1, Input: 10, Output: 10, CacheRead: 20}},
	{"chat, streaming", stream,
		"data: {\"model\":\"gpt-x\",\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"usage\":null}\r\n\r\ndata: " +
			"{\"model\":\"gpt-x\",\"choices\":[],\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":2}}\r\n\r\ndata: " +
			"[DONE]\r\n\r\n",
		"gpt-x", Usage{Requests: 1, Input: 8, Output: 2}},
	{"chat, streaming without usage", stream,
		"data: {\"model\":\"gpt-x\",\"choices\":[{}]}\n\ndata: {\"choices\":[{}]}\n\ndata: [DONE]\n\n",
		"gpt-x", Usage{Requests: 1, Input: 100, Output: 3, Estimated: 1}},
	{"responses", "application/json",
		`{"object":"response","model":"gpt-x","output":[],"usage":{"input_tokens":30,` +
			`"input_tokens_details":{"cached_tokens":10},"output_tokens":9,"output_tokens_details":{"reasoning_tokens":1},` +
			`"total_tokens":39}}`,
		"gpt-x", Usage{Requests: 1, Input: 20, Output: 9, CacheRead: 10}},
	{"responses, streaming", stream,
		"event: response.created\ndata: " +
			"{\"type\":\"response.created\",\"response\":{\"model\":\"gpt-x\",\"usage\":null}}\n\nevent: " +
			"response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"output\":[" +
			strings.Repeat(`"long",`, 20000) + "1],\"usage\":{\"input_tokens\":37,\"output_tokens\":11}}}\n\n",
		"gpt-x", Usage{Requests: 1, Input: 37, Output: 11}},
	{"embeddings", "application/json",
		`{"object":"list","data":[{"embedding":[` + strings.Repeat("0.123,", 30000) +
			`1e-3]}],"model":"embed-x","usage":{"prompt_tokens":8,"total_tokens":8}}`,
		"embed-x", Usage{Requests: 1, Input: 8}},
	{"a cost of its own", "application/json",
		`{"model":"a/b","usage":{"prompt_tokens":1,"completion_tokens":2,"cost":0.25}}`,
		"a/b", Usage{Requests: 1, Input: 1, Output: 2, Cost: 0.25}},
	{"other types", "application/json",
		`{"model":7,"usage":{"prompt_tokens":"many","completion_tokens":2.0,"prompt_tokens_details":[],"cost":null,` +
			`"input_tokens":-5}}`,
		"", Usage{Requests: 1, Output: 2}},
	{"an error in the stream", stream,
		"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n", "",
		Usage{Requests: 1, Input: 100, Output: 1, Estimated: 1}},
	{"a stream that breaks off", stream,
		"data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\ndata: " +
			"{}\n\ndata: {\"usa", "",
		Usage{Requests: 1, Input: 25, Output: 2, Estimated: 1}},
	{"nothing", "application/json", "", "", Usage{Requests: 1, Input: 100, Estimated: 1}},
	{"no JSON", "text/html", "<html>}}}]]:,\"usage\":{\"", "", Usage{Requests: 1, Input: 100, Output: 6, Estimated: 1}},
}

// TestMeter: usage is read from an answer, whatever its pieces.
func TestMeter(t *testing.T) {
	for _, a := range answers {
		for _, size := range []int{1, 7, 1 << 20} {
			m := NewMeter(Messages, typed(a.kind))
			for piece := range slices.Chunk([]byte(a.body), size) {
				m.Write(piece)
			}
			if got := m.Usage(400); got != a.want || m.Model() != a.model {
				t.Errorf("%s, %d at a time: %q %+v, want %q %+v", a.name, size, m.Model(), got, a.model, a.want)
			}
			if kept := cap(m.scan.value) + cap(m.scan.key); kept > 4*maxValue {
				t.Errorf("%s: keeps %d bytes", a.name, kept)
			}
		}
	}
}

// FuzzMeter: no answer does harm, and the split into pieces does not matter.
func FuzzMeter(f *testing.F) {
	for _, a := range answers {
		f.Add(a.kind == stream, []byte(a.body), 3)
	}
	f.Fuzz(func(t *testing.T, streaming bool, body []byte, size int) {
		kind := map[bool]string{true: stream, false: "application/json"}[streaming]
		whole, parts := NewMeter(Messages, typed(kind)), NewMeter(Messages, typed(kind))
		whole.Write(body)
		for piece := range slices.Chunk(body, max(1, size)) {
			parts.Write(piece)
		}
		if whole.Usage(10) != parts.Usage(10) || whole.Model() != parts.Model() {
			t.Errorf("%+v and %+v", whole.Usage(10), parts.Usage(10))
		}
		if u := whole.Usage(10); u.Input < 0 || u.Output < 0 || u.CacheRead < 0 || u.CacheWrite < 0 || u.Cost < 0 ||
			len(whole.Model()) > maxValue {
			t.Errorf("%+v", u)
		}
	})
}

// FuzzScan: scan and encoding/json agree on JSON.
func FuzzScan(f *testing.F) {
	for _, s := range []string{`{"model":"a","b":{"model":"c"}}`, `{"mod\u0065l":"a"}`,
		`{"MODEL":[1,2,{"x":"}"}] , "model":null}`, `[{"model":"a"}]`, `{"a":[[{"model":"x"}]],"model":"\"y\\"}`,
		`{"model":1e5}`, ` {"model" : { } } `} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var last []byte
		s := scan{places: []string{"model"}, found: func(_ string, v []byte) { last = slices.Clone(v) }}
		s.Write(data)
		var top map[string]json.RawMessage
		if json.Unmarshal(data, &top) != nil || len(data) > maxValue {
			return
		}
		if s.bad || !s.done && strings.TrimSpace(string(data)) != "null" {
			t.Fatalf("%q is JSON, and not taken for it", data)
		}
		var want json.RawMessage
		for k, v := range top {
			if strings.ToLower(k) == "model" {
				if want != nil {
					return // the last one is unknown
				}
				want = v
			}
		}
		if strings.TrimSpace(string(last)) != string(want) {
			t.Errorf("%q: found %q, want %q", data, last, want)
		}
	})
}

// TestQuestion: a refused model never leaves, at any place in the body.
func TestQuestion(t *testing.T) {
	refused := errors.New("refused")
	check := func(a Asked) error {
		if a.Malformed || (a.Model != "" || a.Whole) && a.Model != "good" || a.Background {
			return refused
		}
		return nil
	}
	padding := strings.Repeat("x", 100_000)
	for body, want := range map[string]error{
		`{"model":"good","messages":[{"content":"` + padding + `"}]}`: nil,
		`{"messages":"` + padding + `","model":"good"}` + "\n":        nil,
		`{"model":"good","background":false}`:                         nil,
		`{"model":"bad"}`:                                             refused,
		`{"messages":"` + padding + `","model":"bad"}`:                refused,
		`{"model":"good","x":"` + padding + `","model":"bad"}`:        refused,
		`{"model":"bad","x":"` + padding + `","model":"good"}`:        refused,
		`{"mod\u0065l":"bad","model":"good"}`:                         refused,
		`{"model":"good","Model":"bad"}`:                              refused,
		`{"messages":[]}`:                                             refused,
		`{"model":["good"]}`:                                          refused,
		`{"model":"` + padding + `"}`:                                 refused,
		`{"model":"good"`:                                             refused,
		`{"model":"good"}{"model":"bad"}`:                             refused,
		`{/* "model":"good" */}`:                                      refused,
		"\xef\xbb\xbf{\"model\":\"good\"}":                            refused,
		"{\x00\"\x00m\x00":                                            refused,
		`{"model":"good","background": true}`:                         refused,
	} {
		for _, size := range []int{1, 4096} {
			q := NewQuestion(io.NopCloser(&pieces{[]byte(body), size}), check)
			passed, err := io.ReadAll(q)
			if !errors.Is(err, want) || want == nil && string(passed) != body {
				t.Errorf("%.60q, %d at a time: %v, %d bytes", body, size, err, len(passed))
			}
			if want != nil && len(passed) == len(body) && json.Valid([]byte(body)) {
				t.Errorf("%.60q: passed whole", body)
			}
		}
	}
}

// pieces gives a text in pieces.
type pieces struct {
	rest []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(p.size, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}

func provider(t *testing.T, text string) *Provider {
	t.Helper()
	all, err := Parse("providers.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &all[0]
}

const local = "providers:\n  - {name: local, kind: openai, base_url: 'http://localhost:11434/v1'"

func TestParse(t *testing.T) {
	all, err := Known()
	if err != nil || len(all) != 4 {
		t.Fatalf("%v %v", all, err)
	}
	if _, err := Choose(all, "anthropic", "nobody"); cove.ErrorCode(err) != cove.NotFound ||
		!strings.Contains(err.Error(), "openrouter") {
		t.Error(err)
	}
	p := provider(t,
		"providers:\n  - name: anthropic\n    prices: [{input: 3, output: 15}]\n    models: [claude-*-small, 'x']\n")
	if p.Base.String() != "https://api.anthropic.com/v1" || p.Credential != "anthropic" ||
		p.Headers["Anthropic-Version"] == "" || !p.Has(Messages) || p.Has(Chat) {
		t.Errorf("%+v", p)
	}
	for model, want := range map[string]bool{"claude-9-small": true, "claude--small": true, "claude-small": false,
		"x": true, "xx": false, "": false} {
		if p.Allows(model) != want {
			t.Errorf("%q is allowed: %v", model, !want)
		}
	}
	if p := provider(t,
		"providers:\n  - {name: anthropic, base_url: 'https://models.example.com/a'}\n"); p.Credential != "" {
		t.Errorf("a credential goes to %s", p.Base)
	}
	if p := provider(t, local+"}\n"); p.Base.String() != "http://host.cove.internal:11434/v1" ||
		p.URL(Target{Endpoint: Chat}).String() != "http://host.cove.internal:11434/v1/chat/completions" {
		t.Error(p.Base)
	}
	for _, wrong := range []string{
		"providers: [{kind: openai, base_url: 'https://a.example'}]",
		"providers: [{name: A, kind: openai, base_url: 'https://a.example'}]",
		"providers: [{name: a, base_url: 'https://a.example'}]", "providers: [{name: a, kind: openai}]",
		"providers: [{name: a, kind: openai, base_url: 'ftp://a.example'}]",
		"providers: [{name: a, kind: openai, base_url: 'https://u:p@a.example'}]",
		"providers: [{name: a, kind: openai, base_url: 'https://a.example/?key=1'}]",
		"providers: [{name: a, kind: openai, base_url: 'https://a.example', endpoints: [files]}]",
		"providers: [{name: a, kind: openai, base_url: 'https://a.example', key: x}]",
		"providers: [{name: a, kind: openai, base_url: 'https://a.example', prices: [{input: -1}]}]",
		"providers: [{name: a, kind: openai, base_url: 'https://a.example', headers: {'a b': c}}]",
		"providers: [{name: a, kind: openai, base_url: 'http://a.example', credential: x}]", local +
			"}\n  - {name: local, kind: openai, base_url: 'https://b.example'}", "providers: []\n---\nproviders: []",
	} {
		if _, err := Parse("providers.yaml", []byte(wrong)); cove.ErrorCode(err) != cove.InvalidArgument ||
			!strings.Contains(err.Error(), "providers.yaml") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(known)
	f.Add([]byte(local + ", headers: {A: b}, prices: [{models: x*, input: 1}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := Parse("f", data)
		if err != nil && cove.ErrorCode(err) != cove.InvalidArgument {
			t.Error(err)
		}
		for _, p := range all {
			if p.Credential != "" && p.Base.Scheme != "https" {
				t.Errorf("%+v", p)
			}
			p.Policy(policy.Machine{})
		}
	})
}

// TestPolicy: only a provider's endpoints are reachable.
func TestPolicy(t *testing.T) {
	for text, cases := range map[string]map[string]bool{
		"": {"POST https://api.anthropic.com/v1/messages": true, "GET https://api.anthropic.com/v1/models": true,
			"GET https://api.anthropic.com/v1/messages": false,
			"POST https://api.anthropic.com/v1/files":   false, "POST https://api.anthropic.com/v1/messages/batches": false,
			"POST http://api.anthropic.com/v1/messages": false, "POST https://api.openai.com/v1/responses": false},
		local + "}": {"POST http://host.cove.internal:11434/v1/chat/completions": true,
			"POST http://host.cove.internal:11435/v1/chat/completions": false,
			"DELETE http://host.cove.internal:11434/v1/models":         false},
		"providers: [{name: a, kind: openai, base_url: 'http://10.1.2.3:8000/'}]": {
			"POST http://10.1.2.3:8000/embeddings": true, "POST http://10.1.2.4:8000/embeddings": false},
	} {
		p := provider(t, text)
		compiled, err := p.Policy(policy.Machine{})
		if err != nil {
			t.Fatal(err)
		}
		for request, want := range cases {
			method, address, _ := strings.Cut(request, " ")
			u, err := policy.ParseURL(address)
			if err != nil {
				t.Fatal(err)
			}
			r := policy.Request{Layer: policy.LayerHTTP, Host: u.Host, Port: u.Port, Method: method, Path: u.Path}
			if got := compiled.Decide(r).Action == policy.Allow; got != want {
				t.Errorf("%s: %+v", request, compiled.Decide(r))
			}
			if _, found := p.Find(r); found && !want && !strings.Contains(request, "batches") {
				t.Errorf("%s is found", request)
			}
		}
	}
	p := provider(t, "")
	h, _ := policy.ParseHost("api.anthropic.com")
	if at, ok := p.Find(policy.Request{Host: h, Port: 443, Method: "POST", Path: "/v1/messages"}); !ok ||
		at.Endpoint != Messages {
		t.Errorf("%v %v", at, ok)
	}
	if _, err := provider(t, "providers: [{name: a, kind: openai, base_url: 'http://169.254.169.254/'}]").Policy(
		policy.Machine{}); err == nil {
		t.Error("a provider at the cloud's metadata")
	}
}

func TestBudget(t *testing.T) {
	b, err := ParseBudget("requests=100, tokens=200000,cost=1.50")
	if err != nil || b != (cove.Budget{Requests: 100, Tokens: 200000, Cost: 1.5}) {
		t.Errorf("%+v %v", b, err)
	}
	if b := (cove.Budget{Tokens: 5}).Over(cove.Budget{Requests: 1, Tokens: 9}); b != (cove.Budget{
		Requests: 1, Tokens: 5,
	}) {
		t.Errorf("%+v", b)
	}
	for _, wrong := range []string{"", "100", "requests=0", "requests=-1", "requests=1,requests=2", "tokens=1e3",
		"cost=NaN", "cost=Inf", "cost=0", "money=1", "requests=1,"} {
		if _, err := ParseBudget(wrong); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func FuzzParseBudget(f *testing.F) {
	f.Add("requests=100,tokens=200000,cost=1.50")
	f.Fuzz(func(t *testing.T, s string) {
		if b, err := ParseBudget(s); err == nil && (b == cove.Budget{} || b.Requests < 0 || b.Tokens < 0 || !(b.Cost >= 0)) {
			t.Errorf("%q is %+v", s, b)
		}
	})
}

var priced = `providers: [{name: anthropic, prices: [{models: small, input: 1, output: 5, cache_read: 0.1, ` +
	`cache_write: 1.25}, {models: "*", input: 10, output: 50}]}]`

func TestLedger(t *testing.T) {
	p := provider(t, priced)
	l := NewLedger(cove.Budget{Requests: 3, Cost: 0.01})
	for range 2 {
		c, err := l.Begin(t.Context(), p, Messages, "", 100)
		if err != nil {
			t.Fatal(err)
		}
		c.End("small", Usage{Requests: 1, Input: 1000, Output: 100, CacheRead: 10000})
		c.End("small", Usage{Requests: 1, Input: 1000})
	}
	want := []ProviderUsage{{"anthropic", Usage{Requests: 2, Input: 2000, Output: 200, CacheRead: 20000, Cost: 0.005}}}
	if got := l.Used(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	c, err := l.Begin(t.Context(), p, Messages, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	c.End("another", Usage{Input: 1000}) // costs as much as the most expensive model
	var e *Exhausted
	if _, err := l.Begin(t.Context(), p, Messages, "", 100); !errors.As(err, &e) || e.What != "requests" {
		t.Error(err)
	}
	if got := l.Used()[0].Cost; fmt.Sprintf("%.3f", got) != "0.015" {
		t.Error(got)
	}
	l = NewLedger(cove.Budget{})
	for range 1000 { // no budget, no limit
		if _, err := l.Begin(t.Context(), p, Messages, "", 1<<20); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPrices: prices of the configuration come before those that come with Cove, which are for the provider's own
// address alone; long requests have their own. A model without a price costs what its provider says, or
// beneath a budget in dollars what the dearest costs, and is refused.
func TestPrices(t *testing.T) {
	sonnet, own := Usage{Input: 1e6, Output: 1e6}, Usage{Cost: 3}
	shipped := provider(t, "providers: [{name: anthropic, prices: [{models: claude-x*, input: 7}]}]")
	cost := func(p *Provider, model string, u Usage, limited bool, want float64) {
		t.Helper()
		if got := p.cost(model, u, limited); got != want {
			t.Errorf("%s of %s costs %v, not %v", model, p.Name, got, want)
		}
	}
	cost(shipped, "claude-x1", Usage{Input: 1e6, Cost: 3}, false, 7)
	cost(shipped, "claude-haiku-4-5-20251001", Usage{Input: 1e6, Output: 1e6, CacheRead: 1e6, CacheWrite: 1e6},
		false, 7.35)
	cost(shipped, "claude-haiku-4-5", own, true, 3)
	cost(shipped, "claude-sonnet-4-5", Usage{Input: 2e5}, false, 0.6)
	cost(shipped, "claude-sonnet-4-5", Usage{Input: 1e5, CacheRead: 1e5, CacheWrite: 1e5}, false, 0.6+0.06+0.75)
	cost(shipped, "claude-unheard-of", sonnet, false, 0)
	cost(shipped, "claude-unheard-of", own, true, 3)
	cost(shipped, "claude-unheard-of", sonnet, true, 90)
	b := cove.Budget{Cost: 1}
	for model, known := range map[string]bool{"": true, "claude-x": true, "claude-sonnet-4-5": true, "claude-y": false} {
		err := shipped.Judge(b, model)
		if (err == nil) != known || err != nil && !strings.Contains(err.Error(), "gateway.providers (name: anthropic") ||
			shipped.Judge(cove.Budget{Tokens: 1}, model) != nil {
			t.Errorf("%q: %v", model, err)
		}
	}
	for _, text := range []string{"{name: anthropic, base_url: 'https://models.example.com/v1'}",
		"{name: bedrock, kind: bedrock, region: eu-west-1, base_url: 'https://models.example.com', credential: bedrock}",
		"{name: house, kind: openai, base_url: 'http://localhost:11434/v1'}"} {
		if p := provider(t, "providers: ["+text+"]"); len(p.Prices) > 0 || p.Judge(b, "") == nil {
			t.Errorf("%s has the prices of another address", text)
		}
	}
	for _, text := range []string{
		"{name: team, kind: anthropic, base_url: 'https://api.anthropic.com/v1', credential: team}",
		"{name: cloud, kind: bedrock, region: eu-west-1}", "{name: cloud, kind: vertex, region: global, project: p}"} {
		if p := provider(t, "providers: ["+text+"]"); len(p.Prices) == 0 || p.Judge(b, "") != nil {
			t.Errorf("%s has no prices", text)
		}
	}
}

// TestExpected: for embeddings the size of the request is reserved, and for what is answered in words a usual answer as
// well, or what the largest request has used.
func TestExpected(t *testing.T) {
	largest := Usage{Input: 100, Output: 5000, CacheRead: 2000, Cost: 1}
	for _, c := range []struct {
		endpoint Endpoint
		size     int64
		largest  Usage
		want     Usage
	}{
		{Messages, 400, Usage{}, Usage{Input: 100, Output: usualAnswer}},
		{Messages, -1, Usage{}, Usage{Output: usualAnswer}},
		{Chat, 400, largest, Usage{Input: 2100, Output: 5000, Cost: 1}},
		{Embeddings, 400, Usage{}, Usage{Input: 100}},
		{Embeddings, 401, largest, Usage{Input: 101}},
		{EmbedContent, 400, largest, Usage{Input: 100}},
		{EmbedContents, 400, largest, Usage{Input: 100}},
		{Embeddings, -1, Usage{}, Usage{Output: usualAnswer}},
	} {
		if got := expected(c.endpoint, c.size, c.largest, 0); got != c.want {
			t.Errorf("%s of %d bytes: %+v, want %+v", c.endpoint, c.size, got, c.want)
		}
	}
	if got := expected(Embeddings, 400, largest, 0.75); got != (Usage{Input: 300}) {
		t.Errorf("text that has taken three tokens for four bytes: %+v", got)
	}
	p := provider(t, priced)
	call, err := NewLedger(cove.Budget{Tokens: 1000}).Begin(t.Context(), p, Embeddings, "", 4000)
	if err != nil || call.Aside() != (Usage{Input: 1000, Cost: 0.015}) {
		t.Errorf("%+v, %v", call, err)
	}
	m := NewMeter(Embeddings, nil)
	m.Write([]byte(`{"data": [{"embedding": [0.1, 0.2, 0.3, 0.4]}]}`))
	if got := m.Usage(400); got != (Usage{Requests: 1, Input: 100, Estimated: 1}) {
		t.Errorf("an answer that does not say what it used: %+v", got)
	}
}

// TestDenseEmbeddings: texts with many tokens for their bytes overrun a budget by one request at most, too, once one of
// them has shown how many.
func TestDenseEmbeddings(t *testing.T) {
	p := provider(t, "")
	const size, each, budget = 4000, 4000, 20_000
	l := NewLedger(cove.Budget{Tokens: budget})
	first, err := l.Begin(t.Context(), p, Embeddings, "", size)
	if err != nil {
		t.Fatal(err)
	}
	first.End("", Usage{Input: each})
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			if c, err := l.Begin(t.Context(), p, Embeddings, "", size); err == nil {
				time.Sleep(5 * time.Millisecond) // sleep: others ask meanwhile
				c.End("", Usage{Input: each})
			}
		})
	}
	all.Wait()
	if got := l.Used()[0].Input; got < budget || got >= budget+each {
		t.Errorf("%d tokens of %d were used", got, budget)
	}
}

// TestParallel: concurrent requests use no more than sequential ones would, except for the last.
func TestParallel(t *testing.T) {
	p := provider(t, "")
	const each, budget = 10_000, 55_000
	l := NewLedger(cove.Budget{Tokens: budget})
	var all sync.WaitGroup
	var mu sync.Mutex
	admitted, refused := 0, 0
	for range 50 {
		all.Go(func() {
			c, err := l.Begin(t.Context(), p, Messages, "", 4000)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				refused++
				return
			}
			admitted++
			go func() {
				time.Sleep(time.Millisecond) // sleep: an answer takes time
				c.End("m", Usage{Input: 1000, Output: each - 1000})
			}()
		})
	}
	all.Wait()
	// Before any size is known, as many start as would fit if each were usual.
	if most := budget/(1000+usualAnswer) + 1; admitted < budget/each || admitted > most || refused != 50-admitted {
		t.Errorf("%d admitted, at most %d; %d refused", admitted, most, refused)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l = NewLedger(cove.Budget{Tokens: 6000})
	c, err := l.Begin(ctx, p, Messages, "", 4000)
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan error)
	go func() { _, err := l.Begin(ctx, p, Messages, "", 4000); waits <- err }()
	cancel()
	if err := <-waits; cove.ErrorCode(err) != cove.Canceled {
		t.Error(err)
	}
	c.End("", Usage{})
}

func TestRefusal(t *testing.T) {
	r, ok := RefusalOf(fmt.Errorf("wrapped: %w", &Exhausted{"this sandbox", "tokens", "100", "120"}))
	if !ok || r.Status != http.StatusTooManyRequests || r.Header(OpenAI).Get("X-Should-Retry") != "false" ||
		r.Header(OpenAI).Get("Retry-After") != "" {
		t.Fatalf("%+v", r)
	}
	const message = `"message":"the budget of this sandbox is used up: 120 of 100 tokens"`
	for kind, want := range map[Kind]string{
		Anthropic: `{"type":"error","error":{"type":"rate_limit_error",` + message +
			`},"cove":{"budget":"tokens","error":"budget_exhausted","limit":"100","used":"120"}}`,
		OpenAI: `{"error":{"type":"insufficient_quota",` + message +
			`,"code":"insufficient_quota"},"cove":{"budget":"tokens","error":"budget_exhausted","limit":"100","used":"120"}}`,
		Gemini: `{"error":{` + message + `,"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":` +
			`"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"CoveBudgetPerDay","description":` +
			`"the budget of this sandbox is used up: 120 of 100 tokens"}]}]},"cove":{"budget":"tokens",` +
			`"error":"budget_exhausted","limit":"100","used":"120"}}`,
		Bedrock: `{"__type":"ServiceQuotaExceededException",` + message +
			`,"cove":{"budget":"tokens","error":"budget_exhausted","limit":"100","used":"120"}}`,
	} {
		if got := strings.TrimSpace(string(r.Body(kind))); got != want {
			t.Errorf("%s:\n%s, want\n%s", kind, got, want)
		}
	}
	if _, ok := RefusalOf(io.EOF); ok {
		t.Error("any error is a refusal")
	}
}

func typed(contentType string) http.Header { return http.Header{"Content-Type": {contentType}} }

// TestMessageOfYAML: several problems of a file are one line, in the words of the file.
func TestMessageOfYAML(t *testing.T) {
	_, err := Parse("providers.yaml", []byte("providers:\n  - nam: x\n    modles: [y]\n    models: z\n"))
	want := "providers.yaml: line 2: field nam not found here; line 3: field modles not found here; " +
		"line 4: cannot unmarshal !!str `z` into []string"
	if cove.ErrorMessage(err) != want {
		t.Errorf("%s\nwant %s", cove.ErrorMessage(err), want)
	}
}
