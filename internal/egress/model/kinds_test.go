package model

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// framesOf encodes payloads as messages of AWS's event streams, each with a header.
func framesOf(payloads ...string) string {
	var all []byte
	for _, p := range payloads {
		const header = "\x0b:event-type\x07\x00\x05chunk"
		m := binary.BigEndian.AppendUint32(nil, uint32(prelude+len(header)+len(p)+checksum))
		m = binary.BigEndian.AppendUint32(m, uint32(len(header)))
		m = binary.BigEndian.AppendUint32(m, crc32.ChecksumIEEE(m))
		m = append(append(m, header...), p...)
		all = append(all, binary.BigEndian.AppendUint32(m, crc32.ChecksumIEEE(m))...)
	}
	return string(all)
}

func chunk(text string) string {
	return `{"bytes":"` + base64.StdEncoding.EncodeToString([]byte(text)) + `","p":"abcdefghijklmnop"}`
}

const geminiUsage = `"usageMetadata":{"promptTokenCount":1200,"cachedContentTokenCount":1000,` +
	`"candidatesTokenCount":7,"thoughtsTokenCount":30,"toolUsePromptTokenCount":5,"totalTokenCount":1242},` +
	`"modelVersion":"gemini-x"`

// TestClouds: the usage of Gemini's, Bedrock's and Vertex AI's answers is counted, whatever the size of the pieces.
func TestClouds(t *testing.T) {
	gemini := Usage{Requests: 1, Input: 205, Output: 37, CacheRead: 1000}
	metrics := `"amazon-bedrock-invocationMetrics":{"inputTokenCount":40,"outputTokenCount":8,"invocationLatency":9}`
	for _, a := range []struct {
		name     string
		endpoint Endpoint
		header   http.Header
		body     string
		model    string
		want     Usage
	}{
		{"gemini", Generate, typed("application/json; charset=UTF-8"),
			`{"candidates":[{"content":{"parts":[{"text":"\"usageMetadata\":{}"}]}}],` + geminiUsage + `}`, "gemini-x", gemini},
		{"gemini, events", StreamGenerate, typed(stream), "data: {\"candidates\":[],\"usageMetadata\":{" +
			"\"promptTokenCount\":1200,\"cachedContentTokenCount\":1000}}\r\n\r\ndata: {" + geminiUsage +
			"}\r\n\r\n", "gemini-x", gemini},
		{"gemini, a list", StreamGenerate, typed("application/json"), "[{\"candidates\":[{\"a\":\"},{[\"}]}\n,\r\n{" +
			geminiUsage + "}\n]", "gemini-x", gemini},
		{"gemini, a list without usage", StreamGenerate, typed("application/json"), `[{"a":1},{"a":[2]}]`, "",
			Usage{Requests: 1, Input: 100, Output: 2, Estimated: 1}},
		{"gemini, embeddings", EmbedContent, typed("application/json"),
			`{"embedding":{"values":[` + strings.Repeat("0.1,", 999) + `0]}}`, "", Usage{Requests: 1, Input: 100, Estimated: 1}},
		{"converse", Converse, typed("application/json"), `{"metrics":{"latencyMs":1},"output":{"message":{"content":[]}},` +
			`"usage":{"cacheReadInputTokens":9,"cacheWriteInputTokens":4,"inputTokens":30,"outputTokens":6,"totalTokens":49}}`,
			"", Usage{Requests: 1, Input: 30, Output: 6, CacheRead: 9, CacheWrite: 4}},
		{"converse, streaming", ConverseStream, typed(frameStream), framesOf(`{"role":"assistant"}`,
			`{"delta":{"text":"\"usage\":{\"outputTokens\":99}"}}`, `{"usage":{"inputTokens":30,"outputTokens":6}}`), "",
			Usage{Requests: 1, Input: 30, Output: 6}},
		{"invoke, of Anthropic", InvokeStream, typed(frameStream), framesOf(
			chunk(`{"type":"message_start","message":{"model":"claude-x","usage":{"input_tokens":25,`+
				`"cache_read_input_tokens":5,"output_tokens":1}}}`), `{"long":"`+strings.Repeat("x", maxFrame)+`"}`,
			chunk(`{"type":"message_delta","usage":{"output_tokens":15}}`), chunk(`{"type":"message_stop",`+metrics+`}`)),
			"claude-x", Usage{Requests: 1, Input: 25, Output: 15, CacheRead: 5}},
		{"invoke, of others", InvokeStream, typed(frameStream), framesOf(chunk(`{"generation":"hi"}`),
			chunk(`{"generation":"",`+metrics+`}`)), "", Usage{Requests: 1, Input: 40, Output: 8}},
		{"invoke, of others, whole", Invoke, http.Header{"Content-Type": {"application/json"},
			"X-Amzn-Bedrock-Input-Token-Count": {"12"}, "X-Amzn-Bedrock-Output-Token-Count": {"3"}}, `{"generation":"hi"}`, "",
			Usage{Requests: 1, Input: 12, Output: 3}},
		{"no event stream", InvokeStream, typed(frameStream),
			strings.Repeat("<html>", 100) + framesOf(chunk(`{`+metrics+`}`)), "", Usage{Requests: 1, Input: 100, Estimated: 1}},
		{"broken off", InvokeStream, typed(frameStream), framesOf(chunk(`{"generation":"hi"}`)) + "\x00\x00", "",
			Usage{Requests: 1, Input: 100, Output: 1, Estimated: 1}},
	} {
		for _, size := range []int{1, 7, len(a.body)} {
			m := NewMeter(a.endpoint, a.header)
			for piece := range slices.Chunk([]byte(a.body), size) {
				m.Write(piece)
			}
			if got := m.Usage(400); got != a.want || m.Model() != a.model {
				t.Errorf("%s, %d at a time: %q %+v, want %q %+v", a.name, size, m.Model(), got, a.model, a.want)
			}
		}
	}
}

// FuzzFrames: no event stream does harm or takes memory, and the split into pieces does not matter.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(framesOf(chunk(`{"usage":{"input_tokens":1}}`), `{"usage":{"outputTokens":1}}`, "")), 3)
	f.Add([]byte(framesOf(`{"bytes":"???"}`)+"\xff\xff\xff\xff\xff\xff\xff\xff"), 1)
	f.Fuzz(func(t *testing.T, body []byte, size int) {
		whole, parts := NewMeter(InvokeStream, typed(frameStream)), NewMeter(InvokeStream, typed(frameStream))
		whole.Write(body)
		for piece := range slices.Chunk(body, max(1, size)) {
			parts.Write(piece)
		}
		if whole.Usage(10) != parts.Usage(10) || whole.Model() != parts.Model() {
			t.Errorf("%+v and %+v", whole.Usage(10), parts.Usage(10))
		}
		if kept := cap(whole.frame.data); kept > 2*maxFrame {
			t.Errorf("keeps %d bytes", kept)
		}
	})
}

const clouds = `providers:
  - {name: bedrock, kind: bedrock, region: eu-west-1}
  - {name: vertex, kind: vertex, region: europe-west1, project: p-1}
  - {name: global, kind: vertex, region: global, project: p-1}
  - {name: mine, kind: gemini, base_url: 'https://gemini.example.com/api'}
`

// TestServes: what a path at the gateway's address asks of a provider, and what of it is requested there.
func TestServes(t *testing.T) {
	all, err := Parse("p.yaml", []byte(clouds))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		provider, path, want, model string
		credential                  string
	}{
		{"anthropic", "v1/messages", "https://api.anthropic.com/v1/messages", "", "anthropic"},
		{"anthropic", "v1/chat/completions", "", "", ""},
		{"openai", "v1/completions", "", "", ""},
		{"gemini", "v1beta/models/gemini-x:streamGenerateContent",
			"https://generativelanguage.googleapis.com/v1beta/models/gemini-x:streamGenerateContent", "gemini-x", "gemini"},
		{"gemini", "v1/models/gemini-x:generateContent",
			"https://generativelanguage.googleapis.com/v1/models/gemini-x:generateContent", "gemini-x", "gemini"},
		{"mine", "v1beta/models/gemini-x:countTokens", "https://gemini.example.com/api/v1beta/models/gemini-x:countTokens",
			"gemini-x", ""},
		{"gemini", "v2/models/gemini-x:generateContent", "", "", ""},
		{"gemini", "v1beta/models/a/b:generateContent", "", "", ""},
		{"gemini", "v1beta/models/:generateContent", "", "", ""},
		{"gemini", "v1beta/models/gemini-x:predictLongRunning", "", "", ""},
		{"gemini", "v1beta/cachedContents", "", "", ""},
		{"bedrock", "model/eu.anthropic.claude-x%3A0/invoke-with-response-stream",
			"https://bedrock-runtime.eu-west-1.amazonaws.com/model/eu.anthropic.claude-x%3A0/invoke-with-response-stream",
			"eu.anthropic.claude-x:0", "bedrock"},
		{"bedrock", "model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ainference-profile%2Fx/converse",
			"https://bedrock-runtime.eu-west-1.amazonaws.com/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3A" +
				"inference-profile%2Fx/converse", "arn:aws:bedrock:eu-west-1:1:inference-profile/x", "bedrock"},
		{"bedrock", "async-invoke", "", "", ""},
		{"bedrock", "model/a/invoke-with-bidirectional-stream", "", "", ""},
		{"vertex", "v1/projects/another/locations/us-east5/publishers/anthropic/models/claude-x@1:streamRawPredict",
			"https://europe-west1-aiplatform.googleapis.com/v1/projects/p-1/locations/europe-west1/publishers/" +
				"anthropic/models/claude-x@1:streamRawPredict", "claude-x@1", "vertex"},
		{"global", "v1beta1/publishers/google/models/gemini-x:generateContent",
			"https://aiplatform.googleapis.com/v1beta1/projects/p-1/locations/global/publishers/google/models/" +
				"gemini-x:generateContent", "gemini-x", "vertex"},
		{"vertex", "v1/projects/p-1/locations/r/publishers/google/models/x:predict", "", "", ""},
		{"vertex", "v1/projects/p-1/locations/r/endpoints/1:rawPredict", "", "", ""},
	} {
		chosen, err := Choose(all, c.provider)
		if err != nil {
			t.Fatal(err)
		}
		p := chosen[0]
		at, ok := p.Serves(c.path, http.MethodPost)
		if ok != (c.want != "") {
			t.Errorf("%s %s: %v", c.provider, c.path, ok)
		}
		if !ok {
			continue
		}
		if got := p.URL(at).String(); got != c.want || at.Model != c.model || p.Credential != c.credential {
			t.Errorf("%s %s: %s %q, with %q", c.provider, c.path, got, at.Model, p.Credential)
		}
		if !slices.Contains(Served(c.path), at.Endpoint) {
			t.Errorf("%s: %v", c.path, Served(c.path))
		}
		u := p.URL(at)
		host, port := p.Host()
		r := policy.Request{Layer: policy.LayerHTTP, Host: host, Port: port, Method: "POST", Path: u.EscapedPath()}
		compiled, err := p.Policy(policy.Machine{})
		if err != nil {
			t.Fatal(err)
		}
		if v := compiled.Decide(r); v.Action != policy.Allow {
			t.Errorf("%s: %+v", u, v)
		}
		if found, ok := p.Find(r); !ok || found.Endpoint != at.Endpoint || found.Model != at.Model {
			t.Errorf("%s is found as %+v", u, found)
		}
		r.Path = strings.Replace(r.Path, "models/", "tunedModels/", 1)
		if r.Path = strings.Replace(r.Path, "model/", "guardrail/", 1); c.model != "" &&
			compiled.Decide(r).Action == policy.Allow {
			t.Errorf("%s is allowed", r.Path)
		}
	}
	if _, ok := all[1].Serves("v1/messages", http.MethodPost); ok || len(Served("v1/messages")) != 1 ||
		len(Served("v1/models")) != 2 || len(Served("v1/files")) != 0 {
		t.Errorf("%v %v", Served("v1/messages"), Served("v1/models"))
	}
}

// TestPlacesOfProviders: a description that lacks something, or has too much, is refused with what to write.
func TestPlacesOfProviders(t *testing.T) {
	for text, want := range map[string]string{
		"kind: bedrock":                                               "region is missing",
		"kind: bedrock, region: 'us east'":                            "is no region",
		"kind: bedrock, region: us-east-1, project: p":                "has no project",
		"kind: vertex, region: us-east5":                              "project is missing",
		"kind: vertex, region: us-east5, project: 'a/b'":              "is no project",
		"kind: openai, base_url: 'https://a.example', region: x":      "has no region",
		"kind: azure, base_url: 'https://a.example'":                  "kind is anthropic, openai, gemini, bedrock, vertex",
		"kind: gemini, endpoints: [messages]":                         "there is no endpoint \"messages\" of the kind gemini",
		"kind: gemini, base_url: 'https://a.example/v1beta'":          "ends with the version v1beta",
		"kind: openai, base_url: 'http://a.example', credential: a":   "plain text",
		"kind: openai, base_url: 'http://8.8.8.8/v1', credential: a":  "plain text",
		"kind: openai, base_url: 'http://10.0.0.5/v1', credential: a": "",
		"kind: openai, base_url: 'http://[fd00::5]:1', credential: a": "",
		"kind: openai, base_url: 'http://localhost:1', credential: a": "",
	} {
		_, err := Parse("p.yaml", []byte("providers: [{name: a, "+text+"}]"))
		if want == "" && err != nil || want != "" && (cove.ErrorCode(err) != cove.InvalidArgument ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	all, err := Parse("p.yaml", []byte("providers: [{name: anthropic, kind: bedrock, region: us-east-1}]"))
	if err != nil || all[0].Base.Host != "bedrock-runtime.us-east-1.amazonaws.com" || all[0].Credential != "bedrock" ||
		all[0].Known || len(all[0].Headers) > 0 {
		t.Errorf("of another kind than the built-in one: %+v, %v", all[0], err)
	}
}
